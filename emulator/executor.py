"""A program executed in the order of its commands, as fast as NumPy allows.

:func:`emulator.interpreter.interpret` looks for races in random orders; here every command is
executed as soon as it comes. Both leave the same memory wherever the interpreter finds nothing,
because the tokens of a command always come from commands in front of it.
"""

from collections.abc import Generator

from hw.isa.encoding import Opcode
from hw.isa.loops import LoopCounters

from .machine import Machine
from .memory import FunctionalError
from .program import CommandStream

__all__ = ["execute"]


def execute(
    machine: Machine, commands: bytes, offset: int = 0
) -> Generator[bool, str | None, None]:
    """Execute a program to its end.

    Yields at every BATCH whether a batch ends there (not at a run's first one, with ``first`` set).
    The answer, given by ``send``, says where the program goes on: None ends it, as when all batches
    are done; else one of :data:`~emulator.program.TARGETS`.

    Parameters
    ----------
    machine : its memories change
    commands : the command stream
    offset : of the first one in the memory window, from which REPEAT, BATCH and ROWS count

    Raises
    ------
    FunctionalError
        naming the command: undefined, an address out of range or unaligned, something read that
        was never written, weight tiles that are missing or left over, a program without HALT, a
        loop or a batch that goes to no command of the program, a BATCH inside a loop or with
        ``first`` behind another one.
    """
    program = CommandStream(machine, commands, offset)
    counters, begun, place = LoopCounters(), False, 0
    while True:
        opcode, fields = program[place]
        if opcode is Opcode.HALT:
            break
        if opcode is Opcode.REPEAT:
            place = program.repeat(place, counters)
        elif opcode is Opcode.ROWS:
            place = program.rows(place, counters, machine.rows)
        elif opcode is Opcode.BATCH:
            targets = program.batch(place, counters, begun=begun)
            _require_no_tiles(machine, place)
            begun = True
            answer = yield not fields["first"]
            if answer is None:
                return
            place = targets[answer]
        else:
            if opcode in (Opcode.LOAD, Opcode.STORE) and any(counters.values):
                fields = {**fields, "dram_address": counters.address(fields)}
            try:
                machine.execute(opcode, fields)
            except FunctionalError as error:
                raise FunctionalError(f"command {place} ({opcode.name}): {error}") from error
            place += 1
    _require_no_tiles(machine, place)


def _require_no_tiles(machine: Machine, place: int) -> None:
    if any(machine.tiles):
        raise FunctionalError(f"command {place}: weight tiles are left that no MATMUL takes")
