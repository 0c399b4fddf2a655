"""Layers between products on random maps, with what golden computes layer by layer."""

from functools import partial
from math import prod

import numpy as np

from compiler.codegen.view import Coefficient
from compiler.kernels.convolution import depthwise as compiled
from compiler.kernels.convolution.conv_geometry import Convolution
from compiler.kernels.convolution.part_statistics import statistics_shape
from compiler.kernels.maps import elementwise, pooling
from compiler.kernels.normalization.batch_norm import batch_norm
from compiler.kernels.normalization.batch_norm_backward import batch_norm_backward
from compiler.kernels.updates.update import update
from compiler.tensors.parameters import CORRECTIONS, StoredParameter, lanes
from compiler.training.optimizer import Optimizer
from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.float32_unit import constant
from golden.arithmetic.formats import FLOAT32
from golden.layers import batch_norm as normalize
from golden.layers import depthwise as golden_depthwise
from golden.layers import elementwise_pool
from golden.layers import optimizer as golden_optimizer

from .layer_programs import LayerProgram

__all__ = ["CASES"]

_EPSILON, _MOMENTUM = 1e-5, 0.1

#: Kernel, stride, padding: windows apart, overlapping and with gaps between them.
_POOLS = {
    "2x2": ((2, 2), (2, 2), (0, 0)),
    "3x3 padded": ((3, 3), (2, 2), (1, 1)),
    "1x2 with gaps": ((1, 2), (2, 3), (0, 1)),
}
#: Kernel, geometry, whether there is a bias. Phases with one tap and with none; taps that are
#: nowhere inside the map.
_DEPTHWISE = {
    "3x3": ((3, 3), (1, 1), (1, 1), (1, 1), True),
    "3x3 strided": ((3, 3), (2, 2), (1, 1), (1, 1), False),
    "2x3 dilated": ((2, 3), (1, 3), (2, 1), (2, 1), True),
    "1x1 strided": ((1, 1), (2, 2), (0, 0), (1, 1), True),
    "far taps": ((3, 1), (1, 1), (6, 0), (6, 1), False),
}
_AVERAGES = {"2x2": ((2, 2), (2, 2)), "3x2": ((3, 2), (2, 1)), "1x1": ((1, 1), (2, 2))}


def random_map(rng, fmt, shape, *, special=0.0):
    """Operand codes with channels of different spread; equal numbers are frequent."""
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-2, 3, shape[3])
    values = np.where(rng.random(shape) < 0.5, np.round(values * 2) / 2, values)
    codes = encode(fmt, values)
    kinds = np.array([fmt.infinity, fmt.infinity | fmt.sign_bit, fmt.nan, fmt.sign_bit, 1])
    chosen = rng.random(shape) < special
    return np.where(chosen, rng.choice(kinds, shape), codes).astype(codes.dtype)


def random_numbers(rng, shape, *, special=0.0):
    """Float32 bits, with infinities, NaN, zeros and subnormal numbers among them."""
    kinds = [FLOAT32.infinity, 0xFF800000, FLOAT32.nan, 0xFFC01234, 1 << 31, 1, 0x80000005]
    chosen = rng.random(shape) < special
    numbers = encode(FLOAT32, rng.standard_normal(shape))
    return np.where(chosen, rng.choice(np.array(kinds, np.uint32), shape), numbers)


def _read(fmt, codes):
    """Codes as the engine copies them: subnormal operands are zeros, any NaN is the one NaN."""
    return elementwise_pool.round_sums(fmt, elementwise_pool.widen(fmt, codes))[0]


def elements(rng, config, shape):
    """Addition, ReLU and its gradient, and a gradient of three readers."""
    case = LayerProgram(config=config)
    fmt = case.format
    codes = [random_map(rng, fmt, shape, special=0.05) for _ in range(3)]
    a, b, c = (case.map(name, shape, part) for name, part in zip("abc", codes, strict=True))
    total, twice, rectified, masked, three = (
        case.map(name, shape) for name in ("total", "twice", "rectified", "masked", "three")
    )
    case.layer(elementwise.add, a, b, total)
    case.layer(elementwise.add, a, a, twice)
    case.layer(elementwise.relu, total, rectified)
    case.layer(elementwise.relu_backward, c, rectified, masked)
    case.layer(elementwise.sum_gradients, [c, b, a], three)
    total_codes, flags = elementwise_pool.residual_add(fmt, *codes[:2])
    case.expect(total, total_codes, flags)
    case.expect(twice, *elementwise_pool.residual_add(fmt, codes[0], codes[0]))
    rectified_codes = elementwise_pool.relu(fmt, total_codes)
    case.expect(rectified, rectified_codes)
    mask = elementwise_pool.relu_mask(fmt, rectified_codes)
    case.expect(masked, _read(fmt, np.where(mask, codes[2], 0)))
    case.expect(three, *elementwise_pool.sum_gradients(fmt, codes[::-1]))
    return case


