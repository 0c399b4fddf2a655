"""Which layers of a ``torch.nn.Module`` can be compiled for training, and how they are refused."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, prod
from typing import Any, Never, Protocol, TypeAlias

from torch import fx, nn

from compiler.errors import CompileError
from compiler.tensors.intervals import Pair

__all__ = [
    "ALLOWED",
    "CHECKS",
    "HINTS",
    "IDENTITY",
    "LayerKind",
    "Norm",
    "Source",
    "TOKENS",
    "called",
    "complete_norm",
    "label_of",
    "refuse",
    "require_map",
]

#: Kind and options of a layer.
LayerKind = tuple[str, dict[str, Any]]
#: Of a layer that changes nothing.
IDENTITY: LayerKind = "identity", {}


class Source(Protocol):
    """What is asked of the layer in front."""

    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def flat(self) -> bool: ...
    @property
    def sequence(self) -> bool: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


#: For messages.
ALLOWED = (
    "Conv2d, ConvTranspose2d, Linear, BatchNorm2d, BatchNorm1d, LayerNorm, GroupNorm, Embedding, "
    "ReLU, ReLU6, Hardtanh, LeakyReLU, Hardsigmoid, Hardswish, Sigmoid, Tanh, SiLU, GELU, "
    "Softplus, Softmax, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d, AdaptiveMaxPool2d, Upsample, "
    "Flatten, Dropout, Dropout2d, Identity, the functions of these without parameters, "
    "scaled_dot_product_attention or its products, mean over a map, view, reshape, cat, chunk, "
    "split, slices of channels, +, -, *, and / by a number"
)


def _require_channels(name: str, layer: nn.Conv2d | nn.ConvTranspose2d, source: Source) -> None:
    """Refuse a convolution of what is no map of its channels, or without zeros around it."""
    require_map(name, source)
    if layer.padding_mode != "zeros":
        refuse(name, f"padding_mode must be 'zeros', not {layer.padding_mode!r}")
    if layer.in_channels != source.shape[0]:
        refuse(name, f"it takes {layer.in_channels} channels but gets {source.shape[0]}")


def _convolution(name: str, layer: nn.Conv2d, source: Source) -> LayerKind:
    _require_channels(name, layer, source)
    kernel, dilation = _pair(layer.kernel_size), _pair(layer.dilation)
    if layer.padding == "same":
        # Above and on the left; what is behind the map follows from the size of the output.
        vertical, horizontal = (d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True))
        padding = vertical, horizontal
    else:
        padding = (0, 0) if layer.padding == "valid" else _pair(layer.padding)
    options = {"stride": _pair(layer.stride), "padding": padding, "dilation": dilation}
    if layer.groups == layer.in_channels == layer.out_channels != 1:
        return "depthwise", options
    return "convolution", options | {"groups": layer.groups}


def _transposed(name: str, layer: nn.ConvTranspose2d, source: Source) -> LayerKind:
    _require_channels(name, layer, source)
    options: dict[str, Any] = {
        key: _pair(getattr(layer, key)) for key in ("stride", "padding", "dilation")
    }
    more = _pair(layer.output_padding)
    if more[0] >= options["stride"][0] or more[1] >= options["stride"][1]:
        refuse(name, f"output_padding must be less than the stride {options['stride']}, not {more}")
    return "transposed", options | {"groups": layer.groups}


def _linear(name: str, layer: nn.Linear, source: Source) -> LayerKind:
    if source.sequence:
        if layer.in_features != source.shape[0]:
            refuse(name, f"it takes {layer.in_features} features but gets {source.shape[0]}")
        # A convolution of one pixel.
        options = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
        return "convolution", options
    if not source.flat:
        refuse(name, f"a Flatten layer must come before it; its input is a map {source.shape}")
    if layer.in_features != prod(source.shape):
        refuse(name, f"it takes {layer.in_features} features but gets {prod(source.shape)}")
    return "linear", {}


def _batch_norm(name: str, layer: nn.BatchNorm1d | nn.BatchNorm2d, source: Source) -> LayerKind:
    if source.flat != isinstance(layer, nn.BatchNorm1d) or (
        source.flat and source.shape[1:] != (1, 1)
    ):
        given = f"{'vectors of a map' if source.flat else 'a map'} {source.shape}"
        refuse(name, f"BatchNorm2d takes maps, BatchNorm1d vectors of a linear layer, not {given}")
    if layer.momentum is None and layer.track_running_stats:
        refuse(name, "momentum must be a number, not None")
    if layer.num_features != source.shape[0]:
        refuse(name, f"it takes {layer.num_features} channels but gets {source.shape[0]}")
    # In evaluation those of the batch count where none are kept.
    fixed = layer.track_running_stats and not layer.training
    return "fixed_norm" if fixed else "batch_norm", {}


#: Normalisations, and numbers that stand for the parameters and statistics which one may lack.
Norm: TypeAlias = nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm
_NORM_PARTS = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}


def complete_norm(norm: Norm) -> tuple[Norm, dict[str, float]]:
    """A normalisation with all parameters and statistics, and those that have been added to it:
    the numbers that they have."""
    constants = {
        name: value
        for name, value in _NORM_PARTS.items()
        if getattr(norm, name, value) is None  # statistics are of batch normalisations alone
    }
    if not constants:
        return norm, {}
    whole: Norm
    if isinstance(norm, nn.LayerNorm):
        whole = nn.LayerNorm(norm.normalized_shape, eps=norm.eps)
    elif isinstance(norm, nn.GroupNorm):
        whole = nn.GroupNorm(norm.num_groups, norm.num_channels, eps=norm.eps)
    else:
        whole = type(norm)(norm.num_features, eps=norm.eps, momentum=norm.momentum or 0.0)
    for name in _NORM_PARTS:
        if name in constants:
            if isinstance(part := getattr(whole, name), nn.Parameter):
                part.requires_grad_(False)
        elif hasattr(norm, name):
            setattr(whole, name, getattr(norm, name))
    return whole.train(norm.training), constants


#: What an embedding reads.
TOKENS = (
    "it takes an input of the network, whose numbers are tokens; for positions add a buffer (T, C) "
    "in its place, x + self.positions[: x.size(1)], as algorithms/networks/transformer.py does"
)


def _embedding(name: str, layer: nn.Embedding, source: Source) -> LayerKind:
    if "tokens" not in source.options:
        refuse(name, TOKENS)
    if layer.max_norm is not None or layer.scale_grad_by_freq:
        refuse(name, "max_norm must be None, scale_grad_by_freq False")
    return "embedding", {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}


def _layer_norm(name: str, layer: nn.LayerNorm, source: Source) -> LayerKind:
    if not source.sequence or tuple(layer.normalized_shape) != source.shape[:1]:
        refuse(
            name,
            "it must normalise the vectors of a sequence; normalized_shape is "
            f"{tuple(layer.normalized_shape)}, the input {source.shape}",
        )
    return "layer_norm", {}


def _group_norm(name: str, layer: nn.GroupNorm, source: Source) -> LayerKind:
    require_map(name, source)
    if layer.num_channels != source.shape[0]:
        refuse(name, f"it takes {layer.num_channels} channels but gets {source.shape[0]}")
    return "group_norm", {"groups": layer.num_groups}


def _max_pool(name: str, layer: Any, source: Source) -> LayerKind:
    require_map(name, source)
    if _pair(layer.dilation) != (1, 1):
        refuse(name, f"dilation must be 1, not {layer.dilation}")
    if layer.return_indices:
        refuse(name, f"return_indices must be False, not {layer.return_indices}")
    return "max_pool", _window(layer)


def _average_pool(name: str, layer: Any, source: Source) -> LayerKind:
    require_map(name, source)
    if layer.divisor_override is not None and layer.divisor_override < 1:
        refuse(name, f"divisor_override must be at least 1, not {layer.divisor_override}")
    options = {"include_pad": bool(layer.count_include_pad), "divisor": layer.divisor_override}
    return "average_pool", _window(layer) | options


def _window(layer: Any) -> dict[str, Any]:
    stride = layer.kernel_size if layer.stride in (None, ()) else layer.stride
    keys = {"kernel": layer.kernel_size, "stride": stride, "padding": layer.padding}
    return {key: _pair(value) for key, value in keys.items()} | {"ceil_mode": bool(layer.ceil_mode)}


def _adaptive_pool(name: str, layer: Any, source: Source, *, maximum: bool) -> LayerKind:
    require_map(name, source)
    if maximum and layer.return_indices:
        refuse(name, f"return_indices must be False, not {layer.return_indices}")
    size = source.shape[1:]
    wanted = tuple(
        own if new is None else new for own, new in zip(size, _pair(layer.output_size), strict=True)
    )
    if any(own % new for own, new in zip(size, wanted, strict=True)):
        refuse(name, f"output_size must divide the map of {size}, not be {layer.output_size}")
    kernel = size[0] // wanted[0], size[1] // wanted[1]
    if kernel == (1, 1):
        return IDENTITY
    options = {"kernel": kernel, "stride": kernel, "padding": (0, 0), "ceil_mode": False}
    if maximum:
        return "max_pool", options
    return "average_pool", options | {"include_pad": True, "divisor": None}


def _flatten(name: str, layer: Any, source: Source) -> LayerKind:
    if source.sequence:
        refuse(name, "its input is a sequence, which cannot be flattened")
    if layer.start_dim != 1 or layer.end_dim not in (-1, 3):
        refuse(
            name,
            "it must flatten everything but the batch, start_dim=1 and end_dim=-1 or 3, not "
            f"start_dim={layer.start_dim} and end_dim={layer.end_dim}",
        )
    return "flatten", {}


def _dropout(name: str, layer: Any, source: Source) -> LayerKind:
    return _dropped(name, layer, whole=False)


def _dropout_channels(name: str, layer: Any, source: Source) -> LayerKind:
    require_map(name, source)
    return _dropped(name, layer, whole=True)


def _dropped(name: str, layer: Any, *, whole: bool) -> LayerKind:
    if not 0 <= layer.p < 1:
        refuse(name, f"p must be at least 0 and below 1, not {layer.p}")
    if not layer.training or not layer.p:
        return IDENTITY
    return "dropout", {"p": float(layer.p), "whole": whole}


def _clamp(name: str, layer: Any, source: Source) -> LayerKind:
    low, high = float(layer.min_val), float(layer.max_val)
    # Numbers of every operand format that are not the same must differ by so much.
    if not (isfinite(low) and isfinite(high) and high - low > max(abs(low), abs(high)) / 4):
        refuse(
            name,
            "its limits must be finite, and the upper one larger by more than a quarter of either, "
            f"not {low} and {high}",
        )
    return "clamp", {"low": low, "high": high}


def _leaky_relu(name: str, layer: Any, source: Source) -> LayerKind:
    slope = float(layer.negative_slope)
    if not (isfinite(slope) and slope >= 0):
        refuse(name, f"negative_slope must be finite and not negative, not {slope}")
    return "leaky_relu", {"slope": slope}


def _gelu(name: str, layer: Any, source: Source) -> LayerKind:
    if layer.approximate not in ("none", "tanh"):
        refuse(name, f"approximate must be 'none' or 'tanh', not {layer.approximate!r}")
    return "gelu", {"tanh": layer.approximate == "tanh"}


def _softplus(name: str, layer: Any, source: Source) -> LayerKind:
    if layer.beta != 1:
        refuse(name, f"beta must be 1, not {layer.beta}")
    if layer.threshold < 20:
        refuse(name, f"threshold must be at least 20, not {layer.threshold}")
    return "softplus", {}


def _softmax(name: str, layer: Any, source: Source) -> LayerKind:
    dim = 1 if isinstance(layer, nn.Softmax2d) else layer.dim
    if source.flat and source.shape[1:] != (1, 1):
        refuse(name, f"its input is a map {source.shape} that has been flattened to vectors")
    dims = (2, -1) if source.sequence else (1, -1) if source.flat else (1, -3)
    if dim not in dims:
        refuse(name, f"it must be taken over the channels, dim={dims[0]}, not dim={dim}")
    if getattr(layer, "dtype", None) is not None:
        refuse(name, f"dtype must be None, not {layer.dtype}")
    return "softmax", {}


def _upsample(name: str, layer: Any, source: Source) -> LayerKind:
    require_map(name, source)
    if layer.mode != "nearest":
        refuse(name, f"mode must be 'nearest', not {layer.mode!r}")
    if layer.size is not None:
        wanted = _pair(layer.size)
        factor = [new / own for new, own in zip(wanted, source.shape[1:], strict=True)]
    else:
        factor = [float(value) for value in _pair(layer.scale_factor)]
    if any(value < 1 or value != int(value) for value in factor):
        refuse(name, f"height and width must grow by whole factors, not by {factor}")
    if factor == [1, 1]:
        return IDENTITY
    return "upsample", {"factor": (int(factor[0]), int(factor[1]))}


def require_map(name: str, source: Source) -> None:
    """Refuse the layer ``name`` if what it reads is no map."""
    if source.flat:
        refuse(name, "its input has been flattened to vectors; it takes maps")
    if source.sequence:
        refuse(name, "its input is a sequence; it takes maps")


def _pair(value: int | Sequence[int]) -> Pair:
    """``value`` as (vertical, horizontal), from a number or a pair."""
    return tuple(value) if isinstance(value, tuple | list) else (value, value)


#: Class -> what a layer of it must be: a function of label, module (or what has its attributes) and
#: the layer it reads that returns kind and options.
CHECKS: dict[type, Callable[[str, Any, Source], LayerKind]] = {
    nn.Conv2d: _convolution,
    nn.ConvTranspose2d: _transposed,
    nn.Linear: _linear,
    nn.BatchNorm2d: _batch_norm,
    nn.BatchNorm1d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
    nn.Embedding: _embedding,
    nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _average_pool,
    nn.AdaptiveAvgPool2d: lambda *layer: _adaptive_pool(*layer, maximum=False),
    nn.AdaptiveMaxPool2d: lambda *layer: _adaptive_pool(*layer, maximum=True),
    nn.ReLU: lambda *_: ("relu", {}),
    nn.ReLU6: _clamp,
    nn.Hardtanh: _clamp,
    nn.LeakyReLU: _leaky_relu,
    nn.Hardsigmoid: lambda *_: ("hardsigmoid", {}),
    nn.Hardswish: lambda *_: ("hardswish", {}),
    nn.Sigmoid: lambda *_: ("sigmoid", {}),
    nn.Tanh: lambda *_: ("tanh", {}),
    nn.SiLU: lambda *_: ("silu", {}),
    nn.GELU: _gelu,
    nn.Softplus: _softplus,
    nn.Softmax: _softmax,
    nn.Softmax2d: _softmax,
    nn.Upsample: _upsample,
    nn.UpsamplingNearest2d: _upsample,
    nn.Flatten: _flatten,
    nn.Dropout: _dropout,
    nn.Dropout2d: _dropout_channels,
    nn.Identity: lambda *_: IDENTITY,
}


_ATTENTION = (
    "its projections are one parameter; write linear layers, three of them or one whose output "
    "chunk(3, dim=-1) divides, and scaled_dot_product_attention, as "
    "algorithms/networks/transformer.py does"
)
#: What to do instead of modules that people may expect to work.
HINTS: dict[type, str] = dict.fromkeys(
    (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer), _ATTENTION
)


def label_of(step: fx.Node, module: nn.Module | None = None) -> str:
    """Of a step for messages: its name and class or function; the module whose forward has it."""
    if module is not None:
        return f"{step.target} ({type(module).__name__})"
    owners = list(step.meta.get("nn_module_stack", {}).values())
    where = f" in {owners[-1][0]} {owners[-1][1].__name__}" if owners and owners[-1][0] else ""
    return f"{step.name} ({called(step)}{where})"


def called(step: fx.Node) -> str:
    """What a step calls or reads."""
    if step.target is getattr:
        return f"reading .{step.args[1]}"
    return getattr(step.target, "__name__", str(step.target))


def refuse(name: str, reason: str) -> Never:
    """Raise the :class:`CompileError` of a layer, by the label that it is given."""
    raise CompileError(f"layer {name}: {reason}")
