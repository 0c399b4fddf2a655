"""Checks a training step layer by layer against torch, within derived bounds.

Torch computes each layer alone, in float64, from what golden stored before it, so the bound of a
layer (:mod:`golden.training.bounds`) is that of its own operations. Where several layers read a
map, their gradients are added: the bounds add up, with one rounding more.
"""

from functools import partial

import numpy as np
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import FLOAT32
from golden.arithmetic.running_error import Estimate, worst_excess
from golden.layers.conv2d import pair
from golden.layers.dropout import dropout_mask
from golden.layers.product import PRODUCTS
from golden.layers.torch_convolution import conv2d

from . import bounds as training_bounds
from .attention_bounds import attention_bounds, softmax_bounds
from .map_bounds import map_bounds
from .norm_bounds import group_norm_bounds, layer_norm_bounds
from .norm_layers import NORMS
from .smooth_bounds import SMOOTH_KINDS, smooth_bounds

__all__ = ["complaints", "torch_layer"]


def complaints(training, before, result):
    """What of a step is out of bound, as text: outputs, gradients, gradients of parameters.

    Parameters
    ----------
    training : :class:`golden.training.step.Training`
    before : its ``state()`` before the step
    result : :class:`golden.training.step.StepResult`
    """
    fmt, done, wrong = training.format, result.forward, []
    pending = {}

    def compare(what, actual, reference, error):
        ratio, place = worst_excess(actual, reference, error)
        if not ratio <= 1:
            wrong.append(
                f"{what}{list(place)} is {actual[place]}, torch {reference[place]}, "
                f"{ratio:.3g} bounds away"
            )

    for node in reversed(training.nodes[1:]):
        if node.name not in result.gradients:
            continue
        dy = result.gradients[node.name]
        if node.name in pending:
            compare(f"gradient of {node.name}", decode(fmt, dy), *_summed(fmt, pending[node.name]))
        layer, parameters = torch_layer(training, node, before)
        x = [_torch_map(decode(fmt, done.outputs[name])).requires_grad_() for name in node.inputs]
        y = layer(*x)
        found = torch.autograd.grad(y, [*x, *parameters.values()], _torch_map(decode(fmt, dy)))
        error, input_errors, parameter_errors = _layer_bounds(training, node, before, done, dy)

        reference = np.moveaxis(y.detach().numpy(), 1, 3)
        estimate = Estimate(reference, np.broadcast_to(error, reference.shape))
        codes = done.outputs[node.name]
        wide = codes.dtype == np.uint32
        compare(
            f"output of {node.name}",
            decode(FLOAT32 if wide else fmt, codes),
            reference,
            estimate.error if wide else estimate.round(fmt).error,
        )
        for name, dx, bound in zip(node.inputs, found, input_errors, strict=False):
            dx = np.moveaxis(dx.numpy(), 1, 3)
            part = Estimate(dx, np.broadcast_to(bound, dx.shape))
            same = node.kind in _PASSING and "scale" not in node.options
            pending.setdefault(name, []).append(part if same else part.round(fmt))
        for short, dw in zip(parameters, found[len(node.inputs) :], strict=True):
            if (name := f"{node.name}.{short}") not in node.trainable:
                if name in result.parameter_gradients:
                    wrong.append(f"{name} is frozen but has a gradient")
                continue
            actual = decode(FLOAT32, result.parameter_gradients[name])
            compare(f"d{node.name}.{short}", actual, dw.numpy(), parameter_errors[short])
    return wrong


