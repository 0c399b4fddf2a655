"""Which layers of a ``torch.nn.Module`` can be compiled for training, and how they are refused."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Never, Protocol

import torch
from torch import fx, nn

from compiler.errors import CompileError
from compiler.tensors.intervals import Pair

__all__ = [
    "ALLOWED",
    "CHECKS",
    "LayerKind",
    "called",
    "flatten",
    "label_of",
    "refuse",
    "require_module",
]

#: Kind and options of a layer.
LayerKind = tuple[str, dict[str, Any]]


class Source(Protocol):
    """What is asked of the layer in front."""

    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def flat(self) -> bool: ...


#: For messages.
ALLOWED = (
    "Conv2d, Linear, BatchNorm2d, BatchNorm1d, ReLU, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d, "
    "Flatten, Identity, relu, flatten and +"
)


def _convolution(name: str, layer: nn.Conv2d, source: Source) -> LayerKind:
    _require_map(name, source)
    if layer.padding_mode != "zeros":
        refuse(name, f"padding_mode must be 'zeros', not {layer.padding_mode!r}")
    if isinstance(layer.padding, str):
        refuse(name, f"padding must be given in numbers, not as {layer.padding!r}")
    if layer.in_channels != source.shape[0]:
        refuse(name, f"it takes {layer.in_channels} channels but gets {source.shape[0]}")
    options = {key: _pair(getattr(layer, key)) for key in ("stride", "padding", "dilation")}
    if layer.groups == layer.in_channels == layer.out_channels != 1:
        return "depthwise", options
    return "convolution", options | {"groups": layer.groups}


def _linear(name: str, layer: nn.Linear, source: Source) -> LayerKind:
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
    for key in ("affine", "track_running_stats"):
        if not getattr(layer, key):
            refuse(name, f"{key} must be True, not {getattr(layer, key)}")
    if layer.momentum is None:
        refuse(name, "momentum must be a number, not None")
    if layer.num_features != source.shape[0]:
        refuse(name, f"it takes {layer.num_features} channels but gets {source.shape[0]}")
    return "batch_norm", {}


def _max_pool(name: str, layer: nn.MaxPool2d, source: Source) -> LayerKind:
    _require_map(name, source)
    if layer.ceil_mode:
        refuse(name, f"ceil_mode must be False, not {layer.ceil_mode}")
    if _pair(layer.dilation) != (1, 1):
        refuse(name, f"dilation must be 1, not {layer.dilation}")
    if layer.return_indices:
        refuse(name, f"return_indices must be False, not {layer.return_indices}")
    keys = {"kernel": layer.kernel_size, "stride": layer.stride, "padding": layer.padding}
    return "max_pool", {key: _pair(value) for key, value in keys.items()}


def _average_pool(name: str, layer: nn.AvgPool2d, source: Source) -> LayerKind:
    _require_map(name, source)
    if layer.ceil_mode:
        refuse(name, f"ceil_mode must be False, not {layer.ceil_mode}")
    if _pair(layer.padding) != (0, 0):
        refuse(name, f"padding must be 0, not {layer.padding}")
    if layer.divisor_override is not None:
        refuse(name, f"divisor_override must be None, not {layer.divisor_override}")
    keys = {"kernel": layer.kernel_size, "stride": layer.stride}
    return "average_pool", {key: _pair(value) for key, value in keys.items()}


def _adaptive_pool(name: str, layer: nn.AdaptiveAvgPool2d, source: Source) -> LayerKind:
    _require_map(name, source)
    if _pair(layer.output_size) != (1, 1):
        refuse(name, f"output_size must be 1, not {layer.output_size}")
    return "average_pool", {"kernel": source.shape[1:], "stride": source.shape[1:]}


def flatten(name: str, start: int, end: int) -> LayerKind:
    """Kind and options of a layer that flattens these dimensions."""
    if start != 1 or end not in (-1, 3):
        refuse(
            name,
            "it must flatten everything but the batch, start_dim=1 and end_dim=-1 or 3, not "
            f"start_dim={start} and end_dim={end}",
        )
    return "flatten", {}


def _require_map(name: str, source: Source) -> None:
    if source.flat:
        refuse(name, "its input has been flattened to vectors; it takes maps")


def _pair(value: int | Sequence[int]) -> Pair:
    """``value`` as (vertical, horizontal), from a number or a pair."""
    return tuple(value) if isinstance(value, tuple | list) else (value, value)


#: Class -> what a layer of it must be: a function of label, module and the layer it reads that
#: returns kind and options.
CHECKS: dict[type, Callable[[str, Any, Source], LayerKind]] = {
    nn.Conv2d: _convolution,
    nn.Linear: _linear,
    nn.BatchNorm2d: _batch_norm,
    nn.BatchNorm1d: _batch_norm,
    nn.MaxPool2d: _max_pool,
    nn.AvgPool2d: _average_pool,
    nn.AdaptiveAvgPool2d: _adaptive_pool,
    nn.ReLU: lambda *_: ("relu", {}),
    nn.Flatten: lambda name, layer, _: flatten(name, layer.start_dim, layer.end_dim),
    nn.Identity: lambda *_: ("identity", {}),
}


def require_module(model: object) -> None:
    """Raise a :class:`CompileError` unless torch.fx can look into ``model``."""
    if not isinstance(model, nn.Module):
        raise CompileError(f"the model must be a torch.nn.Module, not {type(model).__name__}")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise CompileError(
                f"{f'layer {name}' if name else 'the model'} is scripted or traced "
                f"({type(module).__name__}); torch.fx needs the torch.nn.Module it was made of"
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
