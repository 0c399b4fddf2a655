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


def batch_loss(fmt: FloatFormat, loss: LossFunction, wide, targets, *, flat: bool) -> LossResult:
    """Loss of a batch, and its gradient as operand codes (N, H, W, C).

    Parameters
    ----------
    loss : :class:`~golden.training.loss_function.LossFunction`; cross-entropy is that of vectors
    wide : (N, H, W, C) float32 bits of the outputs
    targets : labels (N,); or real numbers (N, H, W, C), (N, features) if the network's output is
        ``flat``, in torch's order

    Raises
    ------
    ValueError
        for targets of another shape or type, and for cross-entropy of feature maps.
    """
    if loss.kind in _OF_MAPS:
        maps = _target_maps(np.asarray(targets, np.float64), wide.shape, flat)
        return _OF_MAPS[loss.kind](fmt, wide, encode(FLOAT32, maps))
    if np.asarray(targets).dtype.kind not in "iu":
        raise ValueError(f"Labels must be integers, not {np.asarray(targets).dtype}")
    if wide.shape[1:3] != (1, 1):
        raise ValueError("Cross-entropy needs vectors")
    result = label_cross_entropy(
        fmt, wide[:, 0, 0], targets, smoothing=loss.smoothing, ignore=loss.ignore
    )
    return LossResult(
        value=result.value,
        gradient=result.gradient[:, np.newaxis, np.newaxis],
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


def _target_maps(targets, shape, flat):
    """Targets as maps of ``shape`` (N, H, W, C)."""
    images, height, width, channels = shape
    wanted = (images, channels * height * width) if flat else shape
    if targets.shape != wanted:
        raise ValueError(f"Targets must have shape {wanted}, not {targets.shape}")
    if flat:
        targets = np.moveaxis(targets.reshape(images, channels, height, width), 1, 3)
    return targets
