"""What commands take alone."""

import numpy as np

from hw.config import make_config
from hw.isa.encoding import Opcode, decode
from perf.machine.events import work
from perf.machine.events.work import Works
from perf.machine.model import run
from verif.programs.faulty_programs import HALT, dma, matmul, vector, weights

LATENCY = 30
CONFIG = make_config(variant="baseline", preset="paper")


def stream(*commands):
    return [decode(command) for command in commands]


def test_commands_that_are_alike_are_measured_once(monkeypatch):
    measured = []
    monkeypatch.setattr(
        work,
        "run",
        lambda commands, *args, **options: (
            measured.append(commands) or run(commands, *args, **options)
        ),
    )
    works = Works(CONFIG, LATENCY, compiled=False)
    commands = stream(
        vector(CONFIG, steps=5, signal=1), vector(CONFIG, steps=5, wait=1), vector(CONFIG, steps=6)
    )
    kinds, which = works.of(commands)
    assert len(measured) == 2
    assert (which[0] == which[1]).all() and (which[1] != which[2]).all()
    works.of(commands)
    assert len(measured) == 2
    alone = run(b"".join([vector(CONFIG, steps=5), HALT]), CONFIG, latency=LATENCY, compiled=False)
    kind = kinds[which[0, 0]]
    assert kind["cycles"] == alone.counters["CORE0_VECTOR_BUSY"]
    assert kind["words"] == kind["reads"] == 5


def test_where_loops_bring_data_decides():
    """Rows of 24 bytes lie in one beat of 32 bytes or in two; what lies 128 bytes further on in a
    block of 512 is as good, as the runs lie so far apart."""
    load = dma(Opcode.LOAD, CONFIG, run_bytes=24, row_bytes=24, run_count=40, run_stride=128,
               loop0_stride=24)  # fmt: skip
    kinds, which = Works(CONFIG, LATENCY, compiled=False).of(stream(load))
    granules = 128 // CONFIG.granule_bytes
    assert len(set(which[0, :granules])) == granules
    assert (which[0] == np.tile(which[0, :granules], which.shape[1] // granules)).all()
    beats = [int(kinds[kind]["read_beats"]) for kind in which[0, :4]]
    assert beats == [40, 40, 80, 80]
    assert {int(kinds[kind]["words"]) for kind in which[0]} == {40}


def test_a_store_moves_its_bytes():
    store = dma(Opcode.STORE, CONFIG, words=12)
    kinds, which = Works(CONFIG, LATENCY, compiled=False).of(stream(store))
    kind = kinds[which[0, 0]]
    assert kind["write_bytes"] == 12 * CONFIG.cores[0].word_bytes and kind["reads"] == 12
    assert kind["write_beats"] == -(-kind["write_bytes"] // CONFIG.beat_bytes)
    assert kind["read_beats"] == 0 and kind["tail"] >= LATENCY


def test_conflicts_of_a_product():
    """Vectors that lie in the bank of their weights wait for each of their words."""
    other = 1 << (CONFIG.memory_banks[0][0] - 1).bit_length()
    found = []
    for address in (0, other):
        commands = stream(
            weights(CONFIG, tiles=4), matmul(CONFIG, vectors=40, kw_count=4, x_address=address)
        )
        kinds, which = Works(CONFIG, LATENCY, compiled=False).of(commands)
        kind = kinds[which[1, 0]]
        assert kind["vectors"] == 160 and kind["tiles"] == 4
        assert kind["banks"] == (1 if address == 0 else 2)
        found.append(int(kind["cycles"]))
    assert found[0] > found[1] >= 160
