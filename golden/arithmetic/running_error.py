"""Running error analysis: how far a float32 computation may be from the exact one.

An :class:`Estimate` is a pair of the exact value (computed in float64) and a bound of what the
float32 computation may be off. Its operations follow
:class:`golden.arithmetic.float32_unit.VectorUnit`, one rounding each, and propagate the bound: with
u = 2**-24 and f = 2**-126 (a flushed result)

    a + b:    e = ea + eb                            a * b:  e = |a| eb + |b| ea + ea eb
    a / b:    e = (ea + |a / b| eb) / (|b| - eb)     root:   e = ea / (sqrt(a) + sqrt(a - ea))
    e**a:     e = e**a * (e**ea - 1)

and then, for the rounding, u * (|result| + e) + f; the exponential, whose error is up to 0.54 units
in the last place, has 1.08 u in place of u. Nothing of the bit-exact model goes in. An error that
reaches a divisor or a radicand gives an infinite bound.

The exact value is computed in float64 itself, and so is torch's; their roundoff is 2**-29 of
float32's. :func:`worst_excess` allows for it by a thousandth of the bound.
"""

from dataclasses import dataclass

import numpy as np

from .dot_product import decode
from .float32_unit import PARTIAL_SUMS
from .formats import FLOAT32, FloatFormat

__all__ = [
    "Estimate",
    "columns_error",
    "interleaved_sum",
    "map_sum",
    "rounding_error",
    "worst_excess",
]

_UNIT = 2.0**-24
_EXPONENTIAL_UNIT = 1.08 * _UNIT
_FLUSH = FLOAT32.min_normal
_FLOAT64 = 1.0 + 2.0**-10


@dataclass(frozen=True, eq=False)
class Estimate:
    """``value`` and ``error``: float64 arrays of one shape (or scalars)."""

    value: np.ndarray
    error: np.ndarray

    @classmethod
    def exact(cls, value) -> "Estimate":
        """Numbers that both computations start from."""
        value = np.asarray(value, np.float64)
        return cls(value, np.zeros(value.shape))

    @classmethod
    def constant(cls, value) -> "Estimate":
        """Real numbers that float32 rounds once."""
        value = np.asarray(value, np.float64)
        return cls(value, _UNIT * np.abs(value) + _FLUSH)

    @classmethod
    def bits(cls, fmt: FloatFormat, codes) -> "Estimate":
        """Numbers that both computations start from, as codes."""
        return cls.exact(decode(fmt, codes))

    def __add__(self, other) -> "Estimate":
        return _rounded(self.value + other.value, self.error + other.error)

    def __neg__(self) -> "Estimate":
        return Estimate(-self.value, self.error)

    def __sub__(self, other) -> "Estimate":
        return self + -other

    def __mul__(self, other) -> "Estimate":
        error = np.abs(self.value) * other.error + np.abs(other.value) * self.error
        return _rounded(self.value * other.value, error + self.error * other.error)

    def __truediv__(self, other) -> "Estimate":
        value = self.value / other.value
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.abs(other.value) - other.error
            error = (self.error + np.abs(value) * other.error) / room
        return _rounded(value, np.where(room > 0, error, np.inf))

    def root(self) -> "Estimate":
        value = np.sqrt(self.value)
        low = np.maximum(self.value - self.error, 0.0)
        return _rounded(value, np.where(low > 0, self.error / (value + np.sqrt(low)), np.inf))

    def exponential(self) -> "Estimate":
        value = np.exp(self.value)
        return _rounded(value, value * np.expm1(self.error), _EXPONENTIAL_UNIT)

    def sum(self) -> "Estimate":
        """Of the first axis, in interleaved partial sums."""
        errors = np.broadcast_to(self.error, self.value.shape)
        magnitude = (np.abs(self.value) + errors).sum(axis=0)
        return interleaved_sum(
            self.value.sum(axis=0), magnitude, errors.sum(axis=0), len(self.value)
        )

    def sum_images(self) -> "Estimate":
        """Of pixels (N, pixels of an image, ...) the :meth:`sum` of each image."""
        error = np.broadcast_to(self.error, self.value.shape)
        return Estimate(np.moveaxis(self.value, 1, 0), np.moveaxis(error, 1, 0)).sum()

    def sum_map(self) -> "Estimate":
        """Of the first two axes, images and pixels, as :func:`map_sum` says."""
        errors = np.broadcast_to(self.error, self.value.shape)
        magnitude = (np.abs(self.value) + errors).sum(axis=(0, 1))
        images, pixels = self.value.shape[:2]
        return map_sum(
            self.value.sum(axis=(0, 1)), magnitude, errors.sum(axis=(0, 1)), images, pixels
        )

    def round(self, fmt: FloatFormat) -> "Estimate":
        """Stored as operands."""
        return Estimate(
            self.value, self.error + rounding_error(fmt, np.abs(self.value) + self.error)
        )

    def where(self, mask) -> "Estimate":
        """Zero, without an error, where ``mask`` is not set."""
        return Estimate(np.where(mask, self.value, 0.0), np.where(mask, self.error, 0.0))

    def reshape(self, *shape: int) -> "Estimate":
        error = np.broadcast_to(self.error, self.value.shape)
        return Estimate(self.value.reshape(shape), error.reshape(shape))

    def __getitem__(self, index) -> "Estimate":
        return Estimate(self.value[index], np.broadcast_to(self.error, self.value.shape)[index])


