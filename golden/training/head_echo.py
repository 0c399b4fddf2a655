"""Steps of the head alone behind a batch, on what the batch brought to the head: the head echo."""

import numpy as np

from golden.frontend.torch_graph import Node

from .batch_loss import batch_loss
from .step_result import EchoStep, ForwardPass

__all__ = ["echo_step", "head_of"]


def head_of(outputs: list[Node]) -> Node:
    """The network's only output, a linear layer with a parameter that learns.

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


def echo_step(training, done: ForwardPass, targets, flags: dict[str, int]) -> EchoStep:
    """One step of a :class:`~golden.training.step.Training`.

    The head's forward pass on the operand codes that it was given in the batch, loss, gradients of
    its weights and bias, update with the optimizer as it is. Adds to ``flags``.
    """
    head = head_of(training.outputs)
    x = done.outputs[head.inputs[0]]
    outputs, new = training.run_product(head, x)
    loss = batch_loss(training.format, training.losses[0], outputs, targets, head)
    gradients, more = training.parameter_gradients(head, loss.gradient, x)
    flags[head.name] = int(flags.get(head.name, 0) | np.bitwise_or.reduce(new, axis=None) | more)
    skipped = training.update_parameters(done, gradients, flags)
    return EchoStep(outputs=outputs, loss=loss, parameter_gradients=gradients, skipped=skipped)
