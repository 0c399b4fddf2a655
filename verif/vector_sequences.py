"""Layers between products as sequences of VECTOR commands.

Every function appends commands to a :class:`verif.vector_plan.Plan` and returns views of what they
leave; the results are those of docs/training.md, bit for bit.
"""

from golden.layers import output_size, pair
from golden.vector_command import Carry, Condition, Factor, Term, Watch

__all__ = [
    "average_pool",
    "average_pool_backward",
    "max_pool",
    "max_pool_backward",
    "normalize",
    "normalize_backward",
    "relu_mask",
    "residual_add",
    "statistics",
    "update_running",
    "update_sgd",
]


def statistics(plan, x):
    """Mean and variance of every channel."""
    channels, pixels = x.shape[3], x.shape[0] * x.shape[1] * x.shape[2]
    mean, variance = plan.vector(channels), plan.vector(channels)
    plan.emit(mean, x, reduce=1)
    plan.scale(mean, mean, 1.0 / pixels)
    plan.emit(variance, x, mean, term=Term.SUBTRACT, factor=Factor.U, reduce=1)
    plan.scale(variance, variance, 1.0 / pixels)
    return mean, variance


def normalize(plan, x, mean, variance, gamma, beta, *, epsilon):
    """(inverse, a, b, y) of a map."""
    inverse, a, b = (plan.vector(x.shape[3]) for _ in range(3))
    plan.add(inverse, variance, epsilon)
    plan.root(inverse, inverse)
    plan.divide(inverse, 1.0, inverse)
    plan.scale(a, gamma, inverse)
    plan.scale_add(b, mean, a, beta, negate_product=1)
    return inverse, a, b, plan.scale_add(plan.map(x.shape), x, a, b)


def normalize_backward(plan, x, dy, *, mean, inverse, a):
    """(dx, dgamma, dbeta), with one float32 map in between."""
    channels, pixels = x.shape[3], x.shape[0] * x.shape[1] * x.shape[2]
    dbeta, dgamma, c1, negative_c0, share = (plan.vector(channels) for _ in range(5))
    plan.emit(dbeta, dy, reduce=1)
    plan.emit(dgamma, x, mean, dy, term=Term.SUBTRACT, factor=Factor.Z, reduce=1)
    plan.scale(dgamma, dgamma, inverse)
    plan.scale(share, dgamma, 1.0 / pixels)
    plan.scale(c1, a, inverse)
    plan.scale(c1, c1, share, negate_product=1)
    plan.scale(share, dbeta, 1.0 / pixels)
    plan.scale(share, share, a)
    plan.scale_add(negative_c0, mean, c1, share)
    between = plan.map(x.shape, wide=True)
    plan.scale_add(between, x, c1, negative_c0, negate_carry=1)
    return plan.scale_add(plan.map(x.shape), dy, a, between), dgamma, dbeta


def update_running(plan, running, value, *, momentum, factor=None):
    """``running + momentum * (factor * value - running)``, in place."""
    if factor is not None:
        value = plan.scale(plan.vector(value.shape[3]), value, factor)
    return plan.emit(
        running, value, running, momentum, term=Term.SUBTRACT, factor=Factor.Z, carry=Carry.Y,
        add=1,
    )  # fmt: skip


def residual_add(plan, x, y):
    """Sum of two maps."""
    return plan.add(plan.map(x.shape), x, y)


def relu_mask(plan, dy, y):
    """Gradient of ReLU, ``y`` being its stored output."""
    return plan.emit(plan.map(dy.shape), dy, z=y, condition=Condition.POSITIVE)


def max_pool(plan, x, *, kernel, stride, padding=0):
    """(maxima, places): place ``kh * KW + kw`` as a number, exact in the operand format."""
    windows = _Windows(x.shape, kernel, stride, padding)
    best, index = plan.map(windows.shape), plan.map(windows.shape)
    plan.fill(best, float("-inf"))
    # The first place of each window: minus infinity is not larger than what is there already.
    for place, outputs in windows.first_places():
        plan.fill(index[outputs], place)
    for place, outputs, pixels in windows.places():
        plan.emit(
            index[outputs], x[pixels], best[outputs], index[outputs], term=Term.IMMEDIATE,
            immediate=place, condition=Condition.GREATER, carry=Carry.Z, keep=1,
        )  # fmt: skip
        plan.emit(
            best[outputs], x[pixels], best[outputs], condition=Condition.GREATER, carry=Carry.Y,
            keep=1,
        )  # fmt: skip
    return best, index


