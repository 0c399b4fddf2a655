"""int8 parameters of a network: symmetric, one scale per tensor, calibrated on a few images.

A real number r is stored as the integer r / scale, rounded to nearest (ties to even) and
saturated.

- Activations: scale = (largest magnitude over the calibration images) / 127, measured on torch's
  float32 network; for the network's input and for each product's output.
- Weights: scale = (largest magnitude in the layer) / 127. Identities: weight 1, scale 1, and
  the output keeps the input's scale, so that ReLU and max pooling pass integers on unchanged.
- Bias: int32 with scale (input scale · weight scale), that of the sums.
- Stored output = sums · m, m = input scale · weight scale / (output scale · window), where
  window is the number of elements an average pooling sums up. m is written as mult / 2**shift with
  ``shift`` up to 47 and ``mult`` a 16-bit number, as many significant bits as fit.
- The last product stores its int32 sums; one unit of them is worth its ``output scale``.

A tensor that is zero everywhere gets scale 1/127.
"""

import math

import numpy as np
import torch

from golden.arithmetic.dot_product import encode
from golden.arithmetic.formats import IntFormat

from .fusion import FusedProduct
from .parameters import ProductParameters, real_weights

__all__ = ["MULTIPLIER_BITS", "SHIFT_LIMIT", "quantize", "scale_field"]

MULTIPLIER_BITS = 16
SHIFT_LIMIT = 47


def quantize(
    nodes, fmt: IntFormat, images
) -> tuple[dict[str, ProductParameters], dict[str, float]]:
    """Choose all scales and quantise.

    Parameters
    ----------
    nodes : inputs, fused products and flattening, from :func:`golden.inference.fusion.fuse`
    images : float (N, H, W, C), the calibration images

    Returns
    -------
    parameters : :class:`ProductParameters` by name of a fused product
    scales : real value of one integer unit of every node's map

    Raises
    ------
    ValueError
        naming the layer, if a value is not finite or a factor out of range.
    """
    parameters: dict[str, ProductParameters] = {}
    scales: dict[str, float] = {}
    maps: dict[str, torch.Tensor] = {}
    for node in nodes:
        if node.kind == "input":
            values = np.asarray(images, np.float32).reshape(len(images), *node.shape[1:], -1)
            values = np.ascontiguousarray(np.moveaxis(values, 3, 1))
            maps[node.name] = torch.from_numpy(values)
            scales[node.name] = _tensor_scale(maps[node.name], fmt, "The input")
            continue
        (source,) = node.inputs
        if node.kind == "flatten":
            maps[node.name], scales[node.name] = maps[source], scales[source]
            continue
        product: FusedProduct = node.options["product"]
        with torch.no_grad():
            maps[node.name] = product.reference(maps[source].reshape(-1, *product.input_shape))
        parameters[node.name], scales[node.name] = _quantized(
            product, fmt, scales[source], maps[node.name]
        )
    return parameters, scales


def _quantized(product, fmt, input_scale, x):
    """Parameters of a product whose output is ``x`` in torch, and the scale of its output."""
    identity = product.module is None
    weights = real_weights(product)
    weight_scale = (
        1.0 if identity else _tensor_scale(weights, fmt, f"The weight of layer {product.name}")
    )
    sums_scale = input_scale * weight_scale
    pool = product.pool
    window = pool.kernel[0] * pool.kernel[1] if pool and pool.kind == "average" else 1
    if product.wide:
        output_scale = sums_scale / window
    elif identity:
        output_scale = input_scale
    else:
        output_scale = _tensor_scale(x, fmt, f"The output of layer {product.name}")
    factor = 1.0 if product.wide else sums_scale / output_scale / window
    bias = None if product.module is None else product.module.bias
    found = ProductParameters(
        weights_bits=encode(fmt, weights / weight_scale),
        bias_bits=None if bias is None else _int32_bits(bias, sums_scale),
        scale_field=_scale_field(factor, product),
    )
    return found, output_scale


def scale_field(factor: float) -> int:
    """``factor`` as the command's field: multiplier in bits 0-15, shift in bits 16-21.

    Nearest multiplier (ties to even) at the largest shift at which it has 16 bits; a factor too
    small for that uses shift 47 and fewer bits. Raises ``ValueError`` for factors that are not
    positive or reach 2**16.
    """
    if not 0 < factor < math.inf:
        raise ValueError(f"A scale factor must be positive and finite, not {factor!r}")
    shift = min(MULTIPLIER_BITS - math.frexp(factor)[1], SHIFT_LIMIT)
    multiplier = round(math.ldexp(factor, shift))
    if multiplier >> MULTIPLIER_BITS:
        shift -= 1
        multiplier = round(math.ldexp(factor, shift))
    if shift < 0:
        raise ValueError(f"A scale factor must be below 2**{MULTIPLIER_BITS}, not {factor!r}")
    return multiplier | shift << MULTIPLIER_BITS


def _tensor_scale(values, fmt, what):
    largest = float(abs(values).max())
    if not math.isfinite(largest):
        raise ValueError(f"{what} cannot be quantised: it is not finite")
    return (largest or 1.0) / fmt.maximum


def _scale_field(factor, product):
    try:
        return scale_field(factor)
    except ValueError as error:
        raise ValueError(f"Layer {product.name} cannot be quantised: {error}") from None


def _int32_bits(bias, scale):
    integers = np.rint(bias.detach().double().numpy() / scale)
    limits = np.iinfo(np.int32)
    return np.clip(integers, limits.min, limits.max).astype(np.int32).view(np.uint32)
