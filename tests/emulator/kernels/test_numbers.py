"""Operations of single numbers, through the kernels that use them, against golden's.

Covers: emulator/kernels/vector.py.
"""

import itertools

import numpy as np
import pytest

from emulator.kernels.records import LAYOUT, command_record
from emulator.kernels.vector import read_stream, run_chain, store, sum_steps, watch
from golden.arithmetic.dot_product import convert_float32, decode, encode
from golden.arithmetic.float32 import add_f32, mul_f32
from golden.arithmetic.float32_unit import VectorUnit, negate, power_of_two, widen
from golden.arithmetic.formats import FLOAT32, FORMATS
from hw.isa.encoding import Opcode, with_defaults
from hw.isa.vector import Condition, Factor, Source, Term

FLOATS = [fmt for fmt in FORMATS.values() if fmt.is_float]
#: Around everything that is special.
EDGES = sorted(
    {
        edge + step
        for edge in (0x00800000, 0x01000000, 0x0C800000, 0x1F800000, 0x20000000, 0x33800000,
                     0x3F000000, 0x3F800000, 0x40000000, 0x4B000000, 0x4B800000, 0x7F000000)
        for step in (0, 1, 2, 0x400000)
    }
    | {0x00FFFFFF, 0x3F7FFFFF, 0x407FFFFF, 0x4B7FFFFF, 0x7EFFFFFF, 0x7F7FFFFF}
)  # fmt: skip
NUMBERS = np.array(
    [0, FLOAT32.infinity, *EDGES, FLOAT32.nan]
    + [FLOAT32.sign_bit | bits for bits in (0, FLOAT32.infinity, *EDGES)],
    np.uint32,
)


def command(**fields):
    return command_record(Opcode.VECTOR, with_defaults(Opcode.VECTOR, fields))


def sizes(fmt, rows=1, words=64):
    record = np.zeros(1, LAYOUT)
    values = {
        "rows": rows, "item_bytes": fmt.width // 8, "word_bytes": rows * fmt.width // 8,
        "first1": -1, "depth0": words, "mantissa_bits": fmt.mantissa_bits,
        "exponent_bits": fmt.exponent_bits,
    }  # fmt: skip
    for name, value in values.items():
        record[name] = value
    return record


def chains(record, x, y, z):
    """Bits and flags of one chain after the other."""
    layout, flat = sizes(FORMATS["bf16"]), (part.reshape(-1, 1, 1, 1) for part in (x, y, z))
    results = [run_chain(record, layout, *operands) for operands in zip(*flat, strict=True)]
    bits = np.array([bits for bits, _ in results], np.uint32).reshape(x.shape)
    return bits, np.array([flags for _, flags in results], np.uint8)


def same(actual, expected, operands):
    for name, one, other in zip(("bits", "flags"), actual, expected, strict=True):
        for (place,) in np.argwhere(one != other)[:1]:
            raise AssertionError(
                f"{name} {one[place]:#x}, expected {other[place]:#x}; operands "
                f"{[hex(operand[place]) for operand in operands]}"
            )


@pytest.fixture
def pairs(rng):
    """Pairs of all edges, pairs of neighbours in size, and random ones."""
    both = np.array(list(itertools.product(NUMBERS, repeat=2)), np.uint32)
    near = rng.integers(0x00800000, 0x7F800000, (1500, 2), dtype=np.uint32)
    near[:, 1] = np.clip(
        near[:, 0].astype(np.int64) + rng.integers(-(28 << 23), 28 << 23, 1500),
        0x00800000,
        0x7F7FFFFF,
    )
    near |= rng.integers(2, size=near.shape, dtype=np.uint32) << np.uint32(31)
    close = near.copy()
    close[:, 1] = close[:, 0] ^ np.uint32(FLOAT32.sign_bit) ^ rng.integers(4, size=1500)
    both = np.concatenate([both, near, close])
    both = np.array([encode(FLOAT32, decode(FLOAT32, column)) for column in both.T])
    return both[0], both[1]


def test_sums(pairs):
    x, y = pairs
    same(chains(command(term=Term.ADD), x, y, x), add_f32(x, y), pairs)


def test_differences(pairs):
    x, y = pairs
    expected = add_f32(x, y ^ np.uint32(FLOAT32.sign_bit))
    same(chains(command(term=Term.SUBTRACT), x, y, x), expected, pairs)


def test_products(pairs):
    x, y = pairs
    same(chains(command(factor=Factor.Y), x, y, x), mul_f32(x, y), pairs)