def normalization(rng, config, shape, *, relu=False, known=False):
    """Batch normalisation: statistics, forward, backward, running statistics; ``known``: those of
    the parts are there."""
    case = LayerProgram(config=config)
    fmt, channels = case.format, shape[3]
    x_codes, dy_codes = (random_map(rng, fmt, shape, special=0.01) for _ in range(2))
    names = ("gamma", "beta", "running_mean", "running_variance")
    numbers = [random_numbers(rng, channels) for _ in names]
    vectors = {
        name: case.parameter(name, channels, part)
        for name, part in zip(names, numbers, strict=True)
    }
    vectors |= {name: case.parameter(name, channels) for name in ("mean", "inverse", "a")}
    x, dy = case.map("x", shape, x_codes), case.map("dy", shape, dy_codes)
    y, dx = case.map("y", shape), case.map("dx", shape)
    dgamma, dbeta = (case.parameter(name, channels) for name in ("dgamma", "dbeta"))
    options = {"epsilon": _EPSILON, "momentum": _MOMENTUM, "relu": relu}
    parts, flags = normalize.part_statistics(fmt, x_codes)
    size = statistics_shape(shape)
    statistics = case.parameter("statistics", size, parts if known else None)
    case.layer(batch_norm, x, y, statistics, *vectors.values(), **options, known=known)
    saved = [vectors[name] for name in ("mean", "inverse", "a")]
    case.layer(batch_norm_backward, x, dy, dx, *saved, dgamma, dbeta, y=y if relu else None)

    if not known:
        case.expect(statistics, parts, flags)
    batch = normalize.combine(parts, count=prod(shape[:3]))
    (inverse, a, b), flags = normalize.scale_and_shift(
        batch.mean, batch.variance, *numbers[:2], epsilon=_EPSILON
    )
    case.expect(vectors["mean"], batch.mean, batch.flags)
    case.expect(vectors["inverse"], inverse, flags)
    case.expect(vectors["a"], a)
    y_codes, flags = normalize.normalize(fmt, x_codes, a, b)
    if relu:
        y_codes = elementwise_pool.relu(fmt, y_codes)
        dy_codes = np.where(elementwise_pool.relu_mask(fmt, y_codes), dy_codes, 0)
    case.expect(y, y_codes, flags)
    gradients = normalize.normalize_backward(
        fmt, x_codes, dy_codes, mean=batch.mean, inverse=inverse, a=a
    )
    case.expect(dx, gradients.input, gradients.flags)
    case.expect(dgamma, gradients.scale)
    case.expect(dbeta, gradients.shift)
    running, flags = normalize.update_running(*numbers[2:], batch, momentum=_MOMENTUM)
    case.expect(vectors["running_mean"], running[0], flags)
    case.expect(vectors["running_variance"], running[1])
    return case


def max_pooling(rng, config, shape):
    """Forward with places, and backward."""
    case = LayerProgram(config=config)
    fmt = case.format
    codes = random_map(rng, fmt, shape, special=0.1)
    x = case.map("x", shape, codes)
    for name, (kernel, stride, padding) in _POOLS.items():
        geometry = {"kernel": kernel, "stride": stride, "padding": padding}
        y_codes = elementwise_pool.max_pool(fmt, codes, **geometry)
        places = elementwise_pool.first_maximum(fmt, codes, **geometry)
        dy_codes = random_map(rng, fmt, y_codes.shape, special=0.02)
        y, index = (case.map(f"{name} {part}", y_codes.shape) for part in ("y", "places"))
        dy, dx = case.map(f"{name} dy", y.shape, dy_codes), case.map(f"{name} dx", shape)
        case.layer(pooling.max_pool, x, y, index, **geometry)
        case.layer(pooling.max_pool_backward, dy, index, dx, **geometry)
        case.expect(y, _read(fmt, y_codes))
        case.expect(index, encode(fmt, places.astype(np.float64)))
        case.expect(dx, *elementwise_pool.max_pool_backward(fmt, codes, dy_codes, **geometry))
    return case


def average_pooling(rng, config, shape):
    """Forward and backward."""
    case = LayerProgram(config=config)
    fmt = case.format
    codes = random_map(rng, fmt, shape, special=0.02)
    x = case.map("x", shape, codes)
    for name, (kernel, stride) in _AVERAGES.items():
        geometry = {"kernel": kernel, "stride": stride}
        y_codes, flags = elementwise_pool.average_pool(fmt, codes, **geometry)
        dy_codes = random_map(rng, fmt, y_codes.shape, special=0.02)
        y = case.map(f"{name} y", y_codes.shape)
        dy, dx = case.map(f"{name} dy", y.shape, dy_codes), case.map(f"{name} dx", shape)
        case.layer(pooling.average_pool, x, y, **geometry)
        case.layer(pooling.average_pool_backward, dy, dx, **geometry)
        case.expect(y, y_codes, flags)
        dx_codes = elementwise_pool.average_pool_backward(
            fmt, dy_codes, input_size=shape[1:3], **geometry
        )
        case.expect(dx, *dx_codes)
    return case


