"""Steps of a batch behind which the head learns on alone, from the same features and targets."""

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

from compiler.errors import CompileError
from compiler.frontend.torch_graph import Layer
from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_weight_gradient import weight_gradient
from hw.config import AdaGPConfig

from .program import ECHO_LOSS, OutputInfo
from .steps import TrainingSteps

__all__ = ["EchoSteps"]


class EchoSteps(TrainingSteps):
    """The steps of a batch, and ``echo`` steps of the head behind them: forward with its new
    weights on the map that it was given, loss, gradients of its weights and bias, update.

    Outputs, their gradient and the loss of the last of these steps are tensors of their own, named
    as the batch's with ".echo" behind; the parameters' gradients take the place of the batch's.

    Parameters
    ----------
    layers, options : see :class:`~compiler.training.steps.TrainingSteps`
    echo : steps of the head, at least 1

    Raises
    ------
    CompileError
        for another ``echo``, or if the network's only output is no linear layer that learns.
    """

    echo: int

    def __init__(
        self, layers: Sequence[Layer], config: AdaGPConfig, *, echo: int, **options: Any
    ) -> None:
        if isinstance(echo, bool) or not isinstance(echo, Integral) or echo < 1:
            raise CompileError(f"echo must be an integer of at least 0, not {echo!r}")
        self.echo = int(echo)
        super().__init__(layers, config, **options)

    def _build(self, layers: Sequence[Layer]) -> None:
        super()._build(layers)
        head, output = self._head(), self._echoed
        logits = self._map(head, f"{head.name}.echo", **self._precision(head))
        product = replace(self._product(head), y=logits)
        gradient = self._map(head, f"{head.name}.echo.gradient")
        reads = product.x, product.weights, product.bias
        own = {role: name for role, name in output.labels.items() if name not in self.tensors}
        self._add_label_tensors(head, own)
        self._add_value_tensor(output)
        for _ in range(self.echo):
            self._add(head.name, "forward", forward, product, reads=reads, writes=[logits])
            self._add_loss_step(output, logits, gradient)
            self._add_weight_gradient(head, weight_gradient, product, gradient,
                                      self._gradients(head))  # fmt: skip
            self._updates(head)

    def _head(self) -> Layer:
        found = [self.layers[output.layer] for output in self.outputs]
        head = found[0]
        if len(found) > 1 or head.kind != "linear" or not head.trainable:
            names = ", ".join(f"{layer.name} ({layer.kind})" for layer in found)
            raise CompileError(
                f"echo needs a network whose only output is a linear layer that learns, not {names}"
            )
        return head

    @property
    def _echoed(self) -> OutputInfo:
        """The output, with a loss of its own."""
        return replace(self.outputs[0], value=ECHO_LOSS)

    @property
    def kept(self) -> set[str]:
        """Those of any batch, and the loss of the last step of the head."""
        return super().kept | {ECHO_LOSS, *self._echoed.labels.values()}