def columns_error(value, bound) -> Estimate:
    """A sum that the array makes; ``bound`` from ``dot_error_bound``."""
    return Estimate(np.asarray(value, np.float64), np.asarray(bound, np.float64))


def interleaved_sum(value, magnitude, error, count, *, sums=1) -> Estimate:
    """A *sum* of at most ``count`` terms, or the exact total of several of them.

    A term goes through at most ``ceil(count / 8) + 3`` additions, each of which adds a relative
    error of u to it, or is flushed.

    Parameters
    ----------
    value : exact result
    magnitude : sum of the magnitudes of the computed terms, at most
    error : sum of their errors
    sums : how many sums of ``count`` terms
    """
    additions = -(-count // PARTIAL_SUMS) + 3
    growth = (1.0 + _UNIT) ** additions
    flushed = growth * sums * (count + PARTIAL_SUMS) * _FLUSH
    return Estimate(value, error + (growth - 1.0) * magnitude + flushed)


def map_sum(value, magnitude, error, images, pixels) -> Estimate:
    """The *sum* over a map: at most ``pixels`` terms of each image, then the images' results.

    ``value``, ``magnitude`` and ``error`` are those of :func:`interleaved_sum` for the whole map.
    """
    parts = interleaved_sum(value, magnitude, error, pixels, sums=images)
    if images == 1:
        return parts
    # What the second sum adds up are the computed results of the first.
    return interleaved_sum(value, magnitude + parts.error, parts.error, images)


def worst_excess(actual, reference, error) -> tuple[float, tuple[int, ...]]:
    """Largest |actual - reference| / bound, and where it is; more than 1 is out of bound.

    NaN and infinities that are not equal count as infinitely far.
    """
    actual, reference = np.asarray(actual, np.float64), np.asarray(reference, np.float64)
    if actual.shape != reference.shape:
        raise ValueError(f"Shapes {actual.shape} and {reference.shape} differ")
    with np.errstate(invalid="ignore"):
        distance = np.abs(actual - reference)
    bound = np.broadcast_to(np.asarray(error) * _FLOAT64, actual.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(distance == 0, 0.0, distance / bound)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    if not ratio.size:
        return 0.0, ()
    place = np.unravel_index(int(ratio.argmax()), ratio.shape)
    return float(ratio[place]), tuple(int(i) for i in place)


def _rounded(value, error, unit=_UNIT):
    return Estimate(value, error + unit * (np.abs(value) + error) + _FLUSH)


def rounding_error(fmt: FloatFormat, magnitude) -> np.ndarray:
    """Bound of the error of rounding any number of at most ``magnitude`` to ``fmt``."""
    magnitude = np.asarray(magnitude, np.float64)
    roundoff = 2.0**-fmt.significand_bits * magnitude
    return np.maximum(roundoff, np.minimum(magnitude, fmt.min_normal))
