"""Networks by name: small ones for small images, and those of ``paper_networks``."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from .blocks import basic_block, convolution
from .paper_networks import LARGE, NETWORKS, imagenet_shape
from .transformer import transformer
from .yolo_v3 import YoloV3

__all__ = ["MODELS", "PUBLISHED", "SMALL", "PublishedNetwork", "SmallResNet", "SmallVGG"]


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


#: Of layers that ``golden.frontend.torch_graph.trace`` knows; fit for images of 8 × 8.
SMALL = {"vgg": SmallVGG, "resnet": SmallResNet}


@dataclass(frozen=True, kw_only=True)
class PublishedNetwork:
    """A network of the paper, or a relative.

    Members
    -------
    make : takes an input shape (C, H, W), a number of classes, and perhaps ``width``
    shapes : of images, that of the publication last; or the lengths of several sentences, such as
        ((S,), (T,))
    classes : of images smaller than LARGE, and of others; for sentences tokens of a language
    loss : what each output is trained for, as the compiler calls it, or a loss of torch
    relative : the paper does not have it
    """

    make: Callable[..., nn.Module]
    shapes: tuple[tuple, ...]
    classes: tuple[int, int] = (10, 1000)
    loss: str | nn.Module = "cross_entropy"
    relative: bool = False

    def classes_of(self, shape) -> int:
        """Those that images of a shape (C, H, W), or sentences, usually have."""
        if not self.reads_images:
            return self.classes[-1]
        return self.classes[min(shape[1:]) >= LARGE]

    @property
    def reads_images(self) -> bool:
        """Whether its input is an image; else sentences."""
        return not isinstance(self.shapes[0][0], tuple)


#: The networks of the paper by name, at the sizes that it has them.
PUBLISHED = {
    name: PublishedNetwork(
        make=make,
        shapes=((3, 32, 32), imagenet_shape(name)),
        relative=name in ("vgg11", "resnet18"),
    )
    for name, make in NETWORKS.items()
} | {
    # Classes of PascalVOC.
    "yolo-v3": PublishedNetwork(
        make=YoloV3, shapes=((3, 416, 416),), classes=(20, 20), loss="mean_squared_error"
    ),
    # About what the captions of Multi30k have; token 0 is padding.
    "transformer": PublishedNetwork(
        make=transformer, shapes=(((32,), (32,)),), classes=(10_000, 10_000),
        loss=nn.CrossEntropyLoss(ignore_index=0),
    ),
}  # fmt: skip
#: By the name on the command line; each takes an input shape and a number of classes.
MODELS: dict[str, Callable[..., nn.Module]] = {**SMALL, **NETWORKS}
