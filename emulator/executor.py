"""A program executed in the order of its commands, as fast as NumPy allows.

:func:`emulator.interpreter.interpret` looks for races in random orders; here every command is
executed as soon as it comes. Both leave the same memory wherever the interpreter finds nothing,
because the tokens of a command always come from commands in front of it.
"""

from collections.abc import Iterator

from hw.isa.encoding import COMMAND_BYTES, Opcode, control_opcodes, decode
from hw.isa.loops import LoopCounters

from .machine import Machine
from .memory import FunctionalError

__all__ = ["execute"]

#: Fields of BATCH by (Phase GP, odd batch).
_TARGETS = {
    (False, False): "bp_even",
    (False, True): "bp_odd",
    (True, False): "gp_even",
    (True, True): "gp_odd",
}


def execute(machine: Machine, commands: bytes, offset: int = 0) -> Iterator[bool]:
    """Execute a program to its end.

    Yields at every BATCH whether a batch ends there (not at a run's first one, with ``first`` set).
    The answer, given by ``send``, says where the program goes on: None ends it, as when all batches
    are done; else (whether the batch is in Phase GP, whether its number is odd).

    Parameters
    ----------
    machine : its memories change
    commands : the command stream
    offset : of the first one in the memory window, from which REPEAT and BATCH count

    Raises
    ------
    FunctionalError
        naming the command: undefined, an address out of range or unaligned, something read that
        was never written, weight tiles that are missing or left over, a program without HALT, a
        loop or a batch that goes to no command of the program, a BATCH inside a loop or with
        ``first`` behind another one.
    """
    program = _Program(machine, commands, offset)
    counters, batches, place = LoopCounters(), 0, 0
    while True:
        opcode, fields = program[place]
        if opcode is Opcode.HALT:
            break
        if opcode is Opcode.REPEAT:
            if not fields["count"]:
                raise FunctionalError(f"command {place} (REPEAT): count is 0")
            first = program.place(place, "first")
            place = first if counters.repeat(fields) else place + 1
        elif opcode is Opcode.BATCH:
            if any(counters.values):
                raise FunctionalError(f"command {place} (BATCH): a loop is not over")
            if fields["first"] and batches:
                raise FunctionalError(
                    f"command {place} (BATCH): first is 1, but it is not the run's first BATCH"
                )
            targets = {key: program.place(place, name) for key, name in _TARGETS.items()}
            program.no_tiles(place)
            batches += 1
            answer = yield not fields["first"]
            if answer is None:
                return
            place = targets[answer]
        else:
            if opcode in (Opcode.LOAD, Opcode.STORE) and any(counters.values):
                fields = {**fields, "dram_address": counters.address(fields)}
            program.execute(place, opcode, fields)
            place += 1
    program.no_tiles(place)


class _Program:
    """Commands, decoded when they are first needed."""

    def __init__(self, machine, commands, offset):
        self._machine, self._commands, self._offset = machine, bytes(commands), offset
        self._decoded: list = [None] * (len(commands) // COMMAND_BYTES)

    def __getitem__(self, place):
        if place >= len(self._decoded):
            raise FunctionalError(f"command {place}: the program ends without HALT")
        if self._decoded[place] is None:
            raw = self._commands[place * COMMAND_BYTES :][:COMMAND_BYTES]
            self._decoded[place] = self._decode(place, raw)
        return self._decoded[place]

    def _decode(self, place, raw):
        machine = self._machine
        try:
            opcode, fields = decode(raw)
        except ValueError as error:
            raise FunctionalError(f"command {place}: {error}") from error
        known = opcode in control_opcodes(machine.config)
        if not known and (fields["core"], opcode) not in machine.commands:
            raise FunctionalError(f"command {place} ({opcode.name}): no such core or engine")
        return opcode, fields

    def place(self, place, field):
        """The number of the command whose offset ``field`` of command ``place`` is."""
        opcode, fields = self[place]
        target, rest = divmod(fields[field] - self._offset, COMMAND_BYTES)
        if rest or not 0 <= target < len(self._decoded):
            raise FunctionalError(
                f"command {place} ({opcode.name}): {field} {fields[field]:#x} is no command of "
                "the program"
            )
        return target

    def execute(self, place, opcode, fields):
        try:
            self._machine.execute(opcode, fields)
        except FunctionalError as error:
            raise FunctionalError(f"command {place} ({opcode.name}): {error}") from error

    def no_tiles(self, place):
        if any(self._machine.tiles):
            raise FunctionalError(f"command {place}: weight tiles are left that no MATMUL takes")
