"""What gradient prediction computes between products: reorganised maps, sums, statistics.

The executable form of docs/prediction.md up to "Predictor", and of its "Gradient statistics". All
numbers are float32 bits (uint32) unless they are said to be operand codes; operations are those of
a :class:`golden.arithmetic.float32_unit.VectorUnit`, which collects their flags.
"""

import numpy as np

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.float32_unit import VectorUnit, constant
from golden.arithmetic.formats import FLOAT32
from golden.layers.conv_general import convolution
from golden.layers.elementwise_pool import relu_mask

__all__ = [
    "GRADIENT_STATISTICS",
    "INPUT_STATISTICS",
    "StatisticsRule",
    "channel_sum",
    "pool_windows",
    "positive",
    "predicted_gradient",
    "reorganize_map",
    "row_sum",
    "scaled_error",
    "standardize",
]

#: What the numbers of a layer's input statistics are, in order.
INPUT_STATISTICS = ("weight", "mean_sum", "variance_sum", "mean", "inverse")
#: The same of its gradient statistics.
GRADIENT_STATISTICS = (
    *("weight", "square", "product", "power"),
    *("scale", "inverse_scale", "gate", "factor"),
)
#: Consecutive rows whose sum :func:`row_sum` makes first.
ROW_BLOCK = 32

_ZERO, _ONE = constant(0.0), constant(1.0)
#: Added to the mean square of a gradient, so that its root is not zero.
_SMALLEST_SQUARE = constant(2.0**-100)
#: Added to the variance of a reorganised map.
_SMALLEST_VARIANCE = constant(1e-8)


