"""Parts of the channels of a map in a model's ``forward``."""

import operator
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

from .layers import SAME, Found, channel_axes, refuse

__all__ = ["Divided", "classify_slices"]

_INTO_PARTS = ("chunk", torch.chunk, "split", torch.split)
_NARROW = ("narrow", torch.narrow)


@dataclass(frozen=True)
class Divided:
    """A node in several parts, each (begin, end) channels of it."""

    node: object
    ranges: tuple


def classify_slices(name, target, args, kwargs, shapes, node_type) -> Found | None:
    """What a call is that takes parts of the channels, else None.

    ``shapes`` are those of torch's result, or of each of its results, for one image; the rest as
    for ``classify``.
    """
    if not args or not isinstance(args[0], node_type | Divided):
        return None
    source = args[0]
    if isinstance(source, Divided):
        if target is not operator.getitem or not isinstance(args[1], int):
            refuse(name, "a divided map is read part by part")
        return _found(source.node, source.ranges[args[1]])
    if target in _INTO_PARTS:
        dim = kwargs.get("dim", args[2] if len(args) > 2 else 0)
        _needs_channels(name, source, dim)
        axis = channel_axes(source)[0] - 1
        ends = accumulate((shape[axis] for shape in shapes), initial=0)
        return Found(kind="identity", sources=(source,), divided=tuple(pairwise(ends)))
    if target in _NARROW:
        given = dict(zip(("dim", "start", "length"), args[1:], strict=False)) | kwargs
        _needs_channels(name, source, given["dim"])
        start = given["start"] % source.shape[0]
        return _found(source, (start, start + given["length"]))
    if target is operator.getitem:
        return _found(source, _indexed(name, source, args[1]))
    return None


def _found(source, channels):
    begin, end = channels
    if channels == (0, source.shape[0]):
        return Found(kind=SAME[0], sources=(source,))
    return Found(kind="slice", options={"begin": begin, "end": end}, sources=(source,))


def _needs_channels(name, source, dim):
    if source.flat and source.shape[1:] != (1, 1):
        refuse(name, "it divides a map that has been flattened")
    if dim not in channel_axes(source):
        refuse(name, f"it divides channels, not axis {dim}")


def _indexed(name, source, index):
    """Channels that an index takes."""
    channels, *pixels = source.shape
    axis = channel_axes(source)[0]
    size = (1, channels) if source.flat else (1, *source.shape)
    if source.flat and pixels != [1, 1]:
        size = (1, channels * pixels[0] * pixels[1])
    if source.sequence:
        size = (1, pixels[0], channels)
    every = index if isinstance(index, tuple) else (index,)
    if not all(part is Ellipsis or isinstance(part, slice) for part in every):
        refuse(name, f"it is indexed by slices, not {index}")
    # Where each number comes from, so that all ways to write a slice are known.
    along = torch.arange(size[axis]).view(-1, *(1 for _ in size[axis + 1 :]))
    taken = along.expand(size)[index].movedim(axis, -1)
    places = taken.reshape(-1, taken.shape[-1])[0].tolist() if taken.numel() else []
    others = [length for place, length in enumerate(size) if place != axis]
    behind = places and places == [*range(places[0], places[0] + len(places))]
    if not behind or list(taken.shape[:-1]) != others:
        refuse(name, "it takes some channels, one behind the other, and all else")
    if len(places) == size[axis]:
        return 0, channels
    if size[axis] != channels:
        refuse(name, "it takes a part of a map that has been flattened")
    return places[0], places[-1] + 1
