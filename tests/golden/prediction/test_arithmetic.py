"""Order and rounding of reorganised maps, sums and statistics, to the last bit; the gate.

What is expected is computed in NumPy's float32, which rounds as the vector unit does, and one
column step per K tile.
"""

import numpy as np
import pytest
import torch

from algorithms.adagp.gate import Gate
from golden.arithmetic.dot_product import decode
from golden.arithmetic.float32_unit import VectorUnit
from golden.arithmetic.formats import BF16, FLOAT32, FP16
from golden.prediction.arithmetic import (
    StatisticsRule,
    channel_sum,
    positive,
    predicted_gradient,
    reorganize_map,
    row_sum,
    scaled_error,
    standardize,
)
from tests.golden.conftest import PlainFloat32, assert_same, bits_of, values_of

#: Windows of 4 x 4 by (start, end) for the sizes that the tests use.
WINDOWS = {
    (7, 4): [(0, 2), (1, 4), (3, 6), (5, 7)],
    (5, 4): [(0, 2), (1, 3), (2, 4), (3, 5)],
    (1, 4): [(0, 1)] * 4,
    (3, 2): [(0, 2), (1, 3)],
    (6, 1): [(0, 6)],
    (4, 1): [(0, 4)],
    (2, 2): [(0, 1), (1, 2)],
}


def random_bits(rng, *shape, scale=1.0):
    return bits_of(scale * rng.standard_normal(shape))


@pytest.mark.parametrize(
    ("shape", "size"),
    [((3, 7, 5, 6), 4), ((1, 1, 1, 3), 4), ((4, 3, 2, 2), 2), ((2, 6, 4, 5), 1)],
)
def test_reorganize_map(rng, shape, size):
    y, plain = random_bits(rng, *shape), PlainFloat32(BF16, 1)
    values, images = values_of(y), shape[0]
    expected = []
    for rows in WINDOWS[shape[1], size]:
        for columns in WINDOWS[shape[2], size]:
            total = None
            for h in range(*rows):
                line = None
                for w in range(*columns):
                    pixel = values[0, h, w]
                    for image in values[1:]:
                        pixel = plain.add(pixel, image[h, w])
                    line = pixel if line is None else plain.add(line, pixel)
                total = line if total is None else plain.add(total, line)
            count = images * (rows[1] - rows[0]) * (columns[1] - columns[0])
            expected.append(plain.multiply(total, np.float32(1 / count)))
    result = reorganize_map(VectorUnit(), y, size)
    assert_same(result, bits_of(np.array(expected)), "a")


@pytest.mark.parametrize(("outputs", "rows"), [(1, 4), (5, 4), (12, 4), (9, 5)])
@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
def test_channel_sum(rng, outputs, rows, fmt):
    values = random_bits(rng, outputs, scale=100.0)
    values[0] = bits_of(2.0**15)  # so that the order of the K tiles shows
    result = channel_sum(VectorUnit(), fmt, values, rows)
    expected = PlainFloat32(fmt, rows).channel_sum(values_of(values))
    assert_same(result, bits_of(expected), "sum")


def test_channel_sum_rounds_to_operands_first():
    values = bits_of(np.array([1 + 2.0**-9, 3 - 2.0**-9, 2.0**-9, -8.0]))
    assert_same(channel_sum(VectorUnit(), BF16, values, 3), bits_of(-4.0 + 2.0**-9), "sum")


@pytest.mark.parametrize("count", [1, 9, 31, 32, 33, 64, 70])
def test_row_sum(rng, count):
    values = random_bits(rng, count, 3)
    expected = PlainFloat32(BF16, 1).row_sum(values_of(values))
    assert_same(row_sum(VectorUnit(), values), bits_of(expected), "sum")


def test_standardize(rng):
    cells, statistics = random_bits(rng, 9, 4), random_bits(rng, 5)
    result = decode(BF16, standardize(VectorUnit(), BF16, cells, statistics))
    plain, numbers = PlainFloat32(BF16, 1), values_of(statistics)
    expected = plain.operands(plain.multiply(plain.add(values_of(cells), -numbers[3]), numbers[4]))
    assert (result[:9] == expected).all() and (result[9] == 1).all()


