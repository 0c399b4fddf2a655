"""Steps of the head alone behind a batch, on what the batch brought to the head: the head echo."""

from dataclasses import dataclass

import numpy as np

from golden.layers.loss import LossResult

from .batch_loss import batch_loss

__all__ = ["EchoStep", "echo_step", "head_of"]


@dataclass(frozen=True, kw_only=True, eq=False)
class EchoStep:
    """What one step of the head computes.

    Members
    -------
    outputs : float32 bits (N, 1, 1, classes) of the head with the weights before the step
    loss : :class:`golden.layers.loss.LossResult`
    parameter_gradients : float32 bits by trainable parameter of the head, in torch's shapes
    skipped : tiles that the guard left as they were, by parameter
    """

    outputs: np.ndarray
    loss: LossResult
    parameter_gradients: dict[str, np.ndarray]
    skipped: dict[str, int]


def head_of(outputs):
    """The network's only output (nodes), a linear layer with a parameter that learns.

    Raises
    ------
    ValueError
        if it is not.
    """
    head = outputs[0]
    if len(outputs) > 1 or head.kind != "linear" or not head.trainable:
        names = ", ".join(f"{node.name} ({node.kind})" for node in outputs)
        raise ValueError(
            f"echo needs a network whose only output is a linear layer that learns, not {names}"
        )
    return head


def echo_step(training, done, targets, flags: dict[str, int]) -> EchoStep:
    """One step behind a forward pass ``done`` of a :class:`~golden.training.step.Training`: the
    head on the operand codes that it was given in the batch, loss, gradients of its weights and
    bias, update with the optimizer as it is. Adds to ``flags``."""
    head = head_of(training.outputs)
    x = done.outputs[head.inputs[0]]
    outputs, new = training.run_product(head, x)
    loss = batch_loss(training.format, training.losses[0], outputs, targets, head)
    gradients, more = training.parameter_gradients(head, loss.gradient, x)
    flags[head.name] = int(flags.get(head.name, 0) | np.bitwise_or.reduce(new, axis=None) | more)
    skipped = training.update_parameters(done, gradients, flags)
    return EchoStep(outputs=outputs, loss=loss, parameter_gradients=gradients, skipped=skipped)
