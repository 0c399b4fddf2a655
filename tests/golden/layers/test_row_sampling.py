"""Samples of rows: unbiased, as many as asked for, and a function of their place."""

import numpy as np
import pytest

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.float32_unit import VectorUnit, widen
from golden.arithmetic.formats import BF16, FLOAT32
from golden.layers.row_sampling import gather_rows, row_norms, sample_rows

ROWS, CHANNELS, DRAWS = 24, 9, 200


@pytest.fixture
def codes(rng):
    sizes = 4.0 ** rng.normal(size=(ROWS, 1))
    return encode(BF16, rng.normal(size=(ROWS, CHANNELS)) * sizes)


def drawn(codes, kept, seed, stream=3):
    unit = VectorUnit()
    norms = row_norms(unit, widen(BF16, codes))
    chosen = sample_rows(unit, norms, kept=kept, stream=stream, seed=seed)
    return norms, chosen, gather_rows(unit, BF16, codes, chosen)


def test_norms_and_probabilities(codes):
    norms, chosen, values = drawn(codes, 10, seed=1)
    reference = np.linalg.norm(decode(BF16, codes), axis=1)
    np.testing.assert_allclose(decode(FLOAT32, norms), reference, rtol=1e-6)
    p = np.minimum(1, reference * 10 / reference.sum())
    np.testing.assert_allclose(decode(FLOAT32, chosen.probabilities), p, rtol=1e-6)
    assert (np.diff(chosen.rows) > 0).all()
    expected = decode(BF16, codes)[chosen.rows] / p[chosen.rows, np.newaxis]
    np.testing.assert_allclose(decode(BF16, values), expected, rtol=2**-8)


def test_the_mean_of_many_draws_is_the_sum_of_all_rows(codes):
    """Within 4.5 standard errors, and 2^-9 of what is rounded; with as many rows as p says."""
    sums, counts = np.zeros((DRAWS, CHANNELS)), np.zeros(DRAWS)
    for seed in range(DRAWS):
        _, chosen, values = drawn(codes, 8, seed=seed)
        sums[seed], counts[seed] = decode(BF16, values).sum(0), len(chosen.rows)
    error = sums.std(0) / np.sqrt(DRAWS)
    rounding = 2.0**-9 * np.abs(decode(BF16, codes)).sum(0)
    assert (np.abs(sums.mean(0) - decode(BF16, codes).sum(0)) < 4.5 * error + rounding).all()
    p = decode(FLOAT32, chosen.probabilities)
    deviation = np.sqrt((p * (1 - p)).sum() / DRAWS)
    assert abs(counts.mean() - p.sum()) < 4.5 * deviation
    assert p.sum() <= 8 * (1 + 1e-6)


def test_place(codes):
    """Other batches and layers draw others; the same ones draw the same, whatever is behind."""
    rows = [drawn(codes, 12, seed=seed, stream=stream)[1].rows.tolist()
            for seed, stream in ((1, 3), (1, 3), (2, 3), (1, 4))]  # fmt: skip
    assert rows[0] == rows[1] and rows[0] != rows[2] and rows[0] != rows[3]


def test_special_rows(codes):
    """Rows of zeros are never kept, the only other one always; what is not finite stays."""
    zeros = np.zeros_like(codes)
    assert not len(drawn(zeros, 12, seed=1)[1].rows)
    zeros[7] = codes[7]
    _, chosen, values = drawn(zeros, 1, seed=1)
    assert chosen.rows.tolist() == [7]
    np.testing.assert_array_equal(values[0], codes[7])
    for special in (BF16.nan, encode(BF16, np.inf)):
        spoilt = codes.copy()
        spoilt[5, 2] = special
        _, chosen, values = drawn(spoilt, 12, seed=1)
        kept = chosen.rows.tolist().index(5)
        assert not np.isfinite(decode(BF16, values[kept, 2]))
