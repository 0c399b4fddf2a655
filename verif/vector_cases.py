"""Training layers as VECTOR commands on random maps, with what golden computes layer by layer."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from golden import backward, normalize
from golden import depthwise as vector_unit
from golden.formats import FLOAT32
from golden.gradients import weight_gradient
from golden.numerics import encode
from golden.optimizer import SGD, update
from golden.vector import constant
from verif import vector_sequences as sequences
from verif.vector_plan import Coefficient, Plan, View

__all__ = ["CASES", "Case"]

_EPSILON, _MOMENTUM = 1e-5, 0.1
#: Kernel, geometry, whether there is a bias. Phases with one tap and with none; taps that are
#: nowhere inside the map.
_DEPTHWISE = {
    "3x3": ((3, 3), {"padding": 1}, True),
    "3x3 strided": ((3, 3), {"stride": 2, "padding": 1}, False),
    "2x3 dilated": ((2, 3), {"stride": (1, 3), "padding": (2, 1), "dilation": (2, 1)}, True),
    "1x1 strided": ((1, 1), {"stride": 2}, True),
    "far taps": ((3, 1), {"padding": (6, 0), "dilation": (6, 1)}, False),
}
_POOLS = {"2x2": (2, 2, 0), "3x3 padded": (3, 2, 1)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan, the coefficient registers, and views with the bits they must hold at the end.

    ``flags`` is the union of what golden raises, ``rejected`` the number of tiles that its guard,
    which is on, keeps away from the weights.
    """

    plan: Plan
    expected: dict[str, tuple[View, np.ndarray]]
    flags: int
    coefficients: np.ndarray
    rejected: int


def _case(plan, expected, flags, coefficients=(0,) * 8, rejected=0):
    coefficients = np.array(coefficients, np.uint32)
    return Case(
        plan=plan, expected=expected, flags=flags, coefficients=coefficients, rejected=rejected
    )


def _map(rng, fmt, shape, *, special=0.0):
    """Operand codes with channels of different spread; equal numbers are frequent."""
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-2, 3, shape[3])
    values = np.where(rng.random(shape) < 0.5, np.round(values * 2) / 2, values)
    codes = encode(fmt, values)
    kinds = np.array([fmt.infinity, fmt.infinity | fmt.sign_bit, fmt.nan, fmt.sign_bit, 1])
    chosen = rng.random(shape) < special
    return np.where(chosen, rng.choice(kinds, shape), codes).astype(codes.dtype)


def _parameters(rng, channels, count):
    return [encode(FLOAT32, rng.standard_normal(channels)) for _ in range(count)]


def _special_numbers(rng, shape):
    """Float32 bits, with infinities, NaN, zeros and subnormal numbers among them."""
    kinds = [FLOAT32.infinity, 0xFF800000, FLOAT32.nan, 0xFFC01234, 1 << 31, 1, 0x80000005]
    chosen = rng.random(shape) < 0.1
    numbers = _parameters(rng, shape, 1)[0]
    return np.where(chosen, rng.choice(np.array(kinds, np.uint32), shape), numbers)


def normalization(rng, fmt, rows, shape):
    """Batch normalisation: statistics, forward, backward, running statistics."""
    channels, pixels = shape[3], int(np.prod(shape[:3]))
    x, dy = (_map(rng, fmt, shape, special=0.01) for _ in range(2))
    gamma, beta, running_mean, running_variance = _parameters(rng, channels, 4)
    plan = Plan(fmt, rows)
    maps = [plan.map(shape, contents=codes) for codes in (x, dy)]
    vectors = [plan.vector(channels, v) for v in (gamma, beta, running_mean, running_variance)]
    mean, variance = sequences.statistics(plan, maps[0])
    inverse, a, b, y = sequences.normalize(
        plan, maps[0], mean, variance, *vectors[:2], epsilon=_EPSILON
    )
    dx, dgamma, dbeta = sequences.normalize_backward(plan, *maps, mean=mean, inverse=inverse, a=a)
    sequences.update_running(plan, vectors[2], mean, momentum=_MOMENTUM)
    sequences.update_running(
        plan, vectors[3], variance, momentum=_MOMENTUM, factor=pixels / (pixels - 1)
    )

    batch = normalize.batch_statistics(fmt, x)
    (inverse_bits, a_bits, b_bits), flags = normalize.scale_and_shift(
        batch.mean, batch.variance, gamma, beta, epsilon=_EPSILON
    )
    y_bits, more = normalize.normalize(fmt, x, a_bits, b_bits)
    gradients = normalize.normalize_backward(
        fmt, x, dy, mean=batch.mean, inverse=inverse_bits, a=a_bits
    )
    running, last = normalize.update_running(
        running_mean, running_variance, batch, momentum=_MOMENTUM
    )
    expected = {
        "mean": (mean, batch.mean),
        "variance": (variance, batch.variance),
        "a": (a, a_bits),
        "b": (b, b_bits),
        "y": (y, y_bits),
        "dgamma": (dgamma, gradients.scale),
        "dbeta": (dbeta, gradients.shift),
        "dx": (dx, gradients.input),
        "running mean": (vectors[2], running[0]),
        "running variance": (vectors[3], running[1]),
    }
    return _case(plan, expected, batch.flags | flags | more | gradients.flags | last)


