"""The numbers of a stage, as they go into the DRAM image and the commands."""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.formats import FLOAT32, FloatFormat

from .stages import Stage

__all__ = ["StageParameters", "float_parameters", "identity_weights"]


@dataclass(frozen=True, kw_only=True, eq=False)
class StageParameters:
    """Bit patterns of one stage.

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


def float_parameters(stage: Stage, fmt: FloatFormat) -> StageParameters:
    """Weights rounded once to ``fmt`` (nearest, ties to even), bias kept in float32."""
    window = 1
    if stage.pool is not None and stage.pool.kind == "average":
        window = stage.pool.kernel[0] * stage.pool.kernel[1]
    bias = None if stage.module is None else stage.module.bias
    return StageParameters(
        weights_bits=encode(fmt, real_weights(stage)),
        bias_bits=None if bias is None else encode(FLOAT32, bias.detach().numpy()),
        scale_field=int(encode(FLOAT32, 1.0 / window)),
    )


def real_weights(stage: Stage) -> np.ndarray:
    """The stage's weights as real numbers (float64), shape (O, I, KH, KW)."""
    if stage.module is None:
        return identity_weights(stage.input_shape[0])
    weights = stage.module.weight.detach().double().numpy()
    return weights.reshape(-1, stage.input_shape[0], *stage.kernel)


def identity_weights(channels: int) -> np.ndarray:
    """Weights (C, C, 1, 1) that pass every channel through."""
    return np.eye(channels)[:, :, np.newaxis, np.newaxis]
