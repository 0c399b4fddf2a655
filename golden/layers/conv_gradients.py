"""Convolutions of a training step on bit patterns: forward with groups, and all gradients.

The executable form of the sections "Convolution" to "Groups" of docs/training.md. Maps are
channels-last arrays of operand codes, weights (O, I / groups, KH, KW) operand codes, as torch
shapes them. Results are float32 sums (uint32) and, for every sum, the union of the
:class:`golden.arithmetic.dot_product.Flags` of its steps (uint8).

A product goes through the array one *K tile* of ``rows`` lanes at a time; each K tile is one
:func:`golden.arithmetic.dot_product.column_dot` step per sum. Only the order of the K tiles
matters, not the order of the lanes in one, and not which of the two factors waits in the array.

Arguments that all functions share
----------------------------------
fmt : a float operand format
stride, padding, dilation : of the forward convolution, one number or (vertical, horizontal);
    padding may differ at both ends, see :func:`golden.layers.conv2d.ends`
groups : of the forward convolution
rows : rows of the array, lanes of a K tile
columns : columns of the array; matters to infinities and NaN beside other groups only, and is
    needed when ``groups`` is not 1

Errors: ``ValueError`` for an integer format and for shapes that do not fit each other.
"""

import numpy as np

from golden.arithmetic.dot_product import column_dot, encode

from .conv2d import ends, pair
from .conv_general import (
    Geometry,
    block_diagonal,
    check_maps,
    check_output,
    contract,
    gather,
    output_map,
    steps,
)

__all__ = [
    "bias_gradient",
    "input_gradient",
    "linear_input_gradient",
    "weight_gradient",
]

_CHUNK_OUTPUTS = 16


def input_gradient(
    fmt,
    dy_bits,
    weight_bits,
    *,
    input_size,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    rows: int,
    columns: int | None = None,
):
    """Gradient (N, H, W, I) of a convolution's input from that of its output (N, HO, WO, O).

    Pixels with the same (h mod stride, w mod stride) form a *phase*. A phase is a convolution of
    ``dy_bits`` with the taps that reach it and stride 1; no zeros are inserted. K tiles: words of
    ``rows`` output channels outermost, then the taps by increasing row of the output map, then by
    increasing column. A phase that no tap reaches is +0.

    Parameters
    ----------
    input_size : (H, W) of the input map
    """
    dy, weights = np.asarray(dy_bits), np.asarray(weight_bits)
    geometry = Geometry.check(
        fmt, dy, weights, stride, padding, dilation, groups, rows, columns, of_output=True
    )
    height, width = input_size
    check_output(dy.shape[1:3], geometry.output_size(input_size))
    inputs = weights.shape[1] * groups
    sums = np.zeros((len(dy), height, width, inputs), np.uint32)
    flags = np.zeros(sums.shape, np.uint8)
    for a in range(min(geometry.stride[0], height)):
        for b in range(min(geometry.stride[1], width)):
            phase = np.s_[:, a :: geometry.stride[0], b :: geometry.stride[1]]
            shape = sums[phase].shape
            taps, kernels = [], []
            for top, kh in geometry.phase_taps(0, a):
                for left, kw in geometry.phase_taps(1, b):
                    lines = steps(top, 1, shape[1]), steps(left, 1, shape[2])
                    taps.append(gather(dy, *lines))
                    kernels.append(block_diagonal(weights[:, :, kh, kw], groups))
            if taps:
                start = np.zeros((shape[0] * shape[1] * shape[2], inputs), np.uint32)
                result = contract(fmt, taps, kernels, start, groups, rows, columns)
                sums[phase], flags[phase] = (part.reshape(shape) for part in result)
    return sums, flags


def linear_input_gradient(fmt, dy_bits, weight_bits, *, input_size, rows: int):
    """Gradient (N, H, W, C) of a linear layer's input map from ``dy_bits`` (N, 1, 1, O).

    A convolution whose kernel and stride are the map: every pixel is a phase of its own with one
    tap. ``weight_bits`` is (O, C * H * W) in torch's order, channels outermost.
    """
    weights = np.asarray(weight_bits)
    kernel = weights.reshape(len(weights), -1, *input_size)
    return input_gradient(
        fmt, dy_bits, kernel, input_size=input_size, stride=tuple(input_size), rows=rows
    )


