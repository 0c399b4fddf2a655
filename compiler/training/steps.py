"""A training step as a list of steps from DRAM to DRAM: forward, loss, backward, update."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, cast

from compiler.codegen.core_builder import CoreProgram
from compiler.errors import CompileError
from compiler.frontend.torch_graph import Layer, backward_order, learning, outputs
from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_input_gradient import input_gradient
from compiler.kernels.convolution.conv_weight_gradient import weight_gradient
from compiler.kernels.convolution.depthwise import (
    depthwise,
    depthwise_input_gradient,
    depthwise_weight_gradient,
)
from compiler.kernels.convolution.part_statistics import statistics_shape
from compiler.kernels.maps.elementwise import sum_gradients
from compiler.kernels.normalization.batch_norm import batch_norm
from compiler.kernels.normalization.batch_norm_backward import batch_norm_backward
from compiler.kernels.normalization.scaling import (
    scale_channels,
    scale_channels_backward,
    scaling_factors,
)
from compiler.kernels.updates.binary_loss import binary_loss_commands
from compiler.kernels.updates.loss import LabelTensors, loss_commands
from compiler.tensors.parameters import StoredParameter, channel_pitch, stored_parameters
from compiler.tensors.tensor import Tensor
from hw.config import AdaGPConfig

from .group_steps import GroupSteps
from .loss_function import loss_function
from .named_tensors import NamedConvolution
from .optimizer import optimizer_of
from .program import OutputInfo

__all__ = ["COEFFICIENTS", "TrainingSteps"]

#: Kinds of layers that may compute the ReLU behind them, and mask its gradient.
_NORMS = ("batch_norm", "fixed_norm")
#: What batch normalisation keeps for its backward pass.
_SAVED = ("mean", "inverse", "a")
#: What the coefficient registers hold, by number; :attr:`TrainingSteps._rule` has the first three.
COEFFICIENTS = (
    "rate", "momentum", "decay", "predictor_rate", "predictor_momentum", "braking",
)  # fmt: skip


class TrainingSteps(GroupSteps):
    """The steps of a traced network, and the tensors between them.

    Parameters
    ----------
    layers : of :func:`compiler.frontend.torch_graph.trace`
    config : AdaGPConfig
    images : in a batch
    loss : what :func:`compiler.training.loss_function.loss_function` takes; a list has one for each
        output
    optimizer : what :func:`compiler.training.optimizer.optimizer_of` takes

    Members
    -------
    steps, tensors, slices : as in :class:`~compiler.training.graph.StepGraph`; a layer's stored map
        has its name, the gradient of that map is ``<layer>.gradient``
    outputs : list of :class:`~compiler.training.program.OutputInfo`
    inputs : names of the tensors that the network reads
    parameters : of :func:`compiler.tensors.parameters.stored_parameters`
    maps, gradients : layer -> name of the tensor that holds its map, the map's gradient; a batch
        normalisation with a ReLU behind it has none of the latter
    """

    def __init__(
        self, layers: Sequence[Layer], config: AdaGPConfig, *, images: int, loss: object,
        optimizer: object,
    ) -> None:  # fmt: skip
        super().__init__(layers, config, images=images)
        self.outputs = _with_losses(outputs(layers), loss)
        self.optimizer = optimizer_of(optimizer)
        self.parameters = self._stored_parameters(layers)
        for parameter in self.parameters.values():
            self.tensors |= {tensor.name: tensor for tensor in parameter.tensors.values()}
        self.gradients: dict[str, str] = {}
        self.inputs: list[str] = []
        self._backward_order = backward_order(layers)
        self._needs_gradient = frozenset(self._backward_order)
        self._build(layers)

    def _stored_parameters(self, layers: Sequence[Layer]) -> dict[str, StoredParameter]:
        return stored_parameters(layers, self.config, slots=self.optimizer.slots)

    def _build(self, layers: Sequence[Layer]) -> None:
        for layer in layers:
            self._forward(layer)
        self._add_loss()
        self._backward(layers)

    @property
    def targets(self) -> list[str]:
        """Names of what the host writes of a batch besides the images."""
        return [name for output in self.outputs for name in output.inputs]

    @property
    def kept(self) -> set[str]:
        """Names of the tensors that always exist: parameters, images, targets and results."""
        found = {*self.targets, *self.inputs}
        for output in self.outputs:
            found |= {output.value, *output.labels.values()}
        found |= set(self.constants)
        for parameter in self.parameters.values():
            found |= {
                tensor.name for role, tensor in parameter.tensors.items() if role != "gradient"
            }
        return found

    # Forward ---------------------------------------------------------------------------------

    def _forward(self, layer: Layer) -> None:
        sources = [self.maps[name] for name in layer.inputs]
        if layer.kind == "input":
            self.maps[layer.name] = self._map(layer)
            self.inputs.append(layer.name)
        elif layer.kind == "constant":
            self.maps[layer.name] = self._constant(layer.name, layer.options["values"])
        elif layer.name in self._fused:
            self.maps[layer.name] = self.maps[self._fused[layer.name]]
        else:
            getattr(self, f"_forward_{layer.kind}")(layer, sources)

    def _product(self, layer: Layer) -> NamedConvolution:
        """How a product is computed: the names of its tensors in place of them."""
        x = self.maps[layer.inputs[0]]
        options = {key: value for key, value in layer.options.items() if key != "kernel"}
        if layer.kind == "linear":
            options["stride"] = self.tensors[x].shape[1:3]
        weights = self.parameters[f"{layer.name}.weight"].tensors["operands"].name
        bias = self._role(f"{layer.name}.bias", "master")
        return NamedConvolution(
            name=layer.name, x=x, y=self.maps[layer.name], weights=weights, bias=bias, **options
        )

    def _forward_convolution(self, layer: Layer, sources: list[str]) -> None:
        output, relu = self._output(layer, **self._precision(layer))
        self.maps[layer.name] = output
        product = self._product(layer)
        reads = (product.x, product.weights, product.bias)
        statistics = None
        if any(self.layers[name].kind == "batch_norm" for name in self._readers[layer.name]):
            statistics = self._statistics(output, layer)
        self._add(layer.name, "forward", forward, product, reads=reads, writes=[output, statistics],
                  relu=relu, named={"statistics": statistics})  # fmt: skip

    def _statistics(self, name: str, layer: Layer) -> str:
        """The tensor for those of the parts of a map, which a batch normalisation reads."""
        shape = statistics_shape(self.tensors[name].shape)
        pitch = channel_pitch(layer.shape[0], self.config)
        return self._tensor(_statistics_name(name), shape, kind="float32", pitch=pitch)

    _forward_linear = _forward_embedding = _forward_convolution

    def _forward_depthwise(self, layer: Layer, sources: list[str]) -> None:
        self.maps[layer.name] = self._map(layer, **self._precision(layer))
        product = self._product(layer)
        reads = (product.x, product.weights, product.bias)
        self._add(layer.name, "forward", depthwise, product, reads=reads, writes=[product.y])

    def _forward_batch_norm(self, layer: Layer, sources: list[str]) -> None:
        output, relu = self._output(layer)
        self.maps[layer.name] = output
        pitch = channel_pitch(layer.shape[0], self.config)
        size, norm = (1, 1, 1, layer.shape[0]), cast(Any, layer.module)
        saved: list[str | None] = [None] * len(_SAVED)
        if layer.name in self._needs_gradient:
            saved = [self._tensor(f"{layer.name}.{name}", size, kind="float32", pitch=pitch)
                     for name in _SAVED]  # fmt: skip
        names = [f"{layer.name}.{n}" for n in ("weight", "bias", "running_mean", "running_var")]
        parameters = [self._role(name, "master") for name in names]
        statistics, written = _statistics_name(sources[0]), [output, *parameters[2:], *saved]
        known = statistics in self.tensors
        if not known:
            written.append(self._statistics(sources[0], layer))
        self._add(
            layer.name, "forward", batch_norm, sources[0], output, statistics, *parameters, *saved,
            reads=[sources[0], *parameters, statistics if known else None], writes=written,
            epsilon=norm.eps, momentum=norm.momentum, relu=relu, known=known,
        )  # fmt: skip

    def _forward_fixed_norm(self, layer: Layer, sources: list[str]) -> None:
        output, relu = self._output(layer)
        self.maps[layer.name] = output
        pitch = channel_pitch(layer.shape[0], self.config)
        size, norm = (1, 1, 1, layer.shape[0]), cast(Any, layer.module)
        factors = [self._tensor(f"{layer.name}.{name}", size, kind="float32", pitch=pitch)
                   for name in ("inverse", "a", "b")]  # fmt: skip
        names = [f"{layer.name}.{n}" for n in ("running_mean", "running_var", "weight", "bias")]
        parameters = [self._role(name, "master") for name in names]
        self._add(layer.name, "forward", scaling_factors, *parameters, *factors,
                  reads=parameters, writes=factors, epsilon=norm.eps)  # fmt: skip
        self._add(layer.name, "forward", scale_channels, sources[0], output, *factors[1:],
                  reads=[sources[0], *factors[1:]], writes=[output], relu=relu)  # fmt: skip

    # Loss and backward -----------------------------------------------------------------------

    def _add_loss(self) -> None:
        for output in self.outputs:
            layer, targets = self.layers[output.layer], output.targets
            if output.loss.kind == "cross_entropy":
                if layer.flat and layer.shape[1:] != (1, 1):
                    raise CompileError(
                        f"layer {layer.name}: cross-entropy needs an output that is a vector, not "
                        f"a map {layer.shape} that has been flattened"
                    )
                self._tensor(targets, (self.images, *layer.shape[1:], 1), kind="int32")
            else:
                binary = output.loss.kind == "binary_cross_entropy"
                pitch = channel_pitch(layer.shape[0], self.config) if binary else None
                self._map(layer, targets, kind="float32", pitch=pitch)
            self._add_label_tensors(layer, output.labels)
            self._add_value_tensor(output)
            gradient = self._map(layer, f"{layer.name}.gradient")
            self._add_loss_step(output, self.maps[layer.name], gradient)

    def _add_value_tensor(self, output: OutputInfo) -> None:
        pitch = channel_pitch(2, self.config) if "summary" in output.labels else None
        self._tensor(output.value, (1, 1, 1, 2), kind="float32", pitch=pitch)

    def _add_loss_step(self, output: OutputInfo, x: str, gradient: str) -> None:
        """Value and gradient of the loss of ``output``, whose outputs are in the tensor ``x``."""
        targets, value = output.targets, output.value
        if output.loss.kind == "binary_cross_entropy":
            self._add(value, "loss", binary_loss_commands, x, targets, gradient, value,
                      reads=[x, targets], writes=[gradient, value])  # fmt: skip
            return
        self._add(
            value, "loss", loss_commands, x, targets, gradient, value,
            reads=[x, *output.inputs], writes=[gradient, value, output.labels.get("products")],
            kind=output.loss.kind, named={"labels": partial(_labels, output.labels)},
        )  # fmt: skip

    def _add_label_tensors(self, layer: Layer, labels: Mapping[str, str]) -> None:
        """Those of :attr:`~compiler.training.program.OutputInfo.labels`."""
        for role, name in labels.items():
            if role == "summary":
                pitch = channel_pitch(2, self.config)
                self._tensor(name, (1, 1, 2, 2), kind="float32", pitch=pitch)
            else:
                pitch = channel_pitch(layer.shape[0], self.config)
                self._map(layer, name, kind="float32", pitch=pitch)

    def _backward(self, layers: Sequence[Layer]) -> None:
        order, depends = self._backward_order, learning(layers)
        arriving = {output.layer: [f"{output.layer}.gradient"] for output in self.outputs}
        givers: dict[str, list[str]] = {}
        for name in order:
            for source in self.layers[name].inputs:
                givers.setdefault(source, []).append(name)
        for name in order:
            layer = self.layers[name]
            parts = arriving.pop(name)
            if len(parts) > 1:
                total = self._map(layer, f"{name}.gradient")
                self._add(name, "backward", _sum_gradients, *parts, total, reads=parts,
                          writes=[total])  # fmt: skip
            else:
                total = parts[0]
            masked = name in self._fused.values() and layer.kind in _NORMS
            if not masked:
                self.gradients[name] = total
            goals = self._goals(layer, givers, depends)
            if self._masks(layer):
                goals = self._passed_on(layer, total, goals)
            else:
                write = getattr(self, f"_backward_{layer.kind}")
                goals = write(layer, total, goals) or goals
            for source, goal in zip(layer.inputs, goals, strict=True):
                if goal:
                    arriving.setdefault(source, []).append(goal)

    @staticmethod
    def _goals(
        layer: Layer, givers: Mapping[str, list[str]], depends: Collection[str]
    ) -> list[str | None]:
        """Names of what a layer adds to the gradients of its inputs; None where there is none."""
        goals: list[str | None] = []
        for source in layer.inputs:
            name = f"{source}.gradient"
            if len(givers[source]) > 1:
                name += f".{layer.name}"
            if name in goals:
                name += f".{len(goals)}"
            goals.append(name if source in depends else None)
        return goals

    def _masks(self, layer: Layer) -> bool:
        """Whether a ReLU's mask is applied by the layer that computed the ReLU."""
        source = self._fused.get(layer.name)
        return source is not None and self.layers[source].kind in _NORMS

    def _backward_convolution(
        self, layer: Layer, dy: str, goals: list[str | None],
        to_input: Callable[..., object] = input_gradient,
        to_weights: Callable[..., object] = weight_gradient,
    ) -> None:  # fmt: skip
        product, gradients = self._product(layer), self._gradients(layer)
        goal = self._gradient_map(layer, goals[0])
        if goal:
            self._add(layer.name, "input gradient", to_input, product, dy, goal,
                      reads=[dy, product.weights], writes=[goal])  # fmt: skip
        self._add_weight_gradient(layer, to_weights, product, dy, gradients)
        self._updates(layer)

    def _add_weight_gradient(
        self,
        layer: Layer,
        function: Callable[..., object],
        product: NamedConvolution,
        dy: str,
        gradients: list[str | None],
    ) -> None:
        if any(gradients):
            x = product.x if gradients[0] else None
            self._add(layer.name, "weight gradient", function, product, dy, *gradients,
                      reads=[x, dy], writes=gradients)  # fmt: skip

    _backward_linear = _backward_embedding = _backward_convolution

    def _backward_depthwise(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        self._backward_convolution(
            layer, dy, goals, depthwise_input_gradient, depthwise_weight_gradient
        )

    def _backward_batch_norm(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        x, saved = self.maps[layer.inputs[0]], [f"{layer.name}.{name}" for name in _SAVED]
        gradients = self._gradients(layer)
        # The mask of a ReLU that was computed here, too.
        y = self.maps[layer.name] if layer.name in self._fused.values() else None
        goal = self._gradient_map(layer, goals[0])
        self._add(
            layer.name, "backward", batch_norm_backward, x, dy, goal, *saved, *gradients,
            reads=[x, dy, y, *saved], writes=[goal, *gradients], named={"y": y},
        )  # fmt: skip
        self._updates(layer)

    def _backward_fixed_norm(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        x, gradients = self.maps[layer.inputs[0]], self._gradients(layer)
        mean = self._role(f"{layer.name}.running_mean", "master")
        inverse, a = (f"{layer.name}.{name}" for name in ("inverse", "a"))
        y = self.maps[layer.name] if layer.name in self._fused.values() else None
        if any(gradients):
            self._add(
                layer.name, "backward", batch_norm_backward, x, dy, None, mean, inverse, a,
                *gradients, reads=[x, dy, y, mean, inverse], writes=gradients, named={"y": y},
            )  # fmt: skip
        goal = self._gradient_map(layer, goals[0])
        if goal:
            self._add(layer.name, "backward", scale_channels_backward, dy, a, goal,
                      reads=[dy, a, y], writes=[goal], named={"y": y})  # fmt: skip
        self._updates(layer)


def _with_losses(layers: Sequence[Layer], loss: object) -> list[OutputInfo]:
    """The outputs of a network with their losses, all the same if there is one."""
    several = list(loss) if isinstance(loss, list | tuple) else [loss] * len(layers)
    losses = [loss_function(own) for own in several]
    if len(losses) != len(layers):
        names = ", ".join(layer.name for layer in layers)
        raise CompileError(
            f"loss: {len(losses)} losses for {len(layers)} outputs, {names}; there must be one for "
            "each"
        )
    found = []
    for number, (layer, own) in enumerate(zip(layers, losses, strict=True)):
        end = f".{number}" if number else ""
        found.append(
            OutputInfo(layer=layer.name, loss=own, targets=f"targets{end}", value=f"loss{end}")
        )
    return found


def _labels(names: Mapping[str, str], tensors: Mapping[str, Tensor]) -> LabelTensors:
    return LabelTensors(**{role: tensors[name] for role, name in names.items()})


def _sum_gradients(program: CoreProgram, *tensors: Tensor) -> None:
    sum_gradients(program, tensors[:-1], tensors[-1])


def _statistics_name(name: str) -> str:
    """Of the statistics of a map's parts."""
    return f"{name}.statistics"
