"""One column with operands decoded by the test, and its rounding stage alone.

Covers: hw/primitives/reduction_tree.py, hw/arithmetic/multiplier.py, hw/array/integer_column.py,
hw/array/operand_decoder.py, hw/array/pe.py, hw/array/sum_round.py,
verif/blocks/array/array_bench.py.
"""

from fractions import Fraction

import numpy as np
import pytest
from amaranth.sim import Simulator

from golden.arithmetic import dot_product as nx
from hw.arithmetic.multiplier import RegisteredMultiplier
from hw.array.float_column import DotProductColumn
from hw.array.integer_column import IntegerColumn
from hw.array.sum_round import SumRounder
from hw.formats import FORMATS, FloatFormat
from verif.blocks.array.array_bench import random_codes

COLUMN_PORTS = ("exponent", "significand")


def decode(fmt, code):
    """(exponent half, significand half, is NaN) of a float code, as packed integers."""
    exponent = (code >> fmt.mantissa_bits) & fmt.exponent_max
    mantissa = code & ((1 << fmt.mantissa_bits) - 1)
    zero, special = exponent == 0, exponent == fmt.exponent_max
    value = 0 if zero else ((1 << fmt.mantissa_bits) | mantissa) << (exponent & 1)
    sign = code >> (fmt.width - 1)
    grid_width, value_width = max(1, fmt.exponent_bits - 1), fmt.significand_bits + 1
    early = (exponent >> 1) | (zero << grid_width)
    late = value | (sign | (zero << 1) | (special << 2)) << value_width
    return (early, grid_width + 1), (late, value_width + 3), special and mantissa != 0


def join(parts):
    word, at = 0, 0
    for value, width in parts:
        word |= value << at
        at += width
    return word


def run_column(column, fmt, x, w, psum):
    """Results and flags of vectors ``x`` (M, R) with weights ``w`` (R,), one per cycle."""
    vectors = len(x)
    results = []

    async def bench(ctx):
        weights = [decode(fmt, int(code)) for code in w]
        ctx.set(column.w_exponent.as_value(), join(early for early, _, _ in weights))
        ctx.set(column.w_significand.as_value(), join(late for _, late, _ in weights))
        ctx.set(column.w_nan, any(nan for _, _, nan in weights))
        for verb in ("load", "swap"):
            for half in COLUMN_PORTS:
                ctx.set(getattr(column, f"{verb}_{half}"), 1)
            await ctx.tick()
            for half in COLUMN_PORTS:
                ctx.set(getattr(column, f"{verb}_{half}"), 0)
        # The buses may change now.
        ctx.set(column.w_exponent.as_value(), 0)
        ctx.set(column.w_significand.as_value(), 0)
        for cycle in range(vectors + column.LATENCY):
            lanes = [decode(fmt, int(code)) for code in x[min(cycle, vectors - 1)]]
            ctx.set(column.x_exponent.as_value(), join(early for early, _, _ in lanes))
            ctx.set(column.x_nan, any(nan for _, _, nan in lanes))
            lanes = [
                decode(fmt, int(code)) for code in x[np.clip(cycle - column.SKEW, 0, vectors - 1)]
            ]
            ctx.set(column.x_significand.as_value(), join(late for _, late, _ in lanes))
            ctx.set(column.psum, int(psum[np.clip(cycle - column.PSUM_OFFSET, 0, vectors - 1)]))
            if cycle >= column.LATENCY:
                results.append((ctx.get(column.o), ctx.get(column.flags.as_value())))
            await ctx.tick()

    simulator = Simulator(column)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return np.array(results).T


@pytest.mark.parametrize("name", ["bf16", "fp16", "fp8_e4m3"])
@pytest.mark.parametrize("rows", [1, 2, 3, 12])
def test_against_golden(name, rows, seed):
    rng = np.random.default_rng((seed, rows))
    fmt = nx.format_by_name(name)
    for spread, specials in ((6, 0.0), (300, 0.02)):
        x = random_codes(rng, fmt, (60, rows), spread, specials)
        w = random_codes(rng, fmt, (rows, 1), spread, specials / 4)
        psum = random_codes(rng, nx.FLOAT32, (60, 1), 2 * spread, specials)
        want, want_flags = nx.column_dot(fmt, x, w, psum)
        column = DotProductColumn(FORMATS[name], rows)
        got, flags = run_column(column, FORMATS[name], x, w[:, 0], psum[:, 0])
        for m in range(60):
            assert (got[m], flags[m]) == (want[m, 0], want_flags[m, 0]), (
                f"{name} rows {rows} seed {seed} vector {m}: expected {want[m, 0]:#010x} flags "
                f"{want_flags[m, 0]:04b}, got {got[m]:#010x} flags {flags[m]:04b}"
            )


