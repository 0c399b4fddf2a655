"""Layers between products as sequences of VECTOR commands.

Every function appends commands to a :class:`verif.vector_plan.Plan` and returns views of what they
leave; the results are those of docs/training.md, bit for bit.
"""

import numpy as np

from golden.vector_command import Carry, Condition, Factor, Term, Watch
from golden.windows import Windows

__all__ = [
    "average_pool",
    "average_pool_backward",
    "depthwise",
    "depthwise_bias_gradient",
    "depthwise_input_gradient",
    "depthwise_weight_gradient",
    "group_mask",
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
    windows = Windows(x.shape, kernel, stride, padding)
    best, index = plan.map(windows.shape), plan.map(windows.shape)
    plan.fill(best, float("-inf"))
    # The first place of each window: minus infinity is not larger than what is there already.
    for place, outputs in _first_places(windows):
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
    windows = Windows(input_shape, kernel, stride, padding)
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
    windows = Windows(x.shape, kernel, stride)
    total = plan.map(windows.shape, wide=True)
    for place, outputs, pixels in windows.places():
        if place == 0:
            plan.emit(total[outputs], x[pixels])
        else:
            plan.add(total[outputs], total[outputs], x[pixels])
    return plan.scale(plan.map(windows.shape), total, _share(windows))


def average_pool_backward(plan, dy, *, input_shape, kernel, stride):
    """Gradient of the input: every pixel adds the shares of its windows."""
    windows = Windows(input_shape, kernel, stride)
    total = plan.map(input_shape, wide=True)
    plan.fill(total, 0.0)
    for _, outputs, pixels in reversed(windows.places()):
        plan.scale_add(total[pixels], dy[outputs], _share(windows), total[pixels])
    return plan.emit(plan.map(input_shape), total)


def depthwise(plan, x, weights, bias=0.0, *, wide=False, **geometry):
    """Depthwise convolution; ``wide`` leaves float32 sums.

    Parameters
    ----------
    weights : operands (1, KH, KW, C)
    bias : vector, or +0
    geometry : stride, padding and dilation
    """
    windows = Windows(x.shape, weights.shape[1:3], **geometry)
    y = plan.map(windows.shape, wide=wide)
    terms = [
        (outputs, x[pixels], _tap(weights, place)) for place, outputs, pixels in windows.places()
    ]
    _accumulate(plan, y, y if wide else plan.map(y.shape, wide=True), bias, terms)
    return y


def depthwise_input_gradient(plan, dy, weights, *, input_shape, **geometry):
    """Gradient of the input of :func:`depthwise`, phase by phase of the stride."""
    windows = Windows(input_shape, weights.shape[1:3], **geometry)
    (step_h, step_w), terms = windows.stride, {}
    for place, outputs, pixels in reversed(windows.places()):
        phase, lines = [], []
        for step, output, pixel in zip(windows.stride, outputs, pixels, strict=True):
            first, start = pixel.start // step, pixel.start % step
            phase.append(start)
            lines.append(slice(first, first + output.stop - output.start))
        term = tuple(lines), dy[outputs], _tap(weights, place)
        terms.setdefault(tuple(phase), []).append(term)
    dx, total = plan.map(input_shape), plan.map(input_shape, wide=True)
    for a in range(min(step_h, input_shape[1])):
        for b in range(min(step_w, input_shape[2])):
            phase = np.s_[a::step_h, b::step_w]
            _accumulate(plan, dx[phase], total[phase], 0.0, terms.get((a, b), []))
    return dx


def depthwise_weight_gradient(plan, x, dy, *, kernel, **geometry):
    """Gradient of the weights of :func:`depthwise`, float32 (1, KH, KW, C)."""
    windows = Windows(x.shape, kernel, **geometry)
    dw = plan.map((1, *windows.kernel, x.shape[3]), wide=True)
    inside = {place: parts for place, *parts in windows.places()}
    for place in range(windows.kernel[0] * windows.kernel[1]):
        if place in inside:
            outputs, pixels = inside[place]
            plan.emit(_tap(dw, place), x[pixels], dy[outputs], factor=Factor.Y, reduce=1)
        else:
            plan.fill(_tap(dw, place), 0.0)
    return dw


def depthwise_bias_gradient(plan, dy):
    """Gradient of the bias of :func:`depthwise`: a vector."""
    return plan.emit(plan.vector(dy.shape[3]), dy, reduce=1)


def group_mask(plan, gradient, mask):
    """+0 in place of those entries of a dense weight gradient that lie between groups.

    ``gradient`` is float32 (KH, KW, I, O) and changed in place; ``mask`` (1, 1, I, O) holds
    operands, 1 within the groups and +0 elsewhere.
    """
    return plan.emit(gradient, gradient, z=mask, condition=Condition.POSITIVE)


def update_sgd(plan, pieces, *, decay, momentum, rate):
    """Update a parameter in place; returns the operand copy of every piece.

    With the engine's guard on, an infinity or NaN in the gradient of any piece leaves all of them
    as they were: all gradients are read once before the first change.

    Parameters
    ----------
    pieces : [(weights, velocity, gradient)] of float32 maps, the whole parameter
    decay, momentum, rate : coefficient registers or numbers
    """
    watch = Watch.FIRST
    for *_, gradient in pieces:
        # Reads only: all steps write the same zeros.
        plan.emit(plan.map((1, 1, 1, gradient.shape[3])), 0.0, gradient, watch=watch, over=gradient)
        watch = Watch.MORE
    operands = []
    for weights, velocity, gradient in pieces:
        step = plan.map(weights.shape, wide=True)
        plan.scale_add(step, weights, decay, gradient, guarded=1)
        plan.scale_add(velocity, velocity, momentum, step, guarded=1)
        plan.scale_add(weights, velocity, rate, weights, negate_product=1, guarded=1)
        operands.append(plan.emit(plan.map(weights.shape), weights))
    return operands


def _accumulate(plan, y, total, start, terms):
    """``start`` and the products of all terms, added up in float32, one term after the other.

    The first product meets ``start`` without a pass that stores it, and the last sum goes to ``y``
    without one that rounds it; only what these two leave out takes commands of its own.

    Parameters
    ----------
    y : map of results, as operands, or ``total`` itself
    total : float32 map of the same shape, for what is in between
    start : vector or number
    terms : [(lines of y, map, vector)]; lines are two slices of step 1
    """
    if not terms:
        plan.emit(y, start)
    for number, (lines, x, factor) in enumerate(terms):
        first, last = number == 0, number == len(terms) - 1
        before, after = start if first else total[lines], y if last else total
        plan.scale_add(after[lines], x, factor, before)
        if first or (last and y is not total):
            for rest in _outside(y.shape, lines):
                plan.emit(after[rest], start if first else total[rest])


def _tap(weights, place):
    """Vector of a place of the kernel."""
    kh, kw = divmod(place, weights.shape[2])
    return weights[kh : kh + 1, kw : kw + 1]


def _share(windows):
    return 1.0 / (windows.kernel[0] * windows.kernel[1])


def _outside(shape, lines):
    """Rectangles (rows, columns) of a map (N, H, W, C) that ``lines`` leave out."""
    (rows, columns), (height, width) = lines, shape[1:3]
    parts = (
        (slice(0, rows.start), slice(0, width)),
        (slice(rows.stop, height), slice(0, width)),
        (rows, slice(0, columns.start)),
        (rows, slice(columns.stop, width)),
    )
    return [part for part in parts if all(p.start < p.stop for p in part)]


def _first_places(windows):
    """[(place, outputs)]: rectangles of windows by the first place inside the map."""
    rows, columns = (_first_offsets(windows, axis) for axis in range(2))
    return [(kh * windows.kernel[1] + kw, (r, c)) for kh, r in rows for kw, c in columns]


def _first_offsets(windows, axis):
    """[(offset, outputs)] along one axis, by the offset of the first line inside."""
    groups = {}
    for output in range(windows.shape[1 + axis]):
        offset = max(0, windows.padding[axis] - output * windows.stride[axis])
        groups.setdefault(offset, []).append(output)
    return [(offset, slice(found[0], found[-1] + 1)) for offset, found in groups.items()]
