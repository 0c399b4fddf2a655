"""What modules and functions of torch are as layers: kinds and options of nodes.

Every function here takes the attributes of a module, or the arguments of a function by the same
names, and the node that is read.
"""

import operator
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from golden.layers.conv2d import pair

__all__ = ["Found", "Refused", "classify", "module_layer", "refuse"]

_ALLOWED = (
    "Conv2d, Linear, BatchNorm2d, BatchNorm1d, ReLU, ReLU6, Hardtanh, MaxPool2d, AvgPool2d, "
    "AdaptiveAvgPool2d, AdaptiveMaxPool2d, Flatten, Dropout in evaluation, Identity, the functions "
    "of these without parameters, mean over a map, view, reshape, cat and +"
)


class Refused(ValueError):
    """Name of a layer, and why it is not supported."""


def refuse(name, reason):
    """Raise the :class:`Refused` of a layer."""
    raise Refused(name, reason)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a step of torch.fx is: kind and options, the nodes it reads, whether it changes the
    first of them in place."""

    kind: str
    options: dict = field(default_factory=dict)
    sources: tuple = ()
    in_place: bool = False


_SAME = ("identity", {})


def module_layer(name, module, source) -> Found:
    """What the module ``name`` is that reads the node ``source``."""
    check = _MODULES.get(type(module))
    if check is None:
        refuse(name, f"{type(module).__name__} is unknown; supported are {_ALLOWED}")
    kind, options = check(name, module, source)
    in_place = kind != "identity" and getattr(module, "inplace", False)
    return Found(kind=kind, options=options, sources=(source,), in_place=in_place)


def classify(name, target, args, kwargs, shape, node_type) -> Found:
    """What a function or method is.

    ``args`` and ``kwargs`` have nodes (of ``node_type``) in place of maps; ``shape`` is that of the
    result for one image.
    """
    in_place = isinstance(target, str) and target.endswith("_")
    base = target[:-1] if in_place else _CHANGING.get(target, target)
    in_place = in_place or base is not target
    if base in (operator.add, torch.add, "add"):
        sources, kind, options = _addition(name, args, kwargs, node_type), "add", {}
    elif base in (torch.cat, torch.concat, torch.concatenate):
        return Found(kind="concatenate", sources=_join(name, args, kwargs, node_type))
    else:
        if not args or not isinstance(args[0], node_type):
            refuse(name, f"its operand must be a map, given by position, not {args} {kwargs}")
        source, sources = args[0], args[:1]
        if base in _VIEWS and not in_place:
            kind, options = _view(name, source, tuple(shape))
        elif base in _FUNCTIONS:
            check, names, defaults = _FUNCTIONS[base]
            values = _bound(name, names, defaults, args[1:], kwargs)
            kind, options = check(name, values, source)
            in_place = in_place or getattr(values, "inplace", False)
        else:
            unknown = getattr(target, "__name__", target)
            refuse(name, f"{unknown} is unknown; supported are {_ALLOWED}")
    return Found(kind=kind, options=options, sources=tuple(sources), in_place=in_place)


def _bound(name, names, defaults, args, kwargs):
    """Arguments by name."""
    values = dict(defaults) | dict(zip(names, args, strict=False)) | kwargs
    if len(args) > len(names) or set(values) - set(names) - set(defaults):
        refuse(name, f"its arguments are {', '.join(names)}, not {args} {kwargs}")
    if missing := [key for key in names if key not in values]:
        refuse(name, f"it needs {', '.join(missing)}")
    return SimpleNamespace(**values)


def _addition(name, args, kwargs, node_type):
    if len(args) != 2 or not all(isinstance(part, node_type) for part in args) or kwargs:
        refuse(name, f"an addition takes two maps and nothing else: {args} {kwargs}")
    first, second = args
    if (first.shape, first.flat) != (second.shape, second.flat):
        refuse(name, f"it adds maps of {first.shape} and {second.shape}")
    return args


def _join(name, args, kwargs, node_type):
    """Nodes whose channels a concatenation joins."""
    values = _bound(name, ("tensors", "dim"), {"dim": 0}, args, kwargs)
    parts = values.tensors
    whole = isinstance(parts, list | tuple) and len(parts) > 0
    if not whole or not all(isinstance(part, node_type) for part in parts):
        refuse(name, f"it joins a list of maps, not {parts}")
    kinds = {(part.flat, part.shape[1:]) for part in parts}
    if len(kinds) > 1 or (parts[0].flat and parts[0].shape[1:] != (1, 1)):
        refuse(name, f"it joins maps of {[part.shape for part in parts]}")
    if values.dim not in (1, -1 if parts[0].flat else -3):
        refuse(name, f"it joins channels, dim=1, not dim={values.dim}")
    return tuple(parts)


def _convolution(name, layer, source):
    _needs_map(name, source)
    if layer.padding_mode != "zeros":
        refuse(name, f"padding_mode must be 'zeros', not {layer.padding_mode!r}")
    if layer.in_channels != source.shape[0]:
        refuse(name, f"it takes {layer.in_channels} channels but gets {source.shape[0]}")
    options = {key: pair(getattr(layer, key)) for key in ("stride", "dilation")}
    padding = layer.padding
    if isinstance(padding, str):
        total = [0, 0]
        if padding == "same":
            total = [d * (k - 1) for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
        if any(lines % 2 for lines in total):
            refuse(name, f"padding={padding!r} has to add {total} lines, not the same on two sides")
        padding = tuple(lines // 2 for lines in total)
    options["padding"] = pair(padding)
    if layer.groups == layer.in_channels == layer.out_channels != 1:
        return "depthwise", options
    return "convolution", {**options, "groups": layer.groups}


def _linear(name, layer, source):
    features = source.shape[0] * source.shape[1] * source.shape[2]
    if not source.flat:
        refuse(name, "a Flatten layer must come before it")
    if layer.in_features != features:
        refuse(name, f"it takes {layer.in_features} features but gets {features}")
    return "linear", {}


def _batch_norm(name, layer, source):
    if source.flat != isinstance(layer, nn.BatchNorm1d) or (
        source.flat and source.shape[1:] != (1, 1)
    ):
        given = f"{'vectors of a map' if source.flat else 'a map'} {source.shape}"
        refuse(name, f"BatchNorm2d takes maps, BatchNorm1d vectors of a linear layer: {given}")
    for key in ("affine", "track_running_stats", "training"):
        if not getattr(layer, key):
            refuse(name, f"{key} must be True, not {getattr(layer, key)}")
    if layer.momentum is None:
        refuse(name, "momentum must be a number, not None")
    if layer.num_features != source.shape[0]:
        refuse(name, f"it takes {layer.num_features} channels but gets {source.shape[0]}")
    return "batch_norm", {}


def _windows(layer):
    stride = layer.stride if layer.stride not in (None, ()) else layer.kernel_size
    sizes = {"kernel": layer.kernel_size, "stride": stride, "padding": layer.padding}
    return {**{key: pair(size) for key, size in sizes.items()}, "ceil_mode": bool(layer.ceil_mode)}


def _max_pool(name, layer, source):
    _needs_map(name, source)
    if pair(layer.dilation) != (1, 1):
        refuse(name, f"dilation must be 1, not {layer.dilation}")
    if layer.return_indices:
        refuse(name, f"return_indices must be False, not {layer.return_indices}")
    return "max_pool", _windows(layer)


def _average_pool(name, layer, source):
    _needs_map(name, source)
    divisor = layer.divisor_override
    if divisor is not None and divisor < 1:
        refuse(name, f"divisor_override must be at least 1, not {divisor}")
    counts = {"include_pad": bool(layer.count_include_pad), "divisor": divisor}
    return "average_pool", {**_windows(layer), **counts}


def _adaptive(name, layer, source):
    """Average or maximum, with windows of one size."""
    _needs_map(name, source)
    if getattr(layer, "return_indices", False):
        refuse(name, f"return_indices must be False, not {layer.return_indices}")
    size = source.shape[1:]
    outputs = [o or s for o, s in zip(pair(layer.output_size), size, strict=True)]
    if size[0] % outputs[0] or size[1] % outputs[1]:
        refuse(name, f"output_size must divide {size}, not be {layer.output_size}")
    kernel = size[0] // outputs[0], size[1] // outputs[1]
    if kernel == (1, 1):
        return _SAME
    return {"kernel": kernel, "stride": kernel, "padding": (0, 0), "ceil_mode": False}


def _adaptive_average(name, layer, source):
    found = _adaptive(name, layer, source)
    if found is _SAME:
        return found
    return "average_pool", {**found, "include_pad": True, "divisor": None}


def _adaptive_max(name, layer, source):
    found = _adaptive(name, layer, source)
    return found if found is _SAME else ("max_pool", found)


def _mean(name, values, source):
    _needs_map(name, source)
    dims = values.dim if isinstance(values.dim, list | tuple) else (values.dim,)
    if None in dims or {d % 4 for d in dims} != {2, 3} or values.dtype is not None:
        refuse(name, f"it is taken over height and width, dim=(2, 3), not dim={values.dim}")
    size = source.shape[1:]
    options = {"kernel": size, "stride": size, "padding": (0, 0), "ceil_mode": False}
    return "average_pool", {**options, "include_pad": True, "divisor": None}


def _flatten(name, layer, source):
    if layer.start_dim != 1 or layer.end_dim not in (-1, 3):
        refuse(
            name,
            "it must flatten everything but the batch, start_dim=1 and end_dim=-1 or 3, not "
            f"start_dim={layer.start_dim} and end_dim={layer.end_dim}",
        )
    return "flatten", {}


def _view(name, source, shape):
    features = source.shape[0] * source.shape[1] * source.shape[2]
    if shape == ((features,) if source.flat else source.shape):
        return _SAME
    if shape not in ((features,), source.shape):
        refuse(name, f"it makes {shape} of the map {source.shape}")
    return "flatten", {}


def _dropout(name, layer, source):
    if layer.training and layer.p:
        refuse(name, f"p must be 0 in training, not {layer.p}")
    return _SAME


def _clamp(name, layer, source):
    low, high = float(layer.min_val), float(layer.max_val)
    if not np.isfinite([low, high]).all() or not high - low > max(abs(low), abs(high)) / 4:
        refuse(name, f"its limits {low} and {high} must be finite and apart")
    return "clamp", {"low": low, "high": high}


def _needs_map(name, source):
    if source.flat:
        refuse(name, "its input has been flattened to vectors")


def _relu(name, layer, source):
    return "relu", {}


_MODULES = {
    nn.Conv2d: _convolution,
    nn.Linear: _linear,
    nn.BatchNorm2d: _batch_norm,
    nn.BatchNorm1d: _batch_norm,
    nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _average_pool,
    nn.AdaptiveAvgPool2d: _adaptive_average,
    nn.AdaptiveMaxPool2d: _adaptive_max,
    nn.ReLU: _relu,
    nn.ReLU6: _clamp,
    nn.Hardtanh: _clamp,
    nn.Flatten: _flatten,
    nn.Dropout: _dropout,
    nn.Dropout2d: _dropout,
    nn.Identity: lambda *_: _SAME,
}
#: What changes its operand: the same that does not.
_CHANGING = {
    operator.iadd: operator.add,
    torch.relu_: torch.relu,
    functional.hardtanh_: functional.hardtanh,
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
    functional.relu: (_relu, ("inplace",), _PLACE),
    torch.relu: (_relu, (), {}),
    "relu": (_relu, (), {}),
    functional.relu6: (_clamp, ("inplace",), {**_PLACE, "min_val": 0.0, "max_val": 6.0}),
    functional.hardtanh: (
        _clamp, ("min_val", "max_val", "inplace"), {**_PLACE, "min_val": -1.0, "max_val": 1.0},
    ),
    functional.max_pool2d: (
        _max_pool, _MAX, {**_NO_WINDOW, "dilation": 1, "return_indices": False},
    ),
    torch.max_pool2d: (
        _max_pool, _MAX, {**_NO_WINDOW, "dilation": 1, "return_indices": False},
    ),
    functional.avg_pool2d: (
        _average_pool, _AVERAGE,
        {**_NO_WINDOW, "count_include_pad": True, "divisor_override": None},
    ),
    functional.adaptive_avg_pool2d: (_adaptive_average, ("output_size",), {}),
    functional.adaptive_max_pool2d: (
        _adaptive_max, ("output_size", "return_indices"), {"return_indices": False},
    ),
    functional.dropout: (
        _dropout, ("p", "training", "inplace"), {**_PLACE, "p": 0.5, "training": True},
    ),
    torch.flatten: (_flatten, ("start_dim", "end_dim"), {"start_dim": 0, "end_dim": -1}),
    "flatten": (_flatten, ("start_dim", "end_dim"), {"start_dim": 0, "end_dim": -1}),
    torch.mean: (_mean, ("dim", "keepdim", "dtype"), {"keepdim": False, "dtype": None}),
    "mean": (_mean, ("dim", "keepdim", "dtype"), {"keepdim": False, "dtype": None}),
}  # fmt: skip
