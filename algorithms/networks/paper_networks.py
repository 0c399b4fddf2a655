"""The networks of the ADA-GP paper, and their relatives, as definitions without weights.

Each takes an input shape (C, H, W) and a number of classes. Images of at least LARGE × LARGE pixels
get the network as it was published for ImageNet; smaller ones, CIFAR's for example, the usual
variant that halves the map less often, whose layers are otherwise the same (docs/algorithm.md).
Batch normalisation follows every convolution, of VGG too. Parameters start as torch initialises
them. ``width`` multiplies the numbers of channels, rounded to multiples of 4, but for those of the
image: the same graph, for tests. On the meta device (``with torch.device("meta")``) a network has
shapes and no memory.
"""

from functools import partial

from torch import nn

from .blocks import Concatenation, Residual, basic_block, bottleneck_block, convolution, scaled

__all__ = ["LARGE", "LEAST", "NETWORKS", "imagenet_shape"]

#: Height and width from which on an image is a large one, and least height and width.
LARGE, LEAST = 96, 8


def _is_large(input_shape):
    smallest = min(input_shape[1:])
    if smallest < LEAST:
        raise ValueError(
            f"images must have at least {LEAST} x {LEAST} pixels, not {input_shape[1]} x "
            f"{input_shape[2]}"
        )
    return smallest >= LARGE


def _classifier(features, classes, dropout=0.0):
    """The mean over each map, then a linear layer."""
    layers = [nn.Dropout(dropout)] if dropout else []
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), *layers, nn.Linear(features, classes)


def _halving_stem(channels, outputs, large):
    """Large: 7×7 with stride 2 and pooling, a sixteenth of the pixels; small: 3×3, all of them."""
    if large:
        return [*convolution(channels, outputs, 7, stride=2), nn.MaxPool2d(3, 2, 1)]
    return convolution(channels, outputs)


def _vgg(counts, input_shape, classes, *, width=1.0):
    """Simonyan and Zisserman 2014: ``counts`` convolutions in front of each max pooling.

    Small: one linear layer on the mean of each map; no pooling of a map with a side of 1.
    """
    large, side = _is_large(input_shape), min(input_shape[1:])
    layers, inputs = [], input_shape[0]
    for count, outputs in zip(counts, (64, 128, 256, 512, 512)):
        outputs = scaled(outputs, width)
        for _ in range(count):
            layers += convolution(inputs, outputs)
            inputs = outputs
        if side > 1:
            layers.append(nn.MaxPool2d(2))
        side //= 2
    if not large:
        return nn.Sequential(*layers, *_classifier(inputs, classes))
    hidden = scaled(4096, width)
    return nn.Sequential(
        *layers,
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
        nn.Linear(inputs * 49, hidden),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(hidden, classes),
    )


def _resnet(block, expansion, counts, input_shape, classes, *, width=1.0):
    """He et al. 2015; the stride of a bottleneck is that of its 3×3 convolution."""
    inputs = scaled(64, width)
    layers = _halving_stem(input_shape[0], inputs, _is_large(input_shape))
    for stage, count in enumerate(counts):
        outputs = scaled(64 << stage, width) * expansion
        for number in range(count):
            layers.append(block(inputs, outputs, stride=2 if stage and not number else 1))
            inputs = outputs
    return nn.Sequential(*layers, *_classifier(inputs, classes))


