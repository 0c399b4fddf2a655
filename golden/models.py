"""Small networks for small images, of layers that ``golden.graph.trace`` knows."""

from torch import nn

__all__ = ["MODELS", "SmallResNet", "SmallVGG"]


def _convolution(inputs, outputs, kernel=3, stride=1):
    return (
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class SmallVGG(nn.Sequential):
    """Two pairs of 3×3 convolutions, each behind it max pooling; two linear layers.

    Parameters
    ----------
    input_shape : (C, H, W), H and W at least 4
    classes : of the logits (N, classes)
    width : output channels of the first pair; the second has twice as many
    """

    def __init__(self, input_shape, classes: int, *, width: int = 16):
        channels, height, rows = *input_shape[:1], *(size // 4 for size in input_shape[1:])
        layers = []
        for inputs, outputs in ((channels, width), (width, 2 * width)):
            layers += [*_convolution(inputs, outputs), nn.ReLU()]
            layers += [*_convolution(outputs, outputs), nn.ReLU(), nn.MaxPool2d(2)]
        super().__init__(
            *layers,
            nn.Flatten(),
            nn.Linear(2 * width * height * rows, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, classes),
        )


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside an identity, or beside a 1×1 convolution where shapes differ."""

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1):
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(inputs, outputs, stride=stride),
            nn.ReLU(),
            *_convolution(outputs, outputs),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(*_convolution(inputs, outputs, 1, stride))
        self.relu = nn.ReLU()

    def forward(self, x):
        """(N, inputs, H, W) to (N, outputs, ⌈H / stride⌉, ⌈W / stride⌉)."""
        return self.relu(self.body(x) + self.shortcut(x))


class SmallResNet(nn.Sequential):
    """A 3×3 convolution, three residual blocks, the second with stride 2, and a linear layer.

    Parameters
    ----------
    input_shape : (C, H, W)
    classes : of the logits (N, classes)
    width : output channels of the first block; the others have twice as many
    """

    def __init__(self, input_shape, classes: int, *, width: int = 16):
        super().__init__(
            *_convolution(input_shape[0], width),
            nn.ReLU(),
            ResidualBlock(width, width),
            ResidualBlock(width, 2 * width, stride=2),
            ResidualBlock(2 * width, 2 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * width, classes),
        )


#: By the name on the command line; each takes an input shape and a number of classes.
MODELS = {"vgg": SmallVGG, "resnet": SmallResNet}