def pointwise(rng, fmt, rows, shape):
    """Residual addition and the mask of ReLU."""
    first, second = (_map(rng, fmt, shape, special=0.05) for _ in range(2))
    plan = Plan(fmt, rows)
    views = [plan.map(shape, contents=codes) for codes in (first, second)]
    total, flags = backward.residual_add(fmt, first, second)
    masked = np.where(backward.relu_mask(fmt, second), first, 0)
    # The engine reads subnormal operands as zeros and any NaN as the one that there is.
    masked = backward.round_sums(fmt, backward.widen(fmt, masked))[0]
    expected = {
        "sum": (sequences.residual_add(plan, *views), total),
        "masked": (sequences.relu_mask(plan, *views), masked),
    }
    return _case(plan, expected, flags)


def max_pooling(rng, fmt, rows, shape):
    """Forward with places, and backward; windows of 2 x 2 and of 3 x 3 that overlap."""
    x = _map(rng, fmt, shape, special=0.1)
    plan, expected, flags = Plan(fmt, rows), {}, 0
    view = plan.map(shape, contents=x)
    for name, (kernel, stride, padding) in _POOLS.items():
        geometry = {"kernel": kernel, "stride": stride, "padding": padding}
        y, index = sequences.max_pool(plan, view, **geometry)
        y_bits = backward.max_pool(fmt, x, **geometry)
        places = backward.first_maximum(fmt, x, **geometry)
        dy = _map(rng, fmt, y.shape)
        dx = sequences.max_pool_backward(
            plan, plan.map(y.shape, contents=dy), index, input_shape=shape, **geometry
        )
        dx_bits, more = backward.max_pool_backward(fmt, x, dy, **geometry)
        flags |= more
        # A copy of a subnormal operand is a zero.
        y_bits = backward.round_sums(fmt, backward.widen(fmt, y_bits))[0]
        expected |= {
            f"{name} y": (y, y_bits),
            f"{name} places": (index, encode(fmt, places.astype(np.float64))),
            f"{name} dx": (dx, dx_bits),
        }
    return _case(plan, expected, flags)


def average_pooling(rng, fmt, rows, shape):
    """Forward and backward; windows of 2 x 2, and of 3 x 3 that overlap."""
    x = _map(rng, fmt, shape, special=0.02)
    plan, expected, flags = Plan(fmt, rows), {}, 0
    view = plan.map(shape, contents=x)
    for kernel, stride in ((2, 2), (3, 2)):
        geometry = {"kernel": kernel, "stride": stride}
        y = sequences.average_pool(plan, view, **geometry)
        y_bits, more = backward.average_pool(fmt, x, **geometry)
        dy = _map(rng, fmt, y.shape)
        dx = sequences.average_pool_backward(
            plan, plan.map(y.shape, contents=dy), input_shape=shape, **geometry
        )
        dx_bits, last = backward.average_pool_backward(fmt, dy, input_size=shape[1:3], **geometry)
        flags |= more | last
        expected |= {f"{kernel}x{kernel} y": (y, y_bits), f"{kernel}x{kernel} dx": (dx, dx_bits)}
    return _case(plan, expected, flags)


def depthwise(rng, fmt, rows, shape):
    """Forward and all gradients, in the geometries of :data:`_DEPTHWISE`."""
    channels = shape[3]
    x, plan, expected, flags = _map(rng, fmt, shape, special=0.02), Plan(fmt, rows), {}, 0
    view = plan.map(shape, contents=x)
    for name, (kernel, geometry, biased) in _DEPTHWISE.items():
        weights = _map(rng, fmt, (channels, 1, *kernel), special=0.05)
        bias = _special_numbers(rng, (channels,)) if biased else None
        taps = plan.map((1, *kernel, channels), contents=np.moveaxis(weights, 0, 3))
        start = plan.vector(channels, bias) if biased else 0.0
        y = sequences.depthwise(plan, view, taps, start, **geometry)
        sums = sequences.depthwise(plan, view, taps, start, wide=True, **geometry)
        dy = _map(rng, fmt, y.shape, special=0.02)
        dy_view = plan.map(y.shape, contents=dy)
        sums_bits, forward = vector_unit.depthwise(fmt, x, weights, bias, **geometry)
        dx_bits, of_input = vector_unit.depthwise_input_gradient(
            fmt, dy, weights, input_size=shape[1:3], **geometry
        )
        dw_bits, of_weights = vector_unit.depthwise_weight_gradient(
            fmt, x, dy, kernel=kernel, **geometry
        )
        db_bits, of_bias = vector_unit.depthwise_bias_gradient(fmt, dy)
        rounded = [backward.round_sums(fmt, bits) for bits in (sums_bits, dx_bits)]
        flags |= forward | of_input | of_weights | of_bias | rounded[0][1] | rounded[1][1]
        dx = sequences.depthwise_input_gradient(plan, dy_view, taps, input_shape=shape, **geometry)
        dw = sequences.depthwise_weight_gradient(plan, view, dy_view, kernel=kernel, **geometry)
        expected |= {
            f"{name} y": (y, rounded[0][0]),
            f"{name} sums": (sums, sums_bits),
            f"{name} dx": (dx, rounded[1][0]),
            f"{name} dw": (dw, np.moveaxis(dw_bits, 0, 3)),
            f"{name} db": (sequences.depthwise_bias_gradient(plan, dy_view), db_bits),
        }
    return _case(plan, expected, flags)


