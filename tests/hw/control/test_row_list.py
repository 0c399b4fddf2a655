"""ROWS: lists of rows that results of VECTOR fill, picked from and branched by.

Covers: hw/control/loop_control.py, hw/isa/rows.py.
"""

import itertools
import random

import pytest

from hw.config import ConfigError, make_config
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode
from hw.isa.error_codes import ErrorCode
from hw.isa.loops import LoopCounters
from hw.isa.rows import RowAction, RowList
from verif.blocks.control.loop_bench import BASE, PROGRAM, LoopBench, load, repeat

DEPTH = 12
TINY = make_config(variant="baseline", preset="tiny", row_list_depth=DEPTH)
HALT = encode(Opcode.HALT)


def rows(action, *, level=0, position=0, first=None):
    offset = 0 if first is None else PROGRAM + COMMAND_BYTES * first
    return encode(Opcode.ROWS, action=action, level=level, position=position, first=offset)


BEGIN, PICK, BRANCH, JOIN = RowAction


async def fill(bench, kept, rng, *, over=True):
    """What the vector engine says of a command, with pauses."""
    result = bench.dut.loops.result
    for keep in kept:
        while rng.random() < 0.3:
            bench.ctx.set(result, {"valid": 0, "kept": rng.getrandbits(1), "over": 0})
            assert not await bench.step()
        bench.ctx.set(result, {"valid": 1, "kept": keep, "over": 0})
        assert not await bench.step()
    bench.ctx.set(result, {"valid": 0, "kept": 1, "over": over})
    assert not await bench.step()
    bench.ctx.set(result, {"valid": 0, "kept": 0, "over": 0})


async def until_over(bench, limit=2000):
    for _ in range(limit):
        if await bench.step():
            return
    raise AssertionError("the run does not end")


def test_after_reset():
    """An empty list: row 0 everywhere, and no command to skip."""

    async def process(bench):
        stream = [rows(PICK, level=2, position=5), load(64, loop2_stride=8),
                  rows(BRANCH, first=4), load(8), load(16), HALT]  # fmt: skip
        assert await bench.run(stream) == []
        assert [address for _, address in bench.loads] == [64, 16]

    LoopBench(TINY, latency=3).simulate(process)


@pytest.mark.parametrize("count", [1, 5, DEPTH])
def test_lists(seed, count):
    """Against the model: rows in every order of kept and dropped ones; behind the list's end the
    last one that is dropped; a second VECTOR is not listened to."""
    rng = random.Random(seed)

    async def process(bench):
        for share in (0.0, 0.3, 0.7, 1.0):
            kept = [rng.random() < share for _ in range(count)]
            model, counters, expected = RowList(), LoopCounters(), []
            stream = [load(8), rows(BEGIN, level=3), load(16), rows(JOIN, first=4)]
            model.execute({"action": BEGIN, "level": 3}, counters)
            model.fill(kept)
            for _ in range(8):
                level, position = rng.randrange(4), rng.randrange(DEPTH + 3)
                stream += [rows(PICK, level=level, position=position),
                           load(256, **{f"loop{level}_stride": 64})]  # fmt: skip
                model.execute({"action": PICK, "level": level, "position": position}, counters)
                expected.append(256 + 64 * counters.values[level])
            begin = len(stream) + 1
            stream.append(rows(BRANCH, level=1, first=begin))
            # The steps of a ladder, each of which leads to the same place.
            stream += [rows(JOIN, level=2, first=begin + DEPTH + 1 + 2 * n)
                       for n in range(DEPTH + 1)]  # fmt: skip
            end = begin + 3 * (DEPTH + 1)
            for n in range(DEPTH + 1):
                stream += [load(1 << 12 | 8 * n), rows(JOIN, first=end)]
            stream += [load(32, loop1_stride=8, loop2_stride=16), HALT]
            expected += [1 << 12 | 8 * sum(kept), 32]
            ctx, dut = bench.ctx, bench.dut
            await bench.start(stream)
            while len(bench.loads) < 1:
                assert not await bench.step()
            busy = (1 << len(dut.queues)) - 2
            ctx.set(dut.empty, busy)  # the first LOAD has not ended: BEGIN waits
            for _ in range(40):
                assert not await bench.step()
            assert len(bench.loads) == 1
            ctx.set(dut.empty, busy | 1)
            while len(bench.loads) < 2:
                assert not await bench.step()
            ctx.set(dut.empty, 0)
            await fill(bench, kept, rng)
            await fill(bench, [True, False, True], rng)
            bench.loads = []
            ctx.set(dut.empty, busy | 1)
            await until_over(bench)
            assert bench.errors == []
            assert [address for _, address in bench.loads] == expected

    LoopBench(TINY, latency=4, seed=seed).simulate(process)


