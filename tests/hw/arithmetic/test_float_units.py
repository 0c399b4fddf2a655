"""Float and conversion units against golden.commands.post, bit for bit, flags included.

Covers: hw/arithmetic/convert.py, hw/arithmetic/float_add.py, hw/arithmetic/float_multiply.py,
hw/arithmetic/float_round.py.
"""

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.arithmetic.float32 import add_f32, mul_f32
from golden.arithmetic.formats import FORMATS as GOLDEN_FORMATS
from golden.commands import post as gp
from hw.arithmetic.convert import FloatConverter, Requantizer
from hw.arithmetic.float_add import FloatAdder
from hw.arithmetic.float_multiply import FloatMultiplier
from hw.formats import FLOAT32, FORMATS

SPECIAL = (
    0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000,
    0xFFC00001, 0x7F800001, 0x00000001, 0x807FFFFF, 0x00800000, 0x80800000, 0x00800001,
    0x7F7FFFFF, 0xFF7FFFFF, 0x3F7FFFFF, 0x33800000, 0x34000000, 0x4B800000, 0x4B7FFFFF,
    0x3F800001, 0x7E800000, 0x01000000, 0x1F800000, 0x20000000, 0x5F800000,
)  # fmt: skip
RANDOM = 8_000


def pairs(rng):
    """All pairs of special values, then random pairs; most are near each other in exponent."""
    a, b = (grid.ravel() for grid in np.meshgrid(*[np.array(SPECIAL, dtype=np.uint32)] * 2))
    x = rng.integers(0, 1 << 32, RANDOM, dtype=np.uint32)
    y = rng.integers(0, 1 << 32, RANDOM, dtype=np.uint32)
    near = rng.choice([1, 2, 27, 127], RANDOM) * rng.uniform(-1.2, 1.2, RANDOM)
    exponent = np.clip(((x >> 23) & 0xFF) + np.rint(near), 0, 255).astype(np.uint32)
    y = np.where(rng.random(RANDOM) < 0.7, (y & 0x807FFFFF) | exponent << 23, y)
    # Few ones in the fraction: ties, exact results, long cancellations.
    sparse = rng.integers(0, 1 << 23, RANDOM) & rng.integers(0, 1 << 23, RANDOM)
    sparse = (sparse & rng.integers(0, 1 << 23, RANDOM)).astype(np.uint32)
    y = np.where(rng.random(RANDOM) < 0.3, (x & 0x7F800000) | sparse | (~x & 0x80000000), y)
    return np.concatenate([a, x]).astype(np.uint32), np.concatenate([b, y]).astype(np.uint32)


def products_near_limits(rng):
    """Pairs whose product is around the smallest normal and the largest finite number."""
    x = rng.integers(0, 1 << 32, RANDOM, dtype=np.uint32)
    total = rng.choice([127, 128, 126, 254 + 127, 253 + 127], RANDOM)
    ex = ((x >> 23) & 0xFF).astype(np.int64)
    ey = np.clip(total - ex, 0, 254).astype(np.uint32)
    fraction = rng.choice([0, 1, 0x7FFFFF, 0x400000, 0x555555], RANDOM).astype(np.uint32)
    x = np.where(rng.random(RANDOM) < 0.5, (x & 0xFF800000) | (0x7FFFFF - fraction), x)
    return x.astype(np.uint32), (ey << 23 | fraction).astype(np.uint32)


def stream(unit, inputs):
    """Feed one element of each input array per cycle; results and flags, aligned by LATENCY."""
    count = len(next(iter(inputs.values())))
    results, flags = [], []
    columns = {name: [int(v) for v in values] for name, values in inputs.items()}

    async def testbench(ctx):
        for cycle in range(count + unit.LATENCY):
            if cycle < count:
                for name, values in columns.items():
                    ctx.set(getattr(unit, name), values[cycle])
            if cycle >= unit.LATENCY:
                results.append(ctx.get(unit.o))
                flags.append(ctx.get(unit.flags))
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return np.array(results), np.array(flags)


def assert_exact(actual, expected, inputs):
    for what, got, want in zip(("result", "flags"), actual, expected, strict=True):
        wrong = np.flatnonzero(got != want)
        if wrong.size:
            i = wrong[0]
            given = ", ".join(f"{name} {int(v[i]):#x}" for name, v in inputs.items())
            pytest.fail(
                f"{what} {i} ({wrong.size} wrong of {len(got)}): {given} give {int(got[i]):#x}, "
                f"expected {int(want[i]):#x}"
            )


def test_adder(rng):
    a, b = pairs(rng)
    inputs = {"a": a, "b": b}
    assert_exact(stream(FloatAdder(), inputs), add_f32(a, b), inputs)


@pytest.mark.parametrize("stimulus", [pairs, products_near_limits])
def test_multiplier(stimulus, rng):
    a, b = stimulus(rng)
    inputs = {"a": a, "b": b}
    assert_exact(stream(FloatMultiplier(), inputs), mul_f32(a, b), inputs)


@pytest.mark.parametrize("name", [name for name, fmt in FORMATS.items() if fmt.is_float])
def test_converter(name, rng):
    fmt = FORMATS[name]
    bits = pairs(rng)[1]
    exponent = rng.integers(127 - fmt.bias - 2, 127 + fmt.bias + 3, RANDOM).clip(0, 255)
    fraction = rng.integers(0, 1 << 23, RANDOM)
    drop = 23 - fmt.mantissa_bits
    tie = (fraction >> drop << drop) | 1 << (drop - 1)
    fraction = np.where(rng.random(RANDOM) < 0.4, tie, fraction)
    fraction = np.where(rng.random(RANDOM) < 0.1, (1 << 23) - 1, fraction)
    near = rng.integers(0, 2, RANDOM) << 31 | exponent << 23 | fraction
    bits = np.concatenate([bits, near.astype(np.uint32)])
    golden = gp.to_operand(GOLDEN_FORMATS[name], bits)
    assert_exact(stream(FloatConverter(fmt), {"i": bits}), golden, {"i": bits})


def test_converter_needs_a_smaller_format():
    with pytest.raises(ValueError, match="less than 23 bits of fraction, not 23"):
        FloatConverter(FLOAT32)


@pytest.mark.parametrize("shift", [0, 1, 5, 8, 15, 16, 17, 23, 31, 32, 40, 47])
def test_requantizer(shift, rng):
    """Numbers of all magnitudes; multipliers change between runs only."""
    size = rng.integers(0, 32, 1200)
    values = (rng.integers(-(1 << 31), 1 << 31, 1200) >> size).astype(np.int32)
    values = np.concatenate([values, np.array([0, 1, -1, -(1 << 31), (1 << 31) - 1], np.int32)])
    for multiplier in (1, 65535, int(rng.integers(1 << 16)), 1 << int(rng.integers(16))):
        # Some exact ties and saturation limits of this pair.
        target = np.arange(-130, 130) * 2 + 1
        ties = (target << shift) // (2 * multiplier) if shift else target
        near = np.concatenate([ties - 1, ties, ties + 1])
        near = near[np.abs(near) < 1 << 31].astype(np.int32)
        bits = np.concatenate([values, near]).view(np.uint32)
        unit = Requantizer(FORMATS["int8"])
        constant = np.ones_like(bits)
        inputs = {
            "i": bits.view(np.int32),
            "multiplier": constant * np.uint32(multiplier),
            "shift": constant * np.uint32(shift),
        }
        golden = gp.requantize(GOLDEN_FORMATS["int8"], bits, multiplier | shift << 16)
        assert_exact(stream(unit, inputs), golden, inputs)
