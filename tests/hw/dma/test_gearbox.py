"""Packer and Unpacker against lists of granules, for many sizes, with random gaps."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from hw.dma.gearbox import Packer, Unpacker

GRANULE_WIDTH = 8
ROW_WIDTH = 10
#: (granules per beat, granules per word)
SIZES = [
    (1, 1),
    (1, 2),
    (1, 3),
    (1, 4),
    (2, 1),
    (2, 3),
    (4, 1),
    (4, 2),
    (4, 3),
    (4, 4),
    (4, 6),
    (8, 5),
    (4, 13),
]


def joined(values):
    return sum(value << (GRANULE_WIDTH * index) for index, value in enumerate(values))


def _runs(rng, word):
    """Random runs: (row length, offset seed, granules)."""
    for _ in range(12):
        row = rng.choice([1, rng.randint(1, word + 2), rng.randint(1, 3 * word)])
        yield row, [rng.randrange(1, 256) for _ in range(row * rng.randint(1, 6))]


def words_of(row, granules, word):
    """The words of a run as (granules without padding)."""
    for start in range(0, len(granules), row):
        for part in range(start, start + row, word):
            yield granules[part : min(part + word, start + row)]


def simulate(dut, senders, checker):
    m = Module()
    m.submodules.dut = dut
    m.d.sync += Signal().eq(0)  # a clock, should the design have no register
    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    for sender in senders:
        simulator.add_testbench(sender, background=True)
    simulator.add_testbench(checker)
    simulator.run()


def _sender(stream, items, rng, busy):
    """A testbench that offers ``items``, in each cycle with probability ``busy``."""

    async def testbench(ctx):
        for item in items:
            while rng.random() > busy:
                await ctx.tick()
            ctx.set(stream.valid, 1)
            ctx.set(stream.payload, item)
            await ctx.tick().until(stream.ready)
            ctx.set(stream.valid, 0)

    return testbench


async def _receive(ctx, stream, count, rng, busy, fields, never=()):
    """``count`` payloads as tuples of ``fields``, and the cycles they took; the signals ``never``
    stay 0 meanwhile."""
    received, cycles = [], 0
    while len(received) < count:
        ready = rng.random() <= busy
        ctx.set(stream.ready, ready)
        for signal in never:
            assert not ctx.get(signal), f"{signal.name} behind {len(received)} of {count}"
        *_, valid, payload = await ctx.tick().sample(stream.valid, stream.payload)
        cycles += 1
        assert cycles < 5000, f"only {len(received)} of {count} came"
        if valid and ready:
            received.append(tuple(payload[field] for field in fields))
    ctx.set(stream.ready, 0)
    return received, cycles


@pytest.mark.parametrize(("beat", "word"), SIZES)
@pytest.mark.parametrize("busy", [1.0, 0.5])
def test_packer(beat, word, busy, seed):
    rng = random.Random(f"{seed} {beat} {word}")
    dut = Packer(
        granule_width=GRANULE_WIDTH, beat_granules=beat, word_granules=word, row_width=ROW_WIDTH
    )
    rows, beats, expected = [], [], []
    for row, granules in _runs(rng, word):
        rows.append(row - 1)
        offset = rng.randrange(beat)
        line = [rng.randrange(256) for _ in range(offset)] + granules
        end = (len(line) - 1) % beat
        line += [rng.randrange(256) for _ in range(-len(line) % beat)]
        chunks = [line[at : at + beat] for at in range(0, len(line), beat)]
        for index, chunk in enumerate(chunks):
            last = index == len(chunks) - 1
            beats.append(
                {
                    "data": joined(chunk),
                    "offset": 0 if index else offset,
                    "end": end if last else beat - 1,
                    "first": index == 0,
                    "last": last,
                    "final": last,
                }
            )
        words = list(words_of(row, granules, word))
        expected += [(joined(w), index == len(words) - 1) for index, w in enumerate(words)]

    async def check(ctx):
        fields, never = ("data", "final"), (dut.cut_row,)
        got, _ = await _receive(ctx, dut.o, len(expected), rng, busy, fields, never)
        for index, (want, have) in enumerate(zip(expected, got, strict=True)):
            assert want == have, f"word {index}: expected {want[0]:#x}, got {have[0]:#x}"
        assert not ctx.get(dut.cut_row)

    gaps = random.Random(seed)
    simulate(
        dut,
        [
            _sender(dut.row, rows, gaps, 1.0),
            _sender(dut.i, beats, gaps, busy),
        ],
        check,
    )


@pytest.mark.parametrize(("beat", "word"), SIZES)
def test_packer_throughput(beat, word):
    """Without gaps, the slower side never waits: one run of whole words and beats."""
    dut = Packer(
        granule_width=GRANULE_WIDTH, beat_granules=beat, word_granules=word, row_width=ROW_WIDTH
    )
    count = beat * word * 6
    beats = [
        {
            "data": 0,
            "offset": 0,
            "end": beat - 1,
            "first": index == 0,
            "last": index == count // beat - 1,
            "final": index == count // beat - 1,
        }
        for index in range(count // beat)
    ]

    async def check(ctx):
        rng = random.Random(0)
        _, cycles = await _receive(ctx, dut.o, count // word, rng, 1.0, ("final",))
        ideal = max(count // word, count // beat)
        assert cycles <= ideal + 4, f"{cycles} cycles, ideal {ideal}"

    simulate(
        dut,
        [
            _sender(dut.row, [word * 2 - 1], random.Random(0), 1.0),
            _sender(dut.i, beats, random.Random(0), 1.0),
        ],
        check,
    )


@pytest.mark.parametrize(("beat", "word"), [size for size in SIZES if size[1] > 1])
def test_packer_row_cut_short(beat, word):
    """A run that ends inside a row is reported, and its last word never comes."""
    dut = Packer(
        granule_width=GRANULE_WIDTH, beat_granules=beat, word_granules=word, row_width=ROW_WIDTH
    )
    item = {"data": 0, "offset": 0, "end": 0, "first": 1, "last": 1, "final": 1}

    async def check(ctx):
        ctx.set(dut.o.ready, 1)
        for _ in range(20):
            assert not ctx.get(dut.o.valid), "a word of an incomplete row"
            await ctx.tick()
        assert ctx.get(dut.cut_row), "not reported"

    simulate(
        dut,
        [
            _sender(dut.row, [1], random.Random(0), 1.0),
            _sender(dut.i, [item], random.Random(0), 1.0),
        ],
        check,
    )


@pytest.mark.parametrize(("beat", "word"), SIZES)
@pytest.mark.parametrize("busy", [1.0, 0.5])
def test_unpacker(beat, word, busy, seed):
    rng = random.Random(f"{seed} {beat} {word}")
    dut = Unpacker(granule_width=GRANULE_WIDTH, beat_granules=beat, word_granules=word)
    offsets, words, expected = [], [], []
    for row, granules in _runs(rng, word):
        offset = rng.randrange(beat)
        offsets.append(offset)
        parts = list(words_of(row, granules, word))
        for index, part in enumerate(parts):
            noise = [rng.randrange(256) for _ in range(word - len(part))]
            words.append(
                {
                    "data": joined(part + noise),
                    "top": len(part) - 1,
                    "last": index == len(parts) - 1,
                }
            )
        line = [None] * offset + granules
        line += [None] * (-len(line) % beat)
        expected += [line[at : at + beat] for at in range(0, len(line), beat)]

    async def check(ctx):
        got, _ = await _receive(ctx, dut.o, len(expected), rng, busy, ("data", "enable"))
        for index, (want, (data, enable)) in enumerate(zip(expected, got, strict=True)):
            have = [
                data >> (GRANULE_WIDTH * lane) & 0xFF if enable >> lane & 1 else None
                for lane in range(beat)
            ]
            assert want == have, f"beat {index}: expected {want}, got {have}"

    gaps = random.Random(seed)
    simulate(
        dut,
        [
            _sender(dut.offset, offsets, gaps, 1.0),
            _sender(dut.i, words, gaps, busy),
        ],
        check,
    )