def test_scaled_error_and_predicted_gradient(rng):
    """Products, not quotients: where the output is the target nothing is left, to the last bit."""
    plain, statistics = PlainFloat32(BF16, 1), bits_of(np.abs(rng.standard_normal(8)))
    gradient, output = random_bits(rng, 30, 5), random_bits(rng, 30, 5)
    target = plain.multiply(values_of(gradient), values_of(statistics[5]))
    codes = scaled_error(VectorUnit(), BF16, gradient, output, statistics)
    expected = plain.operands(plain.add(target, -values_of(output)))
    assert (decode(BF16, codes) == expected).all()
    assert not scaled_error(VectorUnit(), BF16, gradient, bits_of(target), statistics).any()
    expected = bits_of(plain.multiply(values_of(output), values_of(statistics[7])))
    assert_same(predicted_gradient(VectorUnit(), output, statistics), expected, "g")


def test_positive():
    values = np.array([1.0, 0.0, -0.0, -1.0, np.inf, -np.inf, np.nan, 2.0**-126])
    assert positive(bits_of(values)).tolist() == [True, 0, 0, 0, True, 0, True, True]


def expected_running(plain, old, new, running):
    factors = np.float32(running), np.float32(1 - running)
    return [
        plain.add(plain.multiply(a, factors[0]), plain.multiply(b, factors[1]))
        for a, b in zip(old, new, strict=True)
    ]


@pytest.mark.parametrize(("cells", "outputs", "rows"), [(16, 6, 4), (1, 5, 8), (9, 13, 5)])
def test_input_statistics(rng, cells, outputs, rows):
    plain, state = PlainFloat32(BF16, rows), np.zeros(5, np.float32)
    rule = StatisticsRule(BF16, rows=rows, running=0.9, guard=True)
    reciprocal, bits = np.float32(1 / (cells * outputs)), np.zeros(5, np.uint32)
    for _ in range(3):
        a = random_bits(rng, cells, outputs)
        values = values_of(a)
        mean = plain.multiply(plain.channel_sum(plain.sum(values)), reciprocal)
        deviation = plain.add(values, -mean)
        squares = plain.sum(plain.multiply(deviation, deviation))
        variance = plain.multiply(plain.channel_sum(squares), reciprocal)
        state[:3] = expected_running(plain, state[:3], [1, mean, variance], 0.9)
        state[3], spread = plain.divide(state[1:3], state[0])
        root = np.sqrt(plain.add(spread, np.float32(1e-8)))
        state[4] = plain.divide(1, root)
        bits, rejected = rule.observe_input(VectorUnit(), bits, a)
        assert not rejected
        assert_same(bits, bits_of(state), "statistics")


@pytest.mark.parametrize(("count", "outputs", "rows"), [(45, 6, 4), (1, 5, 8), (70, 3, 5)])
def test_gradient_statistics(rng, count, outputs, rows):
    plain, state = PlainFloat32(BF16, rows), np.zeros(8, np.float32)
    rule = StatisticsRule(BF16, rows=rows, running=0.75, guard=True)
    reciprocal, bits = np.float32(1 / (count * outputs)), np.zeros(8, np.uint32)
    for _ in range(3):
        g = random_bits(rng, count, outputs, scale=0.01)
        out = bits_of(100.0 * values_of(g) + rng.standard_normal(g.shape))
        values = values_of(g), values_of(out)
        new = [np.float32(1)]
        for a, b in ((0, 0), (1, 0), (1, 1)):
            total = plain.channel_sum(plain.row_sum(plain.multiply(values[a], values[b])))
            new.append(plain.multiply(total, reciprocal))
        state[:4] = expected_running(plain, state[:4], new, 0.75)
        mean_square = plain.divide(state[1], state[0])
        state[4] = np.sqrt(plain.add(mean_square, np.float32(2.0**-100)))
        state[5] = plain.divide(1, state[4])
        gate = plain.divide(state[2], plain.multiply(state[4], state[3]))
        assert gate > 0
        state[6] = min(gate, 1)
        state[7] = plain.multiply(state[6], state[4])
        bits, rejected = rule.observe_gradient(VectorUnit(), bits, g, out)
        assert not rejected
        assert_same(bits, bits_of(state), "statistics")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2e19], ids=str)
