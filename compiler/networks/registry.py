"""Networks by name, as definitions without weights."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler.errors import CompileError

__all__ = ["LARGE", "network", "network_names", "published_input", "read_shape"]

#: Who defines them, MODULE:NAME of a dictionary: the compiler needs none of them.
_NETWORKS = "algorithms.networks.paper_networks:NETWORKS"
#: Smaller side from which on images are ImageNet's, of 1000 classes and not 10.
LARGE = 96


def _networks() -> Mapping[str, Callable[..., Any]]:
    module, _, name = _NETWORKS.partition(":")
    networks: Mapping[str, Callable[..., Any]] = getattr(importlib.import_module(module), name)
    return networks


def network_names() -> list[str]:
    """Names that :func:`network` knows."""
    return list(_networks())


def published_input(name: str) -> str:
    """The images of a network's publication, "CxHxW"."""
    module = importlib.import_module(_NETWORKS.partition(":")[0])
    return "x".join(str(size) for size in module.imagenet_shape(name))


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
    classes : of the logits; None: 1000 for images of at least LARGE × LARGE pixels, else 10
    width : what numbers of channels are multiplied by

    Raises
    ------
    CompileError
        naming what is wrong and what is allowed.
    """
    import torch

    networks = _networks()
    if name not in networks:
        raise CompileError(f"network must be one of {', '.join(networks)}, not {name!r}")
    if not 0 < width <= 16:
        raise CompileError(f"width must be above 0 and at most 16, not {width}")
    if classes is None:
        classes = 1000 if min(input_shape[1:]) >= LARGE else 10
    if classes < 1:
        raise CompileError(f"classes must be at least 1, not {classes}")
    try:
        with torch.device("meta"):
            return networks[name](tuple(input_shape), classes, width=width)
    except ValueError as error:
        raise CompileError(f"network {name}: {error}") from error
