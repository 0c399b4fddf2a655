"""The numbers of a fused product, as they go into the DRAM image and the commands."""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.formats import FLOAT32, FloatFormat

from .fusion import FusedProduct

__all__ = ["ProductParameters", "float_parameters", "identity_weights", "real_weights"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ProductParameters:
    """Bit patterns of one fused product.

    Members
    -------
    weights_bits : (O, I, KH, KW) operand codes. A linear layer's kernel is its whole input map, so
        reshaping to (O, I * KH * KW) gives torch's feature order.
    bias_bits : (O,) uint32, bits of float32 (int32) numbers, or None without a bias
    scale_field : the ``scale`` field of the post-processing command: the bits of the float32
        factor, 1 or 1/(window size); integers: multiplier in bits 0-15, shift in bits 16-21
    """

    weights_bits: np.ndarray
    bias_bits: np.ndarray | None
    scale_field: int


def float_parameters(product: FusedProduct, fmt: FloatFormat) -> ProductParameters:
    """Weights rounded once to ``fmt`` (nearest, ties to even), bias kept in float32."""
    window = 1
    if product.pool is not None and product.pool.kind == "average":
        window = product.pool.kernel[0] * product.pool.kernel[1]
    bias = None if product.module is None else product.module.bias
    return ProductParameters(
        weights_bits=encode(fmt, real_weights(product)),
        bias_bits=None if bias is None else encode(FLOAT32, bias.detach().numpy()),
        scale_field=int(encode(FLOAT32, 1.0 / window)),
    )


def real_weights(product: FusedProduct) -> np.ndarray:
    """The product's weights as real numbers (float64), shape (O, I, KH, KW)."""
    if product.module is None:
        return identity_weights(product.input_shape[0])
    weights = product.module.weight.detach().double().numpy()
    return weights.reshape(-1, product.input_shape[0], *product.kernel)


def identity_weights(channels: int) -> np.ndarray:
    """Weights (C, C, 1, 1) that pass every channel through."""
    return np.eye(channels)[:, :, np.newaxis, np.newaxis]
