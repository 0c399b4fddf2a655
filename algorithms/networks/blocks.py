"""What convolutional networks are put together from."""

import torch
from torch import nn

__all__ = [
    "Concatenation",
    "Residual",
    "basic_block",
    "bottleneck_block",
    "convolution",
    "scaled",
]


def scaled(channels: int, width: float) -> int:
    """A number of channels times ``width``, as a multiple of 4 unless ``width`` is 1."""
    return channels if width == 1 else max(4, 4 * round(channels * width / 4))


def convolution(
    inputs, outputs, kernel=3, *, stride=1, padding=None, groups=1, activation=nn.ReLU
) -> list[nn.Module]:
    """Conv2d without a bias, batch normalisation, and ``activation()`` unless it is None.

    Parameters
    ----------
    kernel : size, or (height, width)
    padding : None for half the kernel, which keeps the map's size at stride 1
    """
    if padding is None:
        padding = kernel // 2 if isinstance(kernel, int) else tuple(size // 2 for size in kernel)
    layers = [
        nn.Conv2d(
            inputs, outputs, kernel, stride=stride, padding=padding, groups=groups, bias=False
        ),
        nn.BatchNorm2d(outputs),
    ]
    return layers if activation is None else [*layers, activation()]


class Residual(nn.Module):
    """The sum of ``body`` and ``shortcut``, of equal shapes, then ReLU if ``relu``."""

    def __init__(self, body: nn.Module, shortcut: nn.Module, *, relu: bool = True):
        super().__init__()
        self.body, self.shortcut = body, shortcut
        self.relu = nn.ReLU() if relu else nn.Identity()

    def forward(self, x):
        """(N, C, H, W) to what body makes of it."""
        return self.relu(self.body(x) + self.shortcut(x))


class Concatenation(nn.ModuleList):
    """Branches with the same input; their output channels stand one behind the other."""

    def forward(self, x):
        """(N, C, H, W) to (N, sum of the branches' channels, H', W')."""
        return torch.cat([branch(x) for branch in self], 1)


def _shortcut(inputs, outputs, stride):
    """Identity, or a 1×1 convolution where shapes differ."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(*convolution(inputs, outputs, 1, stride=stride, activation=None))


def basic_block(inputs: int, outputs: int, *, stride: int = 1) -> Residual:
    """Two 3×3 convolutions beside the shortcut; ⌈H / stride⌉ × ⌈W / stride⌉ pixels."""
    body = nn.Sequential(
        *convolution(inputs, outputs, stride=stride),
        *convolution(outputs, outputs, activation=None),
    )
    return Residual(body, _shortcut(inputs, outputs, stride))


def bottleneck_block(inputs: int, outputs: int, *, stride: int = 1) -> Residual:
    """1×1 to a quarter of ``outputs``, 3×3 with the stride, 1×1, beside the shortcut."""
    width = outputs // 4
    body = nn.Sequential(
        *convolution(inputs, width, 1),
        *convolution(width, width, stride=stride),
        *convolution(width, outputs, 1, activation=None),
    )
    return Residual(body, _shortcut(inputs, outputs, stride))
