"""Checks a batch of ADA-GP training number by number against float64, within derived bounds.

Every number is computed anew from the bits that were stored before it, so its bound is that of its
own operations (:mod:`golden.arithmetic.running_error`; products by
:func:`golden.arithmetic.dot_product.dot_error_bound`). Torch pools and convolves, so the matrix
that the accelerator makes of the predictor's taps is checked too. The predictor's state is followed
through the batch in NumPy's float32.
"""

import numpy as np
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import decode, dot_error_bound, encode
from golden.arithmetic.formats import FLOAT32
from golden.arithmetic.running_error import Estimate, columns_error, worst_excess

__all__ = ["PredictionCheck", "float32_sgd"]

_BLOCK = 32


class PredictionCheck:
    """What of a batch's predictions is out of bound or otherwise wrong, as text.

    Parameters
    ----------
    training : :class:`golden.prediction.step.PredictedTraining`, after the batch
    before : its ``state()`` before the batch
    result : :class:`golden.prediction.step.PredictedStep`, with finite numbers only

    Members
    -------
    complaints : list of str, one for every tensor that is wrong
    """

    def __init__(self, training, before, result):
        self.training, self.before, self.result = training, before, result
        self.format, self.rows = training.format, training.predictor_rows
        self.complaints = []
        values = before["predictor"]
        self._state = {name: _float32(bits) for name, bits in values.items()}
        backward = result.phase.backpropagates
        for name, layer in reversed(training.layers.items()):
            part = result.layers[name]
            self._layer, self._name = layer, name
            self._input(part, backward)
            self._forward(part)
            if backward:
                self._statistics(part)
                self._learning(part)
            else:
                statistics = training.gradient_statistics[name]
                self._same("gradient statistics", statistics, before["gradient_statistics"][name])
                factor = self._bits(statistics[7])
                self._compare("g", part.gradient, self._bits(part.predictor.output) * factor)
        self._final_state()

    def _input(self, part, backward):
        name, old = self._name, self.before["input_statistics"][self._name]
        new = self.training.input_statistics[name]
        stored = self.result.forward.outputs[self._layer.source]
        y = decode(FLOAT32 if stored.dtype == np.uint32 else self.format, stored)
        size = round(len(part.cells) ** 0.5)
        pooled = functional.adaptive_avg_pool2d(torch.tensor(y.mean(0)).permute(2, 0, 1), size)
        self._compare(
            "a", part.cells, _reorganized(y, size), pooled.permute(1, 2, 0).reshape(size**2, -1)
        )
        cells = self._bits(part.cells)
        if backward:
            reciprocal = Estimate.constant(1.0 / cells.value.size)
            mean = self._channel_sum(cells.sum()) * reciprocal
            deviation = cells - mean
            variance = self._channel_sum((deviation * deviation).sum()) * reciprocal
            exact = [1.0, cells.value.mean(), cells.value.var()]
            self._running(
                "input statistics", old, new, [Estimate.exact(1.0), mean, variance], exact
            )
            weight, mean_sum, variance_sum = (self._bits(bits) for bits in new[:3])
            root = (variance_sum / weight + Estimate.constant(1e-8)).root()
            self._compare("mean", new[3], mean_sum / weight)
            self._compare("inverse", new[4], Estimate.exact(1.0) / root)
        else:
            self._same("input statistics", new, old)
        standard = ((cells - self._bits(new[3])) * self._bits(new[4])).round(self.format)
        self._compare("A", part.standardized[:-1], standard, operands=True)
        self._same("ones of A", decode(self.format, part.standardized[-1]), 1.0)

    def _forward(self, part):
        cells, taps = decode(self.format, part.standardized), self._operands("taps")
        size = round(len(part.cells) ** 0.5)
        exact = _convolve(cells, taps, size)
        reach = _convolve(np.abs(cells), np.abs(taps), size)
        done = part.predictor
        self._compare("Hw", done.hidden_sums, self._columns(exact, reach, len(cells)))
        sums = decode(FLOAT32, done.hidden_sums)
        self._same("H", done.hidden[:-1], encode(self.format, np.where(sums > 0, sums, 0.0)))
        self._same("ones of H", decode(self.format, done.hidden[-1]), 1.0)
        weights = self._operands("weights")[: self._layer.size]
        self._compare("out", done.output, self._product(weights, decode(self.format, done.hidden)))

    def _statistics(self, part):
        name, old = self._name, self.before["gradient_statistics"][self._name]
        new = self.training.gradient_statistics[name]
        true = self.result.parameter_gradients[self._layer.parameter]
        shape = self._layer.kernel
        rows = torch.from_numpy(true.reshape(shape).astype(np.int64)).permute(2, 3, 1, 0)
        self._same("g", part.gradient, rows.reshape(-1, shape[0]).numpy())
        gradient, output = self._bits(part.gradient), self._bits(part.predictor.output)
        reciprocal = Estimate.constant(1.0 / gradient.value.size)
        values, exact = [Estimate.exact(1.0)], [1.0]
        for a, b in ((gradient, gradient), (output, gradient), (output, output)):
            values.append(self._channel_sum(_row_sum(a * b)) * reciprocal)
            exact.append((a.value * b.value).mean())
        self._running("gradient statistics", old, new, values, exact)
        weight, square, product, power, scale, inverse, gate = (self._bits(n) for n in new[:7])
        root = (square / weight + Estimate.constant(2.0**-100)).root()
        self._compare("scale", new[4], root)
        self._compare("inverse scale", new[5], Estimate.exact(1.0) / scale)
        if power.value > 0:
            # Clamping brings two numbers closer together, if anything.
            quotient = product / (scale * power)
            clamped = Estimate(np.clip(quotient.value, 0.0, 1.0), quotient.error)
            self._compare("gate", new[6], clamped)
        else:
            self._same("gate", gate.value, 0.0)
        self._compare("factor", new[7], gate * scale)
        error = (gradient * inverse - output).round(self.format)
        self._compare("E", part.error, error, operands=True)

    def _learning(self, part):
        learned, size = part.learned, round(len(part.cells) ** 0.5)
        cells, error = decode(self.format, part.standardized), decode(self.format, part.error)
        hidden = decode(self.format, part.predictor.hidden)
        factor = Estimate.constant(-2.0 / error.size)
        self._compare("dV", learned.weights, self._product(error, hidden.T) * factor)
        weights = self._operands("weights")[: len(error), :-1]
        self._compare("dHw", learned.hidden_sums, self._product(weights.T, error))
        sums = decode(FLOAT32, learned.hidden_sums)
        passed = encode(self.format, np.where(hidden[:-1] > 0, sums, 0.0))
        self._same("dH", learned.hidden, passed)
        backward = decode(self.format, learned.hidden)
        toeplitz = (self._product(cells, backward.T) * factor).round(self.format)
        self._compare("dT", learned.toeplitz, toeplitz, operands=True)
        exact = factor.value * _taps_gradient(cells, backward, size)
        self._compare("dtaps", learned.taps, _tap_sums(toeplitz, size), exact)
        optimizer = self.training.predictor_rate, self.training.predictor_momentum
        for name, speed, rows, gradient in (
            ("weights", "velocity", len(error), learned.weights),
            ("taps", "taps_velocity", 10, learned.taps),
        ):
            new = float32_sgd(
                self._state[name][:rows], self._state[speed][:rows], _float32(gradient), *optimizer
            )
            self._state[name][:rows], self._state[speed][:rows] = new

    def _final_state(self):
        predictor = self.training.predictor
        for name, values in self._state.items():
            self._same(f"predictor's {name}", _float32(getattr(predictor, name)), values)
        self._same("predictor's operands", predictor.operands, self._round(predictor.weights))
        size, taps = predictor.size, self._round(predictor.taps)
        # Column (cell, channel) of T is what a map with a one in that cell gets of the taps.
        for cell in range(size**2):
            ones = np.zeros((size**2 + 1, 1))
            ones[cell] = 1.0
            row = _convolve(ones, decode(self.format, taps), size)[:, 0]
            self._same(f"T[{cell}]", decode(self.format, predictor.toeplitz[cell]), row)
        last = np.tile(taps[9], size**2)
        self._same(f"T[{size**2}]", predictor.toeplitz[size**2], last)

    def _running(self, what, old, new, values, exact):
        """The running sums at the beginning of a layer's statistics."""
        running = self.training.predictor_running
        factors = Estimate.constant(running), Estimate.constant(1 - running)
        for number, (value, real) in enumerate(zip(values, exact, strict=True)):
            past = self._bits(old[number])
            estimate = past * factors[0] + value * factors[1]
            reference = past.value * running + real * (1 - running)
            self._compare(f"{what}, {number}", new[number], estimate, reference)

    def _channel_sum(self, values):
        values = values.round(self.format)
        total = self._columns(
            values.value.sum(), (np.abs(values.value) + values.error).sum(), len(values.value)
        )
        return Estimate(total.value, total.error + values.error.sum())

    def _product(self, a, b):
        """``a`` (M, K) times ``b`` (K, C) in the array."""
        return self._columns(a @ b, np.abs(a) @ np.abs(b), a.shape[1])

    def _columns(self, exact, reach, terms):
        lanes = -(-terms // self.rows) * self.rows
        return columns_error(exact, dot_error_bound(reach, lanes, self.rows))

    def _bits(self, bits):
        return Estimate.bits(FLOAT32, bits)

    def _round(self, bits):
        return encode(self.format, decode(FLOAT32, bits))

    def _operands(self, name):
        """Values of the predictor's operand copies as they are at this layer."""
        return decode(self.format, encode(self.format, self._state[name].astype(np.float64)))

    def _compare(self, what, codes, estimate, reference=None, *, operands=False):
        actual = decode(self.format if operands else FLOAT32, codes)
        reference = estimate.value if reference is None else np.asarray(reference)
        ratio, place = worst_excess(actual, reference, estimate.error)
        if not ratio <= 1:
            self.complaints.append(
                f"{self._name}: {what}{list(place)} is {actual[place]}, float64 "
                f"{reference[place]}, {ratio:.3g} bounds away"
            )

    def _same(self, what, actual, expected):
        actual, expected = np.broadcast_arrays(actual, expected)
        if wrong := np.argwhere(actual != expected).tolist():
            place = tuple(wrong[0])
            self.complaints.append(
                f"{self._name}: {what}{wrong[0]} is {actual[place]}, not {expected[place]}"
            )


def float32_sgd(weights, velocity, gradient, rate, momentum, decay=0.0):
    """New (weights, velocity) of float32 arrays, each operation rounded, subnormals flushed."""
    rate, momentum, decay = (np.float32(number) for number in (rate, momentum, decay))
    gradient = _flushed(gradient + _flushed(decay * weights))
    velocity = _flushed(_flushed(momentum * velocity) + gradient)
    return _flushed(weights - _flushed(rate * velocity)), velocity


def _flushed(values):
    return np.where(np.abs(values) < FLOAT32.min_normal, np.copysign(0, values), values)


def _float32(bits):
    return decode(FLOAT32, bits).astype(np.float32)


def _reorganized(y, size):
    """Estimate of (size * size, O) of ``y`` (N, H, W, O), in the order of additions."""
    total = _added(Estimate.exact(image) for image in y)
    cells = []
    for i in range(size):
        for j in range(size):
            (top, bottom), (left, right) = (
                (k * length // size, -(-(k + 1) * length // size))
                for k, length in zip((i, j), y.shape[1:3], strict=True)
            )
            lines = _added(total[:, column] for column in range(left, right))[top:bottom]
            window = _added(lines[number] for number in range(bottom - top))
            count = len(y) * (bottom - top) * (right - left)
            cells.append(window * Estimate.constant(1.0 / count))
    return _stack(cells)


def _added(values):
    total, *others = values
    for value in others:
        total = total + value
    return total


def _row_sum(values):
    """Of rows in blocks, then of the blocks."""
    count = len(values.value)
    blocks = [values[first : first + _BLOCK].sum() for first in range(0, count, _BLOCK)]
    return blocks[0] if len(blocks) == 1 else _stack(blocks).sum()


def _stack(estimates):
    return Estimate(np.stack([e.value for e in estimates]), np.stack([e.error for e in estimates]))


def _convolve(cells, taps, size):
    """Torch's 3 x 3 convolution of (size * size + 1, O) cells: (cells * channels, O).

    The last row is what multiplies the bias.
    """
    outputs, channels = cells.shape[1], taps.shape[1]
    maps = torch.from_numpy(cells[:-1].T.reshape(outputs, 1, size, size).copy())
    kernel = torch.from_numpy(taps[:9].T.reshape(channels, 1, 3, 3).copy())
    sums = functional.conv2d(maps, kernel, padding=1).numpy().reshape(outputs, channels, -1)
    sums = sums + taps[9][:, np.newaxis] * cells[-1][:, np.newaxis, np.newaxis]
    return sums.transpose(2, 1, 0).reshape(-1, outputs)


def _taps_gradient(cells, backward, size):
    """Torch's gradient (10, c) of :func:`_convolve`'s taps from that of its output."""
    outputs = cells.shape[1]
    maps = torch.from_numpy(cells[:-1].T.reshape(outputs, 1, size, size).copy())
    dy = torch.from_numpy(backward.reshape(size, size, -1, outputs).transpose(3, 2, 0, 1).copy())
    kernel = torch.zeros(dy.shape[1], 1, 3, 3, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(functional.conv2d(maps, kernel, padding=1), kernel, dy)
    return np.concatenate([found.numpy().reshape(-1, 9).T, dy.sum((0, 2, 3)).numpy()[np.newaxis]])


def _tap_sums(toeplitz, size):
    """Estimate of (10, c): the sums over the cells of each tap."""
    shape = (size**2 + 1, size, size, -1)
    grid = Estimate(toeplitz.value.reshape(shape), toeplitz.error.reshape(shape))
    rows = []
    for tap in range(9):
        pairs = [
            ((i + tap // 3 - 1) * size + j + tap % 3 - 1, i, j)
            for i in range(size)
            for j in range(size)
            if 0 <= i + tap // 3 - 1 < size and 0 <= j + tap % 3 - 1 < size
        ]
        index = tuple(np.array(pairs, int).reshape(-1, 3).T)
        rows.append(grid[index].sum())
    last = grid[size**2]
    flat = (size**2, last.value.shape[-1])
    rows.append(Estimate(last.value.reshape(flat), last.error.reshape(flat)).sum())
    return _stack(rows)
