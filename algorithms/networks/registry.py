"""Networks by name: small ones for small images, and those of ``paper_networks``."""

from torch import nn

from .blocks import basic_block, convolution
from .paper_networks import NETWORKS

__all__ = ["MODELS", "SMALL", "SmallResNet", "SmallVGG"]


class SmallVGG(nn.Sequential):
    """Two pairs of 3×3 convolutions, each behind it max pooling; two linear layers.

    Parameters
    ----------
    input_shape : (C, H, W), H and W at least 4
    classes : of the logits (N, classes)
    width : output channels of the first pair; the second has twice as many

    Raises
    ------
    ValueError
        for smaller images.
    """

    def __init__(self, input_shape, classes: int, *, width: int = 16):
        channels, height, rows = *input_shape[:1], *(size // 4 for size in input_shape[1:])
        if not height or not rows:
            size = " x ".join(map(str, input_shape[1:]))
            raise ValueError(f"images must have at least 4 x 4 pixels, not {size}")
        layers = []
        for inputs, outputs in ((channels, width), (width, 2 * width)):
            layers += convolution(inputs, outputs)
            layers += [*convolution(outputs, outputs), nn.MaxPool2d(2)]
        super().__init__(
            *layers,
            nn.Flatten(),
            nn.Linear(2 * width * height * rows, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, classes),
        )


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
            *convolution(input_shape[0], width),
            basic_block(width, width),
            basic_block(width, 2 * width, stride=2),
            basic_block(2 * width, 2 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * width, classes),
        )


#: Of layers that ``golden.training.torch_graph.trace`` knows; fit for images of 8 × 8.
SMALL = {"vgg": SmallVGG, "resnet": SmallResNet}
#: By the name on the command line; each takes an input shape and a number of classes.
MODELS = SMALL | NETWORKS
