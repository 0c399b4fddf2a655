"""Samples of images: unbiased, as many as asked for, and a function of their place."""

import numpy as np
import pytest

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import BF16, FLOAT32, format_by_name
from golden.layers.row_sampling import (
    gather_rows,
    require_range,
    row_counts,
    row_norms,
    sample_rows,
    scatter_rows,
)

IMAGES, SHAPE, DRAWS = 24, (3, 1, 7), 200
COUNTS = row_counts(IMAGES)


@pytest.fixture
def codes(rng):
    sizes = 4.0 ** rng.normal(size=(IMAGES, 1, 1, 1))
    return encode(BF16, rng.normal(size=(IMAGES, *SHAPE)) * sizes)


def drawn(codes, kept, seed, layer=3):
    norms, _ = row_norms(BF16, codes, rows=4)
    chosen = sample_rows(BF16, norms, kept=kept, counts=COUNTS, layer=layer, seed=seed)
    return norms, chosen, gather_rows(BF16, codes, chosen)[0]


def test_norms_and_probabilities(codes):
    """Within what is rounded to operands: squares, which makes half of it for a norm and their sum,
    and 1 / p."""
    norms, chosen, values = drawn(codes, 10, seed=1)
    reference = np.linalg.norm(decode(BF16, codes).reshape(IMAGES, -1), axis=1)
    np.testing.assert_allclose(decode(FLOAT32, norms), reference, rtol=2**-9 + 2**-20)
    p = np.minimum(1, reference * 10 / reference.sum())
    np.testing.assert_allclose(decode(FLOAT32, chosen.probabilities), p, rtol=2**-7)
    rows = chosen.rows[: chosen.kept]
    assert (np.diff(rows) > 0).all()
    factors = decode(BF16, chosen.factors)
    np.testing.assert_allclose(
        factors[rows] * decode(FLOAT32, chosen.probabilities)[rows], 1, rtol=2**-22
    )
    assert not factors[np.setdiff1d(np.arange(IMAGES), rows)].any()
    expected = decode(BF16, codes)[chosen.rows] * factors[chosen.rows].reshape(-1, 1, 1, 1)
    np.testing.assert_allclose(decode(BF16, values), expected, rtol=2**-8)


def test_the_mean_of_many_draws_is_the_sum_of_all_images(codes):
    """Within 4.5 standard errors, and 2^-8 of what is rounded; with as many images as p says."""
    sums, counts = np.zeros((DRAWS, *SHAPE)), np.zeros(DRAWS)
    for seed in range(DRAWS):
        _, chosen, values = drawn(codes, 8, seed=seed)
        sums[seed], counts[seed] = decode(BF16, values).sum(0), chosen.kept
    error = sums.std(0) / np.sqrt(DRAWS)
    rounding = 2.0**-8 * np.abs(decode(BF16, codes)).sum(0)
    assert (np.abs(sums.mean(0) - decode(BF16, codes).sum(0)) < 4.5 * error + rounding).all()
    p = decode(FLOAT32, chosen.probabilities)
    deviation = np.sqrt((p * (1 - p)).sum() / DRAWS)
    assert abs(counts.mean() - p.sum()) < 4.5 * deviation
    assert p.sum() <= 8 * (1 + 2**-8)


def test_place(codes):
    """Other batches and layers draw others; the same ones draw the same."""
    rows = [drawn(codes, 12, seed=seed, layer=layer)[1].rows.tolist()
            for seed, layer in ((1, 3), (1, 3), (2, 3), (1, 4))]  # fmt: skip
    assert rows[0] == rows[1] and rows[0] != rows[2] and rows[0] != rows[3]


def test_what_fills_a_sample_up(codes):
    """The last image that is dropped, times 0, up to a count; nothing where all are kept."""
    for seed in range(20):
        _, chosen, values = drawn(codes, 9, seed=seed)
        assert len(chosen.rows) == min(n for n in COUNTS if n >= chosen.kept)
        dropped = np.setdiff1d(np.arange(IMAGES), chosen.rows[: chosen.kept])
        assert (chosen.rows[chosen.kept :] == dropped[-1]).all()
        assert not (decode(BF16, values[chosen.kept :]) != 0).any()
    whole = drawn(codes, 1e9, seed=1)[1]
    assert whole.rows.tolist() == list(range(IMAGES)) and whole.kept == IMAGES
    back = scatter_rows(values, chosen, IMAGES)
    np.testing.assert_array_equal(back[chosen.rows[: chosen.kept]], values[: chosen.kept])
    assert not (decode(BF16, np.delete(back, chosen.rows[: chosen.kept], 0)) != 0).any()


def test_special_images(codes):
    """Images of zeros are never kept, the only other one always; what is not finite stays."""
    zeros = np.zeros_like(codes)
    assert not drawn(zeros, 12, seed=1)[1].kept
    zeros[7] = codes[7]
    _, chosen, values = drawn(zeros, 1, seed=1)
    assert chosen.rows[: chosen.kept].tolist() == [7]
    np.testing.assert_array_equal(values[0], codes[7])
    for special in (BF16.nan, encode(BF16, np.inf)):
        spoilt = codes.copy()
        spoilt[5, 2, 0, 4] = special
        _, chosen, values = drawn(spoilt, 12, seed=1)
        kept = chosen.rows.tolist().index(5)
        assert not np.isfinite(decode(BF16, values[kept, 2, 0, 4]))


def test_formats():
    require_range(BF16)
    with pytest.raises(ValueError, match="8 bits of exponent, not fp16"):
        require_range(format_by_name("fp16"))


@pytest.mark.parametrize(
    ("images", "counts"), [(1, (1,)), (5, (1, 2, 3, 4, 5)), (16, tuple(range(2, 17, 2)))]
)
def test_counts(images, counts):
    assert row_counts(images) == counts
