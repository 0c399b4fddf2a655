"""golden.arithmetic.dot_product against exact rational arithmetic, ml_dtypes and float64.

Covers: golden/arithmetic/formats.py.
"""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from golden.arithmetic import dot_product as nx

SEED = 20230523
FLOATS = [nx.BF16, nx.FP16, nx.FP8_E4M3, nx.FP8_E5M2]
MIN_NORMAL = Fraction(1, 2**126)


def by_name(fmt):
    return fmt.name


def exact(fmt, code):
    """Value of a code as a Fraction, or one of 'nan', 'inf', '-inf'; plus its sign bit."""
    sign = code >> (fmt.width - 1)
    exponent = (code >> fmt.mantissa_bits) & fmt.exponent_max
    mantissa = code & ((1 << fmt.mantissa_bits) - 1)
    if exponent == fmt.exponent_max:
        return ("nan" if mantissa else "-inf" if sign else "inf"), sign
    if exponent == 0:
        return Fraction(0), sign
    scale = Fraction(2) ** (exponent - fmt.bias - fmt.mantissa_bits)
    return (-1) ** sign * ((1 << fmt.mantissa_bits) + mantissa) * scale, sign


def round_float32(value):
    """Nearest-even float32 of a Fraction, by search of the binade: bits and flags."""
    if value == 0:
        return 0, 0
    sign = 0x80000000 if value < 0 else 0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    quantum = Fraction(2) ** (exponent - 23)
    steps = round(magnitude / quantum)  # ties to even
    inexact = 8 if steps * quantum != magnitude else 0
    if steps == 1 << 24:
        steps, exponent = 1 << 23, exponent + 1
    if exponent > 127:
        return sign | 0x7F800000, 2 | 8
    if exponent < -126:
        return sign, 4 | 8
    return sign | ((exponent + 127) << 23) | (steps - (1 << 23)), inexact