def depthwise(rng, config, shape):
    """Forward, as operands and as float32, and all gradients."""
    case = LayerProgram(config=config)
    fmt, channels = case.format, shape[3]
    codes = random_map(rng, fmt, shape, special=0.02)
    x = case.map("x", shape, codes)
    for name, (kernel, stride, padding, dilation, biased) in _DEPTHWISE.items():
        geometry = {"stride": stride, "padding": padding, "dilation": dilation}
        weights = random_map(rng, fmt, (channels, 1, *kernel), special=0.05)
        bias = random_numbers(rng, channels, special=0.1) if biased else None
        sums, flags = golden_depthwise.depthwise(fmt, codes, weights, bias, **geometry)
        dy_codes = random_map(rng, fmt, sums.shape, special=0.02)

        size = (*kernel, 1, channels)
        taps = case.parameter(f"{name} weights", size, weights.transpose(2, 3, 1, 0), operands=True)
        start = case.parameter(f"{name} bias", channels, bias) if biased else None
        y, dy = case.map(f"{name} y", sums.shape), case.map(f"{name} dy", sums.shape, dy_codes)
        wide, dx = case.parameter(f"{name} sums", sums.shape), case.map(f"{name} dx", shape)
        dw, db = case.parameter(f"{name} dw", size), case.parameter(f"{name} db", channels)
        for output in (y, wide):
            layer = Convolution(name=name, x=x, y=output, weights=taps, bias=start, **geometry)
            case.layer(compiled.depthwise, layer)
        case.layer(compiled.depthwise_input_gradient, layer, dy, dx)
        case.layer(compiled.depthwise_weight_gradient, layer, dy, dw, db if biased else None)

        case.expect(wide, sums, flags)
        case.expect(y, *elementwise_pool.round_sums(fmt, sums))
        sums, flags = golden_depthwise.depthwise_input_gradient(
            fmt, dy_codes, weights, input_size=shape[1:3], **geometry
        )
        dx_codes, more = elementwise_pool.round_sums(fmt, sums)
        case.expect(dx, dx_codes, flags | more)
        bits, flags = golden_depthwise.depthwise_weight_gradient(
            fmt, codes, dy_codes, kernel=kernel, **geometry
        )
        case.expect(dw, bits.transpose(2, 3, 1, 0), flags)
        if biased:
            case.expect(db, *golden_depthwise.depthwise_bias_gradient(fmt, dy_codes))
    return case


#: What updates are tried with; coefficients that are the program's own are not the usual ones.
OPTIMIZERS = {
    "sgd": golden_optimizer.SGD(learning_rate=0.05, momentum=0.9, weight_decay=1e-3),
    "nesterov": golden_optimizer.SGD(
        learning_rate=0.05, momentum=0.8, weight_decay=1e-3, nesterov=True
    ),
    "adam": golden_optimizer.Adam(betas=(0.8, 0.95), epsilon=1e-3, weight_decay=1e-3),
    "adamw": golden_optimizer.AdamW(betas=(0.8, 0.95), weight_decay=0.1),
    "braked": golden_optimizer.BrakedSGD(
        learning_rate=0.05, momentum=0.9, weight_decay=1e-3, braking=1.5
    ),
}


def _rule(kind, optimizer, case):
    """The optimizer as commands, its coefficients in registers."""
    names = ("weight_decay", "momentum", "learning_rate", "braking")
    registers = [Coefficient(index=2 * number + 1) for number in range(4)]
    case.coefficients[1:8:2] = [constant(getattr(optimizer, name, 0.0)) for name in names]
    options = dict(zip(("decay", "momentum", "rate", "braking"), registers, strict=True))
    betas = {"betas": optimizer.betas, "epsilon": optimizer.epsilon} if "adam" in kind else {}
    return Optimizer(kind=kind, **betas).rule(**options)


