"""Fields of commands, as the tables of the encoding list them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from amaranth.hdl import signed, unsigned
from amaranth.lib import data

from hw.config import BUFFER_ADDRESS_WIDTH

__all__ = [
    "BUFFER_ADDRESS_NOTE",
    "Field",
    "Place",
    "field_places",
    "fields_layout",
    "pack_fields",
]

#: For the documentation of fields that hold one.
BUFFER_ADDRESS_NOTE = (
    f"buffer word address; bit {BUFFER_ADDRESS_WIDTH - 1} selects the predictor memory"
)


@dataclass(frozen=True)
class Field:
    """One field of a command: ``width`` bits, two's complement if ``signed``.

    ``minimum`` is the least value the hardware accepts; ``enum`` names values. ``default`` is what
    :func:`~hw.isa.encoding.encode` takes for a field that is not given, None where it must be
    given; the hardware has no defaults. Its first bit has a number that is a multiple of ``align``;
    bits in front of it that no field has are zeros.
    """

    name: str
    width: int
    doc: str
    signed: bool = False
    minimum: int | None = None
    enum: type[IntEnum] | None = None
    default: int | None = None
    align: int = 1

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value that can be encoded."""
        if self.signed:
            return -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        return self.minimum or 0, (1 << self.width) - 1


class Place(NamedTuple):
    """Where a field lies in a number, and what it may hold: first bit, mask of its width, sign bit
    or 0, least and greatest value, and default or None."""

    position: int
    mask: int
    sign: int
    low: int
    high: int
    default: int | None


def field_places(fields: Iterable[Field], begin: int = 0) -> dict[str, Place]:
    """Places of ``fields`` by name, in order from the least significant bit, which is number
    ``begin`` of what they are in; positions are counted from there."""
    places, end = {}, begin
    for field in fields:
        first = -(-end // field.align) * field.align
        sign = 1 << (field.width - 1) if field.signed else 0
        mask = (1 << field.width) - 1
        default = None if field.default is None else int(field.default)
        places[field.name] = Place(first - begin, mask, sign, *field.range, default)
        end = first + field.width
    return places


def fields_layout(fields: Iterable[Field], begin: int = 0) -> data.FlexibleLayout:
    """Layout of ``fields``, which are where :func:`field_places` says."""
    fields, size = list(fields), 0
    members = {}
    for field, place in zip(fields, field_places(fields, begin).values(), strict=True):
        shape = signed(field.width) if field.signed else unsigned(field.width)
        members[field.name] = data.Field(shape, place.position)
        size = place.position + field.width
    return data.FlexibleLayout(size, members)


def pack_fields(fields: Iterable[Field], values: Mapping[str, int], begin: int = 0) -> int:
    """``fields`` as one number, which are where :func:`field_places` says.

    Raises ``ValueError`` for a value that does not fit the width of its field; whether the hardware
    accepts it is not asked.
    """
    word, fields = 0, list(fields)
    for field, place in zip(fields, field_places(fields, begin).values(), strict=True):
        value = int(values[field.name])
        low = -(1 << (field.width - 1)) if field.signed else 0
        if not low <= value < 1 << field.width:
            raise ValueError(f"field {field.name} has {field.width} bits, not enough for {value}")
        word |= (value & place.mask) << place.position
    return word
