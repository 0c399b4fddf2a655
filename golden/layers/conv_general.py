"""Convolution with groups and dilation on bit patterns, and what it shares with its gradients.

The executable form of the sections "Convolution" and "Groups" of docs/training.md. With one group
and without dilation it computes what :func:`golden.layers.conv2d.conv2d` does.
"""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import column_dot

from .conv2d import ends, pair

__all__ = [
    "Geometry",
    "block_diagonal",
    "check_maps",
    "check_output",
    "contract",
    "convolution",
    "gather",
    "output_map",
    "steps",
]


def convolution(
    fmt,
    x_bits,
    weight_bits,
    bias_bits=None,
    *,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    rows: int,
    columns: int | None = None,
):
    """Sums (N, HO, WO, O) of a convolution of ``x_bits`` (N, H, W, I), from the bias on.

    K tiles: words of ``rows`` input channels outermost, then kernel rows, then kernel columns, as
    :func:`golden.layers.conv2d.conv2d`. ``bias_bits`` (O,) float32 bits is the first partial sum.
    """
    x, weights = np.asarray(x_bits), np.asarray(weight_bits)
    geometry = Geometry.check(fmt, x, weights, stride, padding, dilation, groups, rows, columns)
    out_h, out_w = geometry.output_size(x.shape[1:3])
    (step_h, step_w), ((pad_h, _), (pad_w, _)) = geometry.stride, geometry.padding
    taps, kernels = [], []
    for kh in range(weights.shape[2]):
        for kw in range(weights.shape[3]):
            top, left = kh * geometry.dilation[0] - pad_h, kw * geometry.dilation[1] - pad_w
            taps.append(gather(x, steps(top, step_h, out_h), steps(left, step_w, out_w)))
            kernels.append(block_diagonal(weights[:, :, kh, kw], groups).T)
    outputs = weights.shape[0]
    start = np.zeros(outputs, np.uint32) if bias_bits is None else np.asarray(bias_bits, np.uint32)
    if start.shape != (outputs,):
        raise ValueError(f"bias must have shape ({outputs},), not {start.shape}")
    vectors = len(x) * out_h * out_w
    start = np.broadcast_to(start, (vectors, outputs))
    sums, flags = contract(fmt, taps, kernels, start, groups, rows, columns)
    shape = (len(x), out_h, out_w, outputs)
    return sums.reshape(shape), flags.reshape(shape)


def output_map(input_size, *, kernel, stride=1, padding=0, dilation=1) -> tuple[int, int]:
    """(HO, WO) of a convolution; ``ValueError`` if the kernel does not fit."""
    sizes = tuple(
        (size + sum(pad) - reach * (taps - 1) - 1) // step + 1
        for size, taps, step, pad, reach in zip(
            input_size, pair(kernel), pair(stride), ends(padding), pair(dilation), strict=True
        )
    )
    if min(sizes) < 1:
        raise ValueError(
            f"A kernel of {pair(kernel)} with dilation {pair(dilation)} does not fit a map of "
            f"{tuple(input_size)} with padding {padding}"
        )
    return sizes


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """A checked convolution: pairs are (vertical, horizontal); of the padding, both ends each."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    dilation: tuple[int, int]

    @classmethod
    def check(
        cls, fmt, values, weights, stride, padding, dilation, groups, rows, columns, of_output=False
    ):
        check_maps(fmt, rows, **{"dy" if of_output else "x": values})
        if weights.ndim != 4:
            raise ValueError(f"weights must have shape (O, I, KH, KW), not {weights.shape}")
        outputs, inputs = weights.shape[0], weights.shape[1] * groups
        expected = outputs if of_output else inputs
        if outputs % groups:
            raise ValueError(f"{outputs} outputs do not divide into {groups} groups")
        if values.shape[3] != expected:
            raise ValueError(f"The map has {values.shape[3]} channels, weights are for {expected}")
        if groups != 1 and columns is None:
            raise ValueError("A grouped convolution needs the number of columns")
        return cls(
            kernel=weights.shape[2:],
            stride=pair(stride),
            padding=ends(padding),
            dilation=pair(dilation),
        )

    def output_size(self, input_size):
        return output_map(
            input_size,
            kernel=self.kernel,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
        )

    def phase_taps(self, axis, phase):
        """Taps that reach a phase: (line of the output map for its first pixel, tap), in order."""
        taps = []
        for tap in range(self.kernel[axis]):
            line = phase + self.padding[axis][0] - tap * self.dilation[axis]
            if line % self.stride[axis] == 0:
                taps.append((line // self.stride[axis], tap))
        return sorted(taps)


def steps(first, step, count):
    return np.arange(count) * step + first


def gather(values, lines, columns):
    """Vectors (N * len(lines) * len(columns), K) of a map; positions outside it are +0."""
    height, width, channels = values.shape[1:]
    inside_h, inside_w = (lines >= 0) & (lines < height), (columns >= 0) & (columns < width)
    picked = values[:, np.clip(lines, 0, height - 1)][:, :, np.clip(columns, 0, width - 1)]
    inside = inside_h[:, np.newaxis] & inside_w
    return np.where(inside[..., np.newaxis], picked, 0).reshape(-1, channels).astype(values.dtype)


def block_diagonal(weights, groups):
    """(O, I / groups) weights as (O, I), with +0 between the groups."""
    if groups == 1:
        return weights
    outputs, group_in = weights.shape
    full = np.zeros((groups, outputs // groups, groups, group_in), weights.dtype)
    index = np.arange(groups)
    full[index, :, index] = weights.reshape(groups, outputs // groups, group_in)
    return full.reshape(outputs, groups * group_in)


def contract(fmt, taps, kernels, start, groups, rows, columns):
    """``start`` (V, M) plus the sum over taps of (V, K) vectors times (K, M) kernels."""
    channels, outputs = kernels[0].shape
    blocks = -(-channels // rows)
    lanes = ((0, 0), (0, blocks * rows - channels))
    taps = [np.pad(tap, lanes) for tap in taps]
    kernels = [np.pad(kernel, lanes[::-1]) for kernel in kernels]
    sums = np.array(start, np.uint32)
    flags = np.zeros(sums.shape, np.uint8)
    tile = outputs if groups == 1 else columns
    for first in range(0, outputs, tile):
        part = slice(first, min(first + tile, outputs))
        # Channels of the groups that have an output in this column tile.
        low = first // (outputs // groups) * (channels // groups)
        high = ((part.stop - 1) // (outputs // groups) + 1) * (channels // groups)
        for block in range(low // rows, -(-high // rows)):
            lane = slice(block * rows, (block + 1) * rows)
            for tap, kernel in zip(taps, kernels, strict=True):
                sums[:, part], new = column_dot(
                    fmt, tap[:, lane], kernel[lane, part], sums[:, part]
                )
                flags[:, part] |= new
    return sums, flags


def check_maps(fmt, rows=1, **maps):
    if not fmt.is_float:
        raise ValueError(f"Training needs a float format, not {fmt.name}")
    if rows < 1:
        raise ValueError(f"rows must be at least 1, not {rows!r}")
    for name, values in maps.items():
        if values.ndim != 4:
            raise ValueError(f"{name} must have shape (N, H, W, C), not {values.shape}")


def check_output(size, expected):
    if tuple(size) != tuple(expected):
        raise ValueError(f"The output map must be {tuple(expected)}, not {tuple(size)}")
