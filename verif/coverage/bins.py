"""Functional points of a configuration, from the descriptions that the hardware is made of.

- ``command``: of every field of every opcode each class of values (:func:`classes`); and every
  opcode on every core that executes it. Only commands of runs that end without an error count:
  of the others nobody knows which were executed.
- ``wait``: every :class:`~verif.coverage.monitor.Wait`, that is, every opcode held up by every
  cause.
- ``error``: every error code reported by every unit.

Every point belongs to one variant and to the Python file of the hardware that it is about.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hw.config import AdaGPConfig
from hw.isa.encoding import COMMANDS, HEADER, QUEUE_OPCODES, Opcode, control_opcodes, queue_opcodes
from hw.isa.error_codes import ErrorCode
from hw.isa.field import BUFFER_ADDRESS_NOTE, Field
from hw.registers.map import Unit

from .monitor import waits
from .points import Point

__all__ = ["Class", "classes", "command_points", "error_point", "functional_points", "wait_points"]

#: Where the hardware of an opcode or of a unit stands.
_FILES = {
    Opcode.HALT: "hw/control/sequencer.py",
    Opcode.LOAD: "hw/dma/load.py",
    Opcode.STORE: "hw/dma/store.py",
    Opcode.MATMUL: "hw/engines/matmul/engine.py",
    Opcode.POST: "hw/engines/post/engine.py",
    Opcode.WEIGHTS: "hw/engines/matmul/weight_loader.py",
    Opcode.VECTOR: "hw/engines/vector/engine.py",
    Opcode.LOSS: "hw/engines/loss/engine.py",
    Opcode.BATCH: "hw/control/batch_control.py",
    Opcode.REPEAT: "hw/control/loop_control.py",
    Opcode.ROWS: "hw/control/row_list.py",
}
_UNIT_FILES = {
    Unit.FETCH: "hw/control/fetch.py",
    Unit.SEQUENCER: "hw/control/sequencer.py",
    Unit.READ_BUS: "hw/bus/axi_mux.py",
    Unit.WRITE_BUS: "hw/bus/axi_mux.py",
}


@dataclass(frozen=True)
class Class:
    """Values of a field that count as one."""

    name: str
    holds: Callable[[int], bool]


@functools.cache
def classes(field: Field, config: AdaGPConfig, core: int = 0) -> tuple[Class, ...]:
    """How the values of ``field`` are told apart, from what the encoding says about it.

    =====================  =====================================================================
    field                  classes
    =====================  =====================================================================
    with names             each of them
    one or two bits        each value
    semaphores             none, one, several
    buffer address         in the first and in the second memory, where there are two
    signed                 negative, 0, 1, above; of more than 24 bits negative, 0, above
    bytes                  below a buffer word, a word, above
    above 24 bits          0 (where that is the default), not 0
    at least 1; limits     0 (if allowed), 1, 2, below the array, as large as it, above, largest;
                           the array's size is its rows, or its columns
    other                  0, 1, above
    =====================  =====================================================================
    """
    sizes = config.cores[core]
    low, high = field.range
    if field.enum is not None:
        return tuple(Class(value.name, _equals(value)) for value in field.enum)
    if field.name in ("wait", "signal"):
        return (
            Class("none", _equals(0)),
            Class("one", lambda value: value.bit_count() == 1),
            Class("several", lambda value: value.bit_count() > 1),
        )
    if BUFFER_ADDRESS_NOTE in field.doc:
        memories = range(len(config.memory_banks))
        top = field.width - 1
        return tuple(Class(f"memory {n}", lambda v, n=n: v >> top == n) for n in memories)
    if field.signed:
        one = [] if field.width > 24 else [Class("1", _equals(1))]
        return (
            Class("negative", lambda value: value < 0),
            Class("0", _equals(0)),
            *one,
            Class("above", lambda value: value > len(one)),
        )
    if field.name.endswith("_bytes"):
        word = sizes.word_bytes
        return (
            Class("below a word", lambda value: value < word),
            Class("a word", _equals(word)),
            Class("above a word", lambda value: value > word),
        )
    if field.width <= 2:
        return tuple(Class(str(value), _equals(value)) for value in range(low, high + 1))
    if field.width > 24:
        zero = [Class("0", _equals(0))] if field.default == 0 else []
        return (*zero, Class("not 0", lambda value: value > 0))
    zero = [Class("0", _equals(0))] if low == 0 else []
    if low == 0 and not field.name.endswith("_limit"):
        return (*zero, Class("1", _equals(1)), Class("above", lambda value: value > 1))
    arrays = {sizes.rows, sizes.columns}
    return (
        *zero,
        Class("1", _equals(1)),
        Class("2", _equals(2)),
        *([Class("below the array", lambda v: 2 < v < min(arrays))] if min(arrays) > 3 else []),
        Class("the array's", lambda v: v in arrays and v > 2),
        Class("above the array", lambda v: max(arrays) < v < high),
        Class("largest", _equals(high)),
    )


def _equals(wanted: int) -> Callable[[int], bool]:
    return lambda value: value == wanted


def _opcodes(config: AdaGPConfig) -> list[tuple[int, Opcode]]:
    """(core, opcode), in the order of the queues; those of the sequencer count as core 0's."""
    own = [(0, opcode) for opcode in control_opcodes(config)]
    return own + [(core.index, op) for core in config.cores for op in queue_opcodes(core)]


