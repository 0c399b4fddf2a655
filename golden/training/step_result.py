"""What a training step computes, by names."""

from dataclasses import dataclass, field

import numpy as np

from golden.layers.batch_norm import BatchStatistics
from golden.layers.loss import LossResult

__all__ = ["EchoStep", "ForwardPass", "StepResult"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardPass:
    """What a forward pass leaves, by names of nodes.

    Members
    -------
    outputs : (N, H, W, C) operand codes; float32 bits for a last layer that is a product
    statistics : :class:`golden.layers.batch_norm.BatchStatistics` of batch normalisations in
        training
    factors : (inverse, a, b) of every batch normalisation
    saved : what else layers of sequences keep for their backward pass, by node
    samples : :class:`golden.layers.row_sampling.RowSample` of the backward pass, by layer
    flags : union of :class:`golden.arithmetic.dot_product.Flags` by node
    """

    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    statistics: dict[str, BatchStatistics] = field(default_factory=dict)
    factors: dict[str, tuple] = field(default_factory=dict)
    saved: dict = field(default_factory=dict)
    samples: dict = field(default_factory=dict)
    flags: dict[str, int] = field(default_factory=dict)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class StepResult:
    """What one step computes.

    Members
    -------
    forward : :class:`ForwardPass`
    loss : :class:`golden.layers.loss.LossResult`; of several outputs that of the sum
    losses : of every output, in the order in which the network returns them
    echoes : an :class:`EchoStep` for each step of the head alone
    gradients : (N, H, W, C) operand codes, gradients of the outputs of all nodes that depend on a
        trainable parameter
    parameter_gradients : float32 bits by trainable parameter, in torch's shapes
    skipped : tiles that the guard left as they were, by parameter
    flags : union of :class:`golden.arithmetic.dot_product.Flags`, backward by node and update by
        parameter
    """

    forward: ForwardPass
    loss: LossResult
    losses: list[LossResult]
    gradients: dict[str, np.ndarray]
    parameter_gradients: dict[str, np.ndarray]
    skipped: dict[str, int]
    flags: dict[str, int]
    echoes: list[EchoStep] = field(default_factory=list)
