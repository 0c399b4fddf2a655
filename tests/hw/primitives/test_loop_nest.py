"""hw.primitives.loop_nest against nested Python loops."""

import itertools
import random

import pytest
from amaranth import signed
from amaranth.sim import Simulator

from hw.primitives.loop_nest import Affine, LoopNest

MATMUL = ("wo", "ho", "n", "kw", "kh", "cb")


def matmul_nest(**options):
    """The nest of a matrix multiplication: all its tracks on six loops."""
    return LoopNest(
        dict.fromkeys(MATMUL, 16),
        {
            "x": Affine(24, dict.fromkeys(MATMUL, signed(24))),
            "h": Affine(signed(18), {"ho": 8, "kh": 8}),
            "w": Affine(signed(18), {"wo": 8, "kw": 8}),
            "tile": Affine(24, {"kw": 24, "kh": 24, "cb": 24}),
        },
        **options,
    )


def reference(counts, tracks):
    """Points of a walk: (values, first, last) per step, from plain nested loops.

    ``counts`` and the strides are dicts; ``tracks`` is name -> (width, signed, origin, strides).
    """
    loops = list(counts)
    points = []
    for outside_in in itertools.product(*(range(counts[loop]) for loop in reversed(loops))):
        index = dict(zip(reversed(loops), outside_in, strict=True))
        values = {}
        for name, (width, is_signed, origin, strides) in tracks.items():
            value = origin + sum(index[loop] * stride for loop, stride in strides.items())
            value &= (1 << width) - 1
            if is_signed and value >> (width - 1):
                value -= 1 << width
            values[name] = value
        first = {loop: int(index[loop] == 0) for loop in loops}
        last = {loop: int(index[loop] == counts[loop] - 1) for loop in loops}
        points.append((values, first, last))
    return points


async def observe(ctx, nest, loops, tracks):
    return (
        {name: ctx.get(nest.value[name]) for name in tracks},
        {loop: ctx.get(nest.first[loop]) for loop in loops},
        {loop: ctx.get(nest.last[loop]) for loop in loops},
    )


def load(ctx, nest, counts, tracks):
    for loop, count in counts.items():
        ctx.set(nest.count[loop], count)
    for name, (_, _, origin, strides) in tracks.items():
        ctx.set(nest.origin[name], origin)
        for loop, stride in strides.items():
            ctx.set(nest.stride[name][loop], stride)


def random_matmul(rng, limit):
    counts = {loop: rng.choice((1, 2, 3, rng.randint(1, limit))) for loop in MATMUL}
    far = 1 << 23

    def strides(loops, low, high):
        return {loop: rng.randint(low, high) for loop in loops}

    return counts, {
        "x": (24, False, rng.randrange(1 << 24), strides(MATMUL, -far, far - 1)),
        "h": (18, True, rng.randint(-200, 200), strides(("ho", "kh"), 0, 255)),
        "w": (18, True, rng.randint(-200, 200), strides(("wo", "kw"), 0, 255)),
        "tile": (24, False, rng.randrange(1 << 24), strides(("kw", "kh", "cb"), 0, 1 << 20)),
    }


def simulate(nest, testbench):
    simulator = Simulator(nest)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()


async def walk(ctx, nest, counts, tracks, *, rng, pace, chained=False):
    """Walk once and compare every point; with ``chained`` the start has been given already.

    Returns after the ``next`` of the last point has been set up, one cycle before it counts.
    """
    if not chained:
        load(ctx, nest, counts, tracks)
        ctx.set(nest.start, 1)
        await ctx.tick()
    ctx.set(nest.start, 0)
    ctx.set(nest.next, rng.randrange(2))
    for _ in range(nest.LATENCY - 1):
        assert not ctx.get(nest.valid), "valid before LATENCY cycles"
        await ctx.tick()
    points = reference(counts, tracks)
    for number, expected in enumerate(points):
        while True:
            where = f"point {number} of {len(points)}, counts {counts}, tracks {tracks}"
            assert ctx.get(nest.valid), f"valid is low at {where}"
            assert await observe(ctx, nest, counts, tracks) == expected, where
            assert ctx.get(nest.final) == (number == len(points) - 1), where
            advance = rng.random() < pace
            ctx.set(nest.next, advance)
            if advance and number == len(points) - 1:
                return
            await ctx.tick()
            if advance:
                break


def test_reset_values():
    nest = matmul_nest()

    async def testbench(ctx):
        ctx.set(nest.next, 1)
        for _ in range(5):
            assert not ctx.get(nest.valid)
            await ctx.tick()

    simulate(nest, testbench)


