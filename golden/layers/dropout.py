"""Dropout in training, bit for bit: the section "Dropout" of docs/training.md."""

import numpy as np

from golden.arithmetic.float32_unit import VectorUnit, constant, widen
from golden.arithmetic.formats import FloatFormat
from golden.arithmetic.sampling import SAMPLE_BITS, sample

__all__ = ["dropout", "dropout_mask", "thinned"]


def dropout_mask(shape, *, p: float, whole: bool, stream: int, seed: int) -> np.ndarray:
    """Which elements of a map (N, H, W, C) are kept.

    Parameters
    ----------
    p : probability of an element to be dropped
    whole : all pixels of a channel of an image together
    stream : number of the layer among those of its kind
    seed : that of the batch
    """
    images, height, width, channels = shape
    pixels = np.arange(images * height * width).reshape(images, height, width, 1)
    if whole:
        pixels = np.broadcast_to(np.arange(images).reshape(-1, 1, 1, 1), pixels.shape)
    threshold = round((1.0 - p) * 2**SAMPLE_BITS)
    return sample(seed, stream, pixels, np.arange(channels)) < threshold


def dropout(fmt: FloatFormat, x_bits, *, p: float, **place):
    """Codes of a map, or of its gradient, times float32(1 / (1 - p)) where it is kept, +0
    elsewhere, and flags; ``place`` as in :func:`dropout_mask`."""
    unit = VectorUnit()
    result = thinned(unit, widen(fmt, x_bits), p=p, **place)
    return unit.round(fmt, result), unit.flags


def thinned(unit: VectorUnit, x, *, p: float, **place) -> np.ndarray:
    """The same of float32 bits, which are not rounded."""
    kept = dropout_mask(x.shape, p=p, **place)
    result = np.zeros(x.shape, np.uint32)
    result[kept] = unit.multiply(x[kept], constant(1.0 / (1.0 - p)))
    return result
