"""YOLO-v3, a detector with three outputs, as a definition without weights."""

from functools import partial

import torch
from torch import nn

from .blocks import Residual, convolution, scaled

__all__ = ["ANCHORS", "STRIDES", "YoloV3"]

#: Boxes that each pixel of an output predicts, and pixels of the image per pixel of the outputs.
ANCHORS, STRIDES = 3, (32, 16, 8)
#: Of Darknet-53: output channels and residual blocks of the stages behind the stem.
_STAGES = ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4))

_convolution = partial(convolution, activation=partial(nn.LeakyReLU, 0.1))


class YoloV3(nn.Module):
    """Redmon and Farhadi 2018: Darknet-53, and an output at each of three resolutions.

    Parameters
    ----------
    input_shape : (C, H, W), H and W multiples of 32; published for 3 × 416 × 416
    classes : that a box may have; 20 for PascalVOC
    width : multiplies the numbers of channels, rounded to multiples of 4, but for those of images
        and outputs

    The outputs are maps (N, 3 · (5 + classes), H / s, W / s) for s = 32, 16 and 8: for each of the
    boxes of a pixel its place (x, y), size (w, h), confidence, and a number for each class, as they
    are before sigmoid and exponential.

    Raises
    ------
    ValueError
        for images of another size.
    """

    def __init__(self, input_shape, classes: int, *, width: float = 1.0):
        channels, *size = input_shape
        if any(side < 32 or side % 32 for side in size):
            raise ValueError(
                f"images must have sides that are multiples of 32, not {size[0]} x {size[1]}"
            )
        super().__init__()
        inputs = scaled(32, width)
        stages = [_convolution(channels, inputs)]
        for published, count in _STAGES:
            outputs, half = scaled(published, width), scaled(published // 2, width)
            layers = _convolution(inputs, outputs, stride=2)
            for _ in range(count):
                body = nn.Sequential(*_convolution(outputs, half, 1), *_convolution(half, outputs))
                layers.append(Residual(body, nn.Identity(), relu=False))
            stages.append(layers)
            inputs = outputs
        self.fine = nn.Sequential(*(layer for stage in stages[:4] for layer in stage))
        self.middle, self.coarse = (nn.Sequential(*stage) for stage in stages[4:])
        boxes, joined = ANCHORS * (5 + classes), 0  # channels that come from the output before
        self.necks, self.heads, self.narrows = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for published, _ in reversed(_STAGES[2:]):
            outputs, half = scaled(published, width), scaled(published // 2, width)
            self.necks.append(_neck(outputs + joined, outputs, half))
            self.heads.append(
                nn.Sequential(*_convolution(half, outputs), nn.Conv2d(outputs, boxes, 1))
            )
            if published > _STAGES[2][0]:
                joined = scaled(published // 4, width)
                narrow = _convolution(half, joined, 1)
                self.narrows.append(nn.Sequential(*narrow, nn.Upsample(scale_factor=2)))

    def forward(self, x):
        """(N, C, H, W) to the three maps, the coarsest first."""
        fine = self.fine(x)
        middle = self.middle(fine)
        features = self.necks[0](self.coarse(middle))
        outputs = [self.heads[0](features)]
        for number, earlier in enumerate((middle, fine)):
            features = torch.cat([self.narrows[number](features), earlier], 1)
            features = self.necks[number + 1](features)
            outputs.append(self.heads[number + 1](features))
        return tuple(outputs)


def _neck(inputs, outputs, half):
    """1×1 and 3×3 in turn, five convolutions."""
    layers = []
    for _ in range(2):
        layers += [*_convolution(inputs, half, 1), *_convolution(half, outputs)]
        inputs = outputs
    return nn.Sequential(*layers, *_convolution(outputs, half, 1))
