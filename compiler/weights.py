"""Numbers into bytes: operand codes, and the weight words of an array."""

import numpy as np

__all__ = ["codes_of", "pack_weights", "storage"]


def storage(width):
    """NumPy type of a code of ``width`` bits."""
    return np.dtype(f"<u{max(1, width // 8)}")


def codes_of(fmt, values):
    """Codes (unsigned, same shape) of real ``values``.

    Floats round to the nearest, ties to even, overflow to infinity, results below the smallest
    normal number to zero; NaN becomes the canonical one. Integers round to the nearest, ties to
    even, and saturate.
    """
    values = np.asarray(values, dtype=np.float64)
    if not fmt.is_float:
        limit = 1 << (fmt.width - 1)
        integers = np.clip(np.rint(values), -limit, limit - 1).astype(np.int64)
        return (integers & (2 * limit - 1)).astype(storage(fmt.width))
    magnitude = np.where(np.isfinite(values), np.abs(values), 0.0)
    _, exponent = np.frexp(magnitude)
    # An integer number of units in the last place, as if the exponent had no limits.
    ulps = np.rint(np.ldexp(magnitude, fmt.mantissa_bits + 1 - exponent))
    rounded = np.ldexp(ulps, exponent - fmt.mantissa_bits - 1)
    fraction, exponent = np.frexp(rounded)
    biased = exponent.astype(np.int64) - 1 + fmt.bias
    mantissa = np.ldexp(fraction, fmt.mantissa_bits + 1).astype(np.int64)
    codes = (biased << fmt.mantissa_bits) + mantissa - (1 << fmt.mantissa_bits)
    codes = np.where((rounded == 0) | (biased <= 0), 0, codes)
    codes = np.where((biased >= fmt.exponent_max) | np.isinf(values), fmt.infinity, codes)
    codes = codes | np.where(np.signbit(values), 1 << (fmt.width - 1), 0)
    return np.where(np.isnan(values), fmt.nan, codes).astype(storage(fmt.width))


def pack_weights(stage, core):
    """Weights of ``stage`` as ``core`` reads them.

    Returns ``uint8 (column tiles, bytes of a tile)``. A tile is its bias words, if the stage has a
    bias, then for each K tile (blocks of ``rows`` input channels outermost, kernel row, kernel
    column) ``columns`` words of ``rows`` operands. Lanes without a channel are zero.
    """
    codes = stage.weight
    outputs, inputs, height, width = codes.shape
    tiles, blocks = -(-outputs // core.columns), -(-inputs // core.rows)
    padded = np.zeros((tiles * core.columns, blocks * core.rows, height, width), codes.dtype)
    padded[:outputs, :inputs] = codes
    padded = padded.reshape(tiles, core.columns, blocks, core.rows, height, width)
    words = np.ascontiguousarray(padded.transpose(0, 2, 4, 5, 1, 3))
    data = words.view(np.uint8).reshape(tiles, -1)
    if stage.bias is None:
        return data
    bias = np.zeros(tiles * core.columns, "<u4")
    bias[:outputs] = stage.bias
    head = np.zeros((tiles, core.bias_words * core.word_bytes), np.uint8)
    head[:, : core.columns * 4] = bias.reshape(tiles, -1).view(np.uint8)
    return np.concatenate([head, data], axis=1)
