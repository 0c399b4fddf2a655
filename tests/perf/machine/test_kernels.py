"""Every block of the machine: cycles and counters of small programs beside the RTL's, and loops
with and without their continuation.

Covers: perf/machine/model.py, perf/machine/records.py, perf/machine/plain.py,
perf/validation/measured.py, verif/system/accelerator.py, verif/system/simulator.py.
"""

from functools import partial

import numpy as np
import pytest

from hw.config import make_config
from hw.isa.encoding import COMMAND_BYTES, Opcode, decode, encode
from hw.isa.packing import WORDS
from perf.machine import model
from perf.machine.kernels.fifo import pop, push
from perf.validation.measured import Measured, measure
from verif.programs.engine_programs import busy_program, loss_program
from verif.programs.faulty_programs import HALT, dma, matmul, vector, weights
from verif.programs.repeat_programs import repeat_program
from verif.system import accelerator
from verif.system.simulator import MINIMUM_MEMORY_BYTES

CONFIG = make_config(variant="baseline", preset="tiny")
#: Compiling takes half a minute.
run = partial(model.run, compiled=False)


def on_rtl(config, programs, latency):
    runs = [
        accelerator.Run(
            image=program.image, program_size=len(program.program),
            registers=getattr(program, "registers", {}),
        )
        for program in programs
    ]  # fmt: skip

    def work(config):
        accelerator.run(accelerator.build(config), runs, timeout_cycles=300_000)

    return measure(work, config, latency=latency)


def on_model(item: Measured, config=CONFIG, **options):
    return run(
        item.commands, config, offset=item.offset, latency=item.latency, base=item.base, **options
    )


def test_every_counter_is_that_of_the_rtl(seed, monkeypatch):
    """LOSS alone, all engines together, loops of commands."""
    # The simulator of most tests.
    monkeypatch.setattr("perf.validation.measured.MEMORY_BYTES", MINIMUM_MEMORY_BYTES)
    programs = [
        loss_program(CONFIG, seed),
        busy_program(CONFIG, 0, seed),
        repeat_program(CONFIG, 0, seed),
    ]
    measured = on_rtl(CONFIG, programs, 25)
    assert len(measured) == len(programs)
    for item in measured:
        result = on_model(item)
        for name, value in result.counters.items():
            assert value == item.counters[name], f"{name}: model {value}, RTL {item.counters[name]}"
        again = Measured.from_dict(item.as_dict())
        assert again == item


def assert_continued_alike(commands, latency=10):
    """With and without the continuation of loops; how many cycles were simulated with it."""
    program = b"".join(commands)
    alone = run(program, CONFIG, latency=latency, continues=False)
    result = run(program, CONFIG, latency=latency)
    assert result.counters == alone.counters
    assert result.ends == alone.ends
    assert alone.simulated == alone.cycles >= result.simulated
    return alone.cycles, result.simulated


def repeat(first, count, level=0):
    return encode(Opcode.REPEAT, level=level, count=count, first=first * COMMAND_BYTES)


def test_a_long_loop_is_not_simulated_to_its_end():
    """Loads that move, with stores behind them that do not."""
    commands = [
        dma(Opcode.LOAD, CONFIG, words=24, dram_address=0x1000, loop0_stride=0x60, signal=1),
        vector(CONFIG, steps=20, wait=1, signal=2),
        dma(Opcode.STORE, CONFIG, words=3, dram_address=0x8000, wait=2),
        repeat(0, 200),
        HALT,
    ]
    cycles, simulated = assert_continued_alike(commands)
    assert cycles > 200 * 60
    assert simulated < 0.8 * cycles


@pytest.mark.parametrize("wait", [0, 1])
def test_an_array_that_works_alone(wait):
    """Long tiles, with and without another queue that waits all the time."""
    tiles = 4
    commands = [
        weights(CONFIG, tiles=tiles),
        matmul(CONFIG, vectors=120, kw_count=tiles, signal=1),
        vector(CONFIG, wait=wait),
        weights(CONFIG, tiles=tiles),
        matmul(CONFIG, vectors=90, kw_count=tiles),
        HALT,
    ]
    cycles, simulated = assert_continued_alike(commands)
    assert simulated < 0.85 * cycles
    result = run(b"".join(commands), CONFIG)
    assert result.counters["CORE0_VECTORS"] == 210 * tiles
    assert result.counters["CORE0_TILES"] == 2 * tiles


