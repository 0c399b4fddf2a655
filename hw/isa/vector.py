"""Fields of a VECTOR command: float32 operations on streams of buffer words."""

import enum

from hw.config import BUFFER_ADDRESS_WIDTH

from .field import BUFFER_ADDRESS_NOTE, Field

__all__ = [
    "COEFFICIENTS",
    "Carry",
    "Condition",
    "Factor",
    "Operation",
    "Source",
    "Term",
    "VECTOR",
    "VECTOR_LOOPS",
    "VECTOR_STREAMS",
    "Watch",
]

#: Loops, innermost first. ``cb`` counts words of ``rows`` channels; a reduction runs over the other
#: three.
VECTOR_LOOPS = ("i0", "i1", "i2", "cb")
#: What is read and, the last one, written.
VECTOR_STREAMS = ("x", "y", "z", "o")
#: What they are.
_STREAMS_ARE = "first operand", "second operand", "third operand", "results"
#: Coefficient registers.
COEFFICIENTS = 8


class Operation(enum.IntEnum):
    """What becomes of X, Y and Z."""

    CHAIN = 0
    DIVIDE = 1
    ROOT = 2
    EXPONENTIAL = 3


class Source(enum.IntEnum):
    """Where a stream comes from."""

    NARROW = 0
    WIDE = 1
    IMMEDIATE = 2
    COEFFICIENT = 3


class Term(enum.IntEnum):
    """u, the start of the chain: X, X + Y, X - Y or the immediate."""

    X = 0
    ADD = 1
    SUBTRACT = 2
    IMMEDIATE = 3


class Factor(enum.IntEnum):
    """What u is multiplied by."""

    ONE = 0
    Y = 1
    Z = 2
    U = 3


class Carry(enum.IntEnum):
    """What is added to the product, or taken in place of the result."""

    Y = 0
    Z = 1


class Condition(enum.IntEnum):
    """When the result of the chain is taken.

    Always; X > Y or X is NaN; Z is positive or NaN; the bits of Z are those of the immediate.
    """

    ALWAYS = 0
    GREATER = 1
    POSITIVE = 2
    EQUAL = 3


class Watch(enum.IntEnum):
    """Looking for infinities and NaN in Y: not, from here on, or further on."""

    NONE = 0
    FIRST = 1
    MORE = 2


_A = BUFFER_ADDRESS_WIDTH


def _strides(name: str) -> tuple[Field, ...]:
    return tuple(
        Field(f"{name}_{loop}_stride", 16, f"words per step of loop {loop}", signed=True, default=0)
        for loop in VECTOR_LOOPS[:-1]
    )


#: Fields behind the header, in order from the least significant bit. With all defaults: a copy of
#: one word of operands.
VECTOR = (
    Field(
        "operation",
        2,
        "chain, or X / Y, or the square root of X, or e to the power of X",
        enum=Operation,
        default=Operation.CHAIN,
    ),
    *(
        Field(
            f"{name}_source",
            2,
            f"where {name.upper()} comes from",
            enum=Source,
            default=Source.NARROW if name == "x" else Source.IMMEDIATE,
        )
        for name in VECTOR_STREAMS[:-1]
    ),
    Field("term", 2, "u = X, X + Y, X - Y or the immediate", enum=Term, default=Term.X),
    Field("factor", 2, "v = u times this", enum=Factor, default=Factor.ONE),
    Field("power", 1, "Y or Z as a factor is 2 to the power of its lowest 8 bits", default=0),
    Field("negate_product", 1, "v with its sign turned", default=0),
    Field("carry", 1, "the number C that goes along", enum=Carry, default=Carry.Y),
    Field("add", 1, "w = v + C; otherwise w = v", default=0),
    Field("negate_carry", 1, "w = v - C", default=0),
    Field("condition", 2, "when the result is w", enum=Condition, default=Condition.ALWAYS),
    Field("keep", 1, "otherwise it is C, not +0", default=0),
    Field(
        "sample",
        1,
        "the result is w only if, too, the element's random number is below y_address; its pixel "
        "is z_address and its strides, its channel counts from 0, its stream is y_i0_stride; Y and "
        "Z are numbers",
        default=0,
    ),
    Field(
        "reduce", 1, "the sum of w over i0, i1 and i2 is stored, one number per channel", default=0
    ),
    Field("wide", 1, "store float32 numbers instead of operands", default=0),
    # These are three words of the command: x's is in the first of them, o's in the last.
    *(
        Field(
            f"{name}_address", _A, f"{what} at index 0 everywhere: {BUFFER_ADDRESS_NOTE}", default=0
        )
        for name, what in zip(VECTOR_STREAMS, _STREAMS_ARE, strict=True)
    ),
    Field(
        "watch",
        2,
        "note whether active lanes of Y hold infinities or NaN",
        enum=Watch,
        default=Watch.NONE,
    ),
    Field("guarded", 1, "do nothing if the guard is on and something was noted", default=0),
    Field("coefficient", 3, "which coefficient register is meant", default=0),
    Field("immediate", 32, "float32 number", default=0),
    Field(
        "channels",
        16,
        "valid channels over all cb; lanes beyond are stored as zero",
        default=0xFFFF,
    ),
    *(
        Field(f"{loop}_count", 16, f"iterations of loop {loop}", minimum=1, default=1)
        for loop in VECTOR_LOOPS
    ),
    *(field for name in VECTOR_STREAMS for field in _strides(name)),
    Field("relu", 1, "what is negative is stored as +0; NaN stays", default=0),
)
