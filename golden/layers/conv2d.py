"""Forward models of the layers on bit patterns, in the order in which the array adds.

Activations are channels-last arrays (N, H, W, C) of operand codes. A layer's products go through
the array one *K tile* at a time: a block of ``rows`` input channels at one kernel position. The
blocks are the outermost loop, then kernel rows, then kernel columns. The last block is filled up
with zero channels. Each K tile is one :func:`golden.arithmetic.dot_product.column_dot` step per
output, from the bias (or zero) on.

Positions outside the map (``padding``) are operands +0, not skipped: a zero times an infinite or
NaN weight is NaN and raises the invalid flag as any other product does.
"""

import numpy as np

from golden.arithmetic.dot_product import column_dot
from golden.arithmetic.formats import FloatFormat, IntFormat

__all__ = ["conv2d", "ends", "linear", "output_size", "pair"]


def conv2d(
    fmt: FloatFormat | IntFormat,
    x_bits,
    weight_bits,
    bias_bits=None,
    *,
    stride=1,
    padding=0,
    rows: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of a convolution (cross-correlation, as in torch), before post-processing.

    Parameters
    ----------
    fmt : operand format
    x_bits : (N, H, W, I) operand codes
    weight_bits : (O, I, KH, KW) operand codes
    bias_bits : (O,) float32 bits (uint32; int32 bits for an integer format), the first partial
        sum, or None for zero
    stride, padding : one number or (vertical, horizontal); padding see :func:`ends`
    rows : rows of the array, i.e. products per column and step

    Returns
    -------
    sums : (N, HO, WO, O) uint32, bits of float32 (int32) numbers
    flags : the same shape, uint8, the union of :class:`golden.arithmetic.dot_product.Flags` of all
        steps

    Raises
    ------
    ValueError
        if the shapes do not fit each other or no output position is left.
    """
    x, weights = np.asarray(x_bits), np.asarray(weight_bits)
    _check_shapes(x, weights, bias_bits, rows)
    batch, height, width, channels = x.shape
    outputs, _, kernel_h, kernel_w = weights.shape
    (stride_h, stride_w), pads = pair(stride), ends(padding)
    out_h = output_size(height, kernel_h, stride_h, sum(pads[0]))
    out_w = output_size(width, kernel_w, stride_w, sum(pads[1]))
    if out_h < 1 or out_w < 1:
        raise ValueError(
            f"A {kernel_h} x {kernel_w} kernel does not fit a {height} x {width} map with padding "
            f"{padding}"
        )
    blocks = -(-channels // rows)
    lanes = (0, blocks * rows - channels)
    x = np.pad(x, ((0, 0), *pads, lanes))
    weights = np.pad(weights, ((0, 0), lanes, (0, 0), (0, 0)))

    vectors = batch * out_h * out_w
    start = np.zeros(outputs, np.uint32) if bias_bits is None else np.asarray(bias_bits)
    sums = np.broadcast_to(start.astype(np.uint32), (vectors, outputs))
    flags = np.zeros((vectors, outputs), np.uint8)
    for block in range(blocks):
        channel = slice(block * rows, (block + 1) * rows)
        for kh in range(kernel_h):
            for kw in range(kernel_w):
                x_tile = x[
                    :,
                    kh : kh + (out_h - 1) * stride_h + 1 : stride_h,
                    kw : kw + (out_w - 1) * stride_w + 1 : stride_w,
                    channel,
                ].reshape(vectors, rows)
                w_tile = weights[:, channel, kh, kw].T
                sums, step_flags = column_dot(fmt, x_tile, w_tile, sums)
                flags |= step_flags
    shape = (batch, out_h, out_w, outputs)
    return sums.reshape(shape), flags.reshape(shape)


def linear(
    fmt: FloatFormat | IntFormat, x_bits, weight_bits, bias_bits=None, *, rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of a linear layer over a flattened map: a convolution whose kernel is the whole map.

    ``x_bits`` is (N, H, W, C); ``weight_bits`` is (O, C * H * W) with features in torch's order,
    channel outermost, as ``Flatten`` leaves them. Order of the K tiles, results and errors as for
    :func:`conv2d`; the sums have shape (N, 1, 1, O).
    """
    x, weights = np.asarray(x_bits), np.asarray(weight_bits)
    _, height, width, channels = x.shape
    if weights.ndim != 2 or weights.shape[1] != channels * height * width:
        raise ValueError(
            f"Weights of a linear layer over a {channels} x {height} x {width} map must have shape "
            f"(O, {channels * height * width}), not {weights.shape}"
        )
    kernel = weights.reshape(-1, channels, height, width)
    return conv2d(fmt, x, kernel, bias_bits, rows=rows)


def output_size(size: int, kernel: int, stride: int, padding: int = 0) -> int:
    """Output positions along one axis with ``padding`` lines at both ends together; a rest that
    does not fill a kernel is left over."""
    return (size + padding - kernel) // stride + 1


def pair(value) -> tuple[int, int]:
    """``value`` as (vertical, horizontal), from a number or a pair."""
    first, second = value if isinstance(value, tuple | list) else (value, value)
    return int(first), int(second)


def ends(padding) -> tuple[tuple[int, int], tuple[int, int]]:
    """((above, below), (left, right)) of ``padding``: one number, or one for each axis, each of
    which is a number of lines at both ends or a pair of them."""
    axes = padding if isinstance(padding, tuple | list) else (padding, padding)
    (above, below), (left, right) = map(pair, axes)
    return (above, below), (left, right)


def _check_shapes(x, weights, bias_bits, rows):
    problems = []
    if rows < 1:
        problems.append(f"rows must be at least 1, not {rows!r}")
    if x.ndim != 4:
        problems.append(f"x must have shape (N, H, W, C), not {x.shape}")
    if weights.ndim != 4:
        problems.append(f"weights must have shape (O, I, KH, KW), not {weights.shape}")
    if x.ndim == weights.ndim == 4 and x.shape[3] != weights.shape[1]:
        problems.append(f"x has {x.shape[3]} channels but weights are for {weights.shape[1]}")
    if bias_bits is not None and np.shape(bias_bits) != weights.shape[:1]:
        problems.append(f"bias must have shape {weights.shape[:1]}, not {np.shape(bias_bits)}")
    if problems:
        raise ValueError("; ".join(problems))