def test_loops_inside_each_other():
    commands = [
        dma(Opcode.LOAD, CONFIG, words=5, dram_address=0x1008, loop0_stride=8, loop1_stride=40),
        dma(Opcode.STORE, CONFIG, words=2, dram_address=0x8000, loop1_stride=16),
        repeat(0, 40),
        dma(Opcode.LOAD, CONFIG, words=9, dram_address=0x2000, loop1_stride=64),
        repeat(0, 9, level=1),
        HALT,
    ]
    assert_continued_alike(commands, latency=37)


def test_random_loops_that_are_long(seed):
    commands = [decode(command) for command in repeat_program(CONFIG, 0, seed).commands]
    for opcode, fields in commands:
        if opcode is Opcode.REPEAT:
            fields["count"] += 1
    assert_continued_alike([encode(opcode, **fields) for opcode, fields in commands])


@pytest.mark.long
def test_compiled_as_plain(seed):
    programs = [busy_program(CONFIG, 0, seed), repeat_program(CONFIG, 0, seed)]
    for program in programs:
        assert model.run(program.program, CONFIG, latency=9) == run(
            program.program, CONFIG, latency=9
        )
    # Iterations that are long and alike.
    body = [vector(CONFIG, steps=9000, signal=1), vector(CONFIG, steps=5, wait=1)]
    program = b"".join([*body, repeat(0, 400), HALT])
    alone = model.run(program, CONFIG, continues=False)
    about = model.run(program, CONFIG, exact=False)
    assert about.cycles == pytest.approx(alone.cycles, rel=1e-4)
    assert about.simulated < alone.cycles / 20


@pytest.mark.parametrize("latency", [0, 1, 40])
@pytest.mark.parametrize("width", [32, 64, 256])
def test_a_program_of_nothing(width, latency):
    config = make_config(variant="baseline", preset="tiny", axi_data_width=width)
    result = run(HALT, config, latency=latency)
    assert result.cycles == 19 + WORDS + max(latency - 1, 0)  # a whole command, word by word
    assert result.counters["COMMANDS"] == 1
    assert (result.read_bytes, result.write_bytes) == (COMMAND_BYTES, 0)


def test_an_engine_by_itself_takes_what_its_formula_says():
    """VECTOR: a group per cycle. LOAD: a beat per cycle."""
    groups = CONFIG.cores[0].groups_per_word
    busy = [
        run(vector(CONFIG, steps=steps) + HALT, CONFIG).counters["CORE0_VECTOR_BUSY"]
        for steps in (100, 200)
    ]
    assert busy[1] - busy[0] == 100 * groups
    words = 128
    load = dma(Opcode.LOAD, CONFIG, words=words, dram_address=0)
    results = [run(load * count + HALT, CONFIG) for count in (1, 3)]
    beats = words * CONFIG.cores[0].word_bytes // CONFIG.beat_bytes
    assert results[1].read_bytes - results[0].read_bytes == 2 * (beats * CONFIG.beat_bytes + 64)
    assert 2 * beats <= results[1].cycles - results[0].cycles <= 2 * beats + 30


def test_commands_end_in_their_order():
    result = run(vector(CONFIG, steps=50) * 3 + HALT, CONFIG)
    assert result.ends[:3] == sorted(result.ends[:3]) and result.ends[3] == 0
    assert 0 < result.ends[0] < result.ends[2] < result.cycles


def test_a_program_that_waits_for_ever():
    for command in (vector(CONFIG, wait=1), matmul(CONFIG)):
        with pytest.raises(model.Waits, match="waits for ever"):
            run(command + HALT, CONFIG, patience=1000)


def test_a_queue_keeps_its_order():
    queue = np.zeros(6, np.int64)
    for value in (7, 8, 9):
        push(queue, value)
    pop(queue)
    push(queue, 5)
    assert queue.tolist() == [3, 8, 9, 5, 0, 0]
    for _ in range(3):
        pop(queue)
    assert not queue.any()
