"""Value and gradient of the loss of a batch, from what a network's last layer stores."""

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.formats import FLOAT32, FloatFormat
from golden.layers.label_loss import label_cross_entropy
from golden.layers.loss import LossResult, mean_squared_error

from .loss_function import LossFunction

__all__ = ["batch_loss"]


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
    if loss.kind == "mean_squared_error":
        maps = _target_maps(np.asarray(targets, np.float64), wide.shape, flat)
        return mean_squared_error(fmt, wide, encode(FLOAT32, maps))
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


def _target_maps(targets, shape, flat):
    """Targets as maps of ``shape`` (N, H, W, C)."""
    images, height, width, channels = shape
    wanted = (images, channels * height * width) if flat else shape
    if targets.shape != wanted:
        raise ValueError(f"Targets must have shape {wanted}, not {targets.shape}")
    if flat:
        targets = np.moveaxis(targets.reshape(images, channels, height, width), 1, 3)
    return targets
