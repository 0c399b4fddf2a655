"""What a network reads: images, sequences, tokens, and tensors that never change."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import fx, nn

from compiler.errors import CompileError

from .functions import Operation, out_of_place
from .layer import Layer
from .supported_layers import ALLOWED, refuse
from .torch_errors import refusing

__all__ = [
    "Constant",
    "combine",
    "embedding_of",
    "empty_inputs",
    "input_operation",
    "own_tensor",
    "shapes_of",
    "with_constants",
]


@dataclass(frozen=True, eq=False)
class Constant:
    """A module's own tensor, or what has been made of such tensors alone, by the step ``name``."""

    name: str
    values: torch.Tensor


def shapes_of(input_shape: Any) -> list[tuple[int, ...]]:
    """Shapes of the inputs, from that of one or a list of them; a CompileError if it is wrong."""
    several = isinstance(input_shape, list | tuple) and len(input_shape) > 0
    several = several and all(isinstance(shape, list | tuple) for shape in input_shape)
    shapes = []
    for given in input_shape if several else [input_shape]:
        try:
            shape = tuple(int(size) for size in given)
        except (TypeError, ValueError):
            shape = ()
        if len(shape) not in (1, 2, 3) or min(shape) < 1:
            raise CompileError(
                f"input_shape must be (C, H, W), (features,) or (T, C), (T,) for tokens, or a list "
                f"of these, not {given!r}"
            )
        shapes.append(shape)
    return shapes


def embedding_of(step: fx.Node, modules: dict[str, nn.Module]) -> nn.Embedding | None:
    """The ``nn.Embedding`` that reads an input, whose numbers are tokens then; None for none."""
    found = [modules[user.target] for user in step.users
             if user.op == "call_module" and isinstance(user.target, str)]  # fmt: skip
    embeddings = [module for module in found if isinstance(module, nn.Embedding)]
    sizes = {(module.num_embeddings, module.padding_idx) for module in embeddings}
    if len(sizes) > 1:
        refuse(step.name, "embeddings that read the same tokens must have one size and padding_idx")
    return embeddings[0] if embeddings else None


def empty_inputs(
    graph: fx.Graph, given: Sequence[Sequence[int]], modules: dict[str, nn.Module], images: int
) -> list[torch.Tensor]:
    """Tensors without data of the shapes that are ``given``, one for each input."""
    inputs = [step for step in graph.nodes if step.op == "placeholder"]
    if len(inputs) < len(given):
        names = ", ".join(step.name for step in inputs)
        raise CompileError(f"input_shape has {len(given)} shapes, the network reads {names}")
    for step in inputs[len(given) :]:
        many = "one input" if len(given) == 1 else f"{len(given)} inputs"
        refuse(
            step.name, f"a network has {many}, not {step.name} besides; input_shape may be a list"
        )
    return [
        torch.empty(
            (images, *size), device="meta",
            dtype=torch.float32 if embedding_of(step, modules) is None else torch.int64,
        )
        for step, size in zip(inputs, given, strict=True)
    ]  # fmt: skip


def own_tensor(label: str, model: nn.Module, target: str, *, read: bool = True) -> torch.Tensor:
    """A module's tensor; if it is ``read``, a CompileError for a parameter that is learned."""
    tensor: Any = model
    for part in target.split("."):
        tensor = getattr(tensor, part)
    if not isinstance(tensor, torch.Tensor) or (read and tensor.requires_grad):
        refuse(
            label,
            f"a module's own tensor or constant, {target}, cannot be used unless it is a buffer; "
            f"allowed are the parameters of {ALLOWED}",
        )
    return tensor


def input_operation(
    step: fx.Node, embedding: nn.Embedding | None, values: torch.Tensor
) -> Operation:
    """An input, of tokens if an ``embedding`` reads it."""
    if embedding is None:
        return Operation(kind="input", options={}, sources=())
    if values.dim() != 2:
        refuse(step.name, f"tokens are (T,) for a sentence, not {tuple(values.shape[1:])}")
    count = embedding.num_embeddings
    options = {"tokens": count, "padding_token": embedding.padding_idx}
    return Operation(kind="input", options=options, sources=(), shape=(count, values.shape[1], 1))


def combine(
    step: fx.Node, label: str, args: Sequence[Any], kwargs: Mapping[str, Any],
    constants: MutableMapping[fx.Node, Constant],
) -> None:  # fmt: skip
    """Add what a step makes of constants alone, such as a part of one, to ``constants``."""
    values = [part.values if isinstance(part, Constant) else part for part in args]
    if step.op == "call_module":
        refuse(label, "it takes maps, not a constant")
    if isinstance(args[0], Constant) and out_of_place(step.target)[1]:
        refuse(label, "a constant cannot be changed")
    with refusing(label):
        if step.op == "call_method":
            found = getattr(values[0], str(step.target))(*values[1:], **kwargs)
        else:
            found = cast(Any, step.target)(*values, **kwargs)
    if isinstance(found, torch.Tensor):
        constants[step] = Constant(step.name, found)


def with_constants(
    label: str, args: Sequence[Any], layers: MutableMapping[str, Layer]
) -> tuple[Any, ...]:
    """Arguments with layers in place of constants, which go with the map beside them and are among
    ``layers`` (by name) then."""
    other = next((part for part in args if isinstance(part, Layer)), None)
    if other is None:
        refuse(label, "a constant goes with a map, not with heads")
    found: list[Any] = []
    for part in args:
        if isinstance(part, Constant):
            part = layers.setdefault(part.name, _constant_layer(label, part, other))
        found.append(part)
    return tuple(found)


def _constant_layer(label: str, constant: Constant, other: Layer) -> Layer:
    """A constant as a map that goes with ``other``, for all images."""
    channels, height, width = other.shape
    size: Sequence[int] = (channels, height, width)
    if other.sequence:
        size = (height, channels)
    elif other.flat:
        size = (channels * height * width,)
    values = constant.values
    try:
        full = values.expand(1, *size)
    except RuntimeError:
        refuse(
            label, f"its constant has shape {tuple(values.shape)}, which does not go with {size}"
        )
    if other.flat and (height, width) != (1, 1):
        refuse(label, "a constant does not go with a map that has been flattened")
    if not other.sequence and not other.flat:
        full = full.permute(0, 2, 3, 1)
    numbers = np.asarray(full.double().numpy()).reshape(1, height, width, channels)
    return Layer(
        name=constant.name, kind="constant", inputs=(), shape=other.shape, flat=other.flat,
        sequence=other.sequence, options={"values": numbers},
    )  # fmt: skip
