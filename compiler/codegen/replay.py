"""Steps that are alike, such as those of equal layers: recorded once, and then replayed.

Commands of a step follow from its function, from the sizes of its tensors and from what is in the
memories when it begins. So in a program with loops every step begins with empty memories, and what
one has recorded is recorded again for others that differ in the places of their tensors in DRAM
alone: in the same program, in another part of it, or when a program is written again. Only what a
command has to wait for is found anew, because that depends on the commands in front of the step.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from itertools import pairwise
from types import FunctionType
from typing import NamedTuple, Protocol

from compiler.tensors.tensor import Tensor

from .cost import Command, Fields
from .linking.entries import DRAM, Region
from .linking.loops import Loop

__all__ = ["Emitted", "Likeness", "Recording", "Recordings", "StepCall"]

#: What says where in DRAM a command begins.
_ADDRESS = "dram_address"
_Regions = tuple[Region, ...]
#: What a command reads, and writes.
_Touched = tuple[_Regions, _Regions]
#: A command, its fields as they were emitted, and regions that it reads and writes.
Emitted = tuple[Command, Fields, _Regions, _Regions]


class _Recorder(Protocol):
    """What is asked of a :class:`~compiler.codegen.dependencies.Recorder`."""

    runs: int

    def __len__(self) -> int: ...
    @property
    def written_out(self) -> Collection[Hashable]: ...
    @property
    def gathered(self) -> Collection[int]: ...
    def recording(self, recording: "Recording") -> AbstractContextManager[None]: ...
    def append(self, command: Command, reads: _Regions, writes: _Regions) -> None: ...
    def leave_out(self, loop: Loop, *, known: bool = False) -> Loop | None: ...
    def end_loop(self, loop: Loop, *, known: bool = False) -> None: ...


class _NoLikeness(Exception):
    """Nothing is known of what a step is like."""


@dataclass
class Recording:
    """What one step has recorded, with loops counted from its first command.

    Members
    -------
    tensors : in DRAM, that the step touches
    first, run : commands and lists of jobs in front of it
    commands : with what they touch
    loops : those in which periods were left out
    events : (commands of the step so far, number of a loop, whether it ends): what has happened in
        between, in order
    written_out, gathered : loops and lists of jobs that the recorder was told of, see
        :class:`~compiler.codegen.dependencies.Recorder`
    runs : lists of jobs
    missing : names of the tensors that stay in a memory, and are not there yet behind the step
    """

    tensors: Sequence[Tensor]
    first: int
    run: int
    commands: list[Emitted] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    events: list[tuple[int, int, bool]] = field(default_factory=list)
    written_out: frozenset[Hashable] = frozenset()
    gathered: frozenset[int] = frozenset()
    runs: int = 0
    missing: frozenset[str] = frozenset()

    def note_begin(self, loop: Loop) -> None:
        """Periods of ``loop`` have been left out."""
        self.events.append((len(self.commands), len(self.loops), False))
        self.loops.append(loop)

    def note_end(self, loop: Loop) -> None:
        """The last periods of ``loop`` have been emitted."""
        number = next(n for n, other in enumerate(self.loops) if other is loop)
        self.events.append((len(self.commands), number, True))

    def end(self, recorder: _Recorder) -> None:
        """The step is over."""
        self.runs = recorder.runs - self.run
        self.written_out, self.gathered = self._told(recorder, self.run)

    def fits(self, recorder: _Recorder) -> bool:
        """Whether a step that begins now would be recorded in the same way."""
        return self._told(recorder, recorder.runs) == (self.written_out, self.gathered)

    def _told(self, recorder: _Recorder, run: int) -> tuple[frozenset[Hashable], frozenset[int]]:
        own = range(run + 1, run + self.runs + 1)
        names = (name for name in recorder.written_out if isinstance(name, tuple))
        return (
            frozenset((name[0] - run, *name[1:]) for name in names if name[0] in own),
            frozenset(number - run for number in recorder.gathered if number in own),
        )

    def replay(self, recorder: _Recorder, tensors: Sequence[Tensor]) -> None:
        """Record the same for other ``tensors``."""
        first, run = len(recorder), recorder.runs
        recorder.runs += self.runs
        moves = _Moves(self.tensors, tensors)
        loops: list[Loop] = []
        events = iter(self.events)
        event = next(events, None)
        for number in range(len(self.commands) + 1):
            while event is not None and event[0] == number:
                _, index, ends = event
                if ends:
                    recorder.end_loop(loops[index], known=True)
                else:
                    loop = self.loops[index]
                    assert isinstance(loop.name, tuple)
                    name = (loop.name[0] - self.run + run, *loop.name[1:])
                    place = loop.first - self.first + first
                    left = recorder.leave_out(replace(loop, name=name, first=place), known=True)
                    assert left is not None
                    loops.append(left)
                event = next(events, None)
            if number < len(self.commands):
                recorder.append(*moves.command(*self.commands[number]))


class _Moves:
    """How far tensors are from where others were."""

    def __init__(self, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        pairs = sorted(
            (a.offset, a.offset + a.size, b.offset - a.offset)
            for a, b in zip(before, after, strict=True)
        )
        self._begins = [begin for begin, _, _ in pairs]
        self._ends = [end for _, end, _ in pairs]
        self._distances = [distance for _, _, distance in pairs]

    def _distance(self, address: int) -> int:
        index = bisect_right(self._begins, address) - 1
        assert index >= 0 and address < self._ends[index], f"{address:#x} is in none of the tensors"
        return self._distances[index]

    def command(
        self, command: Command, fields: Fields, reads: _Regions, writes: _Regions
    ) -> tuple[Command, _Regions, _Regions]:
        """The same for the other tensors."""
        address = fields.get(_ADDRESS)
        if address is None:
            return command.again(fields), reads, writes
        place = {_ADDRESS: address + self._distance(address)}
        return (
            command.again(fields | place),
            tuple(map(self._region, reads)),
            tuple(map(self._region, writes)),
        )

    def _region(self, region: Region) -> Region:
        if region.memory != DRAM:
            return region
        distance = self._distance(region.begin)
        return Region(DRAM, region.begin + distance, region.end + distance)


class Recordings:
    """What steps have recorded, by what they are like; for all parts of a program. What commands
    have in common is kept once."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[Recording]] = {}
        self._fields: dict[tuple[str, ...], dict[tuple[int, ...], Fields]] = {}
        self._regions: dict[_Touched, _Touched] = {}

    def shared(self, fields: Fields, regions: _Touched) -> tuple[Fields, _Touched]:
        """``fields`` of a command, and ``regions`` that it touches, or others that are equal; those
        with a place in DRAM as they are, because most of them have one of their own."""
        if _ADDRESS in fields:
            return fields, regions
        alike = self._fields.setdefault(tuple(fields), {})
        fields = alike.setdefault(tuple(fields.values()), fields)
        return fields, self._regions.setdefault(regions, regions)

    def find(self, recorder: _Recorder, like: Hashable) -> Recording | None:
        """That of a step that is ``like`` one that begins now."""
        known = self._known.get(like, ())
        return next((recording for recording in known if recording.fits(recorder)), None)

    def record(
        self, recorder: _Recorder, like: Hashable, tensors: Sequence[Tensor],
        write: Callable[[], object],
    ) -> Recording:  # fmt: skip
        """What ``write()`` records of a step that touches ``tensors`` in DRAM."""
        recording = Recording(tensors, len(recorder), recorder.runs)
        with recorder.recording(recording):
            write()
        recording.end(recorder)
        self._known.setdefault(like, []).append(recording)
        return recording


