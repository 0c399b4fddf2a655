"""PEArray in Amaranth's simulator against golden.arithmetic.dot_product, bit for bit.

Covers: hw/array/psum_align.py.
"""

import numpy as np
import pytest
from amaranth.hdl import Fragment, Module

from golden.arithmetic import dot_product as nx
from hw.array import psum_align
from hw.array.pe_array import ArrayTiming, PEArray
from hw.formats import FORMATS
from hw.primitives.shared_module import SharedModules, add_shared, emit_verilog
from verif.blocks.array import array_bench as bench

SHAPES = [(1, 1), (3, 2), (5, 7), (8, 3)]


def stream(fmt_name, rows, columns, tiles, note, **options):
    array = PEArray(FORMATS[fmt_name], rows, columns)
    results, presented, taken = bench.simulate(array, tiles, **options)
    bench.compare(fmt_name, tiles, results, note)
    latencies = {after - before for before, after in zip(presented, taken, strict=True)}
    assert latencies == {array.LATENCY}
    assert ArrayTiming(fmt=array.fmt, rows=rows).latency == array.LATENCY
    return results


@pytest.mark.parametrize(
    ("rows", "columns", "fmt_name"),
    [
        pytest.param(*shape, name, marks=() if short else pytest.mark.long)
        for shape in SHAPES
        for name in FORMATS
        for short in [shape == (5, 7) or name in ("bf16", "int8")]
    ],
)
def test_random_tiles(fmt_name, rows, columns, seed):
    """Close and far exponents, special values, masked columns; weights load while others stream."""
    rng = np.random.default_rng((seed, rows, columns))
    fmt = nx.format_by_name(fmt_name)
    tiles = [
        bench.random_tile(
            rng,
            fmt,
            rows=rows,
            columns=columns,
            vectors=int(rng.integers(1, 25)),
            spread=spread,
            specials=specials,
            enable=int(rng.integers(0, 1 << columns)),
        )
        for spread, specials in ((2, 0), (8, 0), (8, 0.05), (300, 0), (300, 0.02))
    ]
    note = f"{rows}x{columns} seed {seed}"
    stream(fmt_name, rows, columns, tiles, note)
    gaps = lambda: rng.random() < 0.4  # noqa: E731
    stream(fmt_name, rows, columns, tiles[:3], note + " gaps", gaps=gaps, bank=1)


def test_overflow_underflow_and_invalid(seed):
    """Every flag occurs, alone and together, and only for enabled columns."""
    one, huge, tiny, inf = 0x3F80, 0x7F00, 0x0080, 0x7F80
    x = np.array([[one, one], [huge, 0], [tiny, 0], [0, inf], [one, tiny], [inf, inf]])
    w = np.array([[one, huge, tiny, 0], [0, one, 0x8000 | one, 0]])
    psum = np.zeros((6, 4), dtype=np.uint32)
    for enable, seen in ((0b1111, 15), (0b0001, 0b1001), (0, 0)):
        tile = bench.Tile(x=x, w=w, psum=psum, enable=enable)
        ((_, flags),) = stream("bf16", 2, 4, [tile], f"enable {enable:04b} seed {seed}")
        assert np.bitwise_or.reduce(flags) & seen == np.bitwise_or.reduce(flags)
        assert (np.bitwise_or.reduce(flags) == 0) == (enable == 0)
    tile = bench.Tile(x=x, w=w, psum=psum, enable=0b1111)
    ((_, flags),) = stream("bf16", 2, 4, [tile], "all")
    assert np.bitwise_or.reduce(flags) == 15


def test_two_banks_loaded_before_the_first_is_used(seed):
    """Both banks may be filled in advance; each is used in turn."""
    rng = np.random.default_rng(seed)
    array = PEArray(FORMATS["int8"], 2, 2)
    tiles = [
        bench.random_tile(rng, nx.INT8, rows=2, columns=2, vectors=4, spread=1) for _ in range(2)
    ]
    results, _, _ = bench.simulate(array, tiles, preload=True)
    bench.compare("int8", tiles, results, f"preload seed {seed}")
    array = PEArray(FORMATS["bf16"], 2, 2)
    tiles = [
        bench.random_tile(rng, nx.BF16, rows=2, columns=2, vectors=4, spread=3) for _ in range(2)
    ]
    results, _, _ = bench.simulate(array, tiles, preload=True)
    bench.compare("bf16", tiles, results, f"preload seed {seed}")


