"""Cycles from event to event beside those from cycle to cycle.

Covers: perf/machine/kernels/events.py, perf/machine/kernels/event_state.py.
"""

import pytest
from torch import nn

from compiler.training.compile import compile_training
from hw.config import make_config
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode
from hw.isa.vector import Source
from perf.machine.events.model import COUNTERS, run_events
from perf.machine.events.work import Works
from perf.machine.layers import time_batch
from perf.machine.model import Waits, run
from verif.programs.faulty_programs import HALT, dma, matmul, vector, weights

LATENCY = 30
TINY = make_config(variant="baseline", preset="tiny")
CONFIG = make_config(variant="baseline", preset="paper")
BOTH = make_config(variant="max", preset="paper")


def on_both(commands, config=CONFIG, **options):
    """The same program from event to event, and from cycle to cycle."""
    works = Works(config, LATENCY, compiled=False)
    events = run_events(commands, config, works=works, **options)
    return events, run(commands, config, latency=LATENCY, compiled=False, **options)


def assert_close(events, cycles, part):
    """Totals within ``part``; what does not depend on time is the same."""
    error = events.cycles / cycles.cycles - 1
    assert abs(error) <= part, f"{events.cycles} by events, {cycles.cycles} by cycles: {error:.2%}"
    for name in ("COMMANDS", "READ_BYTES", "WRITE_BYTES", "CORE0_VECTORS", "CORE0_TILES"):
        both = events.counters[name], cycles.counters[name]
        assert both[0] == both[1], f"{name}: {both[0]} by events, {both[1]} by cycles"


def repeat(first, count, level=0):
    return encode(Opcode.REPEAT, level=level, count=count, first=first * COMMAND_BYTES)


def test_a_batch_of_a_small_network():
    """Its commands last some ten cycles each, so that what happens between them is most of it: the
    worst that there is. How close batches of real networks come is in docs/perf_model.md."""
    network = nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4)
    )
    program = compile_training(network.train(), TINY, (4, 4, 4), images=2)
    works = Works(TINY, LATENCY, compiled=False)
    events = time_batch(program, latency=LATENCY, works=works)
    cycles = time_batch(program, latency=LATENCY, compiled=False)
    assert_close(events.result, cycles.result, 0.08)
    for name in COUNTERS:
        both = [batch.result.counters[f"CORE0_{name}"] for batch in (events, cycles)]
        assert abs(both[0] - both[1]) < 0.1 * cycles.result.cycles, f"{name}: {both}"
    assert events.layers.keys() == cycles.layers.keys()
    total = sum(sum(phases.values()) for phases in events.layers.values())
    assert total == events.result.cycles


@pytest.mark.parametrize("steps", [1, 7, 50])
def test_commands_behind_each_other(steps):
    """To the cycle: VECTORs without and with tokens between them, over all places of the
    semaphores' turns."""
    alone = vector(CONFIG, steps=steps)
    chained = vector(CONFIG, steps=steps, wait=1, signal=1)
    for program in ([alone] * 3, [vector(CONFIG, steps=steps, signal=1), *[chained] * 3]):
        events, cycles = on_both(b"".join([*program, HALT]))
        assert_close(events, cycles, 0)
        assert events.ends == cycles.ends


def test_a_vector_reads_several_banks_at_once():
    """Its two streams lie in banks of their own, and it takes a word of each in a cycle."""
    bank = TINY.buffer_bank_depth
    both = vector(TINY, steps=60, y_source=Source.NARROW, x_address=bank, y_address=2 * bank,
                  x_i0_stride=1, y_i0_stride=1)  # fmt: skip
    events, cycles = on_both(both + HALT, TINY)
    assert_close(events, cycles, 0)


def test_loops_move_places_in_memory():
    load = dma(Opcode.LOAD, CONFIG, run_bytes=72, row_bytes=24, run_count=40, run_stride=96,
               loop0_stride=24)  # fmt: skip
    events, cycles = on_both(b"".join([load, vector(CONFIG, steps=30), repeat(0, 20), HALT]))
    # A LOAD behind another one begins 2 cycles later than the model has it.
    assert_close(events, cycles, 0.015)


def test_products_wait_for_weights():
    product = weights(CONFIG, tiles=9) + matmul(CONFIG, vectors=20, kw_count=9)
    events, cycles = on_both(b"".join([product, product, repeat(0, 5), HALT]))
    assert_close(events, cycles, 0.03)


def test_cores_share_the_bus():
    """Two LOADs at the same time take about as long as both behind each other, as a beat waits on
    the bus until its words are written."""
    loads = [dma(Opcode.LOAD, BOTH, core, words=400) for core in (0, 1)]
    one, _ = on_both(loads[0] + HALT, BOTH)
    events, cycles = on_both(b"".join([*loads, HALT]), BOTH)
    assert_close(events, cycles, 0.1)
    assert events.cycles > one.cycles + 350


def test_what_never_comes():
    works = Works(CONFIG, LATENCY, compiled=False)
    with pytest.raises(Waits, match="the program waits for ever at command 1"):
        run_events(vector(CONFIG, wait=1) + HALT, CONFIG, works=works)


def test_what_is_not_known():
    rows = encode(Opcode.ROWS, level=0, action=0)
    works = Works(CONFIG, LATENCY, compiled=False)
    with pytest.raises(ValueError, match="the model of events knows no ROWS"):
        run_events(rows + HALT, CONFIG, works=works)