def test_too_many_rows_and_targets_outside(seed):
    """They end the run at BRANCH; BEGIN and PICK have no target."""
    rng = random.Random(seed)

    async def process(bench):
        def wrong(place):
            return [(ErrorCode.REPEAT_TARGET, BASE + PROGRAM + COMMAND_BYTES * place)]

        await bench.start([rows(BEGIN), load(8), rows(BRANCH, first=3), HALT])
        while not bench.loads:
            assert not await bench.step()
        bench.ctx.set(bench.dut.empty, 0)
        await fill(bench, [False] * (DEPTH + 1), rng)
        bench.ctx.set(bench.dut.empty, (1 << len(bench.dut.queues)) - 1)
        await until_over(bench)
        assert bench.errors == wrong(2)
        for action in (BRANCH, JOIN):
            assert await bench.run([rows(action, first=100), HALT]) == wrong(0)
            assert await bench.run([rows(action, first=-1), HALT]) == wrong(0)
        header = {"action": JOIN, "level": 0, "first": PROGRAM + COMMAND_BYTES}
        for name in ("core", "wait", "signal"):
            errors = await bench.run([encode(Opcode.ROWS, **header, **{name: 1}), HALT])
            assert errors == [(ErrorCode.ILLEGAL_FIELD, BASE + PROGRAM)]
        stuck = (1 << len(bench.dut.queues)) - 1
        bench.ctx.set(bench.dut.blocked, stuck)
        bench.ctx.set(bench.dut.empty, stuck - 1)
        errors = await bench.run([rows(JOIN, first=1), HALT])
        assert errors == [(ErrorCode.DEADLOCK, BASE + PROGRAM)]

    LoopBench(TINY, latency=2).simulate(process)


def test_cycles():
    """Those of a REPEAT: the same commands with one in each place."""

    def times(command):
        found = []

        async def process(bench):
            assert await bench.run([load(8), command, load(16), load(24), HALT]) == []
            found.extend(cycle for cycle, _ in bench.loads)

        LoopBench(TINY, latency=2).simulate(process)
        return [b - a for a, b in itertools.pairwise(found)]

    assert times(rows(PICK)) == times(rows(BEGIN)) == times(repeat(0, 1, 0))
    assert times(rows(JOIN, first=2)) == times(repeat(0, 2, 2))


def test_without_lists():
    """The opcode is undefined."""

    async def process(bench):
        errors = await bench.run([rows(BEGIN), HALT])
        assert errors == [(ErrorCode.UNDEFINED_COMMAND, BASE + PROGRAM)]

    LoopBench(make_config(variant="baseline", preset="tiny")).simulate(process)


def test_configuration():
    """A list is of no use without VECTOR; without lists the configuration is what it was."""
    with pytest.raises(ConfigError, match="row_list_depth must be 0 without training"):
        make_config(preset="tiny", training=False, row_list_depth=4)
    plain, lists = make_config(preset="tiny"), make_config(preset="tiny", row_list_depth=4)
    assert plain.hash != lists.hash
    assert plain.hash == "951b58387013"