def _point(config, file, what) -> Point:
    return Point(kind="functional", file=file, what=f"{config.variant}: {what}")


def _fields(opcode):
    """Fields that make a difference: opcodes without a queue do not look at the header's."""
    if opcode not in QUEUE_OPCODES:
        return COMMANDS[opcode]
    return tuple(f for f in (*HEADER, *COMMANDS[opcode]) if f.name not in ("opcode", "core"))


def command_points(config: AdaGPConfig, opcode: Opcode, values: dict[str, int]) -> set[Point]:
    """What a command that was executed has reached."""
    file, core = _FILES[opcode], values.get("core", 0)
    points = {_point(config, file, f"command {opcode.name} on core {core}")}
    for field in _fields(opcode):
        for kind in classes(field, config, core):
            if kind.holds(values[field.name]):
                points.add(_point(config, file, f"command {opcode.name} {field.name} {kind.name}"))
    return points


def wait_points(config: AdaGPConfig) -> tuple[Point, ...]:
    """A point for each of :func:`~verif.coverage.monitor.waits`, in their order."""
    return tuple(
        _point(config, _FILES[w.opcode], f"wait {w.opcode.name} on core {w.core} for {w.cause}")
        for w in waits(config)
    )


def error_point(config: AdaGPConfig, code: ErrorCode, unit: Unit) -> Point:
    """A run that ended with an error."""
    file = _UNIT_FILES.get(unit)
    if file is None:
        file = _FILES[Opcode[unit.name.partition("_")[2]]]
    return _point(config, file, f"error {code.name} of {unit.name}")


def _units(config: AdaGPConfig) -> Iterable[Unit]:
    yield from _UNIT_FILES
    for core in config.cores:
        for opcode in queue_opcodes(core):
            yield Unit[f"CORE{core.index}_{opcode.name}"]


def functional_points(config: AdaGPConfig) -> set[Point]:
    """Everything there is to reach."""
    points = set(wait_points(config))
    for core, opcode in _opcodes(config):
        file = _FILES[opcode]
        points.add(_point(config, file, f"command {opcode.name} on core {core}"))
        for field in _fields(opcode):
            for kind in classes(field, config, core):
                points.add(_point(config, file, f"command {opcode.name} {field.name} {kind.name}"))
    for unit in _units(config):
        for code in ErrorCode:
            if code is not ErrorCode.NONE:
                points.add(error_point(config, code, unit))
    return points
