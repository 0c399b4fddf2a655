"""Bounds of single layers of a training step: what golden may be off, given its stored operands.

Every function takes what golden's function takes and returns
:class:`golden.arithmetic.running_error.Estimate` objects: exact results and how far float32 may be
from them, by running error analysis of the operations in the order that docs/training.md states.
Nothing that golden computed goes in, except where an argument is one of its results. Exact results
are to be compared with torch's as well.
"""

import numpy as np
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import decode, dot_error_bound
from golden.arithmetic.running_error import Estimate, map_sum
from golden.layers.batch_norm import part_lines
from golden.layers.torch_convolution import conv2d

__all__ = [
    "average_pool",
    "average_pool_backward",
    "convolution",
    "cross_entropy",
    "label_cross_entropy",
    "depthwise",
    "mean_squared_error",
    "normalize",
    "normalize_backward",
    "scale_backward",
    "pool_backward_error",
    "statistics",
    "transposed",
    "update_running",
]


def convolution(
    fmt,
    x_bits,
    weight_bits,
    dy_bits=None,
    bias=None,
    *,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    rows,
):
    """Sums of a convolution and, with ``dy_bits``, of its gradients, before any rounding.

    ``{"y": ..., "dx": ..., "dw": ..., "db": ...}``; maps as (N, H, W, C), weights as torch's.
    ``bias`` is a float64 array or None. The columns' error follows from the magnitude of all terms,
    which is the same product of the operands' magnitudes, and from the number of K tiles.
    """
    geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    exact, reach = _products(fmt, x_bits, weight_bits, dy_bits, bias, geometry)
    outputs, _, *kernel = np.shape(weight_bits)
    taps = kernel[0] * kernel[1]
    tiles = {"y": taps * _words(np.shape(x_bits)[3], rows), "dx": taps * _words(outputs, rows)}
    if dy_bits is not None:
        tiles["dw"] = tiles["db"] = _words(int(np.prod(np.shape(dy_bits)[:3])), rows)
    return {
        key: Estimate(value, dot_error_bound(reach[key], tiles[key] * rows, rows))
        for key, value in exact.items()
    }


def transposed(fmt, x_bits, weight_bits, dy_bits, bias=None, *, size, rows, **geometry):
    """:func:`convolution` of a transposed convolution: the other way round, and a bias that is
    added to the rounded sum, whose gradient is a sum over the map."""
    back = convolution(fmt, dy_bits, weight_bits, x_bits, rows=rows, **geometry)
    y = back["dx"] if bias is None else back["dx"] + Estimate.exact(bias)
    dy = Estimate.bits(fmt, np.reshape(dy_bits, (len(dy_bits), -1, np.shape(dy_bits)[3])))
    return {"y": y, "dx": back["y"], "dw": back["dw"], "db": dy.sum_map()}


def depthwise(fmt, x_bits, weight_bits, dy_bits=None, bias=None, **geometry):
    """:func:`convolution` as the vector unit computes it, with a group for every channel.

    Each product is rounded, then added: to the sum of the taps before it, or to a partial sum.
    """
    geometry = dict(geometry, groups=np.shape(x_bits)[3])
    exact, reach = _products(fmt, x_bits, weight_bits, dy_bits, bias, geometry)
    taps = int(np.prod(np.shape(weight_bits)[2:]))
    terms = {"y": taps, "dx": taps}
    if dy_bits is not None:
        images, *pixels, _ = np.shape(dy_bits)
        terms["dw"] = terms["db"] = images * int(np.prod(pixels))
    estimates = {}
    for key, value in exact.items():
        # The bias gradient has no products: its terms are operands.
        error = 0.0 if key == "db" else 2.0**-24 * reach[key] + terms[key] * 2.0**-126
        if key in ("y", "dx"):
            estimates[key] = _chain(value, reach[key], error, terms[key])
        else:
            estimates[key] = map_sum(value, reach[key] + error, error, images, terms[key] // images)
    return estimates


def pool_backward_error(
    dy: Estimate, x_values, *, kernel, stride, padding=0, ceil_mode=False
) -> Estimate:
    """Gradient of max pooling: a pixel is the sum of at most all its windows' gradients."""
    x = _torch_map(x_values).requires_grad_()
    y = functional.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil_mode)
    exact, magnitude, error = (
        _numpy_map(torch.autograd.grad(y, x, _torch_map(part), retain_graph=True)[0])
        for part in (dy.value, np.abs(dy.value), np.broadcast_to(dy.error, dy.value.shape))
    )
    return _chain(exact, magnitude, error, _overlap(kernel, stride))


