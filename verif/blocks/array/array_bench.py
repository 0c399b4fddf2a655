"""Drives a PEArray in Amaranth's simulator and compares it with golden.arithmetic.dot_product."""

from dataclasses import dataclass

import numpy as np
from amaranth.sim import Simulator

from golden.arithmetic import dot_product as nx
from hw.formats import FORMATS


def pack(values, width):
    return sum(int(v) << (width * i) for i, v in enumerate(values))


def unpack(value, width, count):
    return [(value >> (width * i)) & ((1 << width) - 1) for i in range(count)]


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One set of weights (rows, columns), its vectors (M, rows) and partial sums (M, columns)."""

    x: np.ndarray
    w: np.ndarray
    psum: np.ndarray
    enable: int


def simulate(array, tiles, *, gaps=None, bank=0, alternate=True, preload=False):
    """Streams ``tiles``, alternating banks; weights of the next load while one streams.

    ``alternate=False`` uses one bank only and loads between the tiles; ``preload`` fills both banks
    before the first vector.

    ``gaps`` is a callable that says in which cycles no vector is presented. Returns, per tile, the
    results (M, columns) and the flags (M,), and the cycle of every vector and of every result.
    """
    inputs, outputs, loads = [], [], []
    fmt, columns = array.fmt, array.columns
    last = len(tiles) - 1

    async def bench(ctx):
        cycle = 0
        pending = {}
        taken = []

        def load(tile, column, which):
            ctx.set(array.w_valid, 1)
            ctx.set(array.w_column, column)
            ctx.set(array.w_bank, which)
            ctx.set(array.w_data.as_value(), pack(tile.w[:, column], fmt.width))

        async def step():
            nonlocal cycle
            ctx.set(array.psum.as_value(), pending.pop(cycle, 0))
            if ctx.get(array.o_valid):
                taken.append(cycle)
                outputs.append((ctx.get(array.o.as_value()), ctx.get(array.o_flags.as_value())))
            await ctx.tick()
            cycle += 1
            ctx.set(array.x_valid, 0)
            ctx.set(array.w_valid, 0)

        which = bank
        for index in range(1 + (preload and last > 0)):
            for column in range(columns):
                load(tiles[index], column, which ^ index)
                await step()
        for index, tile in enumerate(tiles):
            if not alternate and index:
                for column in range(columns):
                    load(tile, column, which)
                    await step()
            ahead = alternate and index < last and not (preload and index == 0)
            following = list(range(columns)) if ahead else []
            vector = 0
            while vector < len(tile.x) or following:
                # The other bank is free once this one has been used.
                if following and vector:
                    load(tiles[index + 1], following.pop(0), which ^ 1)
                if vector < len(tile.x) and not (gaps and gaps()):
                    ctx.set(array.x_valid, 1)
                    ctx.set(array.weight_bank, which)
                    ctx.set(array.lane_enable, tile.enable)
                    ctx.set(array.x.as_value(), pack(tile.x[vector], fmt.width))
                    pending[cycle + array.PSUM_OFFSET] = pack(tile.psum[vector], 32)
                    inputs.append(cycle)
                    if vector == 0 and following and len(following) == columns:
                        load(tiles[index + 1], following.pop(0), which ^ 1)
                    vector += 1
                await step()
            which ^= alternate
        for _ in range(array.LATENCY + 2):
            await step()
        loads.extend(taken)

    simulator = Simulator(array)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    results = []
    for tile in tiles:
        part, outputs = outputs[: len(tile.x)], outputs[len(tile.x) :]
        words = np.array([unpack(o, 32, columns) for o, _ in part], dtype=np.uint32)
        results.append((words.reshape(-1, columns), np.array([f for _, f in part])))
    return results, inputs, loads


def idle_outputs(array, *, cycles):
    """Set of (o_valid, o_flags) seen in the cycles after reset without input."""
    seen = set()

    async def bench(ctx):
        for _ in range(cycles):
            seen.add((ctx.get(array.o_valid), ctx.get(array.o_flags.as_value())))
            await ctx.tick()

    simulator = Simulator(array)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return seen


def expected(fmt_name, tile):
    """Golden results (M, columns) and the flags of the enabled columns together (M,)."""
    result, flags = nx.column_dot(nx.format_by_name(fmt_name), tile.x, tile.w, tile.psum)
    enabled = [(tile.enable >> c) & 1 for c in range(tile.w.shape[1])]
    return result, np.bitwise_or.reduce(flags * np.array(enabled, dtype=np.uint8), axis=1)


def compare(fmt_name, tiles, results, note=""):
    """Raises AssertionError that names the first wrong result."""
    is_float = FORMATS[fmt_name].is_float
    for index, (tile, (got, got_flags)) in enumerate(zip(tiles, results, strict=True)):
        want, want_flags = expected(fmt_name, tile)
        assert got.shape == want.shape, f"tile {index}: {len(got)} of {len(want)} results"
        for m, c in np.argwhere(got != want):
            pair = [
                f"{int(v):#010x} ({v.view(np.float32) if is_float else v.view(np.int32)})"
                for v in (want[m, c], got[m, c])
            ]
            x = [f"{int(v):#x}" for v in tile.x[m]]
            w = [f"{int(v):#x}" for v in tile.w[:, c]]
            raise AssertionError(
                f"{fmt_name} {note} tile {index} vector {m} column {c}: expected {pair[0]}, "
                f"got {pair[1]}; x {x} w {w} psum {int(tile.psum[m, c]):#010x}"
            )
        wrong = np.flatnonzero(got_flags != want_flags)
        assert not len(wrong), (
            f"{fmt_name} {note} tile {index} vector {wrong[0]}: expected flags "
            f"{want_flags[wrong[0]]:04b}, got {got_flags[wrong[0]]:04b}"
        )


def random_codes(rng, fmt, shape, spread, specials=0.0):
    """Codes with exponents within ``spread`` of 1.0, zeros, subnormals and some special values."""
    if not fmt.is_float:
        codes = rng.integers(0, 1 << fmt.width, shape)
        return np.where(rng.random(shape) < 0.2, 1 << (fmt.width - 1), codes)
    exponent = rng.integers(
        max(0, fmt.bias - spread), min(fmt.exponent_max, fmt.bias + spread + 1), shape
    )
    exponent = np.where(rng.random(shape) < 0.05, 0, exponent)
    mantissa = rng.integers(0, 1 << fmt.mantissa_bits, shape)
    simple = rng.choice([0, (1 << fmt.mantissa_bits) - 1], shape)
    mantissa = np.where(rng.random(shape) < 0.3, simple, mantissa)
    codes = (exponent << fmt.mantissa_bits) | mantissa
    codes = np.where(rng.random(shape) < 0.1, 0, codes)
    special = rng.choice([fmt.infinity, fmt.infinity, fmt.nan], shape)
    codes = np.where(rng.random(shape) < specials, special, codes)
    return codes | (rng.integers(0, 2, shape) << (fmt.width - 1))


def random_tile(rng, fmt, *, rows, columns, vectors, spread, specials=0.0, enable=None):
    accumulator = nx.FLOAT32 if fmt.is_float else nx.IntFormat(name="int32", width=32)
    return Tile(
        x=random_codes(rng, fmt, (vectors, rows), spread, specials),
        w=random_codes(rng, fmt, (rows, columns), spread, specials),
        psum=random_codes(rng, accumulator, (vectors, columns), 2 * spread, specials).astype(
            np.uint32
        ),
        enable=(1 << columns) - 1 if enable is None else enable,
    )
