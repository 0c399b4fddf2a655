"""A small detector of digits: for each cell of a canvas a class and a position."""

from torch import nn

__all__ = ["DigitDetector"]


class DigitDetector(nn.Module):
    """Convolutions with a cell of 8 × 8 pixels for each pixel of their last map, and two of 1 × 1.

    Returns logits (N, classes, H / 8, W / 8) of the digits and of the background, and offsets (N,
    2, H / 8, W / 8), see :class:`algorithms.data.canvas.Canvases`, of images (N, 1, H, W).

    Parameters
    ----------
    classes : the background is one of them
    width : channels of the first convolution; the others have two and four times as many
    """

    def __init__(self, classes: int = 11, width: int = 8):
        super().__init__()
        self.body = nn.Sequential(
            *_layer(1, width, 4, 2),
            *_layer(width, 2 * width, 3, 1),
            nn.MaxPool2d(2),
            *_layer(2 * width, 4 * width, 3, 1),
            *_layer(4 * width, 4 * width, 4, 2),
        )
        self.classes = nn.Conv2d(4 * width, classes, 1)
        self.offsets = nn.Conv2d(4 * width, 2, 1)

    def forward(self, x):
        x = self.body(x)
        return self.classes(x), self.offsets(x)


def _layer(inputs, outputs, kernel, stride):
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, 1, bias=False)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU()
