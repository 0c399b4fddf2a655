"""Blocks of the usual networks, to be trained for a few batches on the RTL."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from golden.layers.optimizer import SGD

from .training_result import Batch
from .training_run import TrainingRun

__all__ = ["BLOCKS", "INPUT_SHAPE", "OPTIMIZER", "block_run", "random_batches", "random_model"]

#: (C, H, W) of an image, and classes.
INPUT_SHAPE, CLASSES = (3, 6, 5), 4


#: That of random batches, with other learning rates.
OPTIMIZER = SGD(learning_rate=0.1, momentum=0.9, weight_decay=1e-3)


class ResidualBlock(nn.Module):
    """One addition whose operands are both learned."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 5, 3, padding=1)
        self.norm = nn.BatchNorm2d(5)
        self.conv2 = nn.Conv2d(5, 5, 3, padding=1, bias=False)
        self.linear = nn.Linear(5 * 6 * 5, CLASSES)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv1(x)))
        x = torch.relu(x + self.conv2(x))
        return self.linear(torch.flatten(x, 1))


def depthwise_block():
    """What MobileNet is made of."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, CLASSES),
    )  # fmt: skip


def strided_block():
    """Strides, groups, both kinds of pooling."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(6, 4, 2, groups=2), nn.ReLU(), nn.AvgPool2d(1), nn.Flatten(),
        nn.Linear(4, CLASSES),
    )  # fmt: skip


class InceptionBlock(nn.Module):
    """Branches whose channels are joined, pooling with padding and with a last window."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding="same", bias=False), nn.BatchNorm2d(8)
        self.point, self.wide = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 5, 3, stride=2, padding=1)
        self.pool = nn.AvgPool2d(3, 2, 1, count_include_pad=False)
        self.head = nn.Linear(25, CLASSES)

    def forward(self, x):
        x = functional.relu6(self.norm(self.stem(x)))
        y = functional.max_pool2d(self.point(x).relu(), 2, ceil_mode=True)
        y = torch.cat([y, self.pool(x), self.wide(x)], 1)
        z = functional.avg_pool2d(y, 2, ceil_mode=True)
        return self.head(torch.cat([x.mean((2, 3)), z.mean([-1, -2])], 1))


class DenseBlock(nn.Module):
    """A concatenation of a concatenation, read by what follows and by the next one; a map that two
    of them join."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.first, self.second = nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(12, 4, 1, bias=False)
        self.pool, self.head = nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.Linear(24, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        y = torch.cat([x, self.first(torch.relu(self.norm(x)))], 1)
        y = torch.cat([y, self.second(functional.hardtanh(y, -0.5, 0.75))], 1)
        return self.head(self.pool(torch.cat([y, x], 1)).mean((2, 3)))


class UnevenBlock(nn.Module):
    """Concatenations whose parts end within a granule: of the input, of what they join in turn, of
    a map twice, of vectors."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(3, 2, 1, bias=False)
        self.norm, self.mix = nn.BatchNorm2d(10), nn.Conv2d(10, 6, 3, padding=1)
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(32, CLASSES)

    def forward(self, x):
        y = torch.cat([x, self.wide(x).relu(), self.narrow(x)], 1)
        z = self.mix(self.norm(y).relu())
        z = self.pool(torch.cat([z, y, z], 1))
        return self.head(torch.cat([y.mean((2, 3)), z.mean((2, 3))], 1))


class ShuffledBlock(nn.Module):
    """Slices of channels: those that divide a map, of whole granules and of others, that are read
    twice or not at all, joined in another order, or leave channels out; of vectors."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.left, self.right = nn.Conv2d(4, 6, 1), nn.Conv2d(8, 10, 3, stride=2, padding=1)
        self.pool, self.head = nn.MaxPool2d(2, ceil_mode=True), nn.Linear(9, CLASSES)

    def forward(self, x):
        y = self.norm(self.stem(x)).relu()
        a, b = y[:, :4], y[:, 4:]
        a = self.pool(self.left(a) * 0.5)
        b = torch.cat([self.right(b), self.pool(b[:, 4:])], 1)
        first, _, third = b.split([5, 4, 5], dim=1)
        b = torch.cat([third, first.tanh() * third, a], 1)
        x, y = b.mean((2, 3)).chunk(2, 1)
        return self.head(torch.cat([x, y.narrow(1, 3, 1)], 1))


class GrowingBlock(nn.Module):
    """As in a detector: a map grows and is joined with an earlier one; and gates, constants."""

    def __init__(self):
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, stride=3)
        self.leaky, self.up = nn.LeakyReLU(0.1), nn.Upsample(scale_factor=(3, 5))
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x):
        early = self.leaky(self.stem(x))
        late = functional.hardswish(self.down(early))
        late = late * functional.hardsigmoid(2.5 - late / 3) + 1
        late = torch.sub(late, late * late, alpha=0.3)
        y = torch.cat([early, self.up(late)], 1)
        return self.head(y.mean((2, 3)))


class SmoothBlock(nn.Module):
    """Activations with exponentials, GELU in both forms, and what is dropped; channels are gated by
    what is in all of them, as in EfficientNet."""

    def __init__(self):
        super().__init__()
        self.stem, self.wide = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 1)
        self.squeeze, self.back = nn.Conv2d(4, 5, 1), nn.Conv2d(6, 5, 1)
        self.head, self.drop = nn.Linear(5, CLASSES), nn.Dropout2d(0.3)

    def forward(self, x):
        x = self.drop(functional.silu(self.stem(x)))
        y = functional.gelu(self.wide(x)).tanh()
        gate = self.squeeze(x.mean((2, 3), keepdim=True)).sigmoid()
        y = functional.gelu(self.back(y), approximate="tanh") * gate
        y = functional.dropout(y, 0.4, self.training)
        return self.head(functional.softplus(y.mean((2, 3))))