def test_the_guard_keeps_statistics(rng, bad):
    """Also where only a square is not finite; without the guard it goes in."""
    values, good = random_bits(rng, 9, 4), random_bits(rng, 9, 4)
    values[5, 2] = bits_of(bad)
    for guard in (True, False):
        rule = StatisticsRule(BF16, rows=4, running=0.9, guard=guard)
        cases = (
            (rule.observe_input, 5, (good,), (values,)),
            (rule.observe_gradient, 8, (good, good), (values, good)),
            (rule.observe_gradient, 8, (good, good), (good, values)),
        )
        for observe, numbers, normal, broken in cases:
            empty = np.zeros(numbers, np.uint32)
            old, _ = observe(VectorUnit(), empty, *normal)
            for before in (empty, old):
                new, rejected = observe(VectorUnit(), before, *broken)
                assert rejected == guard
                if guard:
                    assert_same(new, before, "statistics")
                else:
                    assert not np.isfinite(decode(FLOAT32, new)).all()


def gate_of(gradient, output, *, guard=True):
    rule = StatisticsRule(BF16, rows=4, running=0.9, guard=guard)
    bits, _ = rule.observe_gradient(VectorUnit(), np.zeros(8, np.uint32), gradient, output)
    return values_of(bits)


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(2.0, 0.5), (0.5, 1.0), (1.0, 1.0), (-1.0, 0.0), (0.0, 0.0)],
)
def test_gate_scales(factor, expected):
    """Gradients of +-1/4, scale 1/4. Four roundings of float32 lie between them and the gate."""
    gradient = 0.25 * np.array([[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]])
    statistics = gate_of(bits_of(gradient), bits_of(factor * 4 * gradient))
    assert statistics[4:7] == pytest.approx([0.25, 4, expected], rel=2**-20)
    assert statistics[7] == statistics[4] * statistics[6]


def test_gate_of_numbers_that_are_not():
    """Without the guard: the gate is 1 for NaN, and 0 for a power of zero; 0 / 0 is NaN."""
    ones = np.ones((2, 2))
    assert gate_of(bits_of(ones), bits_of(np.nan * ones), guard=False)[6] == 1
    assert gate_of(bits_of(np.nan * ones), bits_of(0 * ones), guard=False)[6] == 0
    # A power of 2 ** -103 times a scale of 2 ** -50 is flushed to zero; so is the product.
    tiny = gate_of(bits_of(0 * ones), bits_of(2.0**-50 * ones))
    assert tiny[3] > 0 and tiny[4] == 2.0**-50 and tiny[6] == 1


def test_gate_is_that_of_the_algorithm(rng):
    """Noise shuts it, after 50 batches to below 8 standard deviations 1 / sqrt(100 * 100).

    :class:`algorithms.adagp.gate.Gate` in float64 for the same predictions. Operands of the channel
    sums are off by 2 ** -9, so a mean is by at most that of the mean magnitude of 0.08.
    """
    rule = StatisticsRule(BF16, rows=12, running=0.9, guard=True)
    bits = np.zeros(8, np.uint32)
    product = square = 0.0
    for _ in range(50):
        g, out = random_bits(rng, 100, 100, scale=0.5), random_bits(rng, 100, 100)
        bits, _ = rule.observe_gradient(VectorUnit(), bits, g, out)
        g, out = values_of(g).astype(float), values_of(out).astype(float)
        product = 0.9 * product + 0.1 * (g * out).mean()
        square = 0.9 * square + 0.1 * (out * out).mean()
    gate = values_of(bits)[6]
    assert gate <= 8 / 100
    assert gate == pytest.approx(max(0.0, product / square / 0.5), abs=0.001)


def test_gate_class_agrees():
    """One observation: both are <p, g> / <p, p>."""
    gradient, output = np.array([[0.5, -0.25]]), np.array([[2.0, -0.5]])
    statistics = gate_of(bits_of(gradient), bits_of(output))
    gate = Gate(0.9)
    gate.observe(torch.tensor(output) * float(statistics[4]), torch.tensor(gradient))
    assert statistics[6] == pytest.approx(gate.value, rel=2**-20)
