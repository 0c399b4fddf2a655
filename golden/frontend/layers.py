"""What modules of torch are as layers: kinds and options of nodes.

Every function here takes the attributes of a module, or the arguments of a function by the same
names, and the node that is read.
"""

from dataclasses import dataclass, field

import numpy as np
from torch import nn

from golden.layers.conv2d import pair

__all__ = [
    "ALLOWED",
    "Found",
    "Refused",
    "SAME",
    "adaptive_average",
    "adaptive_max",
    "average_pool",
    "channel_axes",
    "clamp",
    "dropout",
    "dropout_channels",
    "flatten",
    "gelu",
    "leaky_relu",
    "max_pool",
    "module_layer",
    "needs_map",
    "plain",
    "refuse",
    "relu",
    "softmax",
    "softplus",
    "upsample",
]

ALLOWED = (
    "Conv2d, ConvTranspose2d, Linear, BatchNorm2d, BatchNorm1d, LayerNorm, GroupNorm, Embedding, "
    "ReLU, ReLU6, Hardtanh, LeakyReLU, Hardsigmoid, Hardswish, Sigmoid, Tanh, SiLU, GELU, "
    "Softplus, Softmax, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d, AdaptiveMaxPool2d, Upsample, "
    "Flatten, Dropout, Dropout2d, Identity, the functions of these without parameters, "
    "scaled_dot_product_attention or its products, mean over a map, view, reshape, cat, chunk, "
    "split, slices of channels, +, -, *, and / by a number"
)


class Refused(ValueError):
    """Name of a layer, and why it is not supported."""


def refuse(name, reason):
    """Raise the :class:`Refused` of a layer."""
    raise Refused(name, reason)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a step of torch.fx is: kind and options, the nodes it reads, whether it changes the
    first of them in place; ``heads``: how many torch sees in a sequence, and the order of its axes;
    ``scores``: what it makes of queries and keys, which is no map; ``divided``: (begin, end)
    channels of the parts of a map, which are no map either."""

    kind: str
    options: dict = field(default_factory=dict)
    sources: tuple = ()
    in_place: bool = False
    heads: tuple | None = None
    scores: object = None
    divided: object = None


SAME = ("identity", {})


def channel_axes(source):
    """What torch calls the axis of a node's channels, from the front and from behind."""
    return (2, -1) if source.sequence else (1, -1 if source.flat else -3)


def module_layer(name, module, source) -> Found:
    """What the module ``name`` is that reads the node ``source``."""
    check = _MODULES.get(type(module))
    if check is None:
        refuse(name, f"{type(module).__name__} is unknown; supported are {ALLOWED}")
    kind, options = check(name, module, source)
    in_place = kind != "identity" and getattr(module, "inplace", False)
    return Found(kind=kind, options=options, sources=(source,), in_place=in_place)


def _needs_channels(name, layer, source):
    """A convolution of a map, with zeros around it."""
    needs_map(name, source)
    if layer.padding_mode != "zeros":
        refuse(name, f"padding_mode must be 'zeros', not {layer.padding_mode!r}")
    if layer.in_channels != source.shape[0]:
        refuse(name, f"it takes {layer.in_channels} channels but gets {source.shape[0]}")


