"""Some channels of a map in a model's ``forward``: slices, and what divides a map into several."""

import operator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import torch

from compiler.tensors.intervals import Interval

from .functions import Call, Operation
from .layer import Layer
from .supported_layers import refuse

__all__ = ["SLICING", "Parts", "slice_operation"]

#: What divides a map into several, and what takes a part of it.
_DIVIDING: tuple[Any, ...] = ("chunk", torch.chunk, "split", torch.split)
_TAKING: tuple[Any, ...] = (operator.getitem, "narrow", torch.narrow)
SLICING = (*_DIVIDING, *_TAKING)


@dataclass(frozen=True)
class Parts:
    """A map that has been divided; each part is a layer where it is read.

    Members
    -------
    layer : the map
    places : channels (begin, end) of each part
    """

    layer: Layer
    places: tuple[Interval, ...]

    def __str__(self) -> str:
        return f"{len(self.places)} parts of {self.layer.name}"


def slice_operation(call: Call) -> Operation | None:
    """What a call is that takes channels of a map, or divides it; None if it is something else."""
    source = call.args[0] if call.args else None
    if isinstance(source, Parts):
        return _part(call, source)
    if call.target not in SLICING or not isinstance(source, Layer):
        return None
    if call.target in _DIVIDING:
        return _divide(call, source)
    channels = _index if call.target is operator.getitem else _narrow
    return _slice(source, channels(call, source))


def _part(call: Call, parts: Parts) -> Operation:
    number = call.args[1] if call.target is operator.getitem else None
    if not isinstance(number, int):
        refuse(call.label, f"{parts} must be taken one by one, as in a, b = x.chunk(2, dim=1)")
    return _slice(parts.layer, parts.places[number])


def _slice(source: Layer, channels: Interval) -> Operation:
    if channels == (0, source.shape[0]):
        return Operation(kind="identity", options={}, sources=(source,))
    options = dict(zip(("begin", "end"), channels, strict=True))
    return Operation(kind="slice", options=options, sources=(source,))


def _divide(call: Call, source: Layer) -> Operation:
    by = "chunks" if call.target in ("chunk", torch.chunk) else "split_size_or_sections"
    if by not in call.kwargs and "split_size" in call.kwargs:
        by = "split_size"
    arguments = call.bind({by: ..., "dim": 0})
    _require_channels(call, source, arguments.dim)
    channels = torch.empty(source.shape[0], device="meta")
    divided = getattr(channels, "chunk" if by == "chunks" else "split")(getattr(arguments, by))
    ends = accumulate((len(part) for part in divided), initial=0)
    places = tuple(pairwise(ends))
    return Operation(kind="identity", options={}, sources=(source,), places=places)


def _narrow(call: Call, source: Layer) -> Interval:
    arguments = call.bind({"dim": ..., "start": ..., "length": ...})
    _require_channels(call, source, arguments.dim)
    begin = arguments.start % source.shape[0]
    return begin, begin + arguments.length


def _index(call: Call, source: Layer) -> Interval:
    given = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    sizes = [prod(source.shape)] if source.flat else list(source.shape)
    if source.sequence:
        sizes = [source.shape[1], source.shape[0]]
    if Ellipsis in given:
        place = given.index(Ellipsis)
        between = [slice(None)] * (len(sizes) + 2 - len(given))
        given = (*given[:place], *between, *given[place + 1 :])
    batch, *axes = given  # torch says whether all of the batch is there
    axes += [slice(None)] * (len(sizes) - len(axes))
    channel = 1 if source.sequence else 0
    if all(isinstance(axis, slice) for axis in (batch, *axes)):
        ranges = [range(size)[axis] for size, axis in zip(sizes, axes, strict=True)]
        others = [ranges[n] == range(sizes[n]) for n in range(len(sizes)) if n != channel]
        found = ranges[channel]
        if all(others) and found and found.step == 1:
            if found == range(sizes[channel]):
                return 0, source.shape[0]
            _require_channels(call, source, channel + 1)
            return found.start, found.stop
    refuse(
        call.label,
        f"a slice must have some channels, one behind the other, of {_what(source)}: x[:, a:b], of "
        "a sequence x[..., a:b]",
    )


def _require_channels(call: Call, source: Layer, dim: Any) -> None:
    if dim not in source.channel_dims:
        refuse(call.label, f"it must divide channels, dim={source.channel_dims[0]}, not dim={dim}")
    if source.flat and source.shape[1:] != (1, 1):
        refuse(call.label, f"it divides a map {source.shape} that has been flattened to a vector")


def _what(source: Layer) -> str:
    kind = "a vector" if source.flat else "a sequence" if source.sequence else "a map"
    return f"{kind} {source.shape}"