def totals(rng, width):
    """Sums near powers of two, near ties, small, and random, of both signs."""
    limit = 1 << (width - 1)
    chosen = {0, 1, -1, limit - 1, -limit, -limit + 1}
    for bit in range(width - 1):
        chosen |= {sign * (1 << bit) + step for sign in (1, -1) for step in (-2, -1, 0, 1, 2)}
    for _ in range(300):
        bits = int(rng.integers(1, width))
        value = int(rng.integers(0, 1 << bits))
        tie = (value | 1 << bits >> 1) >> max(0, bits - 25) << max(0, bits - 25)
        chosen |= {value, -value, tie, -tie, tie + 1, -tie - 1, tie - 1, 1 - tie}
    return sorted(value for value in chosen if -limit <= value < limit)


@pytest.mark.parametrize("width", [29, 30, 31, 32, 33, 34])
def test_rounder(width, seed):
    """One rounding of ``total * 4**(grid - offset)``, over the whole range of exponents."""
    rng = np.random.default_rng((seed, width))
    offset = 139
    rounder = SumRounder(total_width=width, grid_width=8, grid_offset=offset)
    cases = []
    for total in totals(rng, width):
        for grid in (offset - 12, int(rng.integers(0, 255)), int(rng.integers(60, 100)), 190):
            cases.append((total, grid, *(int(bit) for bit in rng.integers(0, 2, 2))))
    values = [
        float(-total if negate else total) * 4.0 ** (grid - offset)
        for total, grid, negate, _ in cases
    ]
    values = [value + 0.0 for value in values]  # the zero sum is +0
    assert Fraction(values[0]) == (-1) ** cases[0][2] * cases[0][0] * Fraction(4) ** (
        cases[0][1] - offset
    )
    want, want_flags = nx.round_float(nx.FLOAT32, values)
    results = []

    async def bench(ctx):
        for cycle in range(len(cases) + rounder.LATENCY):
            total, grid, negate, lost = cases[min(cycle, len(cases) - 1)]
            ctx.set(rounder.total, total)
            ctx.set(rounder.grid, grid)
            ctx.set(rounder.negate, negate)
            ctx.set(rounder.lost, lost)
            if cycle >= rounder.LATENCY:
                results.append((ctx.get(rounder.o), ctx.get(rounder.flags.as_value())))
            await ctx.tick()

    simulator = Simulator(rounder)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    for case, (got, flags), code, expected in zip(cases, results, want, want_flags, strict=True):
        expected |= 8 * case[3]
        assert (got, flags) == (code, expected), (
            f"width {width} seed {seed} total {case[0]} grid {case[1]}: expected {code:#x} flags "
            f"{expected:04b}, got {got:#010x} flags {flags:04b}"
        )


def test_multiplier_latency():
    multiplier = RegisteredMultiplier(5, 4, is_signed=True)
    seen = []

    async def bench(ctx):
        for cycle in range(6):
            ctx.set(multiplier.a, -16 if cycle == 0 else 3)
            ctx.set(multiplier.b, -8 if cycle == 0 else -5)
            seen.append(ctx.get(multiplier.o))
            await ctx.tick()

    simulator = Simulator(multiplier)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen == [0, 0, 128, -15, -15, -15]
    assert multiplier.LATENCY == 2


def test_integer_column_timing():
    for rows in (1, 2, 5, 12):
        column = IntegerColumn(FORMATS["int8"], rows)
        column._MustUse__used = True
        assert column.LATENCY - column.PSUM_OFFSET == 2


def test_too_wide_a_significand():
    wide = FloatFormat(name="wide", exponent_bits=8, mantissa_bits=13)
    with pytest.raises(ValueError, match="Mantissa width of an operand must be at most 12, not 13"):
        DotProductColumn(wide, 4)
