"""Functions and methods in a model's ``forward``: which layers they are."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from compiler.tensors.intervals import Interval

from .layer import Layer
from .supported_layers import ALLOWED, CHECKS, IDENTITY, LayerKind, refuse, require_map

__all__ = [
    "COMBINING", "DIVIDING", "FUNCTIONS", "MULTIPLYING", "RESHAPING", "SHAPES",
    "SHAPE_ATTRIBUTES", "Call", "Operation", "operation", "out_of_place",
]  # fmt: skip

#: What only asks for the shape of a map: no layer.
SHAPES = ("size", "dim", "ndimension", "numel", len)
#: Attributes that do.
SHAPE_ATTRIBUTES = ("shape", "ndim")


@dataclass(frozen=True, kw_only=True)
class Call:
    """A function or method, called.

    Members
    -------
    label : of the call, for messages
    target : the function, or the name of the method
    args, kwargs : with a :class:`~compiler.frontend.layer.Layer` for every map
    shape : of the result, as torch has it, the batch in front
    """

    label: str
    target: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    shape: Sequence[int] = field(default=())

    def bind(self, parameters: Mapping[str, Any]) -> SimpleNamespace:
        """Arguments behind the first one by name, with these defaults; ``...`` has none."""
        given = dict(zip(parameters, self.args[1:], strict=False))
        given |= {name: value for name, value in self.kwargs.items() if name != "input"}
        unknown = [name for name in given if name not in parameters]
        if unknown or len(self.args) > len(parameters) + 1:
            more = ", ".join(unknown) or "more of them"
            refuse(self.label, f"its arguments are {', '.join(parameters)}, not {more}")
        values = dict(parameters) | given
        missing = [name for name, value in values.items() if value is ...]
        if missing:
            refuse(self.label, f"it needs {', '.join(missing)}")
        return SimpleNamespace(**values)

    def source(self) -> Layer:
        """The one map that it reads."""
        if self.args and isinstance(self.args[0], Layer):
            return self.args[0]
        refuse(self.label, f"its operand must be one map, given by position, not {self._given()}")

    def _given(self) -> str:
        values = [*self.args, *(f"{key}={value}" for key, value in self.kwargs.items())]
        return ", ".join(_text(value) for value in values) or "nothing"

    def two(self, **parameters: Any) -> tuple[Any, Any, SimpleNamespace]:
        """Two operands, of which at least one is a map, and arguments behind them."""
        if len(self.args) < 2 or not any(isinstance(part, Layer) for part in self.args[:2]):
            refuse(
                self.label,
                "its operands must be two maps, or a map and a number, given by position, not "
                f"{self._given()}",
            )
        first, second = self.args[:2]
        for part in (first, second):
            if not isinstance(part, Layer | int | float) or isinstance(part, bool):
                refuse(self.label, f"its operands must be maps or numbers, not {_text(part)}")
        rest = Call(label=self.label, target=self.target, args=self.args[1:], kwargs=self.kwargs)
        return first, second, rest.bind(parameters)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What a call is: the layer's kind and options, the layers it reads; ``in_place`` if its result
    takes the place of the first of them. ``heads``: count and axes of
    :class:`~compiler.frontend.heads.Heads` where torch sees a sequence so, ``shape`` that of the
    map where torch's is another, ``scores`` the
    :class:`~compiler.frontend.attention.Scores` that it makes in place of a map, ``places`` those
    of :class:`~compiler.frontend.slices.Parts` likewise."""

    kind: str
    options: Mapping[str, Any]
    sources: tuple[Layer, ...]
    in_place: bool = False
    heads: tuple[int, str] | None = None
    shape: tuple[int, int, int] | None = None
    scores: Any = None
    places: tuple[Interval, ...] | None = None


def out_of_place(target: Any) -> tuple[Any, bool]:
    """What does the same as ``target`` to another map, and whether ``target`` works in place."""
    if isinstance(target, str):
        changes = target.endswith("_") and not target.endswith("__")
        return (target[:-1], True) if changes else (target, False)
    plain = _IN_PLACE.get(target, target)
    return plain, plain is not target