def _densenet(growth, counts, input_shape, classes, *, width=1.0):
    """Huang et al. 2016: each layer's ``growth`` maps join its input; transitions halve both."""
    growth = scaled(growth, width)
    features = 2 * growth
    layers = _halving_stem(input_shape[0], features, _is_large(input_shape))
    for stage, count in enumerate(counts):
        if stage:
            layers += [nn.BatchNorm2d(features), nn.ReLU()]
            layers += [nn.Conv2d(features, features // 2, 1, bias=False), nn.AvgPool2d(2)]
            features //= 2
        for _ in range(count):
            new = nn.Sequential(
                nn.BatchNorm2d(features),
                nn.ReLU(),
                *convolution(features, 4 * growth, 1),
                nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
            )
            layers.append(Concatenation([nn.Identity(), new]))
            features += growth
    return nn.Sequential(
        *layers, nn.BatchNorm2d(features), nn.ReLU(), *_classifier(features, classes)
    )


#: Of MobileNet-V2: expansion, output channels, blocks, stride of the first one.
_INVERTED = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip


def _mobilenet_v2(input_shape, classes, *, width=1.0):
    """Sandler et al. 2018. Small: the stem and the first block with stride 2 have stride 1."""
    large = _is_large(input_shape)
    plain = {"activation": nn.ReLU6}
    inputs, features = scaled(32, width), scaled(1280, width)
    layers = convolution(input_shape[0], inputs, stride=2 if large else 1, **plain)
    for number, (expansion, outputs, count, first) in enumerate(_INVERTED):
        outputs = scaled(outputs, width)
        for place in range(count):
            stride = first if place == 0 and (large or number != 1) else 1
            wide = inputs * expansion
            body = nn.Sequential(
                *(convolution(inputs, wide, 1, **plain) if expansion > 1 else ()),
                *convolution(wide, wide, stride=stride, groups=wide, **plain),
                *convolution(wide, outputs, 1, activation=None),
            )
            same = place > 0  # the first block of each row changes the number of channels
            layers.append(Residual(body, nn.Identity(), relu=False) if same else body)
            inputs = outputs
    layers += convolution(inputs, features, 1, **plain)
    return nn.Sequential(*layers, *_classifier(features, classes, 0.2 if large else 0.0))


# Inception as lists of steps: a tuple is a convolution, (output channels, kernel) with the map's
# size kept or (output channels, kernel, stride) without padding; a list is branches that are
# concatenated, each a list of steps; a module stands for itself.
_ROW, _COLUMN = (1, 7), (7, 1)


def _chain(inputs, steps, width):
    """The steps one behind the other, their channels times ``width``; the module and its output
    channels."""
    layers = []
    for step in steps:
        if isinstance(step, nn.Module):
            layers.append(step)
        elif isinstance(step, list):
            chains = [_chain(inputs, branch, width) for branch in step]
            layers.append(Concatenation(module for module, _ in chains))
            inputs = sum(outputs for _, outputs in chains)
        else:
            outputs, kernel, *stride = step
            outputs = scaled(outputs, width)
            options = {"stride": stride[0], "padding": 0} if stride else {}
            layers += convolution(inputs, outputs, kernel, **options)
            inputs = outputs
    return nn.Sequential(*layers), inputs


def _pooled(outputs):
    """The branch with an average over 3×3 pixels, padding not counted."""
    return [nn.AvgPool2d(3, 1, 1, count_include_pad=False), (outputs, 1)]


def _fork(outputs):
    """1×3 and 3×1 beside each other."""
    return [[(outputs, (1, 3))], [(outputs, (3, 1))]]


def _inception_v3(input_shape, classes, *, width=1.0):
    """Szegedy et al. 2015, without the auxiliary classifier. Small: the stem keeps H × W."""
    large = _is_large(input_shape)
    if large:
        steps = [(32, 3, 2), (32, 3, 1), (64, 3), nn.MaxPool2d(3, 2), (80, 1), (192, 3, 1),
                 nn.MaxPool2d(3, 2)]  # fmt: skip
    else:
        steps = [(32, 3), (32, 3), (64, 3), (80, 1), (192, 3)]
    for outputs in (32, 64, 64):
        steps.append([[(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)], _pooled(outputs)])
    steps.append([[(384, 3, 2)], [(64, 1), (96, 3), (96, 3, 2)], [nn.MaxPool2d(3, 2)]])
    for wide in (128, 160, 160, 192):
        twice = [(wide, 1), (wide, _COLUMN), (wide, _ROW), (wide, _COLUMN), (192, _ROW)]
        once = [(wide, 1), (wide, _ROW), (192, _COLUMN)]
        steps.append([[(192, 1)], once, twice, _pooled(192)])
    long = [(192, 1), (192, _ROW), (192, _COLUMN), (192, 3, 2)]
    steps.append([[(192, 1), (320, 3, 2)], long, [nn.MaxPool2d(3, 2)]])
    for _ in range(2):
        forks = [(384, 1), _fork(384)], [(448, 1), (384, 3), _fork(384)]
        steps.append([[(320, 1)], *forks, _pooled(192)])
    body, features = _chain(input_shape[0], steps, width)
    return nn.Sequential(body, *_classifier(features, classes, 0.5 if large else 0.0))


def _inception_v4(input_shape, classes, *, width=1.0):
    """Szegedy et al. 2016. Small: the stem keeps H × W."""
    large = _is_large(input_shape)
    half, keep = ((2,), (1,)) if large else ((), ())
    pool = (lambda: nn.MaxPool2d(3, 2)) if large else (lambda: nn.MaxPool2d(3, 1, 1))
    steps = [
        (32, 3, *half), (32, 3, *keep), (64, 3),
        [[pool()], [(96, 3, *half)]],
        [[(64, 1), (96, 3, *keep)], [(64, 1), (64, _ROW), (64, _COLUMN), (96, 3, *keep)]],
        [[(192, 3, *half)], [pool()]],
    ]  # fmt: skip
    for _ in range(4):
        steps.append([[(96, 1)], [(64, 1), (96, 3)], [(64, 1), (96, 3), (96, 3)], _pooled(96)])
    steps.append([[(384, 3, 2)], [(192, 1), (224, 3), (256, 3, 2)], [nn.MaxPool2d(3, 2)]])
    for _ in range(7):
        once = [(192, 1), (224, _ROW), (256, _COLUMN)]
        twice = [(192, 1), (192, _COLUMN), (224, _ROW), (224, _COLUMN), (256, _ROW)]
        steps.append([[(384, 1)], once, twice, _pooled(128)])
    long = [(256, 1), (256, _ROW), (320, _COLUMN), (320, 3, 2)]
    steps.append([[(192, 1), (192, 3, 2)], long, [nn.MaxPool2d(3, 2)]])
    for _ in range(3):
        twice = [(384, 1), (448, (3, 1)), (512, (1, 3)), _fork(256)]
        steps.append([[(256, 1)], [(384, 1), _fork(256)], twice, _pooled(256)])
    body, features = _chain(input_shape[0], steps, width)
    return nn.Sequential(body, *_classifier(features, classes, 0.2 if large else 0.0))


#: By name; each takes an input shape (C, H, W), sides at least LEAST, a number of classes, and
#: perhaps ``width``.
NETWORKS = {
    "vgg11": partial(_vgg, (1, 1, 2, 2, 2)),
    "vgg13": partial(_vgg, (2, 2, 2, 2, 2)),
    "vgg16": partial(_vgg, (2, 2, 3, 3, 3)),
    "vgg19": partial(_vgg, (2, 2, 4, 4, 4)),
    "resnet18": partial(_resnet, basic_block, 1, (2, 2, 2, 2)),
    "resnet50": partial(_resnet, bottleneck_block, 4, (3, 4, 6, 3)),
    "resnet101": partial(_resnet, bottleneck_block, 4, (3, 4, 23, 3)),
    "resnet152": partial(_resnet, bottleneck_block, 4, (3, 8, 36, 3)),
    "densenet121": partial(_densenet, 32, (6, 12, 24, 16)),
    "densenet161": partial(_densenet, 48, (6, 12, 36, 24)),
    "densenet169": partial(_densenet, 32, (6, 12, 32, 32)),
    "densenet201": partial(_densenet, 32, (6, 12, 48, 32)),
    "mobilenet-v2": _mobilenet_v2,
    "inception-v3": _inception_v3,
    "inception-v4": _inception_v4,
}


def imagenet_shape(name: str) -> tuple[int, int, int]:
    """Shape of ImageNet's images in the publication of the network: 224 × 224, Inception's 299."""
    side = 299 if name.startswith("inception") else 224
    return 3, side, side
