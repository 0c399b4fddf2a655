"""Numbers into codes, against golden."""

import numpy as np
import pytest

from compiler.tensors.encoding import codes_of
from golden.arithmetic.dot_product import FORMATS, encode
from hw.formats import FORMATS as HW_FORMATS


@pytest.mark.parametrize("name", list(HW_FORMATS))
def test_codes_equal_golden(name, rng):
    bits = rng.integers(0, 1 << 32, 20_000, dtype=np.uint64).astype(np.uint32)
    values = bits.view(np.float32)
    values = np.where(np.isnan(values), np.float32(np.nan), values)
    narrow = np.ldexp(rng.normal(size=20_000), rng.integers(-30, 20, 20_000)).astype(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, 1.5, 2.5, -2.5, 65519.9, 65520.0], np.float32)
    values = np.concatenate([values, narrow, special, np.float32([np.nan])])
    if not HW_FORMATS[name].is_float:
        values = values[np.isfinite(values)]
    got, expected = codes_of(HW_FORMATS[name], values), encode(FORMATS[name], values)
    wrong = np.flatnonzero(got != expected)
    assert not len(wrong), (
        f"{values[wrong[0]]!r}: expected {expected[wrong[0]]:#x}, not {got[wrong[0]]:#x}"
    )