def operation(call: Call) -> Operation:
    """What a call is; a :class:`~compiler.errors.CompileError` if it is nothing that is known."""
    target, (plain, in_place) = call.target, out_of_place(call.target)
    if plain in COMBINING:
        sources, (kind, options) = COMBINING[plain](call)
        return Operation(kind=kind, options=options, sources=sources, in_place=in_place)
    if plain in RESHAPING and not in_place:
        source = call.source()
        kind, options = _reshape(call, source)
        return Operation(kind=kind, options=options, sources=(source,))
    if plain not in FUNCTIONS:
        name = getattr(target, "__name__", target)
        refuse(call.label, f"{name} is not supported; allowed are {ALLOWED}")
    check, parameters = FUNCTIONS[plain]
    source, arguments = call.source(), call.bind(parameters)
    kind, options = check(call.label, arguments, source)
    in_place |= bool(getattr(arguments, "inplace", False))
    return Operation(kind=kind, options=options, sources=(source,), in_place=in_place)


# Of several maps ---------------------------------------------------------------------------------

#: Layers that a call reads, and what it is.
_Combined = tuple[tuple[Layer, ...], LayerKind]


def _of_one_shape(call: Call, what: str, first: Layer, second: Layer) -> tuple[Layer, Layer]:
    """Two maps as torch broadcasts them: one of a single row or column, or of a number for each
    channel, is an upsampling of it."""
    maps = not any(part.flat or part.sequence for part in (first, second))
    if maps and first.shape[0] == second.shape[0]:
        height, width = (max(pair) for pair in zip(first.shape[1:], second.shape[1:], strict=True))
        first, second = (_repeated(part, height, width) for part in (first, second))
    if (first.shape, first.flat, first.sequence) != (second.shape, second.flat, second.sequence):
        refuse(
            call.label, f"it {what} maps of {first.shape} and {second.shape}; they must have one "
            "shape, but for height or width of 1",
        )  # fmt: skip
    return first, second