def torch_layer(training, node, before, mode=True):
    """A node as torch computes it: a function of (N, C, H, W) maps, and its parameters, float64.

    ``before`` is the state whose weights, rounded to operands where they are operands, and running
    statistics count; ``mode`` is training, or else evaluation.
    """
    options = dict(node.options)
    names = [name.rpartition(".")[2] for name in node.parameters]
    parameters = {}
    for short, name in zip(names, node.parameters, strict=True):
        rounded = name in training.operands
        bits = before["weights"][name]
        codes = encode(training.format, decode(FLOAT32, bits)) if rounded else bits
        values = decode(training.format if rounded else FLOAT32, codes)
        parameters[short] = torch.from_numpy(values).requires_grad_()
    if node.kind == "embedding":
        weight = parameters["weight"]
        return lambda x: _of_vectors(functional.linear, x, weight.T), parameters
    if node.kind == "convolution" and node.sequence:
        return lambda x: _of_vectors(functional.linear, x, **parameters), parameters
    if node.kind == "depthwise":
        options["groups"] = node.shape[0]
    if node.kind in ("convolution", "depthwise"):
        return lambda x: conv2d(x, **parameters, **options), parameters
    if node.kind == "transposed":
        size = options.pop("size")
        used = {key: pair(value) if key != "groups" else value for key, value in options.items()}
        kernel = parameters["weight"].shape[2:]

        def transposed(x):
            more = [
                wanted - ((h - 1) * s - 2 * p + d * (k - 1) + 1)
                for wanted, h, s, p, d, k in zip(
                    size, x.shape[2:], used["stride"], used["padding"], used["dilation"], kernel,
                    strict=True,
                )
            ]  # fmt: skip
            return functional.conv_transpose2d(x, **parameters, output_padding=more, **used)

        return transposed, parameters
    if node.kind == "linear":
        return lambda x: functional.linear(x.flatten(1), **parameters)[..., None, None], parameters
    if node.kind == "layer_norm":
        shape, epsilon = node.module.normalized_shape, node.module.eps
        return lambda x: _of_vectors(
            functional.layer_norm, x, shape, **parameters, eps=epsilon
        ), parameters
    if node.kind == "group_norm":
        groups, epsilon = options["groups"], node.module.eps
        return lambda x: functional.group_norm(x, groups, **parameters, eps=epsilon), parameters
    if node.kind in NORMS:
        running = [
            torch.from_numpy(decode(FLOAT32, before["running"][f"{node.name}.running_{key}"]))
            for key in ("mean", "var")
            if f"{node.name}.running_{key}" in before["running"]
        ] or [None, None]
        module = node.module
        mode = running[0] is None or (mode and node.kind == "batch_norm")
        return (
            lambda x: functional.batch_norm(
                x, *running, **parameters, training=mode, momentum=module.momentum, eps=module.eps
            ),
            parameters,
        )
    if node.kind == "dropout":
        return partial(_dropout, node, training.sample_seed + before["count"]), parameters
    if node.kind == "attention":
        options["kept"] = _kept_shares(training, node, before)
        options.pop("stream", None)
    if node.options.get("mask"):
        fmt = training.format
        options["mask"] = decode(fmt, encode(fmt, options["mask"])).tolist()
    if node.kind == "clamp":  # its limits are operands
        fmt = training.format
        options = {key: float(decode(fmt, encode(fmt, limit))) for key, limit in options.items()}
    return lambda *x: _MAPS[node.kind](*x, **options), parameters


def _of_vectors(function, x, *arguments, **named):
    """A function of (..., C), of maps (N, C, H, W)."""
    return function(x.movedim(1, 3), *arguments, **named).movedim(3, 1)


def _kept_shares(training, node, before):
    """Which shares an attention's dropout keeps, a function of the size (N * heads, Tk, 1, Tq);
    None without one."""
    if "p" not in node.options:
        return None
    place = {key: node.options[key] for key in ("p", "stream")}
    seed = training.sample_seed + before["count"]
    return partial(dropout_mask, **place, whole=False, seed=seed)


def _attention(*maps, heads, causal, scale, mask=None, p=0.0, kept=None):
    """On maps (N, C, T, 1)."""
    parts = [part[..., 0].unflatten(1, (heads, -1)).transpose(2, 3) for part in maps]
    mask = None if mask is None else torch.tensor(mask, dtype=torch.float64)
    if kept is None:
        y = functional.scaled_dot_product_attention(
            *parts, attn_mask=mask, is_causal=causal, scale=scale
        )
    else:
        query, key, value = parts
        scores = query @ key.transpose(2, 3) * scale
        if causal:
            mask = torch.full(scores.shape[2:], -torch.inf, dtype=torch.float64).triu(1)
        shares = torch.softmax(scores if mask is None else scores + mask, -1)
        images, _, queries, keys = shares.shape
        there = torch.from_numpy(kept((images * heads, keys, 1, queries))[:, :, 0])
        y = (shares * there.unflatten(0, (-1, heads)).transpose(2, 3) / (1.0 - p)) @ value
    return y.transpose(2, 3).flatten(1, 2)[..., None]


def _average_pool(x, *, kernel, stride, padding, ceil_mode, include_pad, divisor):
    return functional.avg_pool2d(x, kernel, stride, padding, ceil_mode, include_pad, divisor)


def _max_pool(x, *, kernel, stride, padding, ceil_mode):
    return functional.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil_mode)


def _dropout(node, seed, x):
    images, channels, height, width = x.shape
    mask = dropout_mask((images, height, width, channels), **node.options, seed=seed)
    return x * _torch_map(mask / (1.0 - node.options["p"]))


def _clamp(x, *, low, high):
    return functional.hardtanh(x, low, high)


#: Layers without parameters as torch computes them.
_MAPS = {
    "relu": functional.relu,
    "clamp": _clamp,
    "leaky_relu": lambda x, slope: functional.leaky_relu(x, slope),
    # Torch's own have constants in float32.
    "hardsigmoid": lambda x: functional.relu6(x + 3) / 6,
    "hardswish": lambda x: x * functional.relu6(x + 3) / 6,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "gelu": lambda x, tanh: functional.gelu(x, approximate="tanh" if tanh else "none"),
    "softplus": functional.softplus,
    "add": lambda a, b, scale=1.0: a + scale * b,
    "multiply": lambda a, b: a * b,
    "affine": lambda x, factor, offset: x * factor + offset,
    "upsample": lambda x, factor: functional.interpolate(x, scale_factor=factor),
    "concatenate": lambda *x: torch.cat(x, 1),
    "slice": lambda x, begin, end: x[:, begin:end],
    "softmax": lambda x: torch.softmax(x, 1),
    "attention": lambda *x, **options: _attention(*x, **options),
    "flatten": lambda x: x * 1,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
}
#: Those of them whose gradients are those of the output, or none.
_PASSING = ("flatten", "add", "relu", "clamp", "concatenate", "slice")


