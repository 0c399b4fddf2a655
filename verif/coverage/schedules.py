"""Runs of many batches for what the regression's do not reach, each compared byte for byte.

Warm-up and four stages that all end, so that batches come behind the last of them; stages without
one of the phases; and the largest epoch and batch that the registers hold.
"""

from emulator.batch_loop import PHASES, BatchLoop
from golden.prediction.schedule import ScheduleConfig, Stage
from hw.config import AdaGPConfig
from hw.isa.batch import EPOCH_BATCH_WIDTH, EPOCH_WIDTH, PhaseCode
from verif.programs.batch_programs import BatchProgram
from verif.system.accelerator import Outcome, Run

__all__ = ["check_schedules", "compare_memory", "schedule_runs"]

#: Warm-up, then four stages that end.
_ENDING = ScheduleConfig(
    warm_up=1,
    ladder=(
        Stage(gp=1, bp=1, epochs=1),
        Stage(gp=2, bp=1, epochs=2),
        Stage(gp=0, bp=1, epochs=1),
        Stage(gp=255, bp=255, epochs=1),
    ),
)
#: One stage without an end.
_LONG = ScheduleConfig(warm_up=0, ladder=(Stage(gp=1, bp=1, epochs=None),))


def schedule_runs(config: AdaGPConfig) -> list[Run]:
    """Runs of :class:`~verif.programs.batch_programs.BatchProgram`; see :func:`check_schedules`."""
    program = BatchProgram(config=config)
    commands = program.commands()
    image = program.image(commands)
    loops = [
        BatchLoop(schedule=_ENDING, batches=16, epoch_batches=2),
        BatchLoop(
            schedule=_LONG,
            batches=3,
            epoch_batches=(1 << EPOCH_BATCH_WIDTH) - 1,
            epoch=(1 << EPOCH_WIDTH) - 2,
            epoch_batch=(1 << EPOCH_BATCH_WIDTH) - 4,
        ),
    ]
    return [
        Run(
            image=image,
            program=program.program,
            program_size=len(commands),
            loop=loop,
            batches=tuple(program.changes(number) for number in range(loop.batches)),
        )
        for loop in loops
    ]


def check_schedules(config: AdaGPConfig, runs: list[Run], outcomes: list[Outcome]) -> None:
    """Raise AssertionError for the first batch with a wrong phase, position or memory."""
    program = BatchProgram(config=config)
    for index, (run, outcome) in enumerate(zip(runs, outcomes, strict=True)):
        memory, phases = bytearray(run.image), run.loop.phases()
        for number, (batch, phase) in enumerate(zip(outcome.batches, phases, strict=True)):
            where = f"schedule {index}, batch {number}"
            actual = PHASES[PhaseCode[batch.record.phase]]
            if actual is not phase:
                raise AssertionError(f"{where} is {actual.name}, not {phase.name}")
            for offset, data in program.changes(number):
                memory[offset : offset + len(data)] = data
            program.after(memory, phase, number)
            compare_memory(where, batch.memory, memory)
            behind = run.loop.after(number + 1)
            position = batch.record.epoch, batch.record.epoch_batch
            if position != (behind.epoch, behind.epoch_batch):
                raise AssertionError(
                    f"{where} ends at {position}, not {behind.epoch, behind.epoch_batch}"
                )


def compare_memory(where: str, actual: bytes, expected: bytes) -> None:
    """Raise AssertionError with the first byte that differs."""
    if bytes(actual) != bytes(expected):
        place = next(i for i, pair in enumerate(zip(actual, expected)) if pair[0] != pair[1])
        raise AssertionError(
            f"{where}: byte {place:#x} is {actual[place]:#04x}, expected {expected[place]:#04x}"
        )