def _repeated(layer: Layer, height: int, width: int) -> Layer:
    """A layer that repeats rows and columns of which there is one."""
    channels, *size = layer.shape
    if size == [height, width] or any(
        own not in (1, new) for own, new in zip(size, (height, width), strict=True)
    ):
        return layer
    return Layer(
        name=f"{layer.name}_{height}x{width}", kind="upsample", inputs=(layer.name,),
        shape=(channels, height, width),
        options={"factor": (height // size[0], width // size[1])},
    )  # fmt: skip


def _add(call: Call) -> _Combined:
    first, second, rest = call.two(alpha=1)
    return _sum(call, first, second, rest.alpha)


def _subtract(call: Call) -> _Combined:
    first, second, rest = call.two(alpha=1)
    return _sum(call, first, second, -rest.alpha)


def _subtract_from(call: Call) -> _Combined:
    first, second, rest = call.two(alpha=1)
    return _sum(call, second, first, -rest.alpha)


def _sum(call: Call, first: Any, second: Any, scale: Any) -> _Combined:
    """``first + second * scale``."""
    scale = _number(call, scale)
    if not isinstance(first, Layer):
        return _affine(call, second, scale, _number(call, first))
    if not isinstance(second, Layer):
        return _affine(call, first, 1.0, _number(call, second) * scale)
    return _of_one_shape(call, "adds", first, second), (
        "add",
        {} if scale == 1 else {"scale": scale},
    )


def _multiply(call: Call) -> _Combined:
    first, second, _ = call.two()
    if isinstance(first, Layer) and isinstance(second, Layer):
        return _of_one_shape(call, "multiplies", first, second), ("multiply", {})
    if isinstance(first, Layer):
        return _affine(call, first, _number(call, second), 0.0)
    return _affine(call, second, _number(call, first), 0.0)


def _divide(call: Call) -> _Combined:
    first, second, _ = call.two()
    if isinstance(second, Layer):
        refuse(call.label, f"it must divide by a number, not by {_text(second)}")
    divisor = _number(call, second)
    if not divisor:
        refuse(call.label, "it divides by 0")
    return _affine(call, first, 1.0 / divisor, 0.0)


def _negate(call: Call) -> _Combined:
    return _affine(call, call.source(), -1.0, 0.0)


def _affine(call: Call, source: Layer, factor: float, offset: float) -> _Combined:
    return (source,), ("affine", {"factor": factor, "offset": offset})


def _number(call: Call, value: Any) -> float:
    if not isfinite(value) or abs(value) >= 2.0**127:
        refuse(call.label, f"its numbers must be finite in float32, not {value}")
    return float(value)


def _concatenate(call: Call) -> _Combined:
    arguments = Call(label=call.label, target=call.target, args=(None, *call.args),
                     kwargs=call.kwargs).bind({"tensors": ..., "dim": 0})  # fmt: skip
    parts = arguments.tensors
    if not isinstance(parts, list | tuple) or not all(isinstance(p, Layer) for p in parts):
        refuse(call.label, f"it joins maps, given as a list, not {_text(parts)}")
    if not parts:
        refuse(call.label, "it must join at least one map")
    flat, dims = parts[0].flat, parts[0].channel_dims
    if arguments.dim not in dims:
        refuse(call.label, f"it must join channels, dim={dims[0]}, not dim={arguments.dim}")
    for part in parts:
        same = (part.flat, part.sequence) == (flat, parts[0].sequence)
        if not same or part.shape[1:] != parts[0].shape[1:]:
            sizes = ", ".join(str(p.shape) for p in parts)
            refuse(call.label, f"it joins maps of {sizes}; they must have one height and width")
        if flat and part.shape[1:] != (1, 1):
            refuse(call.label, f"it joins maps {part.shape} that have been flattened to vectors")
    return tuple(parts), ("concatenate", {})


def _text(value: Any) -> str:
    return value.name if isinstance(value, Layer) else str(value)


# Of one map --------------------------------------------------------------------------------------


def _reshape(call: Call, source: Layer) -> LayerKind:
    """What only gives a map another shape."""
    _, *size = call.shape
    if call.target in EXPANDING and len(size) == 3 and not source.flat and not source.sequence:
        larger = _repeated(source, *size[1:])
        if list(larger.shape) == size:
            return IDENTITY if larger is source else (larger.kind, dict(larger.options))
    count = source.shape[0] * source.shape[1] * source.shape[2]
    own = [count] if source.flat else list(source.shape)
    if source.sequence:
        own = [source.shape[1], source.shape[0]]
    if size == own:
        return IDENTITY
    if not source.sequence and size in ([count], list(source.shape)):
        return "flatten", {}
    refuse(
        call.label,
        f"it must leave the map {source.shape} as it is or flatten everything but the batch, not "
        f"make {tuple(size)} of it",
    )


def _mean(name: str, arguments: Any, source: Layer) -> LayerKind:
    over_vectors = source.sequence and arguments.dim in (1, -2, (1,), [1])
    if over_vectors and not arguments.keepdim:
        arguments = SimpleNamespace(dim=(2, 3), dtype=arguments.dtype)
    else:
        require_map(name, source)
    dims = arguments.dim if isinstance(arguments.dim, list | tuple) else [arguments.dim]
    if arguments.dtype is not None or sorted(d % 4 for d in dims if d is not None) != [2, 3]:
        refuse(name, f"it must be taken over height and width, dim=(2, 3), not dim={arguments.dim}")
    size = source.shape[1:]
    options = {"kernel": size, "stride": size, "padding": (0, 0), "ceil_mode": False}
    return "average_pool", options | {"include_pad": True, "divisor": None}


def _clamp(name: str, arguments: Any, source: Layer) -> LayerKind:
    low, high = arguments.min, arguments.max
    for limit in (low, high):
        if isinstance(limit, bool) or not isinstance(limit, int | float | None):
            refuse(name, f"its limits must be numbers, not {_text(limit)}")
    if low == 0 and high is None:
        return CHECKS[nn.ReLU](name, arguments, source)
    if low is None or high is None:
        refuse(name, f"it must have two limits, or min=0 alone, not min={low} and max={high}")
    limits = SimpleNamespace(min_val=low, max_val=high)
    return CHECKS[nn.Hardtanh](name, limits, source)


#: What repeats rows and columns.
EXPANDING: tuple[Any, ...] = ("expand", "expand_as")
#: Functions that give a map another shape, or a copy of it.
RESHAPING: tuple[Any, ...] = (
    *EXPANDING,
    "view", "reshape", torch.reshape, "squeeze", torch.squeeze, "unsqueeze", torch.unsqueeze,
    "contiguous", "clone", torch.clone,
)  # fmt: skip
#: What multiplies, and what divides.
MULTIPLYING: tuple[Any, ...] = (operator.mul, torch.mul, torch.multiply, "mul", "multiply")
DIVIDING: tuple[Any, ...] = (
    operator.truediv, torch.div, torch.divide, torch.true_divide, "div", "divide", "true_divide",
)  # fmt: skip
#: What a call of several maps, or of a map and a number, is.
COMBINING: dict[Any, Callable[[Call], _Combined]] = {
    **dict.fromkeys((operator.add, torch.add, "add"), _add),
    **dict.fromkeys((operator.sub, torch.sub, torch.subtract, "sub", "subtract"), _subtract),
    torch.rsub: _subtract_from,
    **dict.fromkeys(MULTIPLYING, _multiply),
    **dict.fromkeys(DIVIDING, _divide),
    **dict.fromkeys((operator.neg, torch.neg, torch.negative, "neg", "negative"), _negate),
    **dict.fromkeys((torch.cat, torch.concat, torch.concatenate), _concatenate),
}
#: What changes its first operand, and what does the same without.
_IN_PLACE: dict[Any, Any] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    torch.relu_: torch.relu,
    torch.sigmoid_: torch.sigmoid,
    torch.tanh_: torch.tanh,
    torch.neg_: torch.neg,
    torch.negative_: torch.negative,
    torch.clamp_: torch.clamp,
    torch.clip_: torch.clip,
    functional.hardtanh_: functional.hardtanh,
    functional.leaky_relu_: functional.leaky_relu,
}

_POOL = {"kernel_size": ..., "stride": None, "padding": 0}
_MAX = _POOL | {"dilation": 1, "ceil_mode": False, "return_indices": False}
_AVERAGE = _POOL | {"ceil_mode": False, "count_include_pad": True, "divisor_override": None}
_MAX_FUNCTION = getattr(functional, "max_pool2d")  # noqa: B009 (mypy sees an overloaded function)
#: Function or method -> what checks it, and its arguments behind the map.
FUNCTIONS: dict[Any, tuple[Callable[[str, Any, Any], LayerKind], dict[str, Any]]] = {
    **dict.fromkeys((functional.relu, torch.relu, "relu"), (CHECKS[nn.ReLU], {"inplace": False})),
    functional.relu6: (CHECKS[nn.ReLU6], {"inplace": False, "min_val": 0.0, "max_val": 6.0}),
    functional.hardtanh: (
        CHECKS[nn.Hardtanh], {"min_val": -1.0, "max_val": 1.0, "inplace": False},
    ),
    **dict.fromkeys(
        (torch.clamp, torch.clip, "clamp", "clip"), (_clamp, {"min": None, "max": None})
    ),
    functional.leaky_relu: (
        CHECKS[nn.LeakyReLU], {"negative_slope": 0.01, "inplace": False},
    ),
    functional.hardsigmoid: (CHECKS[nn.Hardsigmoid], {"inplace": False}),
    functional.hardswish: (CHECKS[nn.Hardswish], {"inplace": False}),
    **dict.fromkeys((functional.sigmoid, torch.sigmoid, "sigmoid"), (CHECKS[nn.Sigmoid], {})),
    **dict.fromkeys((functional.tanh, torch.tanh, "tanh"), (CHECKS[nn.Tanh], {})),
    functional.silu: (CHECKS[nn.SiLU], {"inplace": False}),
    functional.gelu: (CHECKS[nn.GELU], {"approximate": "none"}),
    functional.softplus: (CHECKS[nn.Softplus], {"beta": 1, "threshold": 20}),
    **dict.fromkeys(
        (functional.softmax, torch.softmax, "softmax"),
        (CHECKS[nn.Softmax], {"dim": ..., "_stacklevel": 3, "dtype": None}),
    ),
    functional.interpolate: (
        CHECKS[nn.Upsample],
        {"size": None, "scale_factor": None, "mode": "nearest", "align_corners": None,
         "recompute_scale_factor": None, "antialias": False},
    ),
    **dict.fromkeys((_MAX_FUNCTION, torch.max_pool2d), (CHECKS[nn.MaxPool2d], _MAX)),
    functional.avg_pool2d: (CHECKS[nn.AvgPool2d], _AVERAGE),
    functional.adaptive_avg_pool2d: (CHECKS[nn.AdaptiveAvgPool2d], {"output_size": ...}),
    functional.adaptive_max_pool2d: (
        CHECKS[nn.AdaptiveMaxPool2d], {"output_size": ..., "return_indices": False},
    ),
    functional.dropout: (
        CHECKS[nn.Dropout], {"p": 0.5, "training": True, "inplace": False},
    ),
    functional.dropout2d: (
        CHECKS[nn.Dropout2d], {"p": 0.5, "training": True, "inplace": False},
    ),
    **dict.fromkeys(
        (torch.flatten, "flatten"), (CHECKS[nn.Flatten], {"start_dim": 0, "end_dim": -1})
    ),
    **dict.fromkeys(("mean", torch.mean), (_mean, {"dim": None, "keepdim": False, "dtype": None})),
}  # fmt: skip
