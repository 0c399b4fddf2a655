"""Samples of images for backward passes (VCAS), bit for bit: the section "Samples of images" of
docs/training.md."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import decode
from golden.arithmetic.float32 import max_f32
from golden.arithmetic.float32_unit import VectorUnit, constant, widen
from golden.arithmetic.formats import FLOAT32, FloatFormat
from golden.arithmetic.sampling import SAMPLE_BITS, sample

from .conv_general import convolution

__all__ = [
    "RowSample",
    "RowSampling",
    "gather_rows",
    "require_range",
    "row_counts",
    "row_norms",
    "sample_rows",
    "scatter_rows",
]

#: The first stream of random numbers; dropout has those from 0 on.
_STREAM = 1 << 14
#: From a bit of a random number to the next of the same image; so many images at most.
_IMAGES = 1 << 16
#: The least sum of norms that is divided by.
_LEAST_SUM = constant(2.0**-100)
_ONE = constant(1.0)


@dataclass(frozen=True, kw_only=True)
class RowSampling:
    """What is sampled in a backward pass.

    Members
    -------
    ratios : by convolution the share of the batch's images that it is to keep, above 0, on the
        average (ρ), and from 1 on all of them; the host may change it between batches
    counts : numbers of images of which backward passes are made, ascending, the last one the batch;
        None: :func:`row_counts`
    """

    ratios: Mapping[str, float]
    counts: tuple[int, ...] | None = None

    def kept(self, layer: str, images: int) -> float:
        """How many of ``images`` a layer is to keep."""
        return self.ratios[layer] * images if self.ratios[layer] < 1 else np.inf


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSample:
    """Which images are kept.

    Members
    -------
    rows : numbers of the kept images, ascending, and behind them the last one that is not kept, as
        often as it takes to make one of the counts
    kept : how many are kept
    factors : operand codes of all images: 1 / p, or +0 of one that is not kept
    probabilities, norms : float32 bits of all images
    flags : of :class:`golden.arithmetic.dot_product.Flags`
    """

    rows: np.ndarray
    kept: int
    factors: np.ndarray
    probabilities: np.ndarray
    norms: np.ndarray
    flags: int


def row_counts(images: int) -> tuple[int, ...]:
    """Eighths of a batch, rounded up."""
    return tuple(sorted({-(-images * part // 8) for part in range(1, 9)}))


def require_range(fmt: FloatFormat) -> None:
    """A ValueError for a format whose least numbers are not those of float32: squares of small
    gradients would be zeros."""
    if fmt.exponent_bits < FLOAT32.exponent_bits:
        raise ValueError(
            f"samples of images need an operand format with {FLOAT32.exponent_bits} bits of "
            f"exponent, not {fmt.name}"
        )


def row_norms(fmt: FloatFormat, dy_codes, *, rows: int) -> tuple[np.ndarray, int]:
    """Euclidean norms, float32 bits (N,), of a gradient's images (N, H, W, C), and flags.

    Of every channel the *sum* of squares, rounded to operands; the sum of these is that of a GEMM
    with ones, in K tiles of ``rows`` channels.
    """
    unit, wide = VectorUnit(), widen(fmt, dy_codes)
    pixels = wide.reshape(len(wide), -1, wide.shape[3])
    squares = unit.sum(np.moveaxis(unit.multiply(pixels, pixels), 1, 0))
    codes = unit.round(fmt, squares)[:, np.newaxis, np.newaxis]
    one = unit.round(fmt, _ONE)
    ones = np.full((1, wide.shape[3], 1, 1), one)
    sums, flags = convolution(fmt, codes, ones, None, rows=rows)
    norms = unit.square_root(sums[:, 0, 0, 0])
    return norms, unit.flags | int(np.bitwise_or.reduce(flags, axis=None))


def sample_rows(
    fmt: FloatFormat, norms, *, kept: float, counts: tuple[int, ...], layer: int, seed: int
) -> RowSample:
    """Keep image i with a probability of min(1, norm * (kept / sum of norms)), or what is next to
    it among those whose 1 / p is an operand.

    Parameters
    ----------
    norms : float32 bits (N,)
    kept : how many images, on the average, where no p is above 1; fewer where some are
    counts : one of which the sample is filled up to
    layer : number of the layer among those that are sampled, in order of execution
    seed : of the batch, as of dropout

    A p that is no number is 1: what is not finite stays, so that the guard sees it.
    """
    unit, images = VectorUnit(), len(norms)
    total = max_f32(unit.sum(norms), _LEAST_SUM)
    p = unit.multiply(norms, unit.divide(constant(kept), total))
    p = np.where(decode(FLOAT32, p) <= 1, p, _ONE)
    factors = unit.round(fmt, unit.divide(_ONE, p))
    p = unit.divide(_ONE, widen(fmt, factors))
    keep = decode(FLOAT32, p) > _uniform(images, layer, seed)
    chosen = np.nonzero(keep)[0]
    count = next(count for count in counts if count >= len(chosen))
    dropped = np.nonzero(~keep)[0][-1:]
    filled = np.concatenate([chosen, np.repeat(dropped, count - len(chosen))])
    return RowSample(
        rows=filled, kept=len(chosen), factors=np.where(keep, factors, factors.dtype.type(0)),
        probabilities=p, norms=np.asarray(norms), flags=unit.flags,
    )  # fmt: skip


def _uniform(images, layer, seed):
    """Numbers from 0 to below 1 of all images. Each bit is whether a number of dropout's is below
    one half, so there are as many of them as bits."""
    places = np.arange(SAMPLE_BITS)[:, np.newaxis] * _IMAGES + np.arange(images)
    bits = sample(seed, _STREAM + layer, places, 0) < 1 << (SAMPLE_BITS - 1)
    return (bits * 0.5 ** np.arange(1, SAMPLE_BITS + 1)[:, np.newaxis]).sum(0)


def gather_rows(fmt: FloatFormat, codes, chosen: RowSample) -> tuple[np.ndarray, int]:
    """The images of a gradient that are kept, and those behind them, each number times the image's
    factor and rounded to operands; and flags."""
    unit, rows = VectorUnit(), chosen.rows
    factors = widen(fmt, chosen.factors[rows]).reshape(-1, 1, 1, 1)
    result = unit.round(fmt, unit.multiply(widen(fmt, np.asarray(codes)[rows]), factors))
    return result, unit.flags


def scatter_rows(codes, chosen: RowSample, images: int) -> np.ndarray:
    """A gradient of ``images`` images: +0 but for the chosen ones, which are ``codes``."""
    result = np.zeros((images, *codes.shape[1:]), codes.dtype)
    result[chosen.rows] = codes
    return result