class StepCall(NamedTuple):
    """How a step is written: ``function(program, *arguments, **options)``.

    Members
    -------
    tensors : that it touches in DRAM, each with all of its memory
    others : names of tensors that it does not touch, although it may be given them
    """

    function: Callable[..., object]
    arguments: Sequence[object]
    options: Mapping[str, object]
    tensors: Sequence[Tensor]
    others: Container[str] = ()

    def write(self, program: object) -> None:
        """By ``program``, a :class:`~compiler.codegen.core_builder.CoreProgram`."""
        self.function(program, *self.arguments, **self.options)


class Likeness:
    """What steps have in common that differ in the places of their tensors alone.

    Parameters
    ----------
    tensors : that a step, or several of them, touch, each with all of its memory
    kept : names of tensors that stay in a memory on chip
    """

    def __init__(self, tensors: Sequence[Tensor], *, kept: Container[str] = ()) -> None:
        self._kept = kept
        self._places = sorted(
            (tensor.offset, tensor.offset + tensor.size, number)
            for number, tensor in enumerate(tensors)
        )
        self._apart = all(end <= begin for (_, end, _), (begin, _, _) in pairwise(self._places))

    def of(self, call: StepCall) -> Hashable | None:
        """That of a step; None if it is not known, or if tensors have memory in common."""
        if not self._apart:
            return None
        try:
            parts = call.function, tuple(call.arguments), call.options
            return tuple(self._like(part, call.others) for part in parts)
        except _NoLikeness:
            return None

    def _like(self, value: object, others: Container[str]) -> Hashable:
        if value is None or isinstance(value, bool | int | float | str | Enum):
            return type(value), value
        if isinstance(value, Tensor):
            name = value.name if value.name in self._kept else None
            return name, self._place(value, others), *(getattr(value, part) for part in _SIZES)
        if isinstance(value, tuple | list):
            return type(value), *(self._like(item, others) for item in value)
        if isinstance(value, Mapping):
            return tuple((key, self._like(item, others)) for key, item in sorted(value.items()))
        if is_dataclass(value) and not isinstance(value, type):
            parts = [part.name for part in fields(value) if part.name not in _NAMES]
            return type(value), *(self._like(getattr(value, part), others) for part in parts)
        if isinstance(value, FunctionType) and value.__closure__ is None:
            return value
        raise _NoLikeness

    def _place(self, tensor: Tensor, others: Container[str]) -> tuple[int, int] | None:
        """The touched tensor in which it begins, and where; None for one that is not touched."""
        if tensor.name in others:
            return None
        index = bisect_right(self._places, tensor.offset, key=lambda place: place[0]) - 1
        if index < 0 or tensor.offset >= self._places[index][1]:
            return None
        begin, _, number = self._places[index]
        return number, tensor.offset - begin


#: Members of what a step is given that stand in messages alone.
_NAMES = ("name", "layer")
#: Members of a tensor on which commands depend, but for its place.
_SIZES = tuple(part.name for part in fields(Tensor) if part.name not in ("name", "offset"))