def descent(rng, config, shape, *, bad=None, kind="sgd"):
    """Two steps of an optimizer with weight decay, coefficients in registers.

    ``bad`` is None, or "gradient" for an infinity or NaN in the weights' gradient, or "sum" for a
    finite gradient with which g + decay * w overflows. Weights and slots hold special numbers.
    A grouped parameter has NaN between its groups, which do not count; it is not braked.
    """
    case = LayerProgram(config=config)
    optimizer = OPTIMIZERS[kind]
    rule = _rule(kind, optimizer, case)
    grouped = (2, 1, 2 * shape[3], 4 * shape[3])
    shapes = {"weight": shape, "bias": (1, 1, 1, shape[3]), "grouped": grouped}
    if kind == "braked":
        del shapes["grouped"]
    for name, size in shapes.items():
        numbers = [random_numbers(rng, size, special=0.1) for _ in ("master", *rule.slots)]
        gradient = random_numbers(rng, size)
        place = tuple(int(rng.integers(part)) for part in size)
        groups, mask = 1, None
        if name == "grouped":
            groups = shape[3]
            mask = np.kron(np.eye(groups, dtype=bool), np.ones((2, 4), bool))
            numbers = [np.where(mask, part, 0).astype(np.uint32) for part in numbers]
            gradient = np.where(mask, gradient, FLOAT32.nan).astype(np.uint32)
        elif bad == "gradient" and name == "weight":
            gradient[place] = rng.choice([FLOAT32.infinity, FLOAT32.nan, 0xFF800000, 0xFFC01234])
        elif bad == "sum":
            gradient[place] = numbers[0][place] = FLOAT32.infinity - 1
            numbers[1][place] = 0
        tensors = {
            role: case.parameter(f"{name}.{role}", size, part)
            for role, part in zip(
                ("master", *rule.slots, "gradient"), (*numbers, gradient), strict=True
            )
        }
        if rule.corrections:
            numbers.append(encode(FLOAT32, rng.uniform(0.1, 1.0, 2)))
            kept = (1, 1, 2, lanes(config))
            codes = np.broadcast_to(numbers[-1][:, np.newaxis], kept)
            tensors[CORRECTIONS] = case.parameter(f"{name}.corrections", kept, codes)
        old = encode(case.format, decode(FLOAT32, numbers[0]))
        if name != "bias":
            tensors["operands"] = case.parameter(f"{name}.operands", size, old, operands=True)
        if mask is not None:
            codes = encode(case.format, mask.astype(np.float64))
            shape_of_mask = (1, 1, *size[2:])
            tensors["mask"] = case.parameter(f"{name}.mask", shape_of_mask, codes, operands=True)
            gradient = np.where(mask, gradient, 0).astype(np.uint32)
        parameter = StoredParameter(
            name=name, layer=name, torch_shape=size, shape=size, groups=groups, tensors=tensors
        )
        # Twice, and the operands are read before and in between: nothing old may be left.
        for count in range(2):
            if name != "bias":
                double = case.parameter(f"{name}.double{count}", size, operands=True)
                case.layer(elementwise.add, tensors["operands"], tensors["operands"], double)
                case.expect(double, *elementwise_pool.residual_add(case.format, old, old))
            case.layer(update, parameter, rule)
            order = _torch_order if name == "weight" and kind == "braked" else _flat
            first, *slots, last = (order(part) for part in (*numbers, gradient))
            result = golden_optimizer.update(optimizer, case.format, first, slots, last, guard=True)
            back = _memory_order if order is _torch_order else partial(np.reshape, shape=size)
            numbers, old = [result.weights, *result.slots], back(result.operands)
            # What an optimizer keeps for the whole parameter comes last, and stays as it is.
            own = 1 + len(rule.slots)
            numbers = [*map(back, numbers[:own]), *numbers[own:]]
            case.rejected += result.skipped
            case.flags |= result.flags
        case.expect(tensors["master"], numbers[0])
        for role, part in zip(rule.slots, numbers[1:], strict=False):
            case.expect(tensors[role], part)
        if rule.corrections:
            case.expect(tensors[CORRECTIONS], np.broadcast_to(numbers[-1][:, np.newaxis], kept))
        if name != "bias":
            case.expect(tensors["operands"], old)
    return case


def _torch_order(values):
    """(O, I, KH, KW) of (KH, KW, I, O)."""
    return values.transpose(3, 2, 0, 1)


def _memory_order(values):
    return values.transpose(2, 3, 1, 0)


def _flat(values):
    """As numbers that belong to no filter."""
    return values.reshape(-1)


#: Name -> function of (rng, configuration, shape (N, H, W, C)).
CASES = {
    "elements": elements,
    "normalization": normalization,
    "normalization with ReLU": partial(normalization, relu=True),
    "normalization, known statistics": partial(normalization, known=True),
    "max pooling": max_pooling,
    "average pooling": average_pooling,
    "depthwise": depthwise,
    "descent": descent,
    "guarded descent": partial(descent, bad="gradient"),
    "overflowing descent": partial(descent, bad="sum"),
    "descent by Nesterov": partial(descent, kind="nesterov"),
    "guarded descent by Adam": partial(descent, bad="gradient", kind="adam"),
    "descent by AdamW": partial(descent, kind="adamw"),
    "braked descent": partial(descent, kind="braked"),
    "guarded braked descent": partial(descent, bad="gradient", kind="braked"),
}
