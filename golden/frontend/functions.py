"""What functions and methods of torch are as layers, see ``layers``."""

import operator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch
from torch.nn import functional

from .layers import (
    ALLOWED,
    SAME,
    Found,
    adaptive_average,
    adaptive_max,
    average_pool,
    channel_axes,
    clamp,
    dropout,
    dropout_channels,
    flatten,
    gelu,
    leaky_relu,
    max_pool,
    needs_map,
    plain,
    refuse,
    relu,
    softmax,
    softplus,
    upsample,
)

__all__ = ["classify", "out_of_place"]


def out_of_place(target):
    """What a function or method is called that does the same elsewhere, and whether it is not that
    one."""
    if isinstance(target, str):
        base = target if target.endswith("__") else target.removesuffix("_")
    else:
        base = _CHANGING.get(target, target)
    return base, base != target


def classify(name, target, args, kwargs, shape, node_type) -> Found:
    """What a function or method is.

    ``args`` and ``kwargs`` have nodes (of ``node_type``) in place of maps; ``shape`` is that of the
    result for one image.
    """
    base, in_place = out_of_place(target)
    if base in _ARITHMETIC:
        sources, kind, options = _arithmetic(name, _ARITHMETIC[base], args, kwargs, node_type)
    elif base in (torch.cat, torch.concat, torch.concatenate):
        return Found(kind="concatenate", sources=_join(name, args, kwargs, node_type))
    else:
        if not args or not isinstance(args[0], node_type):
            refuse(name, f"its operand must be a map, given by position, not {args} {kwargs}")
        source, sources = args[0], args[:1]
        if base in ("expand", "expand_as"):
            kind, options = _expand(name, source, tuple(shape))
        elif base in _VIEWS and not in_place:
            kind, options = _view(name, source, tuple(shape))
        elif base in _FUNCTIONS:
            check, names, defaults = _FUNCTIONS[base]
            values = _bound(name, names, defaults, args[1:], kwargs)
            kind, options = check(name, values, source)
            in_place = in_place or getattr(values, "inplace", False)
        else:
            unknown = getattr(target, "__name__", target)
            refuse(name, f"{unknown} is unknown; supported are {ALLOWED}")
    return Found(kind=kind, options=options, sources=tuple(sources), in_place=in_place)


def _bound(name, names, defaults, args, kwargs):
    """Arguments by name."""
    values = dict(defaults) | dict(zip(names, args, strict=False)) | kwargs
    if len(args) > len(names) or set(values) - set(names) - set(defaults):
        refuse(name, f"its arguments are {', '.join(names)}, not {args} {kwargs}")
    if missing := [key for key in names if key not in values]:
        refuse(name, f"it needs {', '.join(missing)}")
    return SimpleNamespace(**values)


def _arithmetic(name, sign, args, kwargs, node_type):
    """Sum, difference, product and quotient of maps and numbers: nodes, kind and options."""
    if sign == "reversed -":
        args, sign = args[::-1], "-"
    scale = kwargs.get("alpha", 1) if sign in "+-" else 1
    if len(args) != 2 or set(kwargs) - ({"alpha"} if sign in "+-" else set()):
        refuse(name, f"it takes two operands, not {args} {kwargs}")
    maps = [part for part in args if isinstance(part, node_type)]
    numbers = [part for part in (*args, scale) if not isinstance(part, node_type)]
    for number in numbers:
        plain = isinstance(number, int | float) and not isinstance(number, bool)
        if not plain or not np.abs(number) < 2.0**127:
            refuse(name, f"its operands are maps and finite numbers, not {number}")
    maps = _broadcast(maps)
    if len({(part.shape, part.flat, part.sequence) for part in maps}) != 1:
        refuse(name, f"its maps are {[part.shape for part in maps]}, not of one shape")
    scale = float(-scale if sign == "-" else scale)
    if len(maps) == 2:
        if sign == "/":
            refuse(name, "it must divide by a number")
        if sign == "*":
            return maps, "multiply", {}
        return maps, "add", {} if scale == 1 else {"scale": scale}
    first, second = args
    if sign in "+-":
        behind = isinstance(first, node_type)
        line = (1.0, second * scale) if behind else (scale, first)
    elif sign == "*":
        line = numbers[0], 0.0
    elif second is maps[0] or not second:
        refuse(name, "it must divide by a number that is not 0")
    else:
        line = 1.0 / second, 0.0
    return maps, "affine", {"factor": float(line[0]), "offset": float(line[1])}