def test_small_counts_exhaustively(seed):
    """All counts from 1 to 3 of three loops, with a start in the cycle of the last ``next``."""
    loops = ("a", "b", "c")
    nest = LoopNest(
        dict.fromkeys(loops, 2),
        {
            "all": Affine(signed(9), {"a": signed(8), "b": 8, "c": signed(5)}),
            "middle": Affine(6, {"b": signed(6)}),
            "outer": Affine(12, {"c": 8}),
            "inner": Affine(12, {"a": 8}),
        },
    )
    tracks = {
        "all": (9, True, -7, {"a": -100, "b": 200, "c": -16}),
        "middle": (6, False, 3, {"b": -5}),
        "outer": (12, False, 9, {"c": 255}),
        "inner": (12, False, 4000, {"a": 77}),
    }
    rng = random.Random(seed)

    async def testbench(ctx):
        chained = False
        for sizes in itertools.product((1, 2, 3), repeat=3):
            counts = dict(zip(loops, sizes, strict=True))
            if chained:
                load(ctx, nest, counts, tracks)
                ctx.set(nest.start, 1)
                await ctx.tick()
            await walk(ctx, nest, counts, tracks, rng=rng, pace=1, chained=chained)
            chained = True
        await ctx.tick()
        assert not ctx.get(nest.valid), "valid after the last point"

    simulate(nest, testbench)


@pytest.mark.parametrize("pace", [1, 0.6])
def test_matmul_walks(pace, seed):
    """Random ragged walks of six loops with all tracks, at full speed and with pauses."""
    nest = matmul_nest()
    rng = random.Random(seed)

    async def testbench(ctx):
        for _ in range(12):
            counts, tracks = random_matmul(rng, 5)
            await walk(ctx, nest, counts, tracks, rng=rng, pace=pace)
            await ctx.tick()
            for _ in range(3):
                assert not ctx.get(nest.valid), f"valid after the last point, counts {counts}"
                await ctx.tick()

    simulate(nest, testbench)


def test_long_count():
    """Counts beyond 8 bits, and 0 for the largest number of iterations."""
    nest = LoopNest({"a": 8, "b": 10}, {"v": Affine(20, {"a": 4, "b": 12})})
    tracks = {"v": (20, False, 5, {"a": 3, "b": 1025})}

    async def testbench(ctx):
        for counts in ({"a": 1, "b": 1023}, {"a": 255, "b": 2}, {"a": 256, "b": 1}):
            rng = random.Random(0)
            load(ctx, nest, {loop: count & 255 for loop, count in counts.items()}, tracks)
            ctx.set(nest.count.b, counts["b"])
            ctx.set(nest.start, 1)
            await ctx.tick()
            await walk(ctx, nest, counts, tracks, rng=rng, pace=1, chained=True)
            await ctx.tick()
            assert not ctx.get(nest.valid)

    simulate(nest, testbench)


@pytest.mark.parametrize("endless", [False, True])
def test_checkpoints(endless, seed):
    """Random steps, saves and restores, together and apart, at the ends as elsewhere."""
    rng = random.Random(seed)
    nest = matmul_nest(endless=endless, checkpoint=True)

    async def testbench(ctx):
        for _ in range(6):
            counts, tracks = random_matmul(rng, 2)
            points = reference(counts, tracks)
            load(ctx, nest, counts, tracks)
            ctx.set(nest.start, 1)
            await ctx.tick()
            ctx.set(nest.start, 0)
            await ctx.tick().repeat(nest.LATENCY - 1)
            place, saved = 0, None
            for step in range(4 * len(points)):
                where = f"step {step}, point {place} of {len(points)}, counts {counts}"
                assert ctx.get(nest.valid) == (place < len(points)), where
                if place < len(points):
                    assert await observe(ctx, nest, counts, tracks) == points[place], where
                    assert ctx.get(nest.final) == (place == len(points) - 1), where
                advance, save = rng.random() < 0.8, rng.random() < 0.2
                restore = (save or saved is not None) and rng.random() < 0.1
                ctx.set(nest.next, advance)
                ctx.set(nest.save, save)
                ctx.set(nest.restore, restore)
                saved = place if save else saved
                if restore:
                    place = saved
                elif advance and place < len(points):
                    place += 1
                    if endless:
                        place %= len(points)
                await ctx.tick()
            for port in (nest.next, nest.save, nest.restore):
                ctx.set(port, 0)

    simulate(nest, testbench)


def test_stop_and_restart(seed):
    """A stop drops the walk at once; a start in the middle of a walk begins the new one."""
    nest = matmul_nest()
    rng = random.Random(seed)
    counts = dict.fromkeys(MATMUL, 2)
    _, tracks = random_matmul(rng, 2)

    async def testbench(ctx):
        for cut in range(6):
            load(ctx, nest, counts, tracks)
            ctx.set(nest.start, 1)
            await ctx.tick()
            ctx.set(nest.start, 0)
            ctx.set(nest.next, 1)
            for _ in range(cut):
                await ctx.tick()
            ctx.set(nest.stop, 1)
            await ctx.tick()
            ctx.set(nest.stop, 0)
            for _ in range(4):
                assert not ctx.get(nest.valid), f"valid after stop at cycle {cut}"
                await ctx.tick()
            ctx.set(nest.start, 1)
            await ctx.tick().repeat(cut + 1)
            await walk(ctx, nest, counts, tracks, rng=rng, pace=1)
            await ctx.tick()

    simulate(nest, testbench)


def test_unknown_loop():
    with pytest.raises(ValueError, match="Track 'x' names loop q; loops are a, b"):
        LoopNest({"a": 4, "b": 4}, {"x": Affine(8, {"a": 4, "q": 4})})
    with pytest.raises(ValueError, match="needs at least one loop"):
        LoopNest({}, {})
    with pytest.raises(ValueError, match="needs a stride for at least one loop"):
        Affine(8, {})
