"""Number formats of the hardware: layout, bias and special values.

Every float format has the layout of IEEE 754: sign, exponent whose all-ones code means infinity or
NaN, fraction. ``fp8_e4m3`` is laid out like that too (largest finite value 240); it is not the OCP
variant without infinities. Subnormal codes are read as zero and never produced.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from amaranth.lib import data

__all__ = ["FLAGS_LAYOUT", "FLOAT32", "FORMATS", "FloatFormat", "IntFormat", "format_by_name"]


def _check(field: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{field} must be an integer from {low} to {high}, not {value!r}")


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"Format name must be an identifier, not {name!r}")


@dataclass(frozen=True, kw_only=True)
class FloatFormat:
    """Binary float.

    Members
    -------
    name : identifier; part of module names
    exponent_bits : 2 to 8
    mantissa_bits : 1 to 23, without the hidden one

    Raises
    ------
    ValueError : a field is out of its range
    """

    name: str
    exponent_bits: int
    mantissa_bits: int

    is_float: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check("Exponent width", self.exponent_bits, 2, 8)
        _check("Mantissa width", self.mantissa_bits, 1, 23)

    @property
    def width(self) -> int:
        """Bits of a code."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def exponent_max(self) -> int:
        """Exponent code of infinities and NaN."""
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
        """Code of the canonical NaN."""
        return self.infinity | (1 << (self.mantissa_bits - 1))

    @property
    def one(self) -> int:
        """Code of 1."""
        return self.bias << self.mantissa_bits


@dataclass(frozen=True, kw_only=True)
class IntFormat:
    """Two's complement integer; sums are 32-bit integers that wrap.

    Members
    -------
    name : identifier; part of module names
    width : bits, 2 to 12

    Raises
    ------
    ValueError : a field is out of its range
    """

    name: str
    width: int = 8

    is_float: ClassVar[Literal[False]] = False
    #: Code of 1.
    one: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check("Integer width", self.width, 2, 12)


#: Exceptions of one result, lowest bit first.
FLAGS_LAYOUT = data.StructLayout({"invalid": 1, "overflow": 1, "underflow": 1, "inexact": 1})

#: Format of partial sums and results of float arrays.
FLOAT32 = FloatFormat(name="float32", exponent_bits=8, mantissa_bits=23)

#: Operand formats by name.
FORMATS: dict[str, FloatFormat | IntFormat] = {
    fmt.name: fmt
    for fmt in (
        FloatFormat(name="bf16", exponent_bits=8, mantissa_bits=7),
        FloatFormat(name="fp16", exponent_bits=5, mantissa_bits=10),
        FloatFormat(name="fp8_e4m3", exponent_bits=4, mantissa_bits=3),
        FloatFormat(name="fp8_e5m2", exponent_bits=5, mantissa_bits=2),
        IntFormat(name="int8", width=8),
    )
}


def format_by_name(name: str) -> FloatFormat | IntFormat:
    """Operand format called ``name``; raises ``ValueError`` with the known names otherwise."""
    if name not in FORMATS:
        raise ValueError(f"Number format must be one of {', '.join(FORMATS)}, not {name!r}")
    return FORMATS[name]
