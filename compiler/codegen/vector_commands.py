"""VECTOR commands between maps in a core's buffer."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from struct import pack, unpack
from typing import Any

from compiler.tensors.encoding import codes_of
from hw.config import CoreConfig
from hw.formats import FLOAT32
from hw.isa.vector import (
    VECTOR_LOOPS,
    VECTOR_STREAMS,
    Carry,
    Condition,
    Factor,
    Operation,
    Source,
    Term,
)

from .cost import STREAM_SOURCE, STREAM_STRIDES, Fields
from .dependencies import Region
from .view import Coefficient, Operand, View

__all__ = ["VectorCommands"]

_LOOPS = VECTOR_LOOPS[:-1]
_COUNTS = tuple(f"{loop}_count" for loop in _LOOPS)
_ADDRESS = {name: f"{name}_address" for name in VECTOR_STREAMS}


class VectorCommands:
    """Writes VECTOR commands.

    Parameters
    ----------
    core : CoreConfig
    emit : function of (fields, reads, writes): fields by name, those left out have their defaults,
        and :class:`~.dependencies.Region` s
    """

    def __init__(
        self, core: CoreConfig, emit: Callable[[Fields, Sequence[Region], Sequence[Region]], None]
    ) -> None:
        self.core, self._emit = core, emit

    def emit(
        self,
        o: View,
        x: Operand,
        y: Operand | None = None,
        z: Operand | None = None,
        *,
        immediate: float | None = None,
        over: View | None = None,
        **fields: int,
    ) -> View:
        """One command. Operands are views, numbers or coefficient registers; along an axis where a
        view has one image, row or column, it goes with all of them.

        There is one immediate, which ``immediate`` and all numbers have to share. Loops are those
        of the view ``over``: ``o``, or ``x`` for a reduction, unless it is given. Words of ``o``
        that no operand has are cleared by a command of their own. Returns ``o``.

        Parameters
        ----------
        o : view of the results
        fields : those of :data:`hw.isa.vector.VECTOR` that differ from their defaults

        Raises
        ------
        ValueError
            for shapes that do not fit each other, or several numbers.
        """
        loops = over or (x if fields.get("reduce") else o)
        assert isinstance(loops, View), "a reduction goes over a view"
        read: dict[str, View] = {}
        numbers: dict[str, Coefficient | float | None] = {}
        for name, part in zip(VECTOR_STREAMS, (x, y, z), strict=False):
            if isinstance(part, View):
                read[name] = part
            else:
                numbers[name] = part
        words = min([o.words, *[view.words for view in read.values()]])
        channels = o.shape[3]
        if words * self.core.rows < channels:
            raise ValueError(f"{words} words do not hold {channels} channels")
        values = dict(zip(_COUNTS, loops.shape[2::-1], strict=True))
        values |= {"cb_count": words, "channels": channels, "wide": int(o.chunks > 1)}
        for name, view in read.items():
            values |= _walk(name, view, loops)
        values |= _walk("o", o, loops)
        values |= _numbers(numbers, immediate)
        for name, value in fields.items():
            values[name] = int(value)
        self._emit(values, [view.region for view in read.values()], [o.region])
        if o.words > words:
            self.fill(o.tail(words), 0.0)
        return o

    def copy(self, o: View, x: Operand) -> View:
        """``x``, rounded if ``o`` holds operands."""
        return self.emit(o, x)

    def fill(self, o: View, value: Operand) -> View:
        """A number or a vector everywhere."""
        return self.emit(o, value)

    def scale(self, o: View, x: Operand, factor: Operand, **options: Any) -> View:
        """``x * factor``."""
        return self.emit(o, x, factor, factor=Factor.Y, **options)

    def scale_add(
        self, o: View, x: Operand, factor: Operand, addend: Operand, **options: Any
    ) -> View:
        """``x * factor + addend``."""
        return self.emit(o, x, factor, addend, factor=Factor.Y, carry=Carry.Z, add=1, **options)

    def add(self, o: View, x: Operand, y: Operand, **options: Any) -> View:
        """``x + y``."""
        return self.emit(o, x, y, term=Term.ADD, **options)

    def add_both(self, o: View, x: Operand, y: Operand, z: Operand, **options: Any) -> View:
        """``(x + y) + z``."""
        return self.emit(o, x, y, z, term=Term.ADD, carry=Carry.Z, add=1, **options)

    def divide(self, o: View, x: Operand, y: Operand, **options: Any) -> View:
        """``x / y``."""
        return self.emit(o, x, y, operation=Operation.DIVIDE, **options)

    def root(self, o: View, x: Operand, **options: Any) -> View:
        """The square root of ``x``."""
        return self.emit(o, x, operation=Operation.ROOT, **options)

    def exponential(self, o: View, x: Operand, **options: Any) -> View:
        """e to the power of ``x``."""
        return self.emit(o, x, operation=Operation.EXPONENTIAL, **options)

    def positive(self, o: View, x: Operand, **options: Any) -> View:
        """``x`` where it is positive or NaN, +0 elsewhere."""
        return self.emit(o, x, 0.0, condition=Condition.GREATER, **options)

    def mask(self, o: View, x: Operand, where: Operand, **options: Any) -> View:
        """``x`` where ``where`` is positive or NaN, +0 elsewhere."""
        return self.emit(o, x, z=where, condition=Condition.POSITIVE, **options)

    def sum(self, o: View, x: Operand, **fields: Any) -> View:
        """The sum over a map's pixels, in order of n, h, w; ``fields`` say of what."""
        return self.emit(o, x, reduce=1, **fields)


def _walk(name: str, view: View, loops: View) -> Fields:
    """Fields of a stream that is ``view``."""
    fields = {_ADDRESS[name]: view.block.address + view.first}
    if name != "o":
        fields[STREAM_SOURCE[name]] = Source.WIDE if view.chunks > 1 else Source.NARROW
    # The channels have no loop.
    walks = zip(STREAM_STRIDES[name], view.shape, loops.shape, view.strides, strict=False)
    for field, own, steps, stride in walks:
        if own != 1 and own != steps:
            raise ValueError(f"{view.shape} does not fit {loops.shape}")
        fields[field] = stride if own > 1 else 0
    return fields


def _numbers(streams: Mapping[str, Coefficient | float | None], immediate: float | None) -> Fields:
    """Fields of streams that are numbers or registers."""
    fields: Fields = {}
    numbers: set[float] = set()
    registers: set[int] = set()
    if immediate is not None:
        numbers.add(immediate)
    for name, operand in streams.items():
        fields[STREAM_SOURCE[name]] = Source.IMMEDIATE
        if isinstance(operand, Coefficient):
            fields[STREAM_SOURCE[name]] = Source.COEFFICIENT
            registers.add(operand.index)
        elif operand is not None:
            numbers.add(operand)
    if len(numbers) > 1 or len(registers) > 1:
        raise ValueError(f"one command cannot hold {numbers} and registers {registers}")
    fields["immediate"] = _code(pack("d", numbers.pop())) if numbers else 0
    fields["coefficient"] = registers.pop() if registers else 0
    return fields


@cache
def _code(number: bytes) -> int:
    """Float32 code of a number, which is packed because +0 and -0 are equal."""
    return int(codes_of(FLOAT32, unpack("d", number)[0]))
