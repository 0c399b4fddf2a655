"""Programs that end only when they are stopped, or too late, and who is at work in them."""

from dataclasses import dataclass

from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode, encode
from hw.registers.map import Unit

from .faulty_programs import HALT, PROGRAM, dma, loss, matmul, post, vector, weights

__all__ = ["EndlessProgram", "endless_loops", "endless_programs", "slow_programs"]

#: Loops that may have their largest count, 2**48 passes in all, and stay at one place in the
#: memories. LOAD, STORE and LOSS have none: their addresses go on to the end of a memory.
_LOOPS = {
    Opcode.WEIGHTS: ("kw", "kh", "cb"),
    Opcode.MATMUL: ("kw", "kh", "cb"),
    Opcode.POST: ("wo", "ho", "pw", "ph"),
    Opcode.VECTOR: ("i0", "i1", "i2"),
}


@dataclass(frozen=True, kw_only=True)
class EndlessProgram:
    """A program for offset ``faulty_programs.PROGRAM``.

    Members
    -------
    units : those that are at work for ever, at least one of them at any time
    """

    name: str
    commands: list
    units: tuple

    @property
    def bytes(self) -> bytes:
        """The program."""
        return b"".join(self.commands)


def endless_programs(config: AdaGPConfig) -> list[EndlessProgram]:
    """A program for every engine that can work for ever, and one with all of them at once, beside
    LOADs and STOREs."""
    list_, transfers = [], []
    for core in config.cores:
        index = core.index
        loops = {
            (Opcode.POST,): [post(config, index, **_counts(Opcode.POST))],
            (Opcode.WEIGHTS, Opcode.MATMUL): [
                weights(config, index, **_counts(Opcode.WEIGHTS)),
                matmul(config, index, **_counts(Opcode.MATMUL)),
            ],
        }
        if core.has_vector:
            fields = _counts(Opcode.VECTOR) | {"x_i0_stride": 0, "o_i0_stride": 0}
            loops[(Opcode.VECTOR,)] = [vector(config, index, **fields)]
        for opcodes, commands in loops.items():
            units = tuple(Unit[f"CORE{index}_{opcode.name}"] for opcode in opcodes)
            name = " and ".join(unit.name for unit in units)
            list_.append(EndlessProgram(name=name, commands=[*commands, HALT], units=units))
        transfers += [
            dma(opcode, config, index, words=40) for opcode in (Opcode.LOAD, Opcode.STORE)
        ]
    everything = [command for program in list_ for command in program.commands[:-1]]
    units = tuple(unit for program in list_ for unit in program.units)
    commands = [*transfers, *everything, *transfers, HALT]
    return [*list_, EndlessProgram(name="everything", commands=commands, units=units)]


def slow_programs(config: AdaGPConfig) -> list[EndlessProgram]:
    """For every unit that cannot work for ever a program in which it alone works for more than 500
    cycles, between the end of one command and the next: LOAD and STORE if the memory is silent."""
    list_ = []
    for core in config.cores:
        index = core.index
        commands = {
            # Rows that there are none of, in many blocks: a tile that reads nothing.
            Opcode.WEIGHTS: weights(config, index, row_limit=0, block_count=0xFF),
            **{
                opcode: dma(opcode, config, index, words=16, run_count=0xFFFF, run_stride=0)
                for opcode in (Opcode.LOAD, Opcode.STORE)
            },
        }
        if core.has_loss:
            commands[Opcode.LOSS] = loss(config, loss=1, row_count=200, x_stride=0)
        for opcode, command in commands.items():
            unit = Unit[f"CORE{index}_{opcode.name}"]
            list_.append(EndlessProgram(name=unit.name, commands=[command, HALT], units=(unit,)))
    return list_


def _counts(opcode: Opcode) -> dict:
    return {f"{loop}_count": 0xFFFF for loop in _LOOPS[opcode]}


def endless_loops(config: AdaGPConfig) -> list[EndlessProgram]:
    """Loops of commands in which something moves for ever: none of them, a few that the fetch
    keeps, more than it keeps."""
    return [
        EndlessProgram(
            name=f"a loop of {len(body)} commands", units=(),
            commands=[
                *body,
                *(
                    encode(Opcode.REPEAT, level=level, count=0xFFFFFFFF, first=PROGRAM)
                    for level in (1, 3)
                ),
                HALT,
            ],
        )
        for body in (
            [],
            [dma(opcode, config, words=2) for opcode in (Opcode.LOAD, Opcode.STORE)],
            [dma(Opcode.LOAD, config, words=1)] * 40,
        )
    ]  # fmt: skip