class NormBlock(nn.Module):
    """Normalisation by running statistics, with and without a ReLU, before and behind what learns;
    and by those of the batch without parameters, or without running ones."""

    def __init__(self):
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)
        self.second, self.third = nn.BatchNorm2d(5), nn.BatchNorm2d(5, affine=False)
        self.conv, self.fourth = nn.Conv2d(5, 6, 2), nn.BatchNorm2d(6, track_running_stats=False)
        self.linear, self.fifth = nn.Linear(6, 6), nn.BatchNorm1d(6, affine=False)
        self.head = nn.Linear(6, CLASSES)
        for norm in (self.first, self.second, self.fifth):
            norm.running_mean.copy_(0.3 * torch.randn(norm.num_features))
            norm.running_var.copy_(0.5 + torch.rand(norm.num_features))

    def train(self, mode=True):
        super().train(mode)
        for norm in (self.first, self.second, self.fifth):
            norm.eval()
        return self

    def forward(self, x):
        x = self.third(self.second(torch.relu(self.first(self.stem(x)))))
        x = self.fourth(self.conv(x)).mean((2, 3))
        return self.head(self.fifth(self.linear(x)))


class TransposedBlock(nn.Module):
    """Transposed convolutions: strides, groups, dilation, kernels smaller than the stride."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, stride=2)
        self.up = nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=(1, 0), groups=2)
        self.gate = nn.ConvTranspose2d(6, 4, (2, 1), stride=(2, 3), padding=(0, 0), bias=False)
        self.norm, self.last = nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 4, 2, dilation=2)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        y = self.norm(self.up(x))
        y = self.last(torch.relu(y)).mean((2, 3))
        return self.head(torch.cat([y, self.gate(x).mean((2, 3))], 1))


class SharesBlock(nn.Module):
    """Softmax over the channels of a map and of a vector."""

    def __init__(self):
        super().__init__()
        self.stem, self.gate = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 5, 1)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        x = 5 * x * torch.softmax(self.gate(x), 1)
        return self.head(functional.softmax(3 * x.mean((2, 3)), dim=-1))


class GroupBlock(nn.Module):
    """Normalisation over groups: of all channels of the input, of two, of one; a frozen weight."""

    def __init__(self):
        super().__init__()
        self.given, self.stem = nn.GroupNorm(1, 3), nn.Conv2d(3, 6, 3, padding=1)
        self.first, self.conv = nn.GroupNorm(3, 6), nn.Conv2d(6, 5, 3, stride=2)
        self.second, self.head = nn.GroupNorm(5, 5, eps=1e-3), nn.Linear(5, CLASSES)
        for norm in (self.given, self.first, self.second):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.uniform_(norm.bias, -0.5, 0.5)
        self.second.weight.requires_grad_(False)

    def forward(self, x):
        x = torch.relu(self.first(self.stem(self.given(x))))
        return self.head(torch.relu(self.second(self.conv(x))).mean((2, 3)))


class SameBlock(nn.Module):
    """Even kernels with as many outputs as inputs: a line more behind the map than before it."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, (2, 4), padding="same")
        self.depthwise = nn.Conv2d(6, 6, (4, 2), padding="same", groups=6, dilation=(1, 3))
        self.grouped = nn.Conv2d(6, 4, 2, padding="same", groups=2, dilation=(3, 1), bias=False)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.head(self.grouped(torch.relu(self.depthwise(x)) + x).mean((2, 3)))


BLOCKS = {
    "residual": ResidualBlock,
    "depthwise": depthwise_block,
    "strided": strided_block,
    "inception": InceptionBlock,
    "dense": DenseBlock,
    "growing": GrowingBlock,
    "uneven": UnevenBlock,
    "smooth": SmoothBlock,
    "norms": NormBlock,
    "shuffled": ShuffledBlock,
    "transposed": TransposedBlock,
    "shares": SharesBlock,
    "groups": GroupBlock,
    "same": SameBlock,
}


def block_run(
    network, config, rng, *, batches=3, images=5, shape=INPUT_SHAPE, classes=CLASSES,
    optimizer=OPTIMIZER, **options,
) -> TrainingRun:  # fmt: skip
    """Training of a block, by name or what makes it, on random images and labels.

    ``rng`` is a NumPy generator; ``options`` go to
    :class:`~verif.networks.training_run.TrainingRun`.
    """
    model = random_model(BLOCKS.get(network, network), rng)
    rates = [optimizer.learning_rate / (number + 1) for number in range(batches)]
    stream = random_batches(
        rng, rates, images=images, shape=shape, classes=classes, optimizer=optimizer
    )
    return TrainingRun(model, config, shape, stream, **options)


def random_model(make, rng):
    """What ``make`` makes, with initial weights from ``rng``, a NumPy generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(1 << 30)))
        return make()


def random_batches(
    rng, rates, *, images, shape, classes, targets=None, optimizer=OPTIMIZER
) -> list[Batch]:
    """A batch of random images (C, H, W) and labels, or ``targets``, for each learning rate of
    ``optimizer``."""
    return [
        Batch(
            images=rng.standard_normal((images, *shape[1:], shape[0])).astype(np.float32),
            targets=rng.integers(0, classes, images) if targets is None else targets,
            optimizer=replace(optimizer, learning_rate=rate),
        )
        for rate in rates
    ]