def average_pool(x: Estimate, *, include_pad=True, divisor=None, **window) -> Estimate:
    """Sum of a window, one addition after the other, times a rounded constant."""
    total, magnitude, error = (
        _window_sums(_torch_map(part), window)
        for part in (x.value, np.abs(x.value), np.broadcast_to(x.error, x.value.shape))
    )
    count = int(np.prod(window["kernel"]))
    sums = _chain(*(_numpy_map(part) for part in (total, magnitude, error)), count)
    shape = np.shape(x.value)[1:3]
    return sums * Estimate.constant(_shares(shape, include_pad, divisor, window))


def average_pool_backward(
    dy: Estimate, *, input_size, include_pad=True, divisor=None, **window
) -> Estimate:
    """Each window's gradient times a rounded constant, summed over the windows of a pixel."""
    share = dy * Estimate.constant(_shares(input_size, include_pad, divisor, window))
    x = torch.zeros(len(dy.value), dy.value.shape[3], *input_size, dtype=torch.float64)
    y = _window_sums(x.requires_grad_(), window)
    exact, magnitude, error = (
        _numpy_map(torch.autograd.grad(y, x, _torch_map(part), retain_graph=True)[0])
        for part in (share.value, np.abs(share.value), share.error)
    )
    return _chain(exact, magnitude, error, _overlap(window["kernel"], window["stride"]))


def _window_sums(x, window):
    kernel, stride = window["kernel"], window["stride"]
    padding, ceil_mode = window.get("padding", 0), window.get("ceil_mode", False)
    return functional.avg_pool2d(x, kernel, stride, padding, ceil_mode, divisor_override=1)


def _shares(size, include_pad, divisor, window):
    """(HO, WO, 1): what torch's average multiplies the sum of a window by."""
    ones = torch.ones(1, 1, *size, dtype=torch.float64)
    padding, ceil_mode = window.get("padding", 0), window.get("ceil_mode", False)
    average = functional.avg_pool2d(
        ones, window["kernel"], window["stride"], padding, ceil_mode, include_pad, divisor
    )
    return _numpy_map(average / _window_sums(ones, window))[0]


def statistics(x: Estimate, height: int, width: int):
    """(mean, variance) of pixels (N, height * width, C)."""
    images, pixels, channels = x.value.shape
    size = part_lines(height, width) * width
    parts = pixels // size
    share = Estimate.constant(1.0 / (images * parts))
    x = x.reshape(images * parts, size, channels)
    means = x.sum_images() * Estimate.constant(1.0 / size)
    deviation = x - means[:, None]
    squares = (deviation * deviation).sum_images().reshape(images, parts, channels)
    means = means.reshape(images, parts, channels)
    mean = means.sum_map() * share
    within = squares.sum_map() * Estimate.constant(1.0 / (images * pixels))
    deviation = means - mean
    return mean, (deviation * deviation).sum_map() * share + within


def normalize(x: Estimate, mean, variance, gamma, beta, *, epsilon):
    """``y``, ``inverse`` and ``a`` of pixels (..., C)."""
    root = (variance + Estimate.constant(epsilon)).root()
    inverse = Estimate.exact(1.0) / root
    a = gamma * inverse
    return x * a + (beta - mean * a), inverse, a


def normalize_backward(x: Estimate, dy: Estimate, mean, inverse, a):
    """(dx, dgamma, dbeta) of pixels (N, pixels of an image, C)."""
    reciprocal = Estimate.constant(1.0 / (x.value.shape[0] * x.value.shape[1]))
    shift = dy.sum_map()
    scale = (dy * (x - mean)).sum_map() * inverse
    c1 = -((a * inverse) * (scale * reciprocal))
    c0 = -(a * (shift * reciprocal) + mean * c1)
    return dy * a + (x * c1 + c0), scale, shift


def scale_backward(x: Estimate, dy: Estimate, mean, inverse, a):
    """The same where mean and variance are no statistics of the batch."""
    return dy * a, (dy * (x - mean)).sum_map() * inverse, dy.sum_map()


def update_running(running: Estimate, value: Estimate, momentum) -> Estimate:
    """``r + m * (s - r)``."""
    return running + Estimate.constant(momentum) * (value - running)


def cross_entropy(logits: Estimate, labels):
    """(loss, gradient before it is rounded to operands) of logits (N, classes)."""
    reciprocal = Estimate.constant(1.0 / len(logits.value))
    terms, gradient = _cross_entropy_rows(logits, labels)
    return terms.sum() * reciprocal, gradient * reciprocal


