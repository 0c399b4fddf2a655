"""Whole networks on bit patterns against torch float32, within the derived bound.

Covers: golden/inference/bounds.py, golden/inference/parameters.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

from golden.arithmetic.dot_product import Flags, decode, encode
from golden.arithmetic.formats import BF16, FLOAT32, FP16
from golden.arithmetic.running_error import rounding_error
from golden.inference.bounds import network_error_bounds, product_error_bound
from golden.inference.fusion import Pool
from golden.inference.network import Network, pooling_windows

FORMATS = ["bf16", "fp16", "fp8_e5m2", "int8"]

#: Ragged networks: (layers, input shape, rows, images).
NETWORKS = {
    "3x3, max pool, linear": lambda: (
        [
            nn.Conv2d(3, 7, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(84, 5),
        ],
        (3, 6, 9),
        4,
        2,
    ),
    "5x5, stride 2, average pool": lambda: (
        [
            nn.Conv2d(5, 6, 5, stride=2, padding=2, bias=False),
            nn.AvgPool2d(3, 2),
            nn.ReLU(),
            nn.Conv2d(6, 3, 1),
        ],
        (5, 11, 10),
        3,
        1,
    ),
    "1x1, overlapping max pool, pools in a row": lambda: (
        [
            nn.Conv2d(2, 9, 1),
            nn.MaxPool2d(3, 1),
            nn.AvgPool2d((2, 1)),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(9 * 2 * 5, 3, bias=False),
        ],
        (2, 6, 7),
        8,
        3,
    ),
    "pool and relu first": lambda: (
        [nn.AvgPool2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 4, (1, 3), stride=(2, 1))],
        (5, 12, 13),
        4,
        1,
    ),
    "vectors": lambda: (
        [nn.Linear(13, 11), nn.ReLU(), nn.Linear(11, 6), nn.ReLU()],
        (13,),
        12,
        5,
    ),
}


def real_values(network, name, bits):
    """Real values of what the network's node ``name`` stored."""
    scale = network.scales.get(name, 1.0)
    if name in network.products and network.products[name].wide:
        if network.format.is_float:
            return decode(FLOAT32, bits)
        return np.asarray(bits).view(np.int32) * scale
    return decode(network.format, bits) * scale


def assert_within(actual, reference, bound, what):
    assert actual.shape == reference.shape == bound.shape, what
    wrong = np.argwhere(~(np.abs(actual - reference) <= bound))
    if len(wrong):
        place = tuple(int(i) for i in wrong[0])
        raise AssertionError(
            f"{what}: {len(wrong)} of {actual.size} elements out of bound; first at (n, h, w, c) "
            f"{place}: {actual[place]}, torch {reference[place]}, bound {bound[place]:.3g}"
        )


def make(name, operand_format, seed):
    torch.manual_seed(seed)
    layers, shape, rows, batch = NETWORKS[name]()
    rng = np.random.default_rng(seed)
    map_shape = (*shape[1:], shape[0]) if len(shape) == 3 else (1, 1, *shape)
    images = rng.standard_normal((batch, *map_shape)).astype(np.float32)
    model = nn.Sequential(*layers).eval()
    network = Network(
        model,
        input_shape=shape,
        rows=rows,
        operand_format=operand_format,
        calibration=images,
        vector=False,
    )
    return model, network, images


@pytest.mark.parametrize("operand_format", FORMATS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_product_within_its_bound(name, operand_format, seed):
    """Torch float32 gets each product's stored input; the bound covers that product alone."""
    _, network, images = make(name, operand_format, seed)
    stored = network.stored(images)
    for node in network.nodes:
        if node.kind != "fused":
            continue
        (source,) = node.inputs
        x = real_values(network, source, stored[source]).astype(np.float32)
        x = torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, 3, 1)))
        y, bound = product_error_bound(network, node.name, x)
        assert np.isfinite(bound).all()
        assert_within(
            real_values(network, node.name, stored[node.name]),
            np.moveaxis(y.double().numpy(), 1, 3),
            np.moveaxis(bound, 1, 3),
            f"{name}, {operand_format}, {network.products[node.name].name}",
        )


