"""The float32 vector unit: what its operations compute and the flags they leave.

Everything between two products of a training step (normalisation, loss, update) is made of these
operations, each rounded once to float32. Bits are ``uint32`` of any shape; operands broadcast. The
numerics are those of :mod:`golden.arithmetic.float32` and :mod:`golden.arithmetic.divide_sqrt_exp`.
"""

import numpy as np

from . import divide_sqrt_exp
from .dot_product import convert_float32, decode, encode
from .float32 import add_f32, mul_f32
from .formats import FLOAT32, FloatFormat

__all__ = ["PARTIAL_SUMS", "VectorUnit", "constant", "negate", "power_of_two", "widen"]

#: Interleaved partial sums of :meth:`VectorUnit.sum`.
PARTIAL_SUMS = 8

_SIGN = np.uint32(FLOAT32.sign_bit)


def constant(value: float) -> np.uint32:
    """Float32 bits of a real number, rounded once."""
    return np.uint32(encode(FLOAT32, value))


def power_of_two(bits) -> np.ndarray:
    """2 to the power of the lowest 8 bits, a signed number: the exponent code is 127 more.

    No operation of its own. The powers -127 and -128 have no number: +0 and infinity.
    """
    code = (np.asarray(bits, np.uint32) + np.uint32(FLOAT32.bias)) & np.uint32(0xFF)
    return code << np.uint32(FLOAT32.mantissa_bits)


def widen(fmt: FloatFormat, codes) -> np.ndarray:
    """Operand codes as float32 bits, exactly; subnormal codes become zeros with their sign."""
    return encode(FLOAT32, decode(fmt, codes))


class VectorUnit:
    """Float32 operations that collect their flags.

    Members
    -------
    flags : int, the union of the :class:`golden.arithmetic.dot_product.Flags` of everything
        computed so far
    """

    def __init__(self):
        self.flags = 0

    def add(self, a, b) -> np.ndarray:
        return self._collect(add_f32(a, b))

    def subtract(self, a, b) -> np.ndarray:
        """``a + (-b)``: the sign of ``b`` is turned, then :meth:`add`."""
        return self.add(a, np.asarray(b, np.uint32) ^ _SIGN)

    def multiply(self, a, b) -> np.ndarray:
        return self._collect(mul_f32(a, b))

    def divide(self, a, b) -> np.ndarray:
        return self._collect(divide_sqrt_exp.divide(a, b))

    def square_root(self, a) -> np.ndarray:
        return self._collect(divide_sqrt_exp.square_root(a))

    def exponential(self, a) -> np.ndarray:
        return self._collect(divide_sqrt_exp.exponential(a))

    def round(self, fmt: FloatFormat, bits) -> np.ndarray:
        """Operand codes of float32 numbers."""
        return self._collect(convert_float32(fmt, bits))

    def sum(self, values) -> np.ndarray:
        """Sum of ``values`` (n, ...) over its first axis.

        Element i is added to partial sum i mod 8, in order; all start at +0. The result is
        ``((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7))``.
        """
        values = np.asarray(values, np.uint32)
        partial = np.zeros((PARTIAL_SUMS, *values.shape[1:]), np.uint32)
        for start in range(0, len(values), PARTIAL_SUMS):
            count = min(PARTIAL_SUMS, len(values) - start)
            partial[:count] = self.add(partial[:count], values[start : start + count])
        while len(partial) > 1:
            partial = self.add(partial[0::2], partial[1::2])
        return partial[0]

    def sum_images(self, values) -> np.ndarray:
        """Of ``values`` (N, pixels, ...) the :meth:`sum` over the pixels of each image."""
        return self.sum(np.moveaxis(np.asarray(values, np.uint32), 1, 0))

    def sum_map(self, values) -> np.ndarray:
        """Sum of ``values`` (N, pixels, ...) over the pixels of a map, image by image.

        The :meth:`sum` over the pixels of each image, then that over the images' results; of one
        image it is the first alone.
        """
        images = self.sum_images(values)
        return images[0] if len(images) == 1 else self.sum(images)

    def _collect(self, result):
        bits, flags = result
        self.flags |= int(np.bitwise_or.reduce(flags, axis=None)) if np.size(flags) else 0
        return bits


def negate(bits) -> np.ndarray:
    """``bits`` with the sign turned, no operation of its own; NaN stays the one NaN there is."""
    bits = np.asarray(bits, np.uint32)
    return np.where(bits & ~_SIGN > FLOAT32.infinity, np.uint32(FLOAT32.nan), bits ^ _SIGN)
