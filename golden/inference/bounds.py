"""How far the bit-exact model may be from torch: a bound for every element, derived, not tuned.

Everything is computed from torch's values and from constants of the formats; nothing of the
bit-exact model goes in. For one fused product, let x be torch's input, w and b torch's weights and
bias, e >= |x' - x| the error of the stored input x', u the unit roundoff of the operand format
(2**-(mantissa bits + 1)) and K the products per output. Then the following add up:

1. operands: e * |w| + (|x| + e) * |w' - w|, convolved; |w' - w| <= u * |w|, or |w| where the
   weight is below the smallest normal number and may be flushed;
2. columns: :func:`golden.arithmetic.dot_product.dot_error_bound` of the magnitude |b| + (|x| + e) *
   |w'|;
3. torch itself: (K + 2) * unit * (|b| + |x| * |w|), with its own type's unit roundoff doubled, in
   any order of summation;
4. ReLU and max pooling add nothing; a maximum's error is at most the largest in its window. An
   average of n takes n - 1 float32 additions, one rounded constant and one multiplication, each
   with relative error 2**-24 of at most the sum of magnitudes, or a flush below 2**-126;
5. storing: u * |y| or a flush, where |y| is torch's output plus all the error so far.

Integers: weights and bias are off by at most half a unit, sums are exact, the multiplier of the
requantisation has a relative error, storing is off by half a unit and by what saturation cuts.

An element whose magnitude may overflow has an infinite bound.
"""

from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import decode, dot_error_bound
from golden.arithmetic.formats import FLOAT32, FloatFormat, IntFormat
from golden.arithmetic.running_error import rounding_error
from golden.layers.torch_convolution import conv2d

from .fusion import FusedProduct
from .network import Network
from .parameters import real_weights

__all__ = ["network_error_bounds", "product_error_bound"]

_UNIT = 2.0**-24
_FLUSH = FLOAT32.min_normal


def network_error_bounds(network: Network, images, *, dtype=torch.float32):
    """Run torch on ``images`` and bound the bit-exact network's error, product by product.

    The error of every product's input is carried along, from the rounding of the images on.

    Parameters
    ----------
    network : a chain of fused products, and flattening
    images : float (N, H, W, C)
    dtype : torch's type

    Returns
    -------
    list of (reference, bound)
        one pair of float64 (N, H, W, C) arrays per product: torch's values and the largest error
        that the bit-exact model's real values may have.
    """
    x = torch.from_numpy(np.array(np.moveaxis(np.asarray(images), 3, 1))).to(dtype)
    scale = network.scales.get(network.nodes[0].name, 1.0)
    error = _storing_error(network.format, np.abs(x.double().numpy()), scale)
    bounds = []
    for name, product in network.products.items():
        x = x.reshape(len(x), *product.input_shape)
        y, error = product_error_bound(network, name, x, error)
        bounds.append((_channels_last(y), _channels_last(error)))
        x = y
    return bounds


