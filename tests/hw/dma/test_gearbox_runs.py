"""Packer and Unpacker: resets in the middle, rows cut short, runs of one command.

Covers: hw/dma/gearbox.py.
"""

import random

import pytest
from amaranth.hdl import ResetInserter, Signal

from hw.dma.gearbox import Packer, Unpacker
from tests.hw.dma.test_gearbox import GRANULE_WIDTH, ROW_WIDTH, SIZES, joined, simulate, words_of


def _beats(line, beat, offset, *, final=1):
    """A run of granules as the beats of a Packer."""
    line = [0xEE] * offset + line
    count = -(-len(line) // beat)
    return [
        {
            "data": joined(line[beat * index : beat * (index + 1)]),
            "offset": 0 if index else offset,
            "end": (len(line) - 1) % beat if index == count - 1 else beat - 1,
            "first": index == 0,
            "last": index == count - 1,
            "final": final and index == count - 1,
        }
        for index in range(count)
    ]


async def _play(ctx, sources, sink, cycles, *, ready=lambda: True):
    """Offer items as (stream, list) and take what comes, for so many cycles; returns the payloads
    that were taken, and of each source how many items were."""
    taken, sent = [], [0] * len(sources)
    for _ in range(cycles):
        ctx.set(sink.ready, ready())
        for index, (stream, items) in enumerate(sources):
            more = sent[index] < len(items)
            ctx.set(stream.valid, more)
            if more:
                ctx.set(stream.payload, items[sent[index]])
        for index, (stream, _) in enumerate(sources):
            sent[index] += ctx.get(stream.valid) and ctx.get(stream.ready)
        if ctx.get(sink.valid) and ctx.get(sink.ready):
            taken.append(ctx.get(sink.payload))
        await ctx.tick()
    for stream, _ in sources:
        ctx.set(stream.valid, 0)
    ctx.set(sink.ready, 0)
    return taken, sent


def _packer(beat, word):
    return Packer(
        granule_width=GRANULE_WIDTH, beat_granules=beat, word_granules=word, row_width=ROW_WIDTH
    )


async def _pulse(ctx, clear):
    ctx.set(clear, 1)
    await ctx.tick()
    ctx.set(clear, 0)


@pytest.mark.parametrize(("beat", "word"), [(1, 3), (4, 3), (4, 4), (4, 13)])
def test_packer_reset_at_any_time(beat, word, seed):
    """Nothing is left of a run under way: no word, no place taken, no row."""
    dut, clear = _packer(beat, word), Signal()
    rng = random.Random(seed)

    async def check(ctx):
        for moment in range(22):
            row = rng.randint(1, 2 * word)
            line = [rng.randrange(256) for _ in range(row * (2 + 20 // row))]
            sources = [(dut.row, [row - 1]), (dut.i, _beats(line, beat, rng.randrange(beat)))]
            await _play(ctx, sources, dut.o, moment, ready=lambda: rng.random() < 0.7)
            ctx.set(dut.row.valid, moment % 2 == 0)  # a row on offer is not taken in this cycle
            await _pulse(ctx, clear)
            ctx.set(dut.row.valid, 0)
            ctx.set(dut.o.ready, 1)
            assert not ctx.get(dut.o.valid) and not ctx.get(dut.cut_row), moment
            assert not ctx.get(dut.i.ready) and ctx.get(dut.row.ready), moment
            await ctx.tick().repeat(3)
            row = rng.randint(1, 2 * word)
            line = [rng.randrange(256) for _ in range(2 * row)]
            sources = [(dut.row, [row - 1]), (dut.i, _beats(line, beat, rng.randrange(beat)))]
            got, _ = await _play(ctx, sources, dut.o, 4 * word + 12)
            want = [joined(part) for part in words_of(row, line, word)]
            assert [part["data"] for part in got] == want, f"after a reset in cycle {moment}"
            assert [part["final"] for part in got] == [0] * (len(want) - 1) + [1]

    simulate(ResetInserter(clear)(dut), [], check)


@pytest.mark.parametrize(("beat", "word"), [(1, 3), (4, 3), (4, 4), (8, 5), (4, 13)])
def test_packer_row_cut_between_words(beat, word):
    """A run that ends inside a row, but with a whole word: reported as well."""
    dut = _packer(beat, word)

    async def check(ctx):
        sources = [(dut.row, [2 * word - 1]), (dut.i, _beats([7] * word, beat, 0))]
        got, _ = await _play(ctx, sources, dut.o, 2 * word + 8)
        assert len(got) == 1 and not got[0]["final"]
        assert ctx.get(dut.cut_row), "not reported"

    simulate(dut, [], check)


@pytest.mark.parametrize(("beat", "word"), SIZES)
def test_packer_runs_of_one_command(beat, word, seed):
    """Runs of a command follow each other without a cycle lost, the next command waits for its
    row."""
    dut, rng = _packer(beat, word), random.Random(seed)
    row = 3 * beat * word
    lines = [[rng.randrange(256) for _ in range(row)] for _ in range(4)]
    beats = [
        item for index, line in enumerate(lines) for item in _beats(line, beat, 0, final=index % 2)
    ]
    want = [joined(part) for line in lines for part in words_of(row, line, word)]

    async def check(ctx):
        half, pace = len(beats) // 2, 2 * 3 * max(beat, word)
        first, sent = await _play(ctx, [(dut.row, [row - 1]), (dut.i, beats)], dut.o, pace + 4)
        assert len(first) == len(want) // 2, f"{len(first)} words in {pace + 4} cycles"
        assert sent == [1, half], "beats of the next command were taken without its row"
        sources = [(dut.row, [row - 1]), (dut.i, beats[half:])]
        second, _ = await _play(ctx, sources, dut.o, pace + 4)
        assert [part["data"] for part in first + second] == want
        finals = [index for index, part in enumerate(first + second) if part["final"]]
        assert finals == [len(want) // 2 - 1, len(want) - 1]

    simulate(dut, [], check)


@pytest.mark.parametrize(("beat", "word"), SIZES)
def test_packer_holds_what_a_word_may_touch(beat, word, seed):
    """And no beat more, however slowly words leave."""
    dut, rng = _packer(beat, word), random.Random(seed)
    line = [rng.randrange(256) for _ in range(4 * beat * word)]
    most = -(-(beat - 1 + word) // beat)

    async def check(ctx):
        rows, beats, words = [word - 1], _beats(line, beat, 0), 0
        for _ in range(60):
            got, (_, sent) = await _play(
                ctx, [(dut.row, rows), (dut.i, beats)], dut.o, 1, ready=lambda: rng.random() < 0.6
            )
            rows, beats, words = [], beats[sent:], words + len(got)
            held = 4 * word - len(beats) - word * words // beat
            assert held <= most, f"{held} beats behind {words} words"

    simulate(dut, [], check)


def test_packer_long_rows():
    """The longest row that its length can say, and one of just a bit more than half."""
    dut, word = _packer(4, 3), 3

    async def check(ctx):
        for row in (1 << ROW_WIDTH, (1 << ROW_WIDTH - 1) + 2):
            line = [index % 251 for index in range(2 * row)]
            sources = [(dut.row, [row - 1]), (dut.i, _beats(line, 4, 1))]
            got, _ = await _play(ctx, sources, dut.o, row)
            assert [part["data"] for part in got] == [
                joined(part) for part in words_of(row, line, word)
            ]

    simulate(dut, [], check)


@pytest.mark.parametrize(("beat", "word"), [(1, 3), (4, 1), (4, 3), (4, 6)])
def test_unpacker_reset_at_any_time(beat, word, seed):
    """Nothing is left of a run under way: no beat, no granule, no offset."""
    dut, clear = Unpacker(
        granule_width=GRANULE_WIDTH, beat_granules=beat, word_granules=word
    ), Signal()  # fmt: skip
    rng = random.Random(seed)

    def run():
        count = rng.randint(1, 3 * word)
        line = [rng.randrange(1, 256) for _ in range(count)]
        parts = list(words_of(count, line, word))
        words = [
            {"data": joined(part), "top": len(part) - 1, "last": index == len(parts) - 1}
            for index, part in enumerate(parts)
        ]
        return line, words, rng.randrange(beat)

    async def check(ctx):
        for moment in range(1, 22):
            for ends in range(2):
                _, words, offset = run()
                if not ends:
                    words = [word | {"last": 0} for word in words * 9]
                sources = [(dut.offset, [offset]), (dut.i, words)]
                await _play(ctx, sources, dut.o, moment, ready=lambda: rng.random() < 0.5)
                await _pulse(ctx, clear)
                assert not ctx.get(dut.o.valid) and not ctx.get(dut.i.ready), moment
                line, words, offset = run()
                got, _ = await _play(ctx, [(dut.offset, [offset]), (dut.i, words)], dut.o, 24)
                bits = sum(part["enable"] << index * beat for index, part in enumerate(got))
                assert bits == (1 << len(line)) - 1 << offset, f"after a reset in cycle {moment}"
                whole = sum(
                    part["data"] << index * beat * GRANULE_WIDTH for index, part in enumerate(got)
                )
                assert whole == joined(line) << offset * GRANULE_WIDTH

    simulate(ResetInserter(clear)(dut), [], check)