@pytest.mark.parametrize("fmt_name", ["bf16", "int8"])
def test_same_bank_twice(fmt_name, seed):
    """One bank, filled again after it has been used."""
    rng = np.random.default_rng(seed)
    fmt = nx.format_by_name(fmt_name)
    tiles = [bench.random_tile(rng, fmt, rows=3, columns=2, vectors=5, spread=3) for _ in range(3)]
    array = PEArray(FORMATS[fmt_name], 3, 2)
    results, _, _ = bench.simulate(array, tiles, alternate=False)
    bench.compare(fmt_name, tiles, results, f"one bank, seed {seed}")


def test_reset_values():
    assert bench.idle_outputs(PEArray(FORMATS["bf16"], 2, 2), cycles=30) == {(0, 0)}
    assert bench.idle_outputs(PEArray(FORMATS["int8"], 2, 2), cycles=30) == {(0, 0)}


def test_checker_can_fail(seed):
    rng = np.random.default_rng(seed)
    tile = bench.random_tile(rng, nx.BF16, rows=2, columns=2, vectors=3, spread=2)
    results, _, _ = bench.simulate(PEArray(FORMATS["bf16"], 2, 2), [tile])
    bench.compare("bf16", [tile], results)
    words, flags = results[0]
    words[1, 1] ^= 1
    with pytest.raises(AssertionError, match="vector 1 column 1: expected 0x"):
        bench.compare("bf16", [tile], [(words, flags)])
    words[1, 1] ^= 1
    flags[2] ^= 1
    with pytest.raises(AssertionError, match="vector 2: expected flags"):
        bench.compare("bf16", [tile], [(words, flags)])


def test_checker_sees_a_broken_array(seed, monkeypatch):
    """An array that drops partial sums too early is caught."""
    monkeypatch.setattr(psum_align, "DROP_DISTANCE", 12)
    rng = np.random.default_rng(seed)
    tiles = [
        bench.random_tile(rng, nx.BF16, rows=2, columns=2, vectors=60, spread=12) for _ in range(3)
    ]
    with pytest.raises(AssertionError, match="expected"):
        stream("bf16", 2, 2, tiles, "mutant")


def test_emission_is_shared_and_stable():
    first = emit_verilog(PEArray(FORMATS["bf16"], 3, 4), name="dut")
    assert first == emit_verilog(PEArray(FORMATS["bf16"], 3, 4), name="dut")
    modules = [
        line.split("(")[0].split()[1] for line in first.splitlines() if "module " in line[:7]
    ]
    assert len(modules) == len(set(modules))
    assert sum(name.startswith("adagp_column") for name in modules if "." not in name) == 1
    assert first.count("adagp_column_bf16_3 column") == 4
    bigger = emit_verilog(PEArray(FORMATS["bf16"], 3, 15), name="dut")
    assert bigger.count("endmodule") == first.count("endmodule")
    block = emit_verilog(PEArray(FORMATS["bf16"], 3, 4), name="dut", technology="ecp5")
    assert "MULT18X18D" in block and "MULT18X18D" not in first


def test_messages():
    with pytest.raises(ValueError, match="Rows must be a positive integer, not 0"):
        PEArray(FORMATS["bf16"], 0, 1)
    with pytest.raises(ValueError, match="Technology must be one of 'generic', 'ecp5', not 'xc7'"):
        SharedModules("xc7")
    shared = SharedModules()
    arrays = [PEArray(FORMATS["int8"], rows, 1) for rows in (2, 3)]
    add_shared(Module(), shared, arrays[0], name="a", module_name="same")
    with pytest.raises(ValueError, match="'same' stands for both"):
        add_shared(Module(), shared, arrays[1], name="a", module_name="same")
    for array in arrays:  # never built
        Fragment.get(array, None)
