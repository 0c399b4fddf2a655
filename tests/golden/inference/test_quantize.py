"""int8 parameters: scales, rounding, requantisation factors."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from golden.arithmetic.dot_product import decode
from golden.arithmetic.formats import INT8
from golden.frontend.torch_graph import trace
from golden.inference.fusion import fuse
from golden.inference.quantize import SHIFT_LIMIT, quantize, scale_field


def nodes_of(model, shape):
    return fuse(trace(model, shape), vector=False)


def factor_of(field):
    return Fraction(field & 0xFFFF, 1 << (field >> 16))


def test_scale_field_is_the_nearest_with_16_bits(rng):
    for factor in 2.0 ** rng.uniform(-31, 15.9, 2000):
        field = scale_field(factor)
        multiplier, shift = field & 0xFFFF, field >> 16
        assert field < 1 << 22 and 1 << 15 <= multiplier and 0 <= shift <= SHIFT_LIMIT
        assert abs(factor_of(field) - Fraction(factor)) <= Fraction(1, 2 << shift)


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (1.0, 0x8000 | 15 << 16),
        (0.25, 0x8000 | 17 << 16),
        (1 / 9, 58254 | 19 << 16),
        (65535.0, 65535),
        (1 - 2.0**-20, 0x8000 | 15 << 16),  # rounds up to 17 bits: one shift less
        (2.0**-40, 128 | 47 << 16),
        (2.0**-60, 0 | 47 << 16),
    ],
)
def test_scale_field_values(factor, expected):
    assert scale_field(factor) == expected


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_scale_field_refuses(factor):
    with pytest.raises(ValueError, match="must be positive and finite"):
        scale_field(factor)


@pytest.mark.parametrize("factor", [65536.0, 65535.75])
def test_scale_field_refuses_too_large(factor):
    with pytest.raises(ValueError, match=r"must be below 2\*\*16"):
        scale_field(factor)


def test_known_layer():
    """Every number of a one-channel layer with an average pool behind it."""
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.AvgPool2d((1, 2)), nn.Conv2d(1, 1, 1, bias=False))
    with torch.no_grad():
        model[0].weight.fill_(-2.54)
        model[0].bias.fill_(1.0)
        model[2].weight.fill_(1.27)
    images = np.array([0.0, 0.5, 1.27, -0.63], np.float32).reshape(1, 2, 2, 1)
    found, scales = quantize(nodes_of(model, (1, 2, 2)), INT8, images)
    parameters = list(found.values())
    # Means: 1 - 2.54 * 0.25 = 0.365 and 1 - 2.54 * 0.32 = 0.1872.
    assert list(scales.values()) == pytest.approx([0.01, 0.365 / 127, 0.365 / 127 * 0.01], rel=1e-6)
    assert decode(INT8, parameters[0].weights_bits).item() == -127
    assert parameters[0].bias_bits.view(np.int32).item() == 5000  # 1 / (0.01 * 0.02)
    factor = 0.01 * 0.02 / (0.365 / 127) / 2
    assert float(factor_of(parameters[0].scale_field)) == pytest.approx(factor, rel=2.0**-16)
    assert decode(INT8, parameters[1].weights_bits).item() == 127
    assert parameters[1].bias_bits is None
    assert factor_of(parameters[1].scale_field) == 1


def test_identity_stages_keep_the_scale():
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(2, 2, 1), nn.MaxPool2d(1), nn.AvgPool2d(2))
    images = np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 4, 4, 2)
    found, by_name = quantize(nodes_of(model, (2, 4, 4)), INT8, images)
    parameters, scales = list(found.values()), list(by_name.values())
    assert scales[0] == scales[1] == pytest.approx(1 / 127)
    assert scales[3] == scales[2] / 4  # the wide sums of four
    assert decode(INT8, parameters[0].weights_bits)[:, :, 0, 0].tolist() == [[1, 0], [0, 1]]
    assert factor_of(parameters[0].scale_field) == 1


def test_layers_that_cannot_be_quantised_are_named():
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Conv2d(1, 1, 1))
    images = np.ones((1, 1, 1, 1), np.float32)
    nodes = nodes_of(model, (1, 1, 1))
    nn.init.constant_(model[0].weight, float("nan"))
    with pytest.raises(ValueError, match="layer 0, 1 cannot be quantised: it is not"):
        quantize(nodes, INT8, images)
    nn.init.constant_(model[0].weight, 1.0)
    nn.init.constant_(model[0].bias, -4.0 + 2.0**-22)  # all that is left of 4
    with pytest.raises(ValueError, match=r"Layer 0, 1 cannot .* below 2\*\*16"):
        quantize(nodes, INT8, images * 4)
    with pytest.raises(ValueError, match="The input cannot be quantised"):
        quantize(nodes, INT8, images * np.inf)
