"""The mean over height and width, in two steps of a model's ``forward``."""

import torch

__all__ = ["one_mean"]


def one_mean(graph, step) -> None:
    """Make one mean of ``step`` and what it reads, ``x.mean(3).mean(2)`` or
    ``x.flatten(2).mean(2)``, if they are these."""
    before = step.prev
    if step.args[:1] != (before,) or len(before.users) > 1:
        return
    # The outer mean is over the last axis of (N, C, L), what the inner step left of a map.
    outer, name = _axis(step), _called(before)
    whole = name == "flatten" and (
        (before.args[1:], dict(before.kwargs))
        in (((2,), {}), ((), {"start_dim": 2}), ((2, -1), {}), ((2, 3), {}))
    )
    if outer in (2, -1) and (whole or _axis(before) in (2, 3, -1, -2)):
        step.args, step.kwargs = (before.args[0], (-2, -1)), {}
        graph.erase_node(before)


def _called(step):
    """A function's or method's name."""
    known = {"mean": "mean", torch.mean: "mean", "flatten": "flatten", torch.flatten: "flatten"}
    return known.get(step.target) if step.op in ("call_function", "call_method") else None


def _axis(step):
    """The only axis of a mean; None for another step."""
    if _called(step) != "mean" or len(step.args) + len(step.kwargs) != 2:
        return None
    axis = step.kwargs.get("dim", (*step.args, None)[1])
    if isinstance(axis, tuple | list) and len(axis) == 1:
        return axis[0]
    return axis if isinstance(axis, int) else None