@pytest.mark.parametrize("operand_format", FORMATS)
@pytest.mark.parametrize("name", NETWORKS)
def test_whole_network_within_its_bound(name, operand_format, seed):
    """Torch float32 runs alone from the real images; errors are carried along."""
    model, network, images = make(name, operand_format, seed)
    stored, found = network.stored(images), network.predict(images)
    bounds = network_error_bounds(network, images)
    for product, (reference, bound) in zip(network.products, bounds, strict=True):
        assert_within(
            real_values(network, product, stored[product]),
            reference,
            bound,
            f"{name}, {operand_format}, up to {product}",
        )
    shape = network.nodes[0].shape if images.shape[1] > 1 else (-1,)
    x = torch.from_numpy(np.ascontiguousarray(np.moveaxis(images, 3, 1)))
    with torch.no_grad():
        logits = model(x.reshape(len(images), *shape)).double().numpy()
    assert found.shape == logits.shape
    worst = np.moveaxis(bounds[-1][1], 3, 1).reshape(logits.shape)
    assert_within(found, logits, worst, f"{name}, {operand_format}, logits")


@pytest.mark.parametrize("operand_format", ["bf16", "int8"])
def test_the_bound_notices_a_wrong_weight(operand_format, seed):
    """A check that cannot fail is none: turned kernels must leave the bound of the product."""
    _, network, images = make("3x3, max pool, linear", operand_format, seed)
    first = next(iter(network.products))
    weights = network.parameters[first].weights_bits
    weights[:] = weights[..., ::-1, :].copy()
    output = real_values(network, first, network.stored(images)[first])
    reference, bound = network_error_bounds(network, images)[0]
    assert (np.abs(output - reference) > bound).any()


def test_bound_is_of_the_order_of_a_rounding(seed):
    """One product in bf16 is within a few per cent of torch, so the bound is worth something."""
    _, network, images = make("3x3, max pool, linear", "bf16", seed)
    reference, bound = network_error_bounds(network, images)[0]
    assert bound.max() < 0.05 * np.abs(reference).max()


def test_rounding_error_is_reached_and_never_exceeded(rng):
    for fmt in (BF16, FP16):
        values = rng.standard_normal(10_000) * 2.0 ** rng.integers(-160, 4, 10_000)
        error = np.abs(decode(fmt, encode(fmt, values)) - values)
        bound = rounding_error(fmt, np.abs(values))
        assert (error <= bound).all()
        assert (error / bound).max() > 0.99


def test_what_a_forward_pass_leaves(seed):
    _, network, images = make("3x3, max pool, linear", "bf16", seed)
    done = network.forward(network.encode_input(images))
    assert list(done.outputs) == ["input_1", "3", "4"]
    assert [done.outputs[name].dtype for name in ("3", "4")] == [np.uint16, np.uint32]
    assert [done.outputs[name].shape for name in ("3", "4")] == [(2, 3, 4, 7), (2, 1, 1, 5)]
    single = network.stored(images[1:])
    assert (single["4"][0] == done.outputs["4"][1]).all()
    assert done.flags["3"] | done.flags["4"] == int(Flags.INEXACT)
    # Rows of another array: sums in another order.
    rows = {"3": [(0, 1, 2), (1, 2, network.rows)]}
    other = network.forward(done.outputs["input_1"], rows=rows)
    assert (other.outputs["4"][1] == done.outputs["4"][1]).all()
    assert (other.saved["3"].sums[0] != done.saved["3"].sums[0]).any()


def test_weights_are_rounded_once(seed):
    _, network, _ = make("vectors", "bf16", seed)
    first = next(iter(network.products))
    weights = network.products[first].module.weight.detach()
    expected = weights.bfloat16().view(torch.int16).numpy().view(np.uint16)
    parameters = network.parameters[first]
    assert (parameters.weights_bits.reshape(11, 13) == expected).all()
    bias = network.products[first].module.bias.detach().numpy()
    assert (parameters.bias_bits == bias.view(np.uint32)).all()
    assert parameters.scale_field == 0x3F800000


