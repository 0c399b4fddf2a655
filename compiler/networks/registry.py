"""Networks by name, as definitions without weights."""

import importlib
from collections.abc import Mapping
from typing import Any

from compiler.errors import CompileError

__all__ = [
    "LARGE_BATCH", "SMALL", "SMALL_BATCH", "InputShape", "check_width", "network",
    "network_names", "published", "read_shape", "shape_text", "usual_batch", "usual_method",
]  # fmt: skip

#: (C, H, W) of an image, or the lengths of several sentences, (T,) each.
InputShape = tuple[int, ...] | tuple[tuple[int, ...], ...]

#: Images of CIFAR-10, and the batch; the batch for images of the size of the publication, with
#: which VGG19 and YOLO-v3 fit into a memory window as well.
SMALL, SMALL_BATCH, LARGE_BATCH = "3x32x32", 128, 16
#: The batch for CIFAR's images where that is too large: 128 take Inception-V4 5.5 GiB, and a memory
#: window has at most 4.
_LESS = {"inception-v4": 64}

#: Who defines them, MODULE:NAME of a dictionary: the compiler needs none of them.
_NETWORKS = "algorithms.networks.registry:PUBLISHED"


def usual_method(variant: str) -> str:
    """How a variant trains unless told otherwise: with ADA-GP if it has a predictor."""
    return "bp" if variant == "baseline" else "adagp"


def usual_batch(network: str, size: str) -> int:
    """Images of a batch, ``size`` as :func:`shape_text` writes it, unless told otherwise."""
    return _LESS.get(network, SMALL_BATCH) if size == SMALL else LARGE_BATCH


def _networks() -> Mapping[str, Any]:
    module, _, name = _NETWORKS.partition(":")
    networks: Mapping[str, Any] = getattr(importlib.import_module(module), name)
    return networks


def network_names(*, relatives: bool = True) -> list[str]:
    """Names that :func:`network` knows; without ``relatives`` only those of the paper."""
    return [name for name, found in _networks().items() if relatives or not found.relative]


def published(name: str) -> Any:
    """What is known of a network: ``make``, ``shapes``, ``loss``, ``classes_of(shape)``,
    ``reads_images``.

    Raises
    ------
    CompileError
        if there is none of this name.
    """
    networks = _networks()
    if name not in networks:
        raise CompileError(f"network must be one of {', '.join(networks)}, not {name!r}")
    return networks[name]


def shape_text(shape: InputShape) -> str:
    """What :func:`read_shape` reads."""
    parts = ["x".join(map(str, part)) if isinstance(part, tuple) else str(part) for part in shape]
    return ("x" if _is_image(shape) else "+").join(parts)


def _is_image(shape: InputShape) -> bool:
    return isinstance(shape[0], int)


def read_shape(text: str) -> InputShape:
    """(C, H, W) of "CxHxW" or "C,H,W"; ((S,), (T,)) of "S+T"."""
    sizes = text.replace(",", "x").split("x")
    lengths = text.split("+")
    if len(sizes) == 3 and all(size.isdecimal() and int(size) for size in sizes):
        return tuple(map(int, sizes))
    if len(lengths) > 1 and all(size.isdecimal() and int(size) for size in lengths):
        return tuple((int(size),) for size in lengths)
    raise CompileError(
        "--input must be channels, height and width of an image as in 3x32x32, or the lengths of "
        f"sentences as in 32+32, not {text!r}"
    )


def check_width(width: float) -> None:
    """Raises CompileError for what numbers of channels cannot be multiplied by."""
    if not 0 < width <= 16:
        raise CompileError(f"width must be above 0 and at most 16, not {width}")


def network(
    name: str, input_shape: InputShape, *, classes: int | None = None, width: float = 1.0
) -> Any:
    """A ``torch.nn.Module`` on the meta device: shapes, and no memory.

    Parameters
    ----------
    name : of :func:`network_names`
    input_shape : of :func:`read_shape`
    classes : None: as many as such images usually have
    width : what numbers of channels are multiplied by

    Raises
    ------
    CompileError
        naming what is wrong and what is allowed.
    """
    import torch

    found = published(name)
    check_width(width)
    usual = found.shapes[0]
    if found.reads_images != _is_image(input_shape) or len(input_shape) != len(usual):
        raise CompileError(
            f"the input of network {name} must be one as {shape_text(usual)}, not "
            f"{shape_text(input_shape)}"
        )
    if classes is None:
        classes = found.classes_of(input_shape)
    if classes < 1:
        raise CompileError(f"classes must be at least 1, not {classes}")
    try:
        with torch.device("meta"):
            return found.make(tuple(input_shape), classes, width=width)
    except ValueError as error:
        raise CompileError(f"network {name}: {error}") from error