def _convolution(name, layer, source):
    _needs_channels(name, layer, source)
    options = {key: pair(getattr(layer, key)) for key in ("stride", "dilation")}
    padding = layer.padding
    if isinstance(padding, str):
        total = [0, 0]
        if padding == "same":
            total = [d * (k - 1) for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
        # One line more below and on the right, where their number is odd.
        halves = ((lines // 2, lines - lines // 2) for lines in total)
        padding = (before if before == behind else (before, behind) for before, behind in halves)
    options["padding"] = tuple(padding)
    if layer.groups == layer.in_channels == layer.out_channels != 1:
        return "depthwise", options
    return "convolution", {**options, "groups": layer.groups}


def _transposed(name, layer, source):
    _needs_channels(name, layer, source)
    names = ("stride", "padding", "dilation", "output_padding", "kernel_size")
    stride, padding, dilation, more, kernel = (pair(getattr(layer, key)) for key in names)
    if any(m >= s for m, s in zip(more, stride, strict=True)):
        refuse(name, f"output_padding must be less than the stride {stride}, not {more}")
    size = tuple(
        (h - 1) * s - 2 * p + d * (k - 1) + m + 1
        for h, s, p, d, k, m in zip(
            source.shape[1:], stride, padding, dilation, kernel, more, strict=True
        )
    )
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    return "transposed", {**options, "groups": layer.groups, "size": size}


def _linear(name, layer, source):
    if source.sequence:
        if layer.in_features != source.shape[0]:
            refuse(name, f"it takes {layer.in_features} features but gets {source.shape[0]}")
        # Every vector of a sequence by itself.
        options = {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0), "groups": 1}
        return "convolution", options
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
    if layer.momentum is None and layer.track_running_stats:
        refuse(name, "momentum must be a number, not None")
    if layer.num_features != source.shape[0]:
        refuse(name, f"it takes {layer.num_features} channels but gets {source.shape[0]}")
    # Without running statistics those of the batch count in evaluation as well.
    return "batch_norm" if layer.training or not layer.track_running_stats else "fixed_norm", {}


def _embedding(name, layer, source):
    if "tokens" not in source.options:
        refuse(name, "it reads an input of tokens")
    if layer.max_norm is not None or layer.scale_grad_by_freq:
        refuse(name, "max_norm and scale_grad_by_freq are not supported")
    return "embedding", {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0), "groups": 1}


def _layer_norm(name, layer, source):
    if not source.sequence or tuple(layer.normalized_shape) != source.shape[:1]:
        refuse(name, f"it normalises the vectors of a sequence, not {layer.normalized_shape}")
    return "layer_norm", {}


def _group_norm(name, layer, source):
    needs_map(name, source)
    if layer.num_channels != source.shape[0]:
        refuse(name, f"it takes {layer.num_channels} channels but gets {source.shape[0]}")
    return "group_norm", {"groups": layer.num_groups}


def _windows(layer):
    stride = layer.stride if layer.stride not in (None, ()) else layer.kernel_size
    sizes = {"kernel": layer.kernel_size, "stride": stride, "padding": layer.padding}
    return {**{key: pair(size) for key, size in sizes.items()}, "ceil_mode": bool(layer.ceil_mode)}


def max_pool(name, layer, source):
    needs_map(name, source)
    if pair(layer.dilation) != (1, 1):
        refuse(name, f"dilation must be 1, not {layer.dilation}")
    if layer.return_indices:
        refuse(name, f"return_indices must be False, not {layer.return_indices}")
    return "max_pool", _windows(layer)


def average_pool(name, layer, source):
    needs_map(name, source)
    divisor = layer.divisor_override
    if divisor is not None and divisor < 1:
        refuse(name, f"divisor_override must be at least 1, not {divisor}")
    counts = {"include_pad": bool(layer.count_include_pad), "divisor": divisor}
    return "average_pool", {**_windows(layer), **counts}


def _adaptive(name, layer, source):
    """Average or maximum, with windows of one size."""
    needs_map(name, source)
    if getattr(layer, "return_indices", False):
        refuse(name, f"return_indices must be False, not {layer.return_indices}")
    size = source.shape[1:]
    wanted = layer.output_size
    wanted = wanted if isinstance(wanted, tuple | list) else (wanted, wanted)
    outputs = [s if o is None else int(o) for o, s in zip(wanted, size, strict=True)]
    if size[0] % outputs[0] or size[1] % outputs[1]:
        refuse(name, f"output_size must divide {size}, not be {layer.output_size}")
    kernel = size[0] // outputs[0], size[1] // outputs[1]
    if kernel == (1, 1):
        return SAME
    return {"kernel": kernel, "stride": kernel, "padding": (0, 0), "ceil_mode": False}


def adaptive_average(name, layer, source):
    found = _adaptive(name, layer, source)
    if found is SAME:
        return found
    return "average_pool", {**found, "include_pad": True, "divisor": None}


def adaptive_max(name, layer, source):
    found = _adaptive(name, layer, source)
    return found if found is SAME else ("max_pool", found)


def flatten(name, layer, source):
    if source.sequence:
        refuse(name, "it flattens maps, not sequences")
    if layer.start_dim != 1 or layer.end_dim not in (-1, 3):
        refuse(
            name,
            "it must flatten everything but the batch, start_dim=1 and end_dim=-1 or 3, not "
            f"start_dim={layer.start_dim} and end_dim={layer.end_dim}",
        )
    return "flatten", {}


def dropout(name, layer, source, whole=False):
    if not 0 <= layer.p < 1:
        refuse(name, f"p is from 0 to 1, without 1, not {layer.p}")
    return ("dropout", {"p": layer.p, "whole": whole}) if layer.training and layer.p else SAME


def dropout_channels(name, layer, source):
    needs_map(name, source)
    return dropout(name, layer, source, whole=True)


def clamp(name, layer, source):
    low, high = float(layer.min_val), float(layer.max_val)
    if not np.isfinite([low, high]).all() or not high - low > max(abs(low), abs(high)) / 4:
        refuse(name, f"its limits {low} and {high} must be finite and apart")
    return "clamp", {"low": low, "high": high}


def leaky_relu(name, layer, source):
    slope = float(layer.negative_slope)
    if not 0 <= slope < np.inf:
        refuse(name, f"negative_slope must not be negative, nor infinite: {slope}")
    return "leaky_relu", {"slope": slope}


def gelu(name, layer, source):
    if layer.approximate not in ("none", "tanh"):
        refuse(name, f"approximate is none or tanh, not {layer.approximate}")
    return "gelu", {"tanh": layer.approximate == "tanh"}


def softplus(name, layer, source):
    if layer.beta != 1 or layer.threshold < 20:
        refuse(name, f"beta is 1, threshold at least 20, not {layer.beta} and {layer.threshold}")
    return "softplus", {}


def softmax(name, layer, source):
    dims = (2, -1) if source.sequence else (1, -1 if source.flat else -3)
    dim = 1 if isinstance(layer, nn.Softmax2d) else layer.dim
    if dim not in dims or (source.flat and source.shape[1:] != (1, 1)):
        refuse(name, f"it is over channels, dim={dims[0]}, not dim={dim}")
    if getattr(layer, "dtype", None) is not None:
        refuse(name, f"its dtype is None, not {layer.dtype}")
    return "softmax", {}


def upsample(name, layer, source):
    needs_map(name, source)
    factor = layer.scale_factor
    if layer.size is not None:
        factor = tuple(o / i for o, i in zip(pair(layer.size), source.shape[1:], strict=True))
    factor = pair(factor)
    if layer.mode != "nearest" or any(f < 1 or f % 1 for f in factor):
        refuse(name, f"it repeats pixels, by whole factors, not {layer.mode} by {factor}")
    factor = tuple(int(f) for f in factor)
    return SAME if factor == (1, 1) else ("upsample", {"factor": factor})


def plain(kind):
    return lambda name, layer, source: (kind, {})


def needs_map(name, source):
    if source.flat or source.sequence:
        what = "is a sequence" if source.sequence else "has been flattened to vectors"
        refuse(name, f"it takes maps, but its input {what}")


def relu(name, layer, source):
    return "relu", {}


_MODULES = {
    nn.Conv2d: _convolution,
    nn.ConvTranspose2d: _transposed,
    nn.Linear: _linear,
    nn.BatchNorm2d: _batch_norm,
    nn.BatchNorm1d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.Embedding: _embedding,
    nn.MaxPool2d: max_pool,
    nn.AvgPool2d: average_pool,
    nn.AdaptiveAvgPool2d: adaptive_average,
    nn.AdaptiveMaxPool2d: adaptive_max,
    nn.ReLU: relu,
    nn.ReLU6: clamp,
    nn.Hardtanh: clamp,
    nn.LeakyReLU: leaky_relu,
    nn.Hardsigmoid: plain("hardsigmoid"),
    nn.Hardswish: plain("hardswish"),
    nn.Sigmoid: plain("sigmoid"),
    nn.Tanh: plain("tanh"),
    nn.SiLU: plain("silu"),
    nn.GELU: gelu,
    nn.Softplus: softplus,
    nn.Softmax: softmax,
    nn.Softmax2d: softmax,
    nn.Upsample: upsample,
    nn.UpsamplingNearest2d: upsample,
    nn.Flatten: flatten,
    nn.Dropout: dropout,
    nn.Dropout2d: dropout_channels,
    nn.Identity: lambda *_: SAME,
}
