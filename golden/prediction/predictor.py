"""The predictor as the accelerator holds it: forward, backward and update, bit for bit.

The executable form of the section "Predictor" of docs/prediction.md, and of its "Gradients". S * S
*cells* of c channels make F = c * S * S features.
"""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.float32_unit import VectorUnit, constant, widen
from golden.arithmetic.formats import FLOAT32
from golden.layers import conv_gradients
from golden.layers.conv_general import convolution
from golden.layers.elementwise_pool import relu_mask
from golden.layers.optimizer import SGD, update

from .arithmetic import positive
from .config import PredictorConfig
from .float_predictor import Predictor

__all__ = ["PredictorForward", "PredictorGradients", "PredictorNetwork", "initial_taps"]

_ZERO = constant(0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictorForward:
    """Of a layer with n weights for each of O output channels.

    Members
    -------
    hidden_sums : Hw, (F, O) float32 bits
    hidden : H, (F + 1, O) operand codes, the last row ones
    output : out, (n, O) float32 bits, in units of the layer's scale
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    """

    hidden_sums: np.ndarray
    hidden: np.ndarray
    output: np.ndarray
    flags: int


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictorGradients:
    """Of the mean squared error of one layer's output; float32 bits where nothing else is said.

    Members
    -------
    weights : dV, (n, F + 1), the last column that of the bias
    hidden_sums : dHw, (F, O), not yet multiplied by -2 / (n * O)
    hidden : dH, (F, O) operand codes
    toeplitz : dT, (S * S + 1, F) operand codes
    taps : dtaps, (10, c)
    rejected : 0 or 1 by "predictor_weights" and "taps": what the guard left as it was
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    """

    weights: np.ndarray
    hidden_sums: np.ndarray
    hidden: np.ndarray
    toeplitz: np.ndarray
    taps: np.ndarray
    rejected: dict[str, int]
    flags: int


def initial_taps(config: PredictorConfig) -> np.ndarray:
    """Float32 bits (10, c) of the convolution as it begins: row 3 * di + dj of kernel line di and
    column dj, row 9 of the bias. They depend on the number of channels and the seed alone."""
    start = Predictor((1,), config)
    kernel, bias = (values.detach().numpy() for values in start.convolution.parameters())
    return encode(FLOAT32, np.concatenate([kernel.reshape(-1, 9).T, bias[np.newaxis]]))


class PredictorNetwork:
    """A 3 x 3 convolution as a matrix over cells, ReLU, one fully connected layer.

    Parameters
    ----------
    fmt : operand format
    largest : n of the largest layer
    config : its channels, map_size and seed count
    rows : lanes of a K tile of the core that predicts

    Members
    -------
    weights, velocity : V, (largest, F + 1) float32 bits; column F is the bias
    operands : codes of the weights
    taps, taps_velocity : (10, c) float32 bits: row 3 * di + dj of kernel line di and column dj,
        row 9 of the bias
    toeplitz : T, (S * S + 1, F) operand codes of the taps: row of an input cell, the last one of
        the bias; column cell * c + channel
    """

    def __init__(self, fmt, *, largest: int, config: PredictorConfig, rows: int):
        self.format, self.rows = fmt, rows
        self.size, self.channels = config.map_size, config.channels
        self._places = _tap_places(self.size)
        self.taps = initial_taps(config)
        self.weights = np.zeros((largest, config.features + 1), np.uint32)
        self.velocity, self.taps_velocity = np.zeros_like(self.weights), np.zeros_like(self.taps)
        self._copy_operands()

    def state(self) -> dict:
        """Copies of the four float32 arrays."""
        names = ("weights", "velocity", "taps", "taps_velocity")
        return {name: getattr(self, name).copy() for name in names}

    def restore(self, state: dict) -> None:
        """Go on from what :meth:`state` returned."""
        for name, values in state.items():
            setattr(self, name, values.copy())
        self._copy_operands()

    def forward(self, cells, rows: int) -> PredictorForward:
        """Predict for standardised ``cells`` (S * S + 1, O) the first ``rows`` of all rows."""
        unit = VectorUnit()
        sums, flags = conv_gradients.weight_gradient(
            self.format, _as_map(self.toeplitz), _as_map(cells), kernel=1, rows=self.rows
        )
        sums = sums[:, :, 0, 0].T
        hidden = unit.round(self.format, np.where(positive(sums), sums, _ZERO))
        hidden = np.concatenate([hidden, encode(self.format, np.ones((1, hidden.shape[1])))])
        output, more = convolution(
            self.format, _as_map(self.operands[:rows]), _as_kernel(hidden.T), rows=self.rows
        )
        return PredictorForward(
            hidden_sums=sums,
            hidden=hidden,
            output=output[0, :, 0],
            flags=unit.flags | _union(flags) | _union(more),
        )

    def learn(self, cells, done: PredictorForward, error, optimizer: SGD, *, guard: bool):
        """One step that makes ``error`` (n, O), operand codes of target less output, smaller."""
        fmt, unit, count = self.format, VectorUnit(), len(error)
        factor = constant(-2.0 / error.size)
        sums, flags = conv_gradients.input_gradient(
            fmt,
            _as_map(error),
            _as_kernel(done.hidden.T),
            input_size=(count, 1),
            rows=self.rows,
        )
        weights = unit.multiply(sums[0, :, 0], factor)
        features = len(done.hidden) - 1
        hidden_sums, more = conv_gradients.weight_gradient(
            fmt,
            _as_map(self.operands[:count, :features]),
            _as_map(error),
            kernel=1,
            rows=self.rows,
        )
        hidden_sums = hidden_sums[:, :, 0, 0].T
        mask = relu_mask(fmt, done.hidden[:features])
        hidden = unit.round(fmt, np.where(mask, hidden_sums, _ZERO))
        sums, last = conv_gradients.input_gradient(
            fmt, _as_map(cells), _as_kernel(hidden.T), input_size=(len(cells), 1), rows=self.rows
        )
        toeplitz = unit.round(fmt, unit.multiply(sums[0, :, 0], factor))
        taps = self._sum_taps(unit, toeplitz)
        rejected, new_flags = self._update(weights, taps, optimizer, guard)
        return PredictorGradients(
            weights=weights,
            hidden_sums=hidden_sums,
            hidden=hidden,
            toeplitz=toeplitz,
            taps=taps,
            rejected=rejected,
            flags=unit.flags | _union(flags) | _union(more) | _union(last) | new_flags,
        )

    def _update(self, weights, taps, optimizer, guard):
        part = slice(len(weights))
        first = update(
            optimizer,
            self.format,
            self.weights[part],
            (self.velocity[part],),
            weights,
            guard=guard,
        )
        self.weights[part], (self.velocity[part],) = first.weights, first.slots
        second = update(optimizer, self.format, self.taps, (self.taps_velocity,), taps, guard=guard)
        self.taps, (self.taps_velocity,) = second.weights, second.slots
        self._copy_operands()
        rejected = {"predictor_weights": first.skipped, "taps": second.skipped}
        return rejected, first.flags | second.flags

    def _copy_operands(self):
        unit = VectorUnit()
        self.operands = unit.round(self.format, self.weights)
        codes = unit.round(self.format, self.taps)
        cells = self.size**2
        toeplitz = np.zeros((cells + 1, cells, self.channels), codes.dtype)
        for tap, (inner, outer) in zip(codes, self._places, strict=False):
            toeplitz[inner, outer] = tap
        toeplitz[cells] = codes[9]
        self.toeplitz = toeplitz.reshape(cells + 1, -1)

    def _sum_taps(self, unit, toeplitz):
        """(10, c): for each tap the sum over cells of the output, in order."""
        cells = self.size**2
        values = widen(self.format, toeplitz).reshape(cells + 1, cells, self.channels)
        taps = [unit.sum(values[inner, outer]) for inner, outer in self._places]
        return np.stack([*taps, unit.sum(values[cells])])


def _tap_places(size):
    """For each of the nine taps the cells it reads and those it writes, by cells it writes."""
    cells = np.arange(size * size)
    places = []
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            line, column = cells // size + down, cells % size + right
            inside = (line >= 0) & (line < size) & (column >= 0) & (column < size)
            places.append(((line * size + column)[inside], cells[inside]))
    return places


def _as_map(matrix):
    """(1, rows, 1, columns)."""
    return matrix[np.newaxis, :, np.newaxis]


def _as_kernel(matrix):
    """(outputs, inputs, 1, 1)."""
    return matrix[:, :, np.newaxis, np.newaxis]


def _union(flags):
    return int(np.bitwise_or.reduce(flags, axis=None))