@pytest.mark.parametrize("operand_format", ["bf16", "fp16"])
def test_relu_and_max_pool_commute_bit_for_bit(operand_format, rng):
    images = rng.standard_normal((1, 6, 6, 3))
    images[0, 0, 0, 0] = np.nan
    images[0, 3, 3, 1] = -0.0
    networks = [
        Network(
            nn.Sequential(*layers),
            input_shape=(3, 6, 6),
            rows=1,
            operand_format=operand_format,
            vector=False,
        )
        for layers in ([nn.MaxPool2d(2), nn.ReLU()], [nn.ReLU(), nn.MaxPool2d(2)])
    ]
    first, second = (network.stored(images)["1"] for network in networks)
    assert (first == second).all()


def test_identity_is_exact_for_finite_values(rng):
    network = Network(
        nn.Sequential(nn.MaxPool2d(1), nn.MaxPool2d(1)), input_shape=(5, 3, 4), rows=4, vector=False
    )
    codes = rng.integers(0, 1 << 16, (2, 3, 4, 5)).astype(np.uint16)
    finite = np.isfinite(decode(BF16, codes))
    codes[~finite] = 0
    codes[decode(BF16, codes) == 0] = 0  # -0 + 0 = +0, and subnormals are zeros
    done = network.forward(codes)
    assert (done.outputs["0"] == codes).all()
    assert (done.outputs["1"] == codes.astype(np.uint32) << 16).all()
    assert set(done.flags.values()) == {0}


def test_identity_spreads_infinity_as_nan():
    network = Network(nn.Sequential(nn.ReLU()), input_shape=(3, 1, 1), rows=4, vector=False)
    codes = network.encode_input(np.array([np.inf, 1.0, 2.0]).reshape(1, 1, 1, 3))
    done = network.forward(codes)
    logits = network.decode_logits(done.outputs["0"])
    assert logits[0, 0, 0, 0] == np.inf
    assert np.isnan(logits[0, 1:]).all()
    assert done.flags["0"] & Flags.INVALID


def test_overflow_of_a_stored_activation():
    """fp16 overflows where it is stored, not in the float32 sums; the output stays wide."""
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.Conv2d(1, 1, 1, bias=False))
    for layer, weight in zip(model, (1024.0, -1.0), strict=True):
        nn.init.constant_(layer.weight, weight)
    network = Network(model, input_shape=(1, 1, 2), rows=2, operand_format="fp16")
    codes = network.encode_input(np.array([1024.0, 1.0]).reshape(1, 1, 2, 1))
    done = network.forward(codes)
    assert decode(FLOAT32, done.saved["0"].sums).ravel().tolist() == [2.0**20, 1024.0]
    assert done.outputs["0"].ravel().tolist() == [FP16.infinity, encode(FP16, 1024.0)]
    assert network.decode_logits(done.outputs["1"]).ravel().tolist() == [-np.inf, -1024.0]
    assert done.flags["0"] == int(Flags.OVERFLOW | Flags.INEXACT)
    _, bound = product_error_bound(network, "0", torch.tensor([[[[1024.0, 1.0]]]]))
    assert np.isinf(bound[0, 0, 0, 0]) and np.isfinite(bound[0, 0, 0, 1])


def test_pooling_windows_go_by_rows():
    values = np.arange(24).reshape(1, 4, 6, 1)
    windows, shape = pooling_windows(values, Pool(kind="max", kernel=(2, 3), stride=(2, 2)))
    assert shape == (1, 2, 2, 1)
    assert windows[:, :, 0].tolist() == [
        [0, 1, 2, 6, 7, 8],
        [2, 3, 4, 8, 9, 10],
        [12, 13, 14, 18, 19, 20],
        [14, 15, 16, 20, 21, 22],
    ]


def test_messages():
    model = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(ValueError, match="must be one of bf16, .*, not 'bf17'"):
        Network(model, input_shape=(3,), rows=4, operand_format="bf17")
    with pytest.raises(ValueError, match="Format int8 needs calibration images"):
        Network(model, input_shape=(3,), rows=4, operand_format="int8")
    network = Network(model, input_shape=(3,), rows=4)
    assert network.predict(np.ones((2, 3))).shape == (2, 2)
    with pytest.raises(ValueError, match=r"shape \(N, 1, 1, 3\), not \(2, 1, 1, 4\)"):
        network.predict(np.ones((2, 4)))