def scalar_column(fmt, x, w, psum):
    """docs/numerics.md, one column, spelled out with rationals."""
    terms = []
    infinities = set()
    codes = [(exact(fmt, a), exact(fmt, b), a, b) for a, b in zip(x, w, strict=True)]
    (start, start_sign) = exact(nx.FLOAT32, psum)
    if start == "nan" or any("nan" in (a, b) for (a, _), (b, _), _, _ in codes):
        return 0x7FC00000, 0
    if start in ("inf", "-inf"):
        infinities.add(start_sign)
    elif start != 0:
        exponent = (psum >> 23) & 0xFF
        terms.append((start, (exponent + 1) // 2 - 77))
    for (a, sign_a), (b, sign_b), code_a, code_b in codes:
        if isinstance(a, str) or isinstance(b, str):
            infinities |= {0, 1} if a == 0 or b == 0 else {sign_a ^ sign_b}
        elif a and b:
            exponent_a = (code_a >> fmt.mantissa_bits) & fmt.exponent_max
            exponent_b = (code_b >> fmt.mantissa_bits) & fmt.exponent_max
            grid = exponent_a // 2 + exponent_b // 2 - fmt.bias - 12
            terms.append((a * b, grid))
    if infinities:
        return {(0,): (0x7F800000, 0), (1,): (0xFF800000, 0)}.get(
            tuple(infinities), (0x7FC00000, 1)
        )
    if not terms:
        return 0, 0
    top = max(grid for _, grid in terms)
    unit = Fraction(4) ** top
    assert max(abs(value) for value, grid in terms if grid == top) >= 2**24 * unit
    total, lost = 0, False
    for value, grid in terms:
        scaled = value / unit
        assert abs(scaled) < 2**28
        whole = int(scaled)  # towards zero
        if top - grid >= 16:
            whole = 0
        lost |= whole != scaled
        total += whole
    bits, flags = round_float32(total * unit)
    return bits, flags | (8 if lost else 0)


def random_codes(rng, fmt, shape, spread):
    """Random codes: exponents within ``spread`` of the middle, some zeros, subnormals, specials."""
    middle = fmt.bias
    low, high = max(0, middle - spread), min(fmt.exponent_max, middle + spread + 1)
    exponent = rng.integers(low, high, shape)
    mantissa = rng.integers(0, 1 << fmt.mantissa_bits, shape)
    mantissa = np.where(
        rng.random(shape) < 0.2, rng.choice([0, (1 << fmt.mantissa_bits) - 1]), mantissa
    )
    exponent = np.where(rng.random(shape) < 0.1, 0, exponent)
    codes = (exponent << fmt.mantissa_bits) | mantissa
    codes = np.where(rng.random(shape) < 0.1, 0, codes)
    return codes | (rng.integers(0, 2, shape) << (fmt.width - 1))


def sprinkle(rng, fmt, codes, probability):
    special = rng.choice([fmt.infinity, fmt.infinity | fmt.sign_bit, fmt.nan], codes.shape)
    return np.where(rng.random(codes.shape) < probability, special, codes)


def check_column(fmt, x, w, psum, seed):
    result, flags = nx.column_dot(fmt, x, w, psum)
    for m in range(x.shape[0]):
        for c in range(w.shape[1]):
            want = scalar_column(
                fmt, [int(v) for v in x[m]], [int(v) for v in w[:, c]], int(psum[m, c])
            )
            got = (int(result[m, c]), int(flags[m, c]))
            assert got == want, (
                f"{fmt.name} seed {seed} vector {m} column {c}: expected {want[0]:#010x} flags "
                f"{want[1]:x}, got {got[0]:#010x} flags {got[1]:x}"
            )


@pytest.mark.parametrize("fmt", FLOATS, ids=by_name)
@pytest.mark.parametrize("rows", [1, 3, 12])
@pytest.mark.parametrize("spread", [2, 9, 300])
def test_column_against_rationals(fmt, rows, spread):
    seed = SEED + 1000 * rows + spread
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    x = random_codes(rng, fmt, (40, rows), spread)
    w = random_codes(rng, fmt, (rows, 6), spread)
    psum = random_codes(rng, nx.FLOAT32, (40, 6), spread)
    check_column(fmt, x, w, psum, seed)
    x = sprinkle(rng, fmt, x, 0.05)
    w = sprinkle(rng, fmt, w, 0.05)
    psum = sprinkle(rng, nx.FLOAT32, psum, 0.05)
    check_column(fmt, x, w, psum, seed)


def test_every_flag_and_special():
    one, big, tiny, inf, nan = 0x3F80, 0x7F00, 0x0080, 0x7F80, 0x7FC0
    minus = 0x8000
    cases = [  # x, w, psum, result, flags
        ([one], [one], 0x3F800000, 0x40000000, 0),
        ([one], [one], 0xBF800000, 0x00000000, 0),
        ([0], [one | minus], 0x80000000, 0x00000000, 0),
        ([inf], [0], 0, 0x7FC00000, 1),
        ([inf], [0x0001], 0, 0x7FC00000, 1),
        ([inf], [minus | one], 0, 0xFF800000, 0),
        ([inf], [one], 0xFF800000, 0x7FC00000, 1),
        ([nan], [inf], 0xFF800000, 0x7FC00000, 0),
        ([one], [one], 0x7F800001, 0x7FC00000, 0),
        ([big], [big], 0, 0x7F800000, 2 | 8),
        ([big | minus], [big], 0x7F000000, 0xFF800000, 2 | 8),
        ([tiny], [tiny], 0, 0x00000000, 4 | 8),
        ([tiny | minus], [tiny], 0, 0x80000000, 4 | 8),
        ([one], [one], 0x33800000, 0x3F800000, 8),
        ([one], [one], 0x007FFFFF, 0x3F800000, 0),
        ([big, big], [big, big | minus], 0x3F800000, 0x00000000, 8),
    ]
    for x, w, psum, result, flags in cases:
        got, got_flags = nx.column_dot(
            nx.BF16, np.array([x]), np.array([w]).T, np.array([[psum]], dtype=np.uint32)
        )
        text = f"x {[hex(v) for v in x]} w {[hex(v) for v in w]} psum {psum:#010x}"
        assert (int(got[0, 0]), int(got_flags[0, 0])) == (result, flags), (
            f"{text}: expected {result:#010x} flags {flags}, got {int(got[0, 0]):#010x} "
            f"flags {int(got_flags[0, 0])}"
        )


def test_rows_commute():
    rng = np.random.default_rng(SEED)
    x, w = random_codes(rng, nx.BF16, (50, 12), 12), random_codes(rng, nx.BF16, (12, 5), 12)
    psum = random_codes(rng, nx.FLOAT32, (50, 5), 12)
    order = rng.permutation(12)
    for first, second in zip(
        nx.column_dot(nx.BF16, x, w, psum),
        nx.column_dot(nx.BF16, x[:, order], w[order], psum),
        strict=True,
    ):
        assert (first == second).all()


def test_chunks_do_not_show():
    rng = np.random.default_rng(SEED)
    x, w = random_codes(rng, nx.BF16, (3000, 12), 6), random_codes(rng, nx.BF16, (12, 15), 6)
    psum = random_codes(rng, nx.FLOAT32, (3000, 15), 6)
    whole = nx.column_dot(nx.BF16, x, w, psum)
    halves = [nx.column_dot(nx.BF16, x[p], w, psum[p]) for p in (slice(0, 1777), slice(1777, None))]
    for k in range(2):
        assert (whole[k] == np.concatenate([half[k] for half in halves])).all()


def test_several_passes_are_those_of_each(monkeypatch):
    """Infinities and NaN among them, in chunks that divide nothing."""
    monkeypatch.setattr(nx, "_CHUNK_ELEMENTS", 1000)
    rng = np.random.default_rng(SEED)
    x = random_codes(rng, nx.BF16, (3, 7, 6, 5), 300)
    w, psum = random_codes(rng, nx.BF16, (3, 7, 5, 4), 300), np.zeros((3, 7, 6, 4), np.uint32)
    found = nx.column_dot(nx.BF16, x, w, psum)
    for place in np.ndindex(3, 7):
        own = nx.column_dot(nx.BF16, x[place], w[place], psum[place])
        assert all((part[place] == one).all() for part, one in zip(found, own, strict=True))
    assert found[1].any()
    with pytest.raises(ValueError, match="Shapes must be"):
        nx.column_dot(nx.BF16, x, w[:2], psum)


def test_integer_column_and_overflow():
    rng = np.random.default_rng(SEED)
    x, w = rng.integers(0, 256, (64, 12)), rng.integers(0, 256, (12, 7))
    x[0], w[:, 0] = 0x80, 0x80
    psum = rng.integers(0, 1 << 32, (64, 7), dtype=np.uint32)
    psum[0, 0] = 0x7FFFFFFF
    result, flags = nx.column_dot(nx.INT8, x, w, psum)
    total = x.astype(np.int8).astype(object) @ w.astype(np.int8).astype(object)
    total = total + psum.view(np.int32).astype(object)
    assert (result == (total % (1 << 32)).astype(np.uint32)).all()
    over = np.array([[not -(1 << 31) <= v < 1 << 31 for v in row] for row in total])
    assert (flags == np.where(over, nx.Flags.OVERFLOW, 0)).all() and over[0, 0]


@pytest.mark.parametrize(
    ("fmt", "dtype"),
    [
        (nx.BF16, ml_dtypes.bfloat16),
        (nx.FP16, np.float16),
        (nx.FP8_E4M3, ml_dtypes.float8_e4m3),
        (nx.FP8_E5M2, ml_dtypes.float8_e5m2),
    ],
)
def test_codes_against_other_libraries(fmt, dtype):
    codes = np.arange(1 << fmt.width).astype(np.uint8 if fmt.width == 8 else np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaN
        theirs = codes.view(dtype).astype(np.float64)
    subnormal = np.abs(theirs) < fmt.min_normal
    ours = nx.decode(fmt, codes)
    np.testing.assert_array_equal(ours, np.where(subnormal, np.copysign(0.0, theirs), theirs))
    assert (np.signbit(ours) == np.signbit(theirs))[~np.isnan(theirs)].all()
    assert ours[np.isfinite(ours)].max() == fmt.max_finite
    back = nx.encode(fmt, ours)
    keep = ~subnormal & ~np.isnan(theirs)
    assert (back[keep] == codes[keep]).all()
    assert (back[np.isnan(theirs)] == fmt.nan).all()

    rng = np.random.default_rng(SEED)
    values = np.ldexp(rng.standard_normal(20000), rng.integers(-20, 20, 20000))
    values = np.clip(values, -3.3e38, 3.3e38).astype(np.float32).astype(np.float64)
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32).astype(dtype).astype(np.float64)
    mine = nx.decode(fmt, nx.encode(fmt, values))
    # Between half and all of the smallest normal number others round to subnormal steps.
    clear = (np.abs(values) >= fmt.min_normal) | (np.abs(values) < fmt.min_normal / 2)
    rounded = np.where(np.abs(rounded) < fmt.min_normal, 0.0, rounded)
    assert (mine[clear] == rounded[clear]).all()


def test_round_flags():
    bits, flags = nx.round_float(
        nx.FP16, [1.0, 65519.0, 65520.0, -1e-9, 0.1, np.nan, -0.0, -np.inf]
    )
    assert [hex(b) for b in bits] == [
        "0x3c00", "0x7bff", "0x7c00", "0x8000", "0x2e66", "0x7e00", "0x8000", "0xfc00",
    ]  # fmt: skip
    assert list(flags) == [0, 8, 2 | 8, 4 | 8, 8, 0, 0, 0]


def test_integer_codes():
    assert list(nx.encode(nx.INT8, [0.5, 1.5, -0.5, 127.5, -300.0])) == [0, 2, 0, 127, 128]
    with pytest.raises(ValueError, match="NaN has no code in the integer format int8"):
        nx.encode(nx.INT8, [np.nan])


def test_messages():
    with pytest.raises(ValueError, match="must be one of bf16, fp16, .* not 'fp12'"):
        nx.format_by_name("fp12")
    with pytest.raises(ValueError, match="x has 2 columns but w has 3 rows"):
        nx.column_dot(nx.BF16, np.zeros((1, 2)), np.zeros((3, 1)), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="Shapes must be"):
        nx.column_dot(nx.BF16, np.zeros((1, 3)), np.zeros((3, 1)), np.zeros((2, 1)))


@pytest.mark.parametrize("fmt", FLOATS, ids=by_name)
def test_error_bound_and_typical_accuracy(fmt):
    """A dot product of 144 terms: inside the bound, and as good as float32 accumulation."""
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    terms, rows, vectors = 144, 12, 400
    x = nx.encode(fmt, rng.standard_normal((vectors, terms)))
    w = nx.encode(fmt, rng.standard_normal((terms, 8)) * 0.1)
    psum = np.zeros((vectors, 8), dtype=np.uint32)
    exact_x, exact_w = nx.decode(fmt, x), nx.decode(fmt, w)
    for start in range(0, terms, rows):
        part = slice(start, start + rows)
        psum, _ = nx.column_dot(fmt, x[:, part], w[part], psum)
    truth = exact_x @ exact_w  # products exact in float64; its own error is below 2**-45
    error = np.abs(nx.decode(nx.FLOAT32, psum) - truth)
    bound = nx.dot_error_bound(np.abs(exact_x) @ np.abs(exact_w), terms, rows)
    assert (error <= bound + 2.0**-45).all()
    sequential = np.zeros((vectors, 8), dtype=np.float32)
    for k in range(terms):
        sequential += np.outer(exact_x[:, k], exact_w[k]).astype(np.float32)
    assert np.sqrt((error**2).mean()) <= np.sqrt(((sequential - truth) ** 2).mean())
