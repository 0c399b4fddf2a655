"""Dropout: what is kept, how much of it, and that it depends on nothing but its place."""

import numpy as np
import pytest

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import BF16
from golden.layers.dropout import dropout, dropout_mask

PLACE = {"stream": 2, "seed": 77}


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_shares_and_values(p, rng):
    """A share of 1 - p within 5.5 standard deviations; the rest is +0; NaN that is dropped is."""
    shape = (3, 20, 20, 50)
    codes = encode(BF16, rng.standard_normal(shape))
    codes[0, :, :, 0] = BF16.nan
    result, _ = dropout(BF16, codes, p=p, whole=False, **PLACE)
    kept = dropout_mask(shape, p=p, whole=False, **PLACE)
    assert abs(kept.mean() - (1 - p)) < 5.5 * np.sqrt(p * (1 - p) / kept.size)
    assert not result[~kept].any()
    expected = encode(BF16, decode(BF16, codes) * np.float32(1 / (1 - p)))
    np.testing.assert_array_equal(result[kept], expected[kept])


def test_whole_channels():
    kept = dropout_mask((8, 3, 4, 40), p=0.5, whole=True, **PLACE)
    assert (kept == kept[:, :1, :1]).all()
    assert 0.3 < kept.mean() < 0.7
    assert (kept[0] != kept[1]).any()


def test_place():
    """A pixel's elements are the same whatever the map's shape is; other layers and batches have
    others."""
    first = dropout_mask((2, 3, 4, 5), p=0.5, whole=False, **PLACE)
    second = dropout_mask((1, 24, 1, 9), p=0.5, whole=False, **PLACE)
    np.testing.assert_array_equal(first.reshape(24, 5), second.reshape(24, 9)[:, :5])
    for other in ({"seed": 78}, {"stream": 3}):
        changed = dropout_mask((2, 3, 4, 5), p=0.5, whole=False, **PLACE | other)
        assert 0.2 < (changed != first).mean() < 0.8