def weight_gradient(
    fmt,
    x_bits,
    dy_bits,
    *,
    kernel,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    rows: int,
):
    """Gradient (O, I / groups, KH, KW) of a convolution's weights: float32, from +0 on.

    A K tile is ``rows`` consecutive output pixels in order of images, then rows, then columns.
    Lanes behind the last pixel hold +0 on both sides; input pixels of the padding are +0 and are
    multiplied like any other.

    Parameters
    ----------
    x_bits, dy_bits : (N, H, W, I) and (N, HO, WO, O) operand codes
    kernel : (KH, KW) or one number
    """
    x, dy = np.asarray(x_bits), np.asarray(dy_bits)
    check_maps(fmt, rows, x=x, dy=dy)
    (kernel_h, kernel_w), outputs, inputs = pair(kernel), dy.shape[3], x.shape[3]
    if inputs % groups or outputs % groups:
        raise ValueError(f"{inputs} and {outputs} channels do not divide into {groups} groups")
    size = output_map(
        x.shape[1:3], kernel=kernel, stride=stride, padding=padding, dilation=dilation
    )
    check_output(dy.shape[1:3], size)
    (step_h, step_w), ((pad_h, _), (pad_w, _)) = pair(stride), ends(padding)
    patches = np.stack(
        [
            gather(
                x,
                steps(kh * pair(dilation)[0] - pad_h, step_h, size[0]),
                steps(kw * pair(dilation)[1] - pad_w, step_w, size[1]),
            )
            for kh in range(kernel_h)
            for kw in range(kernel_w)
        ],
        axis=-1,
    ).reshape(*dy.shape[:3], inputs, kernel_h * kernel_w)
    patches, tiles = _pixel_tiles(patches, rows), _pixel_tiles(dy, rows)
    # Sums do not mix channels, so several groups may go through column_dot at once.
    group_in, group_out = inputs // groups, outputs // groups
    sums = np.empty((outputs, group_in, kernel_h * kernel_w), np.uint32)
    flags = np.empty(sums.shape, np.uint8)
    chunk = max(1, _CHUNK_OUTPUTS // group_out)
    for first in range(0, groups, chunk):
        last = min(first + chunk, groups)
        x_part = patches[:, :, first * group_in : last * group_in]
        dy_part = tiles[:, :, first * group_out : last * group_out]
        result = _accumulate(fmt, x_part.reshape(len(tiles), rows, -1), dy_part)
        for target, part in zip((sums, flags), result, strict=True):
            part = part.reshape(last - first, group_in, -1, last - first, group_out)
            for group in range(last - first):
                outer = (first + group) * group_out
                target[outer : outer + group_out] = np.moveaxis(part[group, :, :, group], 2, 0)
    shape = (outputs, group_in, kernel_h, kernel_w)
    return sums.reshape(shape), flags.reshape(shape)


def bias_gradient(fmt, dy_bits, *, rows: int):
    """Gradient (O,) of the bias: the weight gradient of an input that is 1 everywhere."""
    dy = np.asarray(dy_bits)
    check_maps(fmt, rows, dy=dy)
    tiles = _pixel_tiles(dy, rows)
    ones = np.broadcast_to(encode(fmt, 1.0), (*tiles.shape[:2], 1))
    sums, flags = _accumulate(fmt, ones, tiles)
    return sums[0], flags[0]


def _pixel_tiles(values, rows):
    """Tiles of consecutive pixels (tiles, rows, ...) of (N, H, W, ...), filled up with +0."""
    pixels = values.reshape(-1, *values.shape[3:])
    fill = [(0, -len(pixels) % rows)] + [(0, 0)] * (pixels.ndim - 1)
    return np.pad(pixels, fill).reshape(-1, rows, *pixels.shape[1:])


def _accumulate(fmt, x_tiles, w_tiles):
    """Sum over K tiles of x (tiles, R, M), transposed, times w (tiles, R, C), from +0 on."""
    sums = np.zeros((x_tiles.shape[2], w_tiles.shape[2]), np.uint32)
    flags = np.zeros(sums.shape, np.uint8)
    for x, w in zip(x_tiles, w_tiles, strict=True):
        sums, new = column_dot(fmt, x.T, w, sums)
        flags |= new
    return sums, flags
