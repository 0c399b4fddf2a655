"""Layers between products on random maps, with what golden computes layer by layer."""

from functools import partial

import numpy as np

from compiler import elementwise, pooling
from compiler.optimizer import update
from compiler.parameters import StoredParameter
from compiler.view import Coefficient
from golden import backward
from golden import optimizer as golden_optimizer
from golden.formats import FLOAT32
from golden.numerics import encode
from golden.vector import constant
from verif.layer_programs import LayerProgram

__all__ = ["CASES"]

#: Kernel, stride, padding: windows apart, overlapping and with gaps between them.
_POOLS = {
    "2x2": ((2, 2), (2, 2), (0, 0)),
    "3x3 padded": ((3, 3), (2, 2), (1, 1)),
    "1x2 with gaps": ((1, 2), (2, 3), (0, 1)),
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
    return backward.round_sums(fmt, backward.widen(fmt, codes))[0]


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
    total_codes, flags = backward.residual_add(fmt, *codes[:2])
    case.expect(total, total_codes, flags)
    case.expect(twice, *backward.residual_add(fmt, codes[0], codes[0]))
    rectified_codes = backward.relu(fmt, total_codes)
    case.expect(rectified, rectified_codes)
    mask = backward.relu_mask(fmt, rectified_codes)
    case.expect(masked, _read(fmt, np.where(mask, codes[2], 0)))
    case.expect(three, *backward.sum_gradients(fmt, codes[::-1]))
    return case


def max_pooling(rng, config, shape):
    """Forward with places, and backward."""
    case = LayerProgram(config=config)
    fmt = case.format
    codes = random_map(rng, fmt, shape, special=0.1)
    x = case.map("x", shape, codes)
    for name, (kernel, stride, padding) in _POOLS.items():
        geometry = {"kernel": kernel, "stride": stride, "padding": padding}
        y_codes = backward.max_pool(fmt, codes, **geometry)
        places = backward.first_maximum(fmt, codes, **geometry)
        dy_codes = random_map(rng, fmt, y_codes.shape, special=0.02)
        y, index = (case.map(f"{name} {part}", y_codes.shape) for part in ("y", "places"))
        dy, dx = case.map(f"{name} dy", y.shape, dy_codes), case.map(f"{name} dx", shape)
        case.layer(pooling.max_pool, x, y, index, **geometry)
        case.layer(pooling.max_pool_backward, dy, index, dx, **geometry)
        case.expect(y, _read(fmt, y_codes))
        case.expect(index, encode(fmt, places.astype(np.float64)))
        case.expect(dx, *backward.max_pool_backward(fmt, codes, dy_codes, **geometry))
    return case


def average_pooling(rng, config, shape):
    """Forward and backward."""
    case = LayerProgram(config=config)
    fmt = case.format
    codes = random_map(rng, fmt, shape, special=0.02)
    x = case.map("x", shape, codes)
    for name, (kernel, stride) in _AVERAGES.items():
        geometry = {"kernel": kernel, "stride": stride}
        y_codes, flags = backward.average_pool(fmt, codes, **geometry)
        dy_codes = random_map(rng, fmt, y_codes.shape, special=0.02)
        y = case.map(f"{name} y", y_codes.shape)
        dy, dx = case.map(f"{name} dy", y.shape, dy_codes), case.map(f"{name} dx", shape)
        case.layer(pooling.average_pool, x, y, **geometry)
        case.layer(pooling.average_pool_backward, dy, dx, **geometry)
        case.expect(y, y_codes, flags)
        dx_codes = backward.average_pool_backward(fmt, dy_codes, input_size=shape[1:3], **geometry)
        case.expect(dx, *dx_codes)
    return case


def descent(rng, config, shape, *, bad=None):
    """SGD with momentum and weight decay, coefficients in registers; of several parameters.

    ``bad`` is None, or "gradient" for an infinity or NaN in the weights' gradient, or "sum" for a
    finite gradient with which g + decay * w overflows. Weights and velocities hold special numbers.
    A grouped parameter has NaN between its groups, which do not count.
    """
    case = LayerProgram(config=config)
    optimizer = golden_optimizer.SGD(learning_rate=0.05, momentum=0.9, weight_decay=1e-3)
    names = ("weight_decay", "momentum", "learning_rate")
    registers = [Coefficient(index=2 * number + 1) for number in range(3)]
    case.coefficients[1:6:2] = [constant(getattr(optimizer, name)) for name in names]
    options = dict(zip(("decay", "momentum", "rate"), registers, strict=True))
    grouped = (2, 1, 2 * shape[3], 4 * shape[3])
    shapes = {"weight": shape, "bias": (1, 1, 1, shape[3]), "grouped": grouped}
    for name, size in shapes.items():
        numbers = [random_numbers(rng, size, special=0.1) for _ in range(2)]
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
                ("master", "velocity", "gradient"), (*numbers, gradient), strict=True
            )
        }
        if name != "bias":
            tensors["operands"] = case.parameter(f"{name}.operands", size, operands=True)
        if mask is not None:
            codes = encode(case.format, mask.astype(np.float64))
            shape_of_mask = (1, 1, *size[2:])
            tensors["mask"] = case.parameter(f"{name}.mask", shape_of_mask, codes, operands=True)
            gradient = np.where(mask, gradient, 0).astype(np.uint32)
        parameter = StoredParameter(
            name=name, layer=name, torch_shape=size, shape=size, groups=groups, tensors=tensors
        )
        case.layer(update, parameter, **options)
        result = golden_optimizer.update(
            optimizer, case.format, numbers[0], (numbers[1],), gradient, guard=True
        )
        case.rejected += result.skipped
        case.expect(tensors["master"], result.weights, result.flags)
        case.expect(tensors["velocity"], result.slots[0])
        if "operands" in tensors:
            case.expect(tensors["operands"], result.operands)
    return case


#: Name -> function of (rng, configuration, shape (N, H, W, C)).
CASES = {
    "elements": elements,
    "max pooling": max_pooling,
    "average pooling": average_pooling,
    "descent": descent,
    "guarded descent": partial(descent, bad="gradient"),
    "overflowing descent": partial(descent, bad="sum"),
}