def label_cross_entropy(fmt, logits: Estimate, labels, *, smoothing=0.0, ignore=None):
    """(loss, gradient before it is rounded to operands for the last time), see
    :func:`golden.layers.label_loss.label_cross_entropy`.

    Rows that do not count add +0 to the loss, but have their places in its sum. The products with
    the shift of the gradient are rounded one by one, and their sum with the loss once.
    """
    rows, classes = logits.value.shape
    counts = np.ones(rows, bool) if ignore is None else labels != ignore
    number, used = int(counts.sum()), labels[counts]
    factor = Estimate.constant(1.0 / number)
    terms, new = _cross_entropy_rows(logits[counts], used)
    padded = Estimate(np.zeros(rows), np.zeros(rows))
    padded.value[counts], padded.error[counts] = terms.value, terms.error
    value = padded.sum() * factor
    new = (new * factor).round(fmt) if ignore is None else new.round(fmt) * factor
    if smoothing:
        shift = np.full(new.value.shape, -smoothing / (classes * number))
        shift[np.arange(number), used] += smoothing / number
        new = new + Estimate.constant(shift)
        products = logits[counts] * Estimate.constant(shift)
        exact = value.value + products.value.sum()
        error = value.error + products.error.sum()
        value = Estimate(exact, error + 2.0**-24 * (abs(exact) + error))
    gradient = Estimate(np.zeros((rows, classes)), np.zeros((rows, classes)))
    gradient.value[counts], gradient.error[counts] = new.value, new.error
    return value, gradient


def _cross_entropy_rows(logits, labels):
    """(loss of each row, gradient of their sum).

    The logarithm is off by at most 6 units of 2**-24 of its value, see
    :func:`golden.layers.loss.logarithm`.
    """
    hot = np.zeros(logits.value.shape, bool)
    hot[np.arange(len(logits.value)), labels] = True
    shifted = logits - Estimate.exact(logits.value.max(axis=1, keepdims=True))
    powers = shifted.exponential()
    total = _transposed(powers).sum()
    share = powers / Estimate(total.value[:, np.newaxis], total.error[:, np.newaxis])
    gradient = share - Estimate.exact(hot)
    value = np.log(total.value)
    error = -np.log1p(-total.error / total.value)
    logarithm = Estimate(value, error + 6 * 2.0**-24 * (value + error))
    picked = Estimate(shifted.value[hot], shifted.error[hot])
    return logarithm - picked, gradient


def mean_squared_error(y: Estimate, target: Estimate):
    """(loss, gradient before it is rounded to operands) of any shape."""
    difference = y - target
    count = difference.value.size
    squares = difference * difference
    loss = Estimate(squares.value.ravel(), squares.error.ravel()).sum()
    return loss * Estimate.constant(1.0 / count), difference * Estimate.constant(2.0 / count)


def _products(fmt, x_bits, weight_bits, dy_bits, bias, geometry):
    """Exact results of :func:`_gradients`, and those of the operands' magnitudes."""
    operands = x_bits, weight_bits, dy_bits
    values = [None if codes is None else decode(fmt, codes) for codes in operands]
    magnitudes = [None if value is None else np.abs(value) for value in values]
    return (
        _gradients(*values, bias, geometry),
        _gradients(*magnitudes, None if bias is None else np.abs(bias), geometry),
    )


def _gradients(x, weights, dy, bias, geometry):
    """Torch's float64 results; None stays out."""
    x = _torch_map(x).requires_grad_()
    weights = torch.from_numpy(np.ascontiguousarray(weights)).requires_grad_()
    bias = torch.zeros(len(weights), dtype=torch.float64) if bias is None else torch.tensor(bias)
    y = conv2d(x, weights, bias.requires_grad_(), **geometry)
    result = {"y": _numpy_map(y.detach())}
    if dy is not None:
        dx, dw, db = torch.autograd.grad(y, (x, weights, bias), _torch_map(dy))
        result |= {"dx": _numpy_map(dx), "dw": dw.numpy(), "db": db.numpy()}
    return result


def _chain(value, magnitude, error, terms):
    """A sum of at most ``terms`` float32 numbers, one after the other, from +0 on."""
    growth = (1.0 + 2.0**-24) ** terms
    return Estimate(
        value, error + (growth - 1.0) * (magnitude + error) + growth * terms * 2.0**-126
    )


def _overlap(kernel, stride):
    """Windows that share a pixel, at most."""
    return int(np.prod([-(-size // step) for size, step in zip(kernel, stride, strict=True)]))


def _transposed(estimate):
    return Estimate(estimate.value.T, estimate.error.T)


def _words(channels, rows):
    return -(-channels // rows)


def _torch_map(values):
    values = torch.from_numpy(np.array(values, np.float64))
    return values.permute(0, 3, 1, 2).contiguous()


def _numpy_map(values):
    return values.permute(0, 2, 3, 1).contiguous().numpy()
