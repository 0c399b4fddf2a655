"""Networks by name, as definitions without weights."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.errors import CompileError

__all__ = ["network", "network_names", "published", "read_shape", "shape_text"]

#: Who defines them, MODULE:NAME of a dictionary: the compiler needs none of them.
_NETWORKS = "algorithms.networks.registry:PUBLISHED"


def _networks() -> Mapping[str, Any]:
    module, _, name = _NETWORKS.partition(":")
    networks: Mapping[str, Any] = getattr(importlib.import_module(module), name)
    return networks


def network_names(*, relatives: bool = True) -> list[str]:
    """Names that :func:`network` knows; without ``relatives`` only those of the paper."""
    return [name for name, found in _networks().items() if relatives or not found.relative]


def published(name: str) -> Any:
    """What is known of a network: ``make``, ``shapes``, ``loss``, ``classes_of(shape)``.

    Raises
    ------
    CompileError
        if there is none of this name.
    """
    networks = _networks()
    if name not in networks:
        raise CompileError(f"network must be one of {', '.join(networks)}, not {name!r}")
    return networks[name]


def shape_text(shape: Sequence[int]) -> str:
    """What :func:`read_shape` reads."""
    return "x".join(str(size) for size in shape)


def read_shape(text: str) -> tuple[int, int, int]:
    """(C, H, W) of "CxHxW" or "C,H,W"."""
    sizes = text.replace(",", "x").split("x")
    if len(sizes) != 3 or not all(size.isdecimal() and int(size) for size in sizes):
        raise CompileError(
            f"--input must be channels, height and width as in 3x32x32, not {text!r}"
        )
    channels, height, width = map(int, sizes)
    return channels, height, width


def network(
    name: str, input_shape: Sequence[int], *, classes: int | None = None, width: float = 1.0
) -> Any:
    """A ``torch.nn.Module`` on the meta device: shapes, and no memory.

    Parameters
    ----------
    name : of :func:`network_names`
    input_shape : (C, H, W)
    classes : None: as many as such images usually have
    width : what numbers of channels are multiplied by

    Raises
    ------
    CompileError
        naming what is wrong and what is allowed.
    """
    import torch

    found = published(name)
    if not 0 < width <= 16:
        raise CompileError(f"width must be above 0 and at most 16, not {width}")
    if classes is None:
        classes = found.classes_of(input_shape)
    if classes < 1:
        raise CompileError(f"classes must be at least 1, not {classes}")
    try:
        with torch.device("meta"):
            return found.make(tuple(input_shape), classes, width=width)
    except ValueError as error:
        raise CompileError(f"network {name}: {error}") from error
