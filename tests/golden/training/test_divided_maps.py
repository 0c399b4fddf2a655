"""Which maps slices divide, and gradients in parts."""

import numpy as np
import pytest
import torch
from torch import nn

from golden.arithmetic.dot_product import encode
from golden.arithmetic.formats import BF16
from golden.frontend.torch_graph import trace
from golden.training.divided_maps import divided_maps, joined_gradients, part_of


class Network(nn.Module):
    """A function of a map of 12 channels."""

    def __init__(self, function):
        super().__init__()
        self.stem, self.function = nn.Conv2d(2, 12, 1), function

    def forward(self, x):
        return self.function(self.stem(x))


@pytest.mark.parametrize(
    ("function", "granule", "expected"),
    [
        (lambda y: y[:, 4:] * torch.cat([y[:, :4]] * 2, 1), 4, ["stem"]),
        (lambda y: y[:, :6] * y[:, 6:], None, ["stem"]),
        (lambda y: y[:, :6] * y[:, 6:], 4, []),
        (lambda y: y[:, 4:8] * y[:, 8:], 4, []),
        (lambda y: torch.cat([y[:, :4] * y[:, 4:8] * y[:, 8:], y], 1), 4, []),
        # Of a part that nobody needs there is no gradient.
        (lambda y: [part.relu() for part in (y[:, :4], y[:, 4:])][1], 4, []),
    ],
)
def test_which(function, granule, expected):
    assert divided_maps(trace(Network(function), (2, 3, 3)), granule) == frozenset(expected)


def test_gradients(rng):
    whole = encode(BF16, rng.standard_normal((2, 3, 1, 6)))
    whole[0, 0, 0, :2] = encode(BF16, np.array([-0.0, np.nan]))
    parts = [
        part_of(whole[..., a:b], 6, begin=a, end=b) for a, b in ((4, 6), (0, 1), (1, 4))
    ]  # fmt: skip
    joined, flags = joined_gradients(BF16, parts, True)
    np.testing.assert_array_equal(joined, whole)
    assert flags == 0
    total, _ = joined_gradients(BF16, parts, False)
    assert total[0, 0, 0, 0] == 0  # -0 + 0
    np.testing.assert_array_equal(total[1], whole[1])
