"""The block transposer against numpy.transpose, with pauses, for many sizes."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.sim import Simulator

from hw.primitives.transposer import BlockTransposer


def _transpose(lanes, width, words, gaps, clear_at=None):
    """The output before every step, as (steps, lanes); one ``clear`` before step ``clear_at``."""
    m = Module()
    m.submodules.dut = dut = BlockTransposer(lanes, width)
    seen = []

    async def testbench(ctx):
        for step, (word, gap) in enumerate(zip(words, gaps, strict=True)):
            if step == clear_at:
                ctx.set(dut.clear, 1)
                await ctx.tick()
                ctx.set(dut.clear, 0)
            for lane, value in enumerate(word):
                ctx.set(dut.i[lane], int(value))
            await ctx.tick().repeat(int(gap)) if gap else None
            seen.append([ctx.get(dut.o[lane]) for lane in range(lanes)])
            ctx.set(dut.step, 1)
            await ctx.tick()
            ctx.set(dut.step, 0)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return np.array(seen)


def _compare(seen, words, lanes, first=0):
    """Blocks of ``words`` from step ``first`` on leave one block later, transposed."""
    words = words[first:]
    blocks = words[: len(words) // lanes * lanes].reshape(-1, lanes, lanes)
    expected = blocks.transpose(0, 2, 1).reshape(-1, lanes)[: len(words) - lanes]
    actual = seen[first + lanes :]
    wrong = np.argwhere(actual != expected)
    assert not len(wrong), (
        f"step {first + lanes + wrong[0][0]}, lane {wrong[0][1]}: expected "
        f"{expected[tuple(wrong[0])]:#x}, not {actual[tuple(wrong[0])]:#x}"
    )


@pytest.mark.parametrize(("lanes", "width"), [(1, 8), (2, 3), (3, 16), (5, 8), (8, 16), (12, 16)])
@pytest.mark.parametrize("pauses", [False, True])
def test_random_blocks(lanes, width, pauses, rng):
    words = rng.integers(0, 1 << width, (6 * lanes, lanes))
    gaps = rng.integers(0, 3, len(words)) * pauses
    _compare(_transpose(lanes, width, words, gaps), words, lanes)


@pytest.mark.parametrize("at", [1, 3, 4, 6, 9])
def test_clear_begins_a_block(at, rng):
    """Whatever was in the square, and whichever way it moves, nothing of it is left."""
    words = rng.integers(0, 256, (at + 20, 4))
    seen = _transpose(4, 8, words, np.zeros(len(words), int), clear_at=at)
    _compare(seen, words, 4, first=at)


def test_the_check_can_fail(rng):
    words = rng.integers(0, 256, (12, 3))
    seen = _transpose(3, 8, words, np.zeros(12, int))
    seen[7, 1] ^= 1
    with pytest.raises(AssertionError, match="step 7, lane 1: expected"):
        _compare(seen, words, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0, 8), "Lanes must be a positive integer, not 0"), ((3, "8"), "Width must be .*, not '8'")],
)
def test_messages(arguments, message):
    with pytest.raises(ValueError, match=message):
        BlockTransposer(*arguments)
