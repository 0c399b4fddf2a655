"""From a finding to the smallest cases that show it."""

import dataclasses
from collections.abc import Iterator

from hw.isa.encoding import COMMAND_BYTES
from hw.registers.map import register_map

from .case import Case, Slave
from .commands import opcode_of, places
from .harness import Finding, Harness, Program

__all__ = ["shrink"]

#: Simulated cycles after which the search ends.
CYCLES = 5_000_000
#: What a new start costs, in cycles.
_SWITCHING_ON = 500

#: In this order numbers of a case are tried at their defaults.
_CASE = (
    "script", "restart", "reset_at", "dead_at", "pauses", "watchdog", "fill", "fill_seed", "good",
    "good_base", "reset_wait", "reset_cycles", "reset_slave",
)  # fmt: skip


class _Search:
    def __init__(self, program, harness, kind, cycles):
        self.program, self.harness = program, harness
        self.kind, self.left = kind, cycles
        self.registers = register_map(program.config)
        self.size_register = self.registers["PROGRAM_SIZE"].offset
        self.window = {
            self.registers[name].offset
            for name in (
                "MEM_BASE_LO", "MEM_BASE_HI", "MEM_SIZE", "PROGRAM_ADDRESS", "PROGRAM_SIZE",
                "INTERRUPT_ENABLE",
            )
        }  # fmt: skip

    def shows(self, cases):
        """The finding of the same kind that ``cases`` end with, or None."""
        if self.left <= 0:
            return None
        cases = _switched_on(cases)
        results = self.harness.run(cases)
        self.left -= _SWITCHING_ON
        for result in results:
            self.left -= result.cycles if isinstance(result, Finding) else result.all_cycles
        last = results[-1]
        if any(isinstance(result, Finding) for result in results[:-1]):
            return None
        return last if isinstance(last, Finding) and last.kind == self.kind else None

    def fewer_cases(self, cases):
        """Without cases in front of the last that make no difference."""
        if self.shows(cases[-1:]):
            return cases[-1:]
        step = max(1, (len(cases) - 1) // 2)
        while step:
            place = 0
            while place < len(cases) - 1:
                shorter = cases[:place] + cases[min(place + step, len(cases) - 1) :]
                if self.shows(shorter):
                    cases = shorter
                else:
                    place += step
            step //= 2
        return cases

    def simpler(self, cases, index):
        """The same cases with number ``index`` as simple as possible."""
        cases, before = list(cases), None

        def get():
            return cases[index]

        while get() != before and self.left > 0:
            before = get()
            for candidate in self._candidates(get):
                if candidate == get():
                    continue
                if self.shows([*cases[:index], candidate, *cases[index + 1 :]]):
                    cases[index] = candidate
        return cases

    def _candidates(self, get) -> Iterator[Case]:
        """Simpler cases, each made from what ``get`` returns at that time."""
        yield dataclasses.replace(get(), slave=Slave(seed=get().slave.seed))
        yield self._commands(get(), ())
        count = len(get().commands)
        step = max(1, count // 2)
        while step:
            place = 0
            while place < len(get().commands):
                before = get().commands
                yield self._commands(get(), before[:place] + before[place + step :])
                if get().commands == before:
                    place += step
            step //= 2
        for name in _CASE:
            yield dataclasses.replace(get(), **{name: _default(Case, name)})
        for item in dataclasses.fields(Slave):
            value, simple = getattr(get().slave, item.name), item.default
            while value != simple:
                slave = dataclasses.replace(get().slave, **{item.name: simple})
                yield dataclasses.replace(get(), slave=slave)
                simple = (value + simple + (value > simple)) // 2
                if simple == value or getattr(get().slave, item.name) != value:
                    break
        yield from self._fewer(get, "script")
        yield from self._fewer(get, "registers")
        for name in ("stop_at", "reset_at", "dead_at", "dead_cycles", "good_base"):
            for value in (getattr(get(), name) // 2, getattr(get(), name) - 1):
                if value > 0:
                    yield dataclasses.replace(get(), **{name: value})
        for place in range(len(get().commands)):
            yield from self._simpler_command(get, place)

    def _fewer(self, get, name):
        for entry in getattr(get(), name):
            if name == "registers" and entry[0] in self.window:
                continue
            left = tuple(other for other in getattr(get(), name) if other != entry)
            yield dataclasses.replace(get(), **{name: left})

    def _commands(self, case, commands):
        """``case`` with other commands, and the program's size as it was meant."""
        size = case.program_size
        if size == COMMAND_BYTES * len(case.commands):
            size = COMMAND_BYTES * len(commands)
        registers = tuple(
            (offset, size if offset == self.size_register else value)
            for offset, value in case.registers
        )
        return dataclasses.replace(
            case, commands=tuple(commands), program_size=size, registers=registers
        )

    def _simpler_command(self, get, place):
        opcode = opcode_of(get().commands[place])
        if opcode is None:
            return
        for field in places(opcode)[1:]:
            for value in (field.default, 0, 1):
                command = get().commands[place]
                if value is None:
                    continue
                simple = field.put(command, value)
                if simple == command:
                    break
                commands = list(get().commands)
                commands[place] = simple
                yield self._commands(get(), commands)


def _default(kind, name):
    return next(item.default for item in dataclasses.fields(kind) if item.name == name)


def _switched_on(cases):
    return [dataclasses.replace(case, fresh=int(not n)) for n, case in enumerate(cases)]


def shrink(program: Program, cases, finding: Finding, *, cycles: int = CYCLES):
    """The smallest cases found that show a finding of the same kind, and that finding.

    Returns
    -------
    tuple of list of Case and Finding; None if ``cases``, run from the start, do not show it again
    """
    with Harness(program) as harness:
        search = _Search(program, harness, finding.kind, cycles)
        cases = list(cases)
        if not search.shows(cases):
            return None
        cases = search.fewer_cases(cases)
        for index in reversed(range(len(cases))):
            cases = search.simpler(cases, index)
        search.left = 1
        return _switched_on(cases), search.shows(cases)
