"""Element by element: every operand of a format, against torch, special values included.

Torch computes in float64 from the same operands.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import BF16, FP8_E4M3, FP8_E5M2, FP16
from golden.layers.pointwise import clamp, clamp_mask, concatenate, split

FORMATS = [BF16, FP16, FP8_E5M2, FP8_E4M3]


def every_code(fmt):
    """All of them, in the type that the format is stored in."""
    return np.arange(1 << fmt.width, dtype=np.uint32).astype(encode(fmt, 0.0).dtype)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("limits", [(0.0, 6.0), (-1.0, 1.0), (-0.3, 0.7), (-2.0, 0.0)], ids=str)
def test_clamp(fmt, limits, rng):
    """The same as torch with limits that are operands; nothing else is rounded."""
    codes = every_code(fmt)
    low, high = (float(decode(fmt, encode(fmt, limit))) for limit in limits)
    x = torch.from_numpy(decode(fmt, codes)).requires_grad_()
    y = functional.hardtanh(x, low, high)
    result = clamp(fmt, codes, low=limits[0], high=limits[1])
    np.testing.assert_array_equal(decode(fmt, result), y.detach().numpy())
    values = decode(fmt, result)
    if 0.0 in (low, high):
        assert not np.signbit(values[values == 0]).any()
    y.sum().backward()
    mask = clamp_mask(fmt, result, low=limits[0], high=limits[1])
    # NaN lets the gradient through; torch does so in ReLU, but not here.
    np.testing.assert_array_equal(mask, (x.grad.numpy() > 0) | np.isnan(decode(fmt, codes)))


def test_concatenate(rng):
    maps = [rng.integers(0, 1 << 16, (2, 3, 1, c)).astype(np.uint16) for c in (4, 1, 3)]
    joined = concatenate(maps)
    expected = torch.cat([torch.from_numpy(m.astype(np.int64)).movedim(3, 1) for m in maps], 1)
    np.testing.assert_array_equal(joined, expected.movedim(1, 3).numpy())
    for part, back in zip(maps, split(joined, [4, 1, 3]), strict=True):
        np.testing.assert_array_equal(part, back)