def pool_windows(size: int, pooled: int) -> list[tuple[int, int]]:
    """Windows of adaptive pooling along one axis, as (start, end) with the end outside.

    Window i of ``pooled`` begins at ⌊i · size / pooled⌋ and ends before ⌈(i + 1) · size / pooled⌉.
    Neighbours overlap where the division leaves a rest, and repeat pixels where ``size`` is smaller
    than ``pooled``. It is the definition that torch has as well.
    """
    return [(i * size // pooled, -(-(i + 1) * size // pooled)) for i in range(pooled)]


def positive(bits) -> np.ndarray:
    """True where a float32 number is positive or NaN."""
    return relu_mask(FLOAT32, bits)


def reorganize_map(unit: VectorUnit, y, size: int) -> np.ndarray:
    """``y`` (N, H, W, O), float32 bits, as (size * size, O): mean over the batch and windows.

    Sums begin with their first element: over images, over columns of a window, over its rows.
    """
    images, height, width = y.shape[:3]
    total = _running_sum(unit, y)
    columns = pool_windows(width, size)
    lines = [_running_sum(unit, np.moveaxis(total[:, slice(*part)], 1, 0)) for part in columns]
    cells = []
    for top, bottom in pool_windows(height, size):
        for line, (left, right) in zip(lines, columns, strict=True):
            count = images * (bottom - top) * (right - left)
            window = _running_sum(unit, line[top:bottom])
            cells.append(unit.multiply(window, constant(1.0 / count)))
    return np.stack(cells)


def channel_sum(unit: VectorUnit, fmt, values, rows: int) -> np.ndarray:
    """Sum of ``values`` (O,): rounded to operands, then a product with ones in K tiles."""
    codes = unit.round(fmt, values)
    ones = encode(fmt, np.ones((1, len(codes), 1, 1)))
    sums, flags = convolution(fmt, codes.reshape(1, 1, 1, -1), ones, rows=rows)
    unit.flags |= int(flags[0, 0, 0, 0])
    return sums[0, 0, 0, 0]


def row_sum(unit: VectorUnit, values) -> np.ndarray:
    """Sum (O,) over the rows of ``values`` (n, O): of each block of 32, then of the blocks."""
    blocks = [
        unit.sum(values[first : first + ROW_BLOCK]) for first in range(0, len(values), ROW_BLOCK)
    ]
    return blocks[0] if len(blocks) == 1 else unit.sum(np.stack(blocks))


def standardize(unit: VectorUnit, fmt, cells, statistics) -> np.ndarray:
    """Operand codes (S * S + 1, O) of ``cells`` (S * S, O) less mean, times inverse; then ones."""
    mean, inverse = statistics[3:]
    codes = unit.round(fmt, unit.multiply(unit.subtract(cells, mean), inverse))
    return np.concatenate([codes, encode(fmt, np.ones((1, codes.shape[1])))])


def scaled_error(unit: VectorUnit, fmt, gradient, output, statistics) -> np.ndarray:
    """Operand codes of ``gradient`` in units of the layer's scale, less ``output``; any shape."""
    target = unit.multiply(gradient, statistics[5])
    return unit.round(fmt, unit.subtract(target, output))


def predicted_gradient(unit: VectorUnit, output, statistics) -> np.ndarray:
    """``output`` of the predictor times scale and gate."""
    return unit.multiply(output, statistics[7])


class StatisticsRule:
    """How statistics of a layer take in a batch.

    Parameters
    ----------
    fmt : operand format
    rows : lanes of a K tile of the core that predicts
    running : weight of the past; it and one less it are constants
    guard : leave statistics as they are when the batch's numbers are not all finite
    """

    def __init__(self, fmt, *, rows: int, running: float, guard: bool):
        self.fmt, self.rows, self.guard = fmt, rows, guard
        self._old, self._new = constant(running), constant(1 - running)

    def observe_input(self, unit: VectorUnit, statistics, cells):
        """New :data:`INPUT_STATISTICS` with a reorganised map (S * S, O); rejected, 0 or 1."""
        reciprocal = constant(1.0 / cells.size)
        mean = unit.multiply(self._sum(unit, unit.sum(cells)), reciprocal)
        deviation = unit.subtract(cells, mean)
        squares = unit.sum(unit.multiply(deviation, deviation))
        variance = unit.multiply(self._sum(unit, squares), reciprocal)
        sums, rejected = self._running(unit, statistics[:3], [_ONE, mean, variance])
        if rejected:
            return statistics, 1
        mean, variance = unit.divide(sums[1:], sums[0])
        root = unit.square_root(unit.add(variance, _SMALLEST_VARIANCE))
        return _statistics(*sums, mean, unit.divide(_ONE, root)), 0

    def observe_gradient(self, unit: VectorUnit, statistics, gradient, output):
        """New :data:`GRADIENT_STATISTICS` with a true gradient (n, O) and what was predicted."""
        reciprocal = constant(1.0 / gradient.size)
        new = [_ONE]
        for a, b in ((gradient, gradient), (output, gradient), (output, output)):
            total = self._sum(unit, row_sum(unit, unit.multiply(a, b)))
            new.append(unit.multiply(total, reciprocal))
        sums, rejected = self._running(unit, statistics[:4], new)
        if rejected:
            return statistics, 1
        weight, square, product, power = sums
        scale = unit.square_root(unit.add(unit.divide(square, weight), _SMALLEST_SQUARE))
        inverse = unit.divide(_ONE, scale)
        gate = unit.divide(product, unit.multiply(scale, power))
        gate = np.where(positive(power), gate, _ZERO)
        gate = np.where(positive(gate) & (gate > _ONE), _ONE, gate)  # NaN has larger bits
        gate = np.where(positive(gate), gate, _ZERO)
        return _statistics(*sums, scale, inverse, gate, unit.multiply(gate, scale)), 0

    def _sum(self, unit, values):
        return channel_sum(unit, self.fmt, values, self.rows)

    def _running(self, unit, old, new):
        """Running sums, and whether the guard keeps the old ones."""
        new = _statistics(*new)
        if self.guard and not np.isfinite(decode(FLOAT32, new)).all():
            return old, True
        return unit.add(unit.multiply(old, self._old), unit.multiply(new, self._new)), False


def _statistics(*values):
    return np.array(values, np.uint32)


def _running_sum(unit, values):
    """Over the first axis, from its first element on."""
    total = values[0]
    for value in values[1:]:
        total = unit.add(total, value)
    return total
