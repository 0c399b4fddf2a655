"""Programs of many batches: in the interpreter and on the whole accelerator."""

import random

import pytest

from emulator.batch_loop import PHASES, BatchLoop
from emulator.interpreter import FunctionalError, interpret
from golden.prediction.schedule import Phase, ScheduleConfig, Stage
from hw.config import make_config
from hw.isa.encoding import Opcode, encode, queue_opcodes
from hw.registers.map import PhaseCode
from verif.programs.batch_programs import BatchProgram, part_of
from verif.system import accelerator

CONFIG = make_config(variant="max", preset="tiny")
PROGRAM = BatchProgram(config=CONFIG)
#: Every phase in every parity, an epoch that ends inside a round, a change of stage.
SCHEDULE = ScheduleConfig(
    warm_up=1, ladder=(Stage(gp=2, bp=1, epochs=2), Stage(gp=1, bp=2, epochs=1))
)
TURNS = sum(len(queue_opcodes(core)) for core in CONFIG.cores)
LOOP = BatchLoop(schedule=SCHEDULE, batches=24, epoch_batches=5)


def expected_windows(loop, memory):
    """The window behind each batch of ``loop``."""
    windows = []
    for number, phase in enumerate(loop.phases()):
        for offset, data in PROGRAM.changes(number):
            memory[offset : offset + len(data)] = data
        PROGRAM.after(memory, phase, number)
        windows.append(bytes(memory))
    return windows


def compare(actual, expected, what):
    wrong = [place for place in range(len(expected)) if actual[place] != expected[place]]
    assert not wrong, (
        f"{what}: byte {wrong[0]:#x} is {actual[wrong[0]]:#04x}, expected "
        f"{expected[wrong[0]]:#04x}; {len(wrong)} are wrong"
    )


def play(memory, loop, commands, **options):
    """The interpreter with the program's inputs; returns its result and the window behind each
    batch."""
    windows = []

    def boundary(done, window):
        assert window is memory
        if done:
            windows.append(bytes(window))
        if done < loop.batches:
            for offset, data in PROGRAM.changes(done):
                window[offset : offset + len(data)] = data

    result = interpret(
        CONFIG, commands, memory, program=PROGRAM.program, loop=loop, boundary=boundary, **options
    )
    return result, windows


@pytest.mark.parametrize("begin", [0, 8])
def test_interpreter(begin, seed):
    loop = LOOP.after(begin)
    assert {(phase, n % 2) for n, phase in enumerate(loop.phases())} >= {
        (phase, parity) for phase in (Phase.BP, Phase.GP) for parity in (0, 1)
    }
    commands = PROGRAM.commands()
    memory = bytearray(PROGRAM.image(commands))
    expected = expected_windows(loop, bytearray(memory))
    result, windows = play(memory, loop, commands, seed=seed)
    assert list(result.phases) == loop.phases()
    assert result.semaphores == {}
    assert result.commands == 1 + 4 * loop.batches
    for number, (actual, wanted) in enumerate(zip(windows, expected, strict=True)):
        compare(actual, wanted, f"batch {number}")


def test_interpreter_without_a_batch():
    result, windows = play(
        bytearray(PROGRAM.image(PROGRAM.commands())), LOOP.after(24), PROGRAM.commands()
    )
    assert result.phases == () and windows == []


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"gp_odd": PROGRAM.program + 32}, r"gp_odd 0x1020 is no command of the program"),
        ({"bp_odd": PROGRAM.program - 64}, "bp_odd 0xfc0 is no command"),
        ({"gp_even": PROGRAM.program + 17 * 64}, "gp_even 0x1440 is no command"),
    ],
)
def test_interpreter_checks_targets(targets, message):
    commands = PROGRAM.commands(**targets)
    with pytest.raises(FunctionalError, match=message):
        play(bytearray(PROGRAM.image(commands)), LOOP, commands)


def test_interpreter_refuses_first_behind_a_batch():
    commands = PROGRAM.commands(first=1)
    with pytest.raises(FunctionalError, match=r"command 4 \(BATCH\): first is 1, but it is not"):
        play(bytearray(PROGRAM.image(commands)), LOOP, commands)


def test_interpreter_needs_a_loop():
    fields = dict.fromkeys(("bp_even", "bp_odd", "gp_even", "gp_odd"), 0)
    for header, message in (({}, "registers say no loop"), ({"wait": 1}, "no semaphores")):
        with pytest.raises(FunctionalError, match=message):
            interpret(CONFIG, encode(Opcode.BATCH, first=1, **fields, **header), bytearray(64))


@pytest.fixture(scope="module")
def simulator():
    return accelerator.build(CONFIG)


