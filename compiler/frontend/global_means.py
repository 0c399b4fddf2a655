"""Means over height and width that a ``forward`` takes in two steps: they become one."""

from typing import Any

import torch
from torch import fx

__all__ = ["join_means"]

_MEANS = ("mean", torch.mean)
_FLATTENS = ("flatten", torch.flatten)


def join_means(graph: fx.Graph) -> None:
    """Write ``x.mean(-1).mean(-1)`` and ``x.flatten(2).mean(-1)``, in whatever way their axes are
    counted, as ``x.mean((-2, -1))``, which is the same of maps. Of anything else neither is
    supported."""
    for second in list(graph.nodes):
        first = second.args[0] if second.args else None
        if not isinstance(first, fx.Node) or list(first.users) != [second]:
            continue
        if first.next is not second:
            continue  # the map may be changed in between
        axis = _axis(second, _MEANS, "dim")
        inner = _axis(first, _MEANS, "dim")
        # Of (N, C, H, W) one of the last two axes, then the last of (N, C, L).
        means = inner is not None and inner % 4 in (2, 3)
        if axis is None or axis % 3 != 2 or not (means or _flattens(first)):
            continue
        second.args, second.kwargs = (first.args[0], (-2, -1)), {}
        graph.erase_node(first)


def _axis(step: fx.Node, targets: tuple[Any, ...], name: str) -> int | None:
    """The only argument of a call of one of ``targets`` behind the map, if it is a number."""
    if step.op not in ("call_function", "call_method") or step.target not in targets:
        return None
    given = [*step.args[1:], *step.kwargs.values()]
    known = len(given) == 1 and (len(step.args) == 2 or name in step.kwargs)
    axis: Any = given[0] if known else None
    if isinstance(axis, list | tuple) and len(axis) == 1:
        axis = axis[0]
    return axis if type(axis) is int else None


def _flattens(step: fx.Node) -> bool:
    """Whether a step makes (N, C, L) of a map."""
    if _axis(step, _FLATTENS, "start_dim") == 2:
        return True
    called = step.op in ("call_function", "call_method") and step.target in _FLATTENS
    return called and not step.kwargs and step.args[1:] in ((2, -1), (2, 3))