def _broadcast(maps):
    """Maps as torch repeats their rows and columns, by nodes that do that."""
    if any(part.flat or part.sequence for part in maps):
        return maps
    size = tuple(max(part.shape[axis] for part in maps) for axis in (1, 2))
    found = []
    for part in maps:
        factor = tuple(new // own for new, own in zip(size, part.shape[1:], strict=True))
        fits = all(old in (1, new) for old, new in zip(part.shape[1:], size, strict=True))
        if fits and factor != (1, 1):
            part = replace(
                part, name=f"{part.name}_{size[0]}x{size[1]}", kind="upsample", module=None,
                inputs=(part.name,), shape=(part.shape[0], *size), trainable=(),
                options={"factor": factor},
            )  # fmt: skip
        found.append(part)
    return found


def _join(name, args, kwargs, node_type):
    """Nodes whose channels a concatenation joins."""
    values = _bound(name, ("tensors", "dim"), {"dim": 0}, args, kwargs)
    parts = values.tensors
    whole = isinstance(parts, list | tuple) and len(parts) > 0
    if not whole or not all(isinstance(part, node_type) for part in parts):
        refuse(name, f"it joins a list of maps, not {parts}")
    kinds = {(part.flat, part.sequence, part.shape[1:]) for part in parts}
    if len(kinds) > 1 or (parts[0].flat and parts[0].shape[1:] != (1, 1)):
        refuse(name, f"it joins maps of {[part.shape for part in parts]}")
    dims = channel_axes(parts[0])
    if values.dim not in dims:
        refuse(name, f"it joins channels, dim={dims[0]}, not dim={values.dim}")
    return tuple(parts)


def _mean(name, values, source):
    dims = values.dim if isinstance(values.dim, list | tuple) else (values.dim,)
    if source.sequence and values.dtype is None and dims in ((1,), (-2,)) and not values.keepdim:
        dims = (2, 3)  # over the vectors of a sequence
    else:
        needs_map(name, source)
    if None in dims or {d % 4 for d in dims} != {2, 3} or values.dtype is not None:
        refuse(name, f"it is taken over height and width, dim=(2, 3), not dim={values.dim}")
    size = source.shape[1:]
    options = {"kernel": size, "stride": size, "padding": (0, 0), "ceil_mode": False}
    return "average_pool", {**options, "include_pad": True, "divisor": None}


def _expand(name, source, shape):
    """``expand`` and ``expand_as``."""
    factor = tuple(new // own for new, own in zip(shape[-2:], source.shape[1:], strict=True))
    if source.flat or source.sequence or len(shape) != 3 or shape[0] != source.shape[0]:
        refuse(name, f"it makes {shape} of {source.shape}")
    return SAME if factor == (1, 1) else ("upsample", {"factor": factor})


def _view(name, source, shape):
    features = source.shape[0] * source.shape[1] * source.shape[2]
    own = (features,) if source.flat else source.shape
    if shape == ((source.shape[1], source.shape[0]) if source.sequence else own):
        return SAME
    if source.sequence:
        refuse(name, f"it makes {shape} of a sequence of {source.shape[1]} vectors")
    if shape not in ((features,), source.shape):
        refuse(name, f"it makes {shape} of the map {source.shape}")
    return "flatten", {}


def _negative(name, values, source):
    return "affine", {"factor": -1.0, "offset": 0.0}


def _limited(name, values, source):
    if values.max is None and values.min == 0:
        return relu(name, values, source)
    for limit in (values.min, values.max):
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            refuse(name, f"its limits are 0 and none, or two numbers, not {limit}")
    return clamp(name, SimpleNamespace(min_val=values.min, max_val=values.max), source)


#: What changes its operand: the same that does not.
_CHANGING = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    torch.relu_: torch.relu,
    torch.sigmoid_: torch.sigmoid,
    torch.tanh_: torch.tanh,
    functional.hardtanh_: functional.hardtanh,
    functional.leaky_relu_: functional.leaky_relu,
    torch.neg_: torch.neg,
    torch.negative_: torch.negative,
    torch.clamp_: torch.clamp,
    torch.clip_: torch.clip,
}
#: Sums, differences, products and quotients.
_ARITHMETIC = {
    **dict.fromkeys((operator.add, torch.add, "add"), "+"),
    **dict.fromkeys((operator.sub, torch.sub, torch.subtract, "sub", "subtract"), "-"),
    torch.rsub: "reversed -",
    **dict.fromkeys((operator.mul, torch.mul, torch.multiply, "mul", "multiply"), "*"),
    **dict.fromkeys((operator.truediv, torch.div, torch.divide, torch.true_divide), "/"),
    **dict.fromkeys(("div", "divide", "true_divide"), "/"),
}
_VIEWS = (
    "view", "reshape", torch.reshape, "squeeze", torch.squeeze, "unsqueeze", torch.unsqueeze,
    "contiguous", "clone", torch.clone,
)  # fmt: skip

_WINDOW = ("kernel_size", "stride", "padding")
_MAX = (*_WINDOW, "dilation", "ceil_mode", "return_indices")
_AVERAGE = (*_WINDOW, "ceil_mode", "count_include_pad", "divisor_override")
_NO_WINDOW = {"stride": None, "padding": 0, "ceil_mode": False}
_PLACE = {"inplace": False}
#: Function or method -> what it is, the names of its arguments behind the map, what they are if not
#: given.
_FUNCTIONS = {
    functional.relu: (relu, ("inplace",), _PLACE),
    torch.relu: (relu, (), {}),
    "relu": (relu, (), {}),
    functional.relu6: (clamp, ("inplace",), {**_PLACE, "min_val": 0.0, "max_val": 6.0}),
    functional.hardtanh: (
        clamp, ("min_val", "max_val", "inplace"), {**_PLACE, "min_val": -1.0, "max_val": 1.0},
    ),
    functional.leaky_relu: (
        leaky_relu, ("negative_slope", "inplace"), {**_PLACE, "negative_slope": 0.01},
    ),
    functional.hardsigmoid: (plain("hardsigmoid"), ("inplace",), _PLACE),
    functional.hardswish: (plain("hardswish"), ("inplace",), _PLACE),
    **dict.fromkeys(
        (functional.sigmoid, torch.sigmoid, "sigmoid"), (plain("sigmoid"), (), {})
    ),
    **dict.fromkeys((functional.tanh, torch.tanh, "tanh"), (plain("tanh"), (), {})),
    functional.silu: (plain("silu"), ("inplace",), _PLACE),
    functional.gelu: (gelu, ("approximate",), {"approximate": "none"}),
    functional.softplus: (softplus, ("beta", "threshold"), {"beta": 1, "threshold": 20}),
    **dict.fromkeys(
        (functional.softmax, torch.softmax, "softmax"),
        (softmax, ("dim", "_stacklevel", "dtype"), {"_stacklevel": 3, "dtype": None}),
    ),
    functional.interpolate: (
        upsample, ("size", "scale_factor", "mode"),
        {"size": None, "scale_factor": None, "mode": "nearest", "align_corners": None,
         "recompute_scale_factor": None, "antialias": False},
    ),
    **dict.fromkeys(
        (operator.neg, torch.neg, torch.negative, "neg", "negative"), (_negative, (), {})
    ),
    **dict.fromkeys(
        (torch.clamp, torch.clip, "clamp", "clip"),
        (_limited, ("min", "max"), {"min": None, "max": None}),
    ),
    functional.max_pool2d: (
        max_pool, _MAX, {**_NO_WINDOW, "dilation": 1, "return_indices": False},
    ),
    torch.max_pool2d: (
        max_pool, _MAX, {**_NO_WINDOW, "dilation": 1, "return_indices": False},
    ),
    functional.avg_pool2d: (
        average_pool, _AVERAGE,
        {**_NO_WINDOW, "count_include_pad": True, "divisor_override": None},
    ),
    functional.adaptive_avg_pool2d: (adaptive_average, ("output_size",), {}),
    functional.adaptive_max_pool2d: (
        adaptive_max, ("output_size", "return_indices"), {"return_indices": False},
    ),
    functional.dropout: (
        dropout, ("p", "training", "inplace"), {**_PLACE, "p": 0.5, "training": True},
    ),
    functional.dropout2d: (
        dropout_channels, ("p", "training", "inplace"), {**_PLACE, "p": 0.5, "training": True},
    ),
    torch.flatten: (flatten, ("start_dim", "end_dim"), {"start_dim": 0, "end_dim": -1}),
    "flatten": (flatten, ("start_dim", "end_dim"), {"start_dim": 0, "end_dim": -1}),
    torch.mean: (_mean, ("dim", "keepdim", "dtype"), {"keepdim": False, "dtype": None}),
    "mean": (_mean, ("dim", "keepdim", "dtype"), {"keepdim": False, "dtype": None}),
}  # fmt: skip
