"""Random networks with awkward sizes, from a seed."""

import numpy as np
import torch
from torch import nn

__all__ = ["describe", "random_network", "special_images", "with_specials"]

_CHANNELS = (1, 2, 3, 5, 6, 7, 9, 11, 13)


def random_network(seed: int) -> tuple[nn.Sequential, tuple]:
    """A network of one to three convolutions and perhaps a linear layer, and its input shape
    (N, C, H, W): channel counts that divide by nothing, kernels from 1 x 1 to 5 x 5, strides,
    padding, pooling, with and without bias."""
    rng = np.random.default_rng([seed, 0x0AD])
    torch.manual_seed(seed)
    batch = int(rng.choice([1, 1, 2, 3]))
    shape = (batch, int(rng.choice(_CHANNELS)), int(rng.integers(5, 11)), int(rng.integers(5, 11)))
    channels, height, width = shape[1:]
    layers = []
    for _ in range(int(rng.integers(1, 4))):
        kernel = int(rng.choice([k for k in (1, 1, 3, 3, 5) if k <= min(height, width)]))
        kernels = (kernel, int(rng.choice([kernel, 1])))
        stride = int(rng.choice([1, 1, 2]))
        padding = int(rng.integers(0, kernel // 2 + 1))
        padding = (padding, min(padding, kernels[1] // 2))
        outputs = int(rng.choice(_CHANNELS))
        layers.append(
            nn.Conv2d(
                channels, outputs, kernels, stride=stride, padding=padding,
                bias=bool(rng.integers(0, 2)),
            )
        )  # fmt: skip
        channels = outputs
        height = (height + 2 * padding[0] - kernels[0]) // stride + 1
        width = (width + 2 * padding[1] - kernels[1]) // stride + 1
        if rng.integers(0, 2):
            layers.append(nn.ReLU())
        window = int(rng.choice([2, 3]))
        if min(height, width) >= window and rng.integers(0, 2):
            step = int(rng.choice([1, window]))
            pool = nn.MaxPool2d if rng.integers(0, 2) else nn.AvgPool2d
            layers.append(pool(window, step))
            height, width = (height - window) // step + 1, (width - window) // step + 1
    if rng.integers(0, 2):
        layers.append(nn.Flatten())
        features = channels * height * width
        layers.append(
            nn.Linear(features, int(rng.choice(_CHANNELS)), bias=bool(rng.integers(0, 2)))
        )
    return nn.Sequential(*layers), shape


def with_specials(fmt, codes: np.ndarray, share: float, seed: int) -> np.ndarray:
    """A copy of operand ``codes`` in which a ``share`` is special: NaN, infinities, subnormals,
    zeros of both signs, the largest and the smallest normal numbers."""
    rng = np.random.default_rng([seed, 0x5BEC])
    sign = 1 << (fmt.width - 1)
    top = fmt.exponent_max << fmt.mantissa_bits
    ones = (1 << fmt.mantissa_bits) - 1
    values = [top, top | 1, top | ones, 1, ones, 0, top - 1, 1 << fmt.mantissa_bits]
    specials = np.array([value | s for value in values for s in (0, sign)])
    result = np.array(codes)
    chosen = rng.random(result.shape) < share
    result[chosen] = rng.choice(specials, int(chosen.sum())).astype(result.dtype)
    return result


def special_images(fmt, shape, share: float, seed: int) -> np.ndarray:
    """Random operand codes (N, H, W, C) over the whole range of exponents, some special.

    Every second image holds numbers close to the smallest normal one only.
    """
    rng = np.random.default_rng([seed, 0x1A6E])
    codes = with_specials(fmt, rng.integers(0, 1 << fmt.width, shape), share, seed)
    small = rng.integers(0, 6 << fmt.mantissa_bits, shape)
    small |= rng.integers(0, 2, shape) << (fmt.width - 1)
    codes[1::2] = small[1::2]
    return codes


def describe(model, shape) -> str:
    """The layers of a network, in a line."""
    parts = []
    for layer in model:
        if isinstance(layer, nn.Conv2d):
            kernel = "x".join(map(str, layer.kernel_size))
            parts.append(
                f"conv {layer.in_channels}-{layer.out_channels} {kernel}"
                + (f" /{layer.stride[0]}" if layer.stride[0] > 1 else "")
            )
        elif isinstance(layer, nn.Linear):
            parts.append(f"linear {layer.in_features}-{layer.out_features}")
        elif isinstance(layer, nn.MaxPool2d | nn.AvgPool2d):
            kind = "max" if isinstance(layer, nn.MaxPool2d) else "avg"
            parts.append(f"{kind} {layer.kernel_size}/{layer.stride}")
        elif isinstance(layer, nn.ReLU):
            parts.append("relu")
    return f"{'x'.join(map(str, shape))}: {', '.join(parts)}"
