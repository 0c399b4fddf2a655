"""Backward passes of a sample: the whole one where everything is kept, unbiased where not."""

import pytest
import torch
from torch import nn

from algorithms.vcas.layers import sampled_layers, sampling


class Net(nn.Module):
    """Convolutions with groups, stride and padding, normalisation, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 6, (3, 2), stride=2, padding=(1, 0), groups=2)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv1(x)))
        return self.head(torch.relu(self.conv2(x)).flatten(1))


class Tokens(nn.Module):
    """Linear layers of sequences."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x))).mean(1)


class Encoder(nn.Module):
    """A layer of a Transformer: attention, two linear layers, residual additions, normalisation."""

    def __init__(self, width=4, heads=2):
        super().__init__()
        self.heads, self.embed = heads, nn.Linear(3, width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 8), nn.Linear(8, width)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.embed(x)
        parts = (layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
                 for layer in (self.query, self.key, self.value))  # fmt: skip
        mixed = nn.functional.scaled_dot_product_attention(*parts)
        x = self.norm1(x + self.out(mixed.transpose(1, 2).flatten(2)))
        x = self.norm2(x + self.narrow(torch.relu(self.wide(x))))
        return self.head(x).mean(1)


def gradients(model, images, labels, layers=None):
    model.zero_grad(set_to_none=True)
    if layers is None:
        loss = nn.functional.cross_entropy(model(images), labels)
    else:
        with sampling(layers) as executed:
            loss = nn.functional.cross_entropy(model(images), labels)
        assert executed == layers
    loss.backward()
    return {name: values.grad.clone() for name, values in model.named_parameters()}


@pytest.fixture(params=[(Net, (8, 2, 4, 4)), (Tokens, (8, 6, 3))], ids=["images", "sequences"])
def problem(request, seed):
    torch.manual_seed(seed)
    make, shape = request.param
    model = make().double()
    return model, torch.randn(shape, dtype=torch.float64), torch.randint(3, shape[:1])


def test_everything_kept_is_backpropagation(problem):
    model, *batch = problem
    layers = sampled_layers(model)
    found, expected = gradients(model, *batch, layers), gradients(model, *batch)
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, rtol=1e-10, atol=1e-12, msg=name)
    assert all(layer.images == layer.rows == 1 for layer in layers[-1:])
    assert not layers[0].input_gradient
    assert layers[1].input_gradient


@pytest.mark.parametrize(("ratio", "weights_ratio"), [(0.5, 1.0), (1.0, 0.4), (0.6, 0.5)])
def test_the_mean_of_many_draws_is_the_gradient(problem, ratio, weights_ratio):
    """Of every parameter, within six standard errors of each number."""
    assert_unbiased(*problem, ratio=ratio, weights_ratio=weights_ratio, number=500)


def test_a_layer_of_a_transformer(seed):
    """Everything kept is backpropagation, and the mean of many draws is the gradient."""
    torch.manual_seed(seed)
    model = Encoder().double()
    batch = torch.randn(8, 5, 3, dtype=torch.float64), torch.randint(3, (8,))
    assert_unbiased(model, *batch, ratio=1.0, weights_ratio=1.0, number=2)
    assert_unbiased(model, *batch, ratio=0.6, weights_ratio=0.5, number=300)


def assert_unbiased(model, *batch, ratio, weights_ratio, number):
    layers = sampled_layers(model)
    expected = gradients(model, *batch)
    for layer in layers:
        layer.ratio, layer.weights_ratio = ratio, weights_ratio
    draws = [gradients(model, *batch, layers) for _ in range(number)]
    kept = layers[-1]
    assert 0 < kept.images <= 1 and kept.rows <= kept.images
    for name, exact in expected.items():
        values = torch.stack([draw[name] for draw in draws])
        error = values.std(0) / len(draws) ** 0.5
        distance = (values.mean(0) - exact).abs()
        worst = (distance - 6 * error).max()
        assert worst < 1e-9, f"{name}: {distance.max()} with an error of {error.max()}"


def test_variance_of_rows_is_what_is_measured(problem):
    model, *batch = problem
    layer = sampled_layers(model)[-1]
    exact = gradients(model, *batch)
    name = next(n for n, p in model.named_parameters() if p is layer.module.weight)
    layers = sampled_layers(model)
    layers[-1].weights_ratio = 0.5
    squares = []
    for _ in range(800):
        found = gradients(model, *batch, layers)[name]
        squares.append(float((found - exact[name]).square().sum()))
    measured = sum(squares) / len(squares)
    assert measured == pytest.approx(layers[-1].variance, rel=0.25)


def test_what_is_kept_is_counted(problem):
    """Fewer images are kept below than near the loss, and rows are a share of theirs."""
    model, *batch = problem
    layers = sampled_layers(model)
    for layer in layers:
        layer.ratio, layer.weights_ratio = 0.5, 0.5
    sums = {layer.name: [0.0, 0.0] for layer in layers}
    for _ in range(200):
        gradients(model, *batch, layers)
        for layer in layers:
            sums[layer.name][0] += layer.images / 200
            sums[layer.name][1] += layer.rows / 200
    images, rows = zip(*sums.values(), strict=True)
    assert images[-1] == pytest.approx(0.5, abs=0.05)
    assert images[0] <= images[-1] + 0.05
    assert all(row <= image for row, image in zip(rows, images, strict=True))


def test_what_cannot_be_sampled():
    with pytest.raises(ValueError, match="layer 0: padding must be zeros, given as numbers"):
        sampled_layers(nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")))
    with pytest.raises(ValueError, match="no convolution and no linear layer"):
        sampled_layers(nn.ReLU())