def _layer_bounds(training, node, before, done, dy):
    """Errors of a node: output, gradients of its inputs, gradients of parameters, by short name.

    The output's bound is before its rounding to operands, as all bounds of input gradients are.
    """
    fmt, rows = training.format, training.rows
    inputs = [done.outputs[name] for name in node.inputs]
    exact = [Estimate.bits(fmt, codes) for codes in inputs]
    gradient = Estimate.bits(fmt, dy)
    x = exact[0]
    if node.kind in PRODUCTS:
        name = f"{node.name}.weight"
        weights = encode(fmt, decode(FLOAT32, before["weights"][name]))
        bias = before["weights"].get(f"{node.name}.bias")
        options = dict(node.options)
        if node.kind == "embedding":
            weights = weights.T
        if node.kind in ("convolution", "embedding"):
            weights = weights.reshape(len(weights), -1, *weights.shape[2:] or (1, 1))
        if node.kind == "linear":
            weights = weights.reshape(len(weights), x.value.shape[3], *x.value.shape[1:3])
            options["stride"] = pair(x.value.shape[1:3])
        operands = inputs[0], weights, dy, None if bias is None else decode(FLOAT32, bias)
        if node.kind == "depthwise":
            bounds = training_bounds.depthwise(fmt, *operands, **options)
        elif node.kind == "transposed":
            bounds = training_bounds.transposed(fmt, *operands, rows=rows, **options)
        else:
            bounds = training_bounds.convolution(fmt, *operands, rows=rows, **options)
        shape = before["weights"][name].shape
        dw = bounds["dw"].error
        dw = dw[:, :, 0, 0].T if node.kind == "embedding" else dw.reshape(shape)
        return bounds["y"].error, [bounds["dx"].error], {"weight": dw, "bias": bounds["db"].error}
    if node.kind == "attention":
        values = (part.value for part in (*exact, gradient))
        options = {key: value for key, value in node.options.items() if key != "stream"}
        if kept := _kept_shares(training, node, before):
            (images, queries), keys = inputs[0].shape[:2], inputs[1].shape[1]
            options["kept"] = kept((images * options["heads"], keys, 1, queries))[:, :, 0]
        y, *found = attention_bounds(fmt, *values, **options, rows=rows)
        return y, found, {}
    if node.kind == "softmax":
        y, found = softmax_bounds(fmt, x.value, gradient.value, rows)
        return y, [found], {}
    if node.kind in ("layer_norm", "group_norm"):
        own = _scale_and_shift(before["weights"], node)
        bounds = layer_norm_bounds if node.kind == "layer_norm" else group_norm_bounds
        y, dx, scale, shift = bounds(
            fmt, x, gradient, *own, epsilon=node.module.eps, rows=rows, **node.options
        )
        return y, [dx], {"weight": scale, "bias": shift}
    if node.kind in NORMS:
        flat = [
            Estimate(e.value.reshape(len(e.value), -1, e.value.shape[3]), np.float64(0))
            for e in (x, gradient)
        ]
        gamma, beta = _scale_and_shift(before["weights"], node)
        fixed = node.kind == "fixed_norm"
        mean, variance = training_bounds.statistics(flat[0], *x.value.shape[1:3])
        if fixed:
            mean, variance = (
                Estimate.bits(FLOAT32, before["running"][f"{node.name}.running_{key}"])
                for key in ("mean", "var")
            )
        y, inverse, a = training_bounds.normalize(
            flat[0], mean, variance, gamma, beta, epsilon=node.module.eps
        )
        backward = training_bounds.scale_backward if fixed else training_bounds.normalize_backward
        dx, scale, shift = backward(*flat, mean, inverse, a)
        shape = x.value.shape
        parameters = {"weight": scale.error, "bias": shift.error}
        return y.error.reshape(shape), [dx.error.reshape(shape)], parameters
    if node.kind in SMOOTH_KINDS:
        y, dx = smooth_bounds(fmt, node.kind, x, gradient, **node.options)
        return y, [dx], {}
    return *map_bounds(node.kind, exact, gradient, node.options), {}


def _scale_and_shift(weights, node):
    """Of a normalisation: 1 and 0 where it has no parameters."""
    return [
        Estimate.bits(FLOAT32, weights[f"{node.name}.{key}"])
        if f"{node.name}.{key}" in weights
        else Estimate.exact(np.full(node.shape[0], value))
        for key, value in (("weight", 1.0), ("bias", 0.0))
    ]


def _summed(fmt, estimates):
    """Value and error of the sum of gradients: rounded once if there are several."""
    total, *others = estimates
    for other in others:
        total = total + other
    total = total.round(fmt) if others else total
    return total.value, total.error


def _torch_map(values):
    return torch.from_numpy(np.array(np.moveaxis(values, 3, 1)))
