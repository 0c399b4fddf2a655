"""Value and gradient of the loss of a batch, from what a network's last layer stores."""

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.float32_unit import VectorUnit
from golden.arithmetic.formats import FLOAT32, FloatFormat
from golden.layers.label_loss import label_cross_entropy
from golden.layers.loss import LossResult, binary_cross_entropy, mean_squared_error

from .loss_function import LossFunction

__all__ = ["batch_loss", "total_loss"]

#: Losses whose targets are like the outputs.
_OF_MAPS = {
    "mean_squared_error": mean_squared_error,
    "binary_cross_entropy": binary_cross_entropy,
}


def batch_loss(fmt: FloatFormat, loss: LossFunction, wide, targets, node) -> LossResult:
    """Loss of a batch, and its gradient as operand codes (N, H, W, C).

    Parameters
    ----------
    loss : :class:`~golden.training.loss_function.LossFunction`
    wide : (N, H, W, C) float32 bits of the outputs
    targets : labels (N,) of vectors, (N, T) of sequences, (N, H, W) of maps; or real numbers (N, H,
        W, C), of vectors (N, features) in torch's order, of sequences (N, T, C)
    node : :class:`~golden.frontend.torch_graph.Node` of the output

    Raises
    ------
    ValueError
        for targets of another shape or type, and for cross-entropy of a flattened map.
    """
    if loss.kind in _OF_MAPS:
        maps = _target_maps(np.asarray(targets, np.float64), wide.shape, node)
        return _OF_MAPS[loss.kind](fmt, wide, encode(FLOAT32, maps))
    labels = np.asarray(targets)
    if labels.dtype.kind not in "iu":
        raise ValueError(f"Labels must be integers, not {labels.dtype}")
    if node.flat and wide.shape[1:3] != (1, 1):
        raise ValueError("Cross-entropy needs vectors, not a map that has been flattened")
    shape = wide.shape[: 1 if node.flat else 2 if node.sequence else 3]
    if labels.shape != shape:
        raise ValueError(f"Labels must have shape {shape}, not {labels.shape}")
    rows = wide.reshape(-1, wide.shape[3])
    result = label_cross_entropy(
        fmt, rows, labels.ravel(), smoothing=loss.smoothing, ignore=loss.ignore
    )
    return LossResult(
        value=result.value,
        gradient=result.gradient.reshape(wide.shape),
        flags=result.flags,
        probabilities=result.probabilities,
        correct=result.correct,
    )


def total_loss(losses: list[LossResult]) -> LossResult:
    """The loss of a network with several outputs: the float32 sum of theirs, in their order, and of
    their correct answers. Its gradient is theirs, so that it has none of its own."""
    if len(losses) == 1:
        return losses[0]
    unit, value, flags = VectorUnit(), losses[0].value, 0
    for loss in losses[1:]:
        value = unit.add(value, loss.value)
    for loss in losses:
        flags |= loss.flags
    return LossResult(
        value=np.uint32(value),
        gradient=None,
        flags=flags | unit.flags,
        correct=sum(loss.correct for loss in losses),
    )


def _target_maps(targets, shape, node):
    """Targets as maps of ``shape`` (N, H, W, C)."""
    images, height, width, channels = shape
    wanted = (images, channels * height * width) if node.flat else shape
    if node.sequence:
        wanted = images, height, channels
    if targets.shape != wanted:
        raise ValueError(f"Targets must have shape {wanted}, not {targets.shape}")
    if node.flat:
        targets = np.moveaxis(targets.reshape(images, channels, height, width), 1, 3)
    return targets.reshape(shape)