def grouped_weights(rng, fmt, rows, shape):
    """A dense weight gradient with the entries between the groups taken out."""
    groups, outputs, inputs, kernel = 3, 2 * shape[3], 2, (2, 1)
    outputs += -outputs % groups
    x = _map(rng, fmt, (*shape[:3], groups * inputs), special=0.01)
    x[0, 0, 0, 0] = fmt.infinity  # beside dY of other groups, too
    geometry = {"kernel": kernel, "padding": (1, 0), "rows": rows}
    dy = _map(rng, fmt, (shape[0], shape[1] + 1, shape[2], outputs), special=0.01)
    dense, _ = weight_gradient(fmt, x, dy, **geometry)
    grouped, _ = weight_gradient(fmt, x, dy, groups=groups, **geometry)
    of_input, of_output = np.arange(x.shape[3]) // inputs, np.arange(outputs) * groups // outputs
    inside = of_input[:, np.newaxis] == of_output
    wanted = np.zeros((*kernel, *inside.shape), np.uint32)
    for o in range(outputs):
        wanted[:, :, inside[:, o], o] = np.moveaxis(grouped[o], 0, 2)
    plan = Plan(fmt, rows)
    gradient = plan.map(wanted.shape, wide=True, contents=dense.transpose(2, 3, 1, 0))
    mask = plan.map((1, 1, *inside.shape), contents=encode(fmt, inside))
    return _case(plan, {"dw": (sequences.group_mask(plan, gradient, mask), wanted)}, 0)


def descent(rng, fmt, rows, shape, *, bad=None):
    """SGD with momentum and weight decay in two pieces, coefficients in registers.

    ``bad`` is None, or "gradient" for an infinity or NaN in one piece, or "sum" for a finite
    gradient with which g + decay * w overflows. Weights and velocities hold special numbers.
    """
    optimizer = SGD(learning_rate=0.05, momentum=0.9, weight_decay=1e-3)
    weights, velocity = (_special_numbers(rng, shape) for _ in range(2))
    gradient = _parameters(rng, shape, 1)[0]
    place = tuple(int(rng.integers(size)) for size in shape)
    if bad == "gradient":
        gradient[place] = rng.choice([FLOAT32.infinity, FLOAT32.nan, 0xFF800000, 0xFFC01234])
    elif bad == "sum":
        gradient[place] = weights[place] = FLOAT32.infinity - 1
        velocity[place] = 0
    plan = Plan(fmt, rows)
    views = [plan.map(shape, wide=True, contents=v) for v in (weights, velocity, gradient)]
    names = ("weight_decay", "momentum", "learning_rate")
    decay, momentum, rate = (Coefficient(index=2 * i + 1) for i in range(3))
    parts = slice(0, shape[1] // 2), slice(shape[1] // 2, shape[1])
    pieces = [[view[part, :] for view in views] for part in parts]
    operands = sequences.update_sgd(plan, pieces, decay=decay, momentum=momentum, rate=rate)
    coefficients = np.zeros(8, np.uint32)
    coefficients[1:6:2] = [constant(getattr(optimizer, name)) for name in names]
    result = update(optimizer, fmt, weights, (velocity,), gradient, guard=True)
    assert result.skipped == int(bad == "gradient")
    if bad == "sum":
        assert result.slots[0][place] == FLOAT32.infinity
    expected = {
        "weights": (views[0], result.weights),
        "velocity": (views[1], result.slots[0]),
        "first operands": (operands[0], result.operands[:, parts[0]]),
        "second operands": (operands[1], result.operands[:, parts[1]]),
    }
    return _case(plan, expected, result.flags, coefficients, rejected=result.skipped)


#: Name -> function of (rng, golden format, rows, shape (N, H, W, C)).
CASES = {
    "normalization": normalization,
    "pointwise": pointwise,
    "max pooling": max_pooling,
    "average pooling": average_pooling,
    "depthwise": depthwise,
    "grouped weights": grouped_weights,
    "descent": descent,
    "guarded descent": partial(descent, bad="gradient"),
    "overflowing descent": partial(descent, bad="sum"),
}
