"""Number formats of the reference models: layout, bias and special values.

Every float format here is laid out as IEEE 754 does it: sign, exponent with an all-ones code for
infinities and NaN, fraction. That includes ``fp8_e4m3``, whose largest finite value is therefore
240 (the OCP variant without infinities, ``e4m3fn``, reaches 448 and is *not* what is meant).
Subnormal codes are read as zero and never produced.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, kw_only=True)
class FloatFormat:
    """Binary float: sign, ``exponent_bits``, ``mantissa_bits`` (without the hidden one)."""

    name: str
    exponent_bits: int
    mantissa_bits: int

    is_float: ClassVar[Literal[True]] = True

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def exponent_max(self) -> int:
        """Exponent code of infinities and NaN; finite numbers use 1 to ``exponent_max - 1``."""
        return (1 << self.exponent_bits) - 1

    @property
    def significand_bits(self) -> int:
        """Bits of the significand with its hidden one."""
        return self.mantissa_bits + 1

    @property
    def infinity(self) -> int:
        """Code of +infinity."""
        return self.exponent_max << self.mantissa_bits

    @property
    def nan(self) -> int:
        """Code of the canonical NaN: sign clear, quiet bit set, nothing else."""
        return self.infinity | (1 << (self.mantissa_bits - 1))

    @property
    def sign_bit(self) -> int:
        return 1 << (self.width - 1)

    @property
    def min_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def max_finite(self) -> float:
        return (2.0 - 2.0**-self.mantissa_bits) * 2.0 ** (self.exponent_max - 1 - self.bias)


@dataclass(frozen=True, kw_only=True)
class IntFormat:
    """Two's complement integer of ``width`` bits; products accumulate in 32-bit integers."""

    name: str
    width: int = 8

    is_float: ClassVar[Literal[False]] = False

    @property
    def minimum(self) -> int:
        return -(1 << (self.width - 1))

    @property
    def maximum(self) -> int:
        return (1 << (self.width - 1)) - 1


BF16 = FloatFormat(name="bf16", exponent_bits=8, mantissa_bits=7)
FP16 = FloatFormat(name="fp16", exponent_bits=5, mantissa_bits=10)
FP8_E4M3 = FloatFormat(name="fp8_e4m3", exponent_bits=4, mantissa_bits=3)
FP8_E5M2 = FloatFormat(name="fp8_e5m2", exponent_bits=5, mantissa_bits=2)
INT8 = IntFormat(name="int8", width=8)
FLOAT32 = FloatFormat(name="float32", exponent_bits=8, mantissa_bits=23)

#: Operand formats by name. ``FLOAT32`` is the format of accumulators, not of operands.
FORMATS: dict[str, FloatFormat | IntFormat] = {
    fmt.name: fmt for fmt in (BF16, FP16, FP8_E4M3, FP8_E5M2, INT8)
}


def format_by_name(name: str) -> FloatFormat | IntFormat:
    """Operand format called ``name``; raises ``ValueError`` with the known names otherwise."""
    try:
        return FORMATS[name]
    except KeyError:
        known = ", ".join(FORMATS)
        raise ValueError(f"Number format must be one of {known}, not {name!r}") from None
