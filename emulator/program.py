"""The commands of a program, decoded when they are first needed, and where they lead."""

from typing import Any

from hw.isa.encoding import COMMAND_BYTES, Opcode, control_opcodes, decode
from hw.isa.loops import LoopCounters
from hw.isa.packing import has_packed, unpack
from hw.isa.rows import RowAction, RowList

from .machine import Machine
from .memory import FunctionalError

__all__ = ["TARGETS", "CommandStream"]

#: Fields of BATCH that say where it leads.
TARGETS = ("bp_even", "bp_odd", "gp_even", "gp_odd")


class CommandStream:
    """A sequence of (opcode, fields), which must not be changed.

    Parameters
    ----------
    machine : that is to execute them
    commands : the command stream
    offset : of the first one in the memory window, from which REPEAT, BATCH and ROWS count

    Raises
    ------
    FunctionalError
        from every call, naming the command, where it is undefined, or leads to none of the program;
        at once, where packed commands are not whole, or take what another way has left.
    """

    def __init__(self, machine: Machine, commands: bytes, offset: int = 0) -> None:
        self._machine = machine
        self._raw, begins = _listed(bytes(commands), offset)
        self._numbers = {offset + begin: number for number, begin in enumerate(begins)}
        self._decoded: list[tuple[Opcode, dict[str, Any]] | None] = [None] * len(self._raw)

    def __getitem__(self, place: int) -> tuple[Opcode, dict[str, Any]]:
        if place >= len(self._decoded):
            raise FunctionalError(f"command {place}: the program ends without HALT")
        found = self._decoded[place]
        if found is None:
            found = self._decoded[place] = self._decode(place, self._raw[place])
        return found

    def _decode(self, place, raw):
        machine = self._machine
        try:
            opcode, fields = decode(raw)
        except ValueError as error:
            raise FunctionalError(f"command {place}: {error}") from error
        used = fields["wait"] | fields["signal"]
        known = opcode in control_opcodes(machine.config)
        known |= (fields["core"], opcode) in machine.commands
        alone = opcode in (Opcode.BATCH, Opcode.REPEAT, Opcode.ROWS)
        if alone and (used or fields["core"]):
            raise FunctionalError(f"command {place}: {opcode.name} has no core and no semaphores")
        if used >> machine.config.semaphore_count or not known:
            raise FunctionalError(f"command {place}: no such core, engine or semaphore")
        return opcode, fields

    def repeat(self, place: int, counters: LoopCounters) -> int:
        """Execute the REPEAT at ``place``; the number of the command behind it."""
        fields = self[place][1]
        if not fields["count"]:
            raise FunctionalError(f"command {place} (REPEAT): count is 0")
        first = self._target(place, "first")
        return first if counters.repeat(fields) else place + 1

    def rows(self, place: int, counters: LoopCounters, rows: RowList) -> int:
        """Execute the ROWS at ``place``; the number of the command behind it."""
        _, fields = self[place]
        action = RowAction(fields["action"])
        if rows.listening and action is not RowAction.JOIN:
            raise FunctionalError(f"command {place} (ROWS): no VECTOR has filled the list yet")
        depth, count = self._machine.config.row_list_depth, len(rows.rows)
        if action is RowAction.BRANCH and rows.count > depth:
            raise FunctionalError(
                f"command {place} (ROWS): {rows.count} rows, of which the list can have {depth}"
            )
        target = rows.execute(fields, counters)
        if target is None:
            return place + 1
        steps = count if action is RowAction.BRANCH else 0
        return self._target(place, "first", steps)

    def batch(self, place: int, counters: LoopCounters, *, begun: bool) -> dict[str, int]:
        """The numbers of the commands that the BATCH at ``place`` may lead to, by name in
        :data:`TARGETS`; ``begun``: it is not the run's first BATCH."""
        if self[place][1]["first"] and begun:
            raise FunctionalError(
                f"command {place} (BATCH): first is 1, but it is not the run's first BATCH"
            )
        if any(counters.values):
            raise FunctionalError(
                f"command {place} (BATCH): a loop is not over, its counters are {counters.values}"
            )
        return {name: self._target(place, name) for name in TARGETS}

    def _target(self, place, field, behind=0):
        """The number of the command whose offset ``field`` of command ``place`` is, or so many
        whole ones behind it."""
        opcode, fields = self[place]
        target = self._numbers.get(fields[field] + behind * COMMAND_BYTES)
        if target is None or len(self._raw[target]) < COMMAND_BYTES:
            raise FunctionalError(
                f"command {place} ({opcode.name}): {field} {fields[field]:#x} is no command of "
                "the program"
            )
        return target


def _listed(commands: bytes, offset: int) -> tuple[list[bytes], list[int]]:
    """All commands as whole ones, the last of them perhaps cut off, and where they begin."""
    if not has_packed(commands):
        begins = list(range(0, len(commands), COMMAND_BYTES))
        return [commands[begin : begin + COMMAND_BYTES] for begin in begins], begins
    try:
        placed = unpack(commands, offset)
    except ValueError as error:
        raise FunctionalError(str(error)) from error
    return [one.command for one in placed], [one.begin for one in placed]
