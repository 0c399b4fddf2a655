"""Networks of layers without parameters."""

import torch
from torch import nn
from torch.nn import functional

__all__ = ["Bent", "Branches", "Divided", "Norms", "Smooth", "Transposed"]


class Branches(nn.Module):
    """Concatenations, clamps and pooling of every kind."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 4, (3, 4), padding="same"), nn.BatchNorm2d(4)
        self.left, self.right = nn.Conv2d(4, 3, 1), nn.Conv2d(4, 2, 3, stride=2, padding=1)
        self.pool = nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False)
        self.head = nn.Linear(9 + 18, 3)

    def forward(self, x):
        x = functional.relu6(self.norm(self.stem(x)))
        y = functional.max_pool2d(self.left(x), 2, ceil_mode=True)
        y = torch.cat([y, self.right(x), self.pool(x)], 1)
        z = functional.avg_pool2d(y, 3, 2, 1, ceil_mode=True, divisor_override=7)
        z = torch.cat([functional.hardtanh(z, -0.5, 0.7), z.relu()], 1)
        return self.head(torch.cat([y.mean((2, 3)), z.mean((-1, -2))], 1))


class Divided(nn.Module):
    """Slices that divide a map, others, and a slice that is the output's."""

    def __init__(self):
        super().__init__()
        self.stem, self.left = nn.Conv2d(2, 12, 3, padding=1), nn.Conv2d(4, 8, 1)
        self.last = nn.Conv2d(19, 6, 1)

    def forward(self, x):
        first, second = self.stem(x).split([8, 4], dim=1)
        y = self.left(second)
        return self.last(torch.cat([first, y[:, :6], y[:, 3:]], 1))[:, 1:5]


class Bent(nn.Module):
    """Activations of pieces, products, differences and constants, and what grows a map."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(2, 3, 1)
        self.leaky, self.up = nn.LeakyReLU(0.1), nn.Upsample(scale_factor=(2, 3))
        self.last = nn.Conv2d(3, 2, 1)

    def forward(self, x):
        a, b = self.first(x), self.second(x)
        gated = self.leaky(a) * functional.hardsigmoid(3.0 * b)
        y = torch.sub(gated, functional.hardswish(a), alpha=0.3) + torch.add(a, b, alpha=-1)
        return self.last(self.up(1 - y / 3) * 0.5 - 0.25) + 1


class Smooth(nn.Module):
    """Activations with exponentials, of the input, of maps and of a vector."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 3, 1)
        self.gate, self.head = nn.Conv2d(3, 3, 1), nn.Linear(3, 4)
        self.gelu, self.softplus = nn.GELU(), nn.Softplus()
        self.drop, self.whole = nn.Dropout(0.3), nn.Dropout2d(0.4)

    def forward(self, x):
        y = self.drop(functional.silu(self.first(x.tanh())))
        y = self.gelu(y) + functional.gelu(self.second(y), approximate="tanh")
        y = self.softplus(self.whole(y) * torch.sigmoid(self.gate(y)))
        return torch.tanh(self.head(self.drop(y.mean((2, 3)))))


class Norms(nn.Module):
    """Normalisation in evaluation mode, without parameters, and without running statistics."""

    def __init__(self):
        super().__init__()
        self.stem, self.first = nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)
        self.second = nn.BatchNorm2d(3, affine=False)
        self.third, self.head = nn.BatchNorm2d(3, track_running_stats=False), nn.Conv2d(3, 2, 1)
        self.first.running_mean.copy_(torch.randn(3))
        self.first.running_var.copy_(0.5 + torch.rand(3))
        self.first.eval()

    def forward(self, x):
        x = self.second(torch.relu(self.first(self.stem(x))))
        return self.head(self.third(x))


class Transposed(nn.Module):
    """Transposed convolutions with strides, groups and dilation; the last map is one's."""

    def __init__(self):
        super().__init__()
        self.first = nn.ConvTranspose2d(2, 4, (3, 2), stride=2, padding=1, output_padding=1)
        self.second = nn.ConvTranspose2d(4, 6, 3, groups=2, dilation=(1, 2), bias=False)
        self.last = nn.ConvTranspose2d(6, 2, 1, stride=2)

    def forward(self, x):
        return self.last(torch.relu(self.second(self.first(x))))