def test_products_around_the_smallest_normal_number(rng):
    """Of significands whose product is near a power of two, so that some round up to it."""
    x = np.uint32(0x1F800000) | rng.integers(1 << 23, size=4000, dtype=np.uint32)
    value = 2.0**-126 / decode(FLOAT32, x)
    y = encode(FLOAT32, value) + rng.integers(-2, 3, 4000).astype(np.uint32)
    expected = mul_f32(x, y)
    assert {0, 0x00800000} <= set(expected[0].tolist())
    same(chains(command(factor=Factor.Y), x, y, x), expected, (x, y))


def test_negated_products_and_powers(pairs):
    x, y = pairs
    bits, flags = mul_f32(x, power_of_two(y))
    record = command(factor=Factor.Y, power=1, negate_product=1)
    same(chains(record, x, y, x), (negate(bits), flags), pairs)


def test_conditions(pairs):
    x, y = pairs
    a, b = decode(FLOAT32, x), decode(FLOAT32, y)
    with np.errstate(invalid="ignore"):
        greater = (a > b) | np.isnan(a)
        positive = (b > 0) | np.isnan(b)
    cases = {Condition.GREATER: greater, Condition.POSITIVE: positive, Condition.EQUAL: y == 0}
    no = np.zeros(len(x), np.uint8)
    for condition, taken in cases.items():
        record = command(condition=condition, keep=1)
        same(chains(record, x, y, y), (np.where(taken, x, y), no), pairs)
        record = command(condition=condition)
        same(chains(record, x, y, y), (np.where(taken, x, 0), no), pairs)


def test_sums_of_steps(rng):
    for steps in (1, 7, 8, 9, 40):
        numbers = rng.choice(NUMBERS[NUMBERS & 0x7FFFFFFF < 0x7F000000], (3, steps, 2))
        if steps == 9:
            numbers[:, 4] = FLOAT32.infinity
        unit = VectorUnit()
        expected = unit.sum(np.moveaxis(numbers, 1, 0))
        actual, flags = sum_steps(numbers)
        assert actual[:, 0].tolist() == expected.tolist(), steps
        assert flags == unit.flags


@pytest.mark.parametrize("fmt", FLOATS, ids=lambda fmt: fmt.name)
def test_numbers_from_and_to_operands(fmt, rng):
    layout, record = sizes(fmt), command()
    data, written = np.zeros(256, np.uint8), np.zeros(256, bool)
    halves = np.arange(1, 1 << (fmt.mantissa_bits + 1), 2) << (22 - fmt.mantissa_bits)
    ties = (rng.integers(1, 255, len(halves)) << 23) | halves
    near = ((FLOAT32.bias - fmt.bias + rng.integers(-1, 3, 300)) << 23) | (
        0x7FFFFF - rng.integers(1 << 14, size=300)
    )
    top = ((FLOAT32.bias + fmt.bias + rng.integers(-1, 2, 300)) << 23) | (
        0x7FFFFF - rng.integers(1 << 22, size=300)
    )
    numbers = np.concatenate([NUMBERS, ties[:2000], near, top]) & np.uint32(0xFFFFFFFF)
    numbers = encode(FLOAT32, decode(FLOAT32, numbers.astype(np.uint32)))
    expected, flags = convert_float32(fmt, numbers)
    for number, code, raised in zip(numbers, expected, flags, strict=True):
        new = store(record, layout, data, written, np.full((1, 1, 1), number))
        stored = int.from_bytes(data[: fmt.width // 8].tobytes(), "little")
        assert (hex(stored), new) == (hex(code), raised), f"{fmt.name} of {number:#010x}"
    codes = np.arange(1 << fmt.width) if fmt.width == 8 else rng.integers(1 << 16, size=3000)
    for code, wide in zip(codes, widen(fmt, codes), strict=True):
        data[:2] = code & 0xFF, code >> 8
        written[:2] = True
        readable, found = read_stream(
            record, layout, data, written, int(Source.NARROW), 0, 0, 0, 0, 0
        )
        assert readable and found[0, 0, 0] == wide, f"{fmt.name} {code:#x}"


def test_watching():
    layout = sizes(FORMATS["bf16"], rows=3)
    numbers = np.zeros((2, 2, 3), np.uint32)
    numbers[1, 1, 1] = FLOAT32.infinity | FLOAT32.sign_bit
    assert not watch(command(cb_count=2, i0_count=2, channels=4), layout, numbers)
    assert watch(command(cb_count=2, i0_count=2, channels=5), layout, numbers)