def test_parts_of_the_window(simulator, seed):
    """Only what is asked for is kept of a batch; a batch that fails leaves nothing."""
    parts = ((PROGRAM.trace, 8 * PROGRAM.word), (PROGRAM.input(1), PROGRAM.word))
    good = PROGRAM.commands()
    bad = PROGRAM.commands(parts={"gp_odd": [bytes(64)]})
    common = {"program": PROGRAM.program, "program_size": len(good), "parts": parts, "loop": LOOP}
    batches = tuple(PROGRAM.changes(number) for number in range(LOOP.batches))
    with pytest.raises(ValueError, match="changes for 23 batches"):
        accelerator.run(
            simulator, [accelerator.Run(image=b"", batches=batches[1:], **common)], seed=seed
        )
    # The bad program is shorter; zeros lie behind it.
    runs = [
        accelerator.Run(image=PROGRAM.image(commands), batches=batches, **common)
        for commands in (bad + bytes(len(good) - len(bad)), good)
    ]
    (failed, whole), _ = accelerator.run(simulator, runs, seed=seed)
    done = [part_of(phase, n) for n, phase in enumerate(LOOP.phases())].index("gp_odd")
    assert (failed.record.code, len(failed.batches)) == ("UNDEFINED_COMMAND", done)
    assert whole.record.done and len(whole.batches) == LOOP.batches
    for outcome, commands in ((failed, bad), (whole, good)):
        expected = expected_windows(LOOP, bytearray(PROGRAM.image(commands)))
        for number, batch in enumerate(outcome.batches):
            assert set(batch.parts) == {offset for offset, _ in parts}
            for offset, size in parts:
                wanted = expected[number][offset : offset + size]
                compare(batch.parts[offset], wanted, f"batch {number}, from {offset:#x}")


@pytest.mark.parametrize("stalls", [0.0, 0.4])
def test_accelerator(simulator, stalls, seed):
    """All batches, then the same in two runs, the second of which goes on where the first ends."""
    commands = PROGRAM.commands()
    image = PROGRAM.image(commands)
    cut = random.Random(seed).randrange(3, 20)
    loops = [LOOP, BatchLoop(schedule=SCHEDULE, batches=cut, epoch_batches=5), LOOP.after(cut)]
    runs = [
        accelerator.Run(
            image=image,
            program=PROGRAM.program,
            program_size=len(commands),
            loop=loop,
            batches=tuple(PROGRAM.changes(number) for number in range(loop.batches)),
        )
        for loop in loops
    ]
    outcomes, _ = accelerator.run(
        simulator, runs, seed=seed, stall_share=stalls, latency=round(50 * stalls)
    )
    for run, (loop, outcome) in enumerate(zip(loops, outcomes, strict=True)):
        record = outcome.record
        assert record.done and not record.error and not record.protocol_errors, record
        expected = expected_windows(loop, bytearray(image))
        assert len(outcome.batches) == loop.batches
        for number, (batch, wanted) in enumerate(zip(outcome.batches, expected, strict=True)):
            what = f"run {run}, batch {number}"
            compare(batch.memory, wanted, what)
            behind = loop.after(number + 1)
            position = batch.record.epoch, batch.record.epoch_batch
            assert position == (behind.epoch, behind.epoch_batch), what
            assert PHASES[PhaseCode[batch.record.phase]] is loop.phases()[number], what
            counters = batch.record.counters
            # A BATCH counts when it goes on, the last one with the end of the run.
            last = number == loop.batches - 1
            assert counters["COMMANDS"] == 4 + last, f"{what}: {counters}"
            is_gp = loop.phases()[number] is Phase.GP
            assert counters["BATCHES_GP"] == is_gp, f"{what}: {counters}"
            assert counters["WRITE_BYTES"] == 2 * PROGRAM.word, f"{what}: {counters}"
            if not stalls and number and not last and loop.after(number).epoch_batch:
                # It depends on whose turn it is at the semaphores.
                other = outcome.batches[1].record.cycles
                difference = abs(batch.record.cycles - other)
                assert difference <= 2 * TURNS, f"{what} takes {batch.record.cycles}, not {other}"
        compare(outcome.memory, expected[-1], f"run {run}, at the end")


def test_inputs_are_whole_beats():
    """The host writes whole beats; what is behind a word of another size stays as it is."""
    config = make_config(variant="low", preset="tiny", rows=3, columns=2, axi_data_width=128)
    program = BatchProgram(config=config)
    memory = bytearray(program.image(program.commands()))
    for offset, data in program.changes(5):
        assert offset % config.beat_bytes == 0 and len(data) == config.beat_bytes
        memory[offset : offset + len(data)] = data
    place = program.input(1)
    assert memory[place : place + 8] == bytes([5, 0x5A] * 3) + b"\xa5\xa5"