def product_error_bound(network: Network, name: str, x: torch.Tensor, error=0.0):
    """Torch's output of one fused product and the bound of the bit-exact model's error.

    Parameters
    ----------
    network, name : the product is ``network.products[name]``
    x : (N, C, H, W) torch's input
    error : bound of the error of the stored input; 0 if it equals ``x``

    Returns
    -------
    y : (N, C, H, W) torch's output, in ``x``'s type
    bound : float64 array of that shape
    """
    fmt, product = network.format, network.products[name]
    with torch.no_grad():
        y = product.reference(x)
        sums = _without_pool(product, x)
    unit = torch.finfo(x.dtype).eps
    x_magnitude = np.abs(x.double().numpy())
    reach = x_magnitude + error
    weights = np.abs(real_weights(product))
    bias = 0.0
    if product.module is not None and product.module.bias is not None:
        bias = np.abs(product.module.bias.detach().double().numpy())[:, np.newaxis, np.newaxis]
    products = weights[0].size

    weight_error, bias_error = _parameter_errors(network, name, weights)
    magnitude = bias + bias_error + _convolve(product, reach, weights + weight_error)
    bound = _convolve(product, np.broadcast_to(error, reach.shape), weights)
    bound = bound + _convolve(product, reach, weight_error) + bias_error
    bound = bound + (products + 2) * unit * (bias + _convolve(product, x_magnitude, weights))
    if fmt.is_float:
        steps = -(-weights.shape[1] // network.rows) * weights.shape[2] * weights.shape[3]
        bound = bound + dot_error_bound(magnitude, steps * network.rows, network.rows)
        limit = FLOAT32.max_finite
    else:
        limit = 2.0**31 * _input_scale(network, name) * _weight_scale(network, name)
    bound = np.where(magnitude + bound < limit, bound, np.inf)
    sums = np.abs(sums.double().numpy())
    bound = _pool_error(fmt, product.pool, sums, bound, unit, limit)
    return y, _output_error(network, name, np.abs(y.double().numpy()), bound)


def _parameter_errors(network, name, weights):
    """Bounds of |w' - w| and of |b' - b|."""
    fmt, product = network.format, network.products[name]
    if product.module is None:
        return np.zeros_like(weights), 0.0
    if fmt.is_float:
        error = rounding_error(fmt, weights)
        return np.where(weights + error > fmt.max_finite, np.inf, error), _FLUSH
    scale = _weight_scale(network, name)
    bias_error = _input_scale(network, name) * scale / 2 if product.module.bias is not None else 0.0
    return np.full_like(weights, scale / 2), bias_error


def _pool_error(fmt, pool, sums, bound, unit, limit):
    if pool is None:
        return bound
    if pool.kind == "max":
        return _pool(functional.max_pool2d, pool, bound)
    operations = pool.kernel[0] * pool.kernel[1] + 1
    mean_error = _pool(functional.avg_pool2d, pool, bound)
    mean = _pool(functional.avg_pool2d, pool, sums + bound)
    mean_error = mean_error + operations * unit * mean
    if fmt.is_float:
        growth = (1.0 + _UNIT) ** operations
        mean_error = mean_error + (growth - 1.0) * mean + growth * operations * _FLUSH
    return np.where(mean * operations < limit, mean_error, np.inf)


def _output_error(network, name, magnitude, bound):
    fmt, product = network.format, network.products[name]
    if not fmt.is_float:
        if product.wide:
            return bound
        field = network.parameters[name].scale_field
        multiplier = field & 0xFFFF
        bound = bound + (magnitude + bound) * (0.5 / max(multiplier, 0.5))
    elif product.wide:
        return bound
    return bound + _storing_error(fmt, magnitude + bound, network.scales.get(name, 1.0))


def _storing_error(fmt: FloatFormat | IntFormat, magnitude, scale):
    """Bound of the error of storing a number of at most ``magnitude`` as an operand."""
    if fmt.is_float:
        error = rounding_error(fmt, magnitude)
        return np.where(magnitude + error <= fmt.max_finite, error, np.inf)
    return scale / 2 + np.maximum(magnitude - fmt.maximum * scale, 0.0)


def _input_scale(network, name):
    (node,) = (node for node in network.nodes if node.name == name)
    return network.scales[node.inputs[0]]


def _weight_scale(network, name):
    """Real value of one unit of the product's integer weights."""
    product = network.products[name]
    if product.module is None:
        return 1.0
    fmt = network.format
    codes = np.abs(decode(fmt, network.parameters[name].weights_bits)).max()
    return np.abs(real_weights(product)).max() / codes if codes else 1.0 / fmt.maximum


def _without_pool(product: FusedProduct, x):
    return replace(product, relu=False, pool=None).reference(x)


def _convolve(product, x, weights):
    """Sums over the product's products of two non-negative arrays; infinite wherever one is."""
    if not (np.isfinite(x).all() and np.isfinite(weights).all()):
        return np.full((len(x), *product.sums_shape), np.inf)
    return conv2d(
        torch.from_numpy(np.array(x, np.float64)),
        torch.from_numpy(np.array(weights, np.float64)),
        stride=product.stride,
        padding=product.padding,
        dilation=product.dilation,
    ).numpy()


def _pool(function, pool, values):
    return function(torch.from_numpy(np.array(values)), pool.kernel, pool.stride).numpy()


def _channels_last(values):
    return np.moveaxis(np.asarray(values, np.float64), 1, 3)