def max_pool_backward(plan, dy, index, *, input_shape, kernel, stride, padding=0):
    """Gradient of the input: every pixel adds the gradients of the windows it is the maximum of."""
    windows = _Windows(input_shape, kernel, stride, padding)
    total = plan.map(input_shape, wide=True)
    plan.fill(total, 0.0)
    for place, outputs, pixels in reversed(windows.places()):
        plan.emit(
            total[pixels], dy[outputs], total[pixels], index[outputs], term=Term.ADD,
            immediate=place, condition=Condition.EQUAL, carry=Carry.Y, keep=1,
        )  # fmt: skip
    return plan.emit(plan.map(input_shape), total)


def average_pool(plan, x, *, kernel, stride):
    """Sum of each window, place by place, times a constant."""
    windows = _Windows(x.shape, kernel, stride, 0)
    total = plan.map(windows.shape, wide=True)
    for place, outputs, pixels in windows.places():
        if place == 0:
            plan.emit(total[outputs], x[pixels])
        else:
            plan.add(total[outputs], total[outputs], x[pixels])
    return plan.scale(plan.map(windows.shape), total, windows.share)


def average_pool_backward(plan, dy, *, input_shape, kernel, stride):
    """Gradient of the input: every pixel adds the shares of its windows."""
    windows = _Windows(input_shape, kernel, stride, 0)
    total = plan.map(input_shape, wide=True)
    plan.fill(total, 0.0)
    for _, outputs, pixels in reversed(windows.places()):
        plan.scale_add(total[pixels], dy[outputs], windows.share, total[pixels])
    return plan.emit(plan.map(input_shape), total)


def update_sgd(plan, weights, velocity, gradient, *, decay, momentum, rate):
    """Weights and velocity in place; the operand copy. Coefficients are registers or numbers.

    With the engine's guard on, an infinity or NaN in the gradient leaves everything as it was; that
    takes a pass over the gradient of its own.
    """
    step = plan.map(weights.shape, wide=True)
    plan.emit(step, 0.0, gradient, watch=Watch.FIRST)
    plan.scale_add(step, weights, decay, gradient, guarded=1)
    plan.scale_add(velocity, velocity, momentum, step, guarded=1)
    plan.scale_add(weights, velocity, rate, weights, negate_product=1, guarded=1)
    return plan.emit(plan.map(weights.shape), weights)


class _Windows:
    """Places of pooling windows: slices of the outputs and of the pixels that lie there."""

    def __init__(self, shape, kernel, stride, padding):
        self.kernel, self.stride, self.padding = pair(kernel), pair(stride), pair(padding)
        self.size = shape[1:3]
        self.outputs = tuple(
            output_size(*sizes)
            for sizes in zip(self.size, self.kernel, self.stride, self.padding, strict=True)
        )
        self.shape = (shape[0], *self.outputs, shape[3])

    @property
    def share(self):
        return 1.0 / (self.kernel[0] * self.kernel[1])

    def places(self):
        """[(place, outputs, pixels)] of places that any window has inside the map."""
        result = []
        for kh in range(self.kernel[0]):
            for kw in range(self.kernel[1]):
                lines = [self._lines(axis, offset) for axis, offset in enumerate((kh, kw))]
                if all(lines):
                    outputs, pixels = zip(*lines, strict=True)
                    result.append((kh * self.kernel[1] + kw, outputs, pixels))
        return result

    def first_places(self):
        """[(place, outputs)]: rectangles of windows by the first place inside the map."""
        rows, columns = self._first(0), self._first(1)
        return [(kh * self.kernel[1] + kw, (r, c)) for kh, r in rows for kw, c in columns]

    def _first(self, axis):
        """[(offset, outputs)] along one axis, by the offset of the first line inside."""
        groups = {}
        for output in range(self.outputs[axis]):
            offset = max(0, self.padding[axis] - output * self.stride[axis])
            groups.setdefault(offset, []).append(output)
        return [(offset, slice(found[0], found[-1] + 1)) for offset, found in groups.items()]

    def _lines(self, axis, offset):
        """(outputs, lines of the map) whose window has ``offset`` on a line; None for none."""
        size, step = self.size[axis], self.stride[axis]
        first = offset - self.padding[axis]
        low = max(0, -(first // step))
        high = min(self.outputs[axis], (size - 1 - first) // step + 1)
        if high <= low:
            return None
        start = first + low * step
        return slice(low, high), slice(start, first + (high - 1) * step + 1, step)
