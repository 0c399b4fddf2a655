"""Nodes that normalise: with the statistics of the batch, or with those that are kept."""

import numpy as np

from golden.arithmetic.float32_unit import constant
from golden.layers.batch_norm import (
    BatchStatistics,
    batch_statistics,
    normalize,
    normalize_backward,
    scale_and_shift,
    scale_backward,
    update_running,
)

__all__ = ["NORMS", "backward", "forward", "new_running", "parameters"]

#: Kinds of nodes; the statistics of the second are always those that are kept.
NORMS = ("batch_norm", "fixed_norm")


def parameters(node, state):
    """Weight and bias of a normalisation: 1 and 0 where it has none."""
    return [
        state.get(f"{node.name}.{key}", np.full(node.shape[0], constant(value)))
        for key, value in (("weight", 1.0), ("bias", 0.0))
    ]


def forward(fmt, node, x, state, *, training):
    """Codes, flags, the batch's statistics if it is normalised with them, and (inverse, a, b).

    ``state`` are all weights and running statistics by name. Without running statistics those of
    the batch count in evaluation, too.
    """
    own = node.kind == "batch_norm" and (training or not node.module.track_running_stats)
    statistics, flags = batch_statistics(fmt, x) if own else None, 0
    if own:
        mean, variance, flags = statistics.mean, statistics.variance, statistics.flags
    else:
        mean, variance = (state[f"{node.name}.running_{key}"] for key in ("mean", "var"))
    gamma, beta = parameters(node, state)
    factors, new = scale_and_shift(mean, variance, gamma, beta, epsilon=node.module.eps)
    codes, last = normalize(fmt, x, *factors[1:])
    return codes, flags | new | last, statistics, factors


def backward(fmt, node, dy, x, state, statistics: BatchStatistics | None, factors, rows=None):
    """Gradient of the input, gradients of trainable parameters by name, flags; ``rows`` as for
    :func:`~golden.layers.batch_norm.normalize_backward`."""
    inverse, a, _ = factors
    if statistics is None:
        mean = state[f"{node.name}.running_mean"]
        dx, scale, shift, flags = scale_backward(fmt, x, dy, mean=mean, inverse=inverse, a=a)
    else:
        result = normalize_backward(
            fmt, x, dy, mean=statistics.mean, inverse=inverse, a=a, rows=rows
        )
        dx, scale, shift, flags = result.input, result.scale, result.shift, result.flags
    new = {f"{node.name}.weight": scale, f"{node.name}.bias": shift}
    return dx, {name: bits for name, bits in new.items() if name in node.trainable}, flags


def new_running(node, running, statistics: BatchStatistics):
    """New running statistics by name, none if they are not kept, and flags."""
    keys = [f"{node.name}.running_{key}" for key in ("mean", "var")]
    if keys[0] not in running:
        return {}, 0
    new, flags = update_running(
        *(running[key] for key in keys), statistics, momentum=node.module.momentum
    )
    return dict(zip(keys, new, strict=True)), flags
