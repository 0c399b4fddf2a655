"""What a network reads: images, sequences, tokens, and tensors that never change."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from golden.arithmetic.dot_product import encode

from .functions import out_of_place
from .layers import refuse

__all__ = [
    "Constant",
    "attribute",
    "combined",
    "constant_values",
    "encode_inputs",
    "own_tensor",
    "shapes_of",
    "token_options",
]


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that depends on no input, made by the step ``name``."""

    name: str
    values: torch.Tensor


def shapes_of(input_shape):
    """A list of shapes, from one or several."""
    several = len(input_shape) > 0 and all(isinstance(part, list | tuple) for part in input_shape)
    shapes = [tuple(int(n) for n in shape) for shape in (input_shape if several else [input_shape])]
    for shape in shapes:
        if len(shape) not in (1, 2, 3) or min(shape) < 1:
            raise ValueError(
                f"input_shape must be (C, H, W), (features,) or (T, C), not {input_shape!r}"
            )
    return shapes


def token_options(step, modules):
    """Options of an input of tokens, which an ``nn.Embedding`` reads; None for another one."""
    readers = [modules[user.target] for user in step.users if user.op == "call_module"]
    sizes = {
        (module.num_embeddings, module.padding_idx)
        for module in readers
        if isinstance(module, nn.Embedding)
    }
    if len(sizes) > 1:
        refuse(step.name, f"embeddings of sizes {sizes} read the same tokens")
    return {"tokens": min(sizes)[0], "padding": min(sizes)[1]} if sizes else None


def attribute(model, target):
    """What a model has under a name with dots."""
    for part in target.split("."):
        model = getattr(model, part)
    return model


def own_tensor(step, model):
    """A module's own tensor that is not learned."""
    values = attribute(model, step.target)
    if not isinstance(values, torch.Tensor) or values.requires_grad:
        refuse(step.name, f"a module's own tensor or constant, {step.target}, must be a buffer")
    return Constant(step.name, values)


def combined(step, name, args, kwargs):
    """What a function makes of constants."""
    values = [part.values if isinstance(part, Constant) else part for part in args]
    if step.op == "call_module":
        refuse(name, "it takes maps, not a constant")
    method = step.op == "call_method"
    if isinstance(args[0], Constant) and out_of_place(step.target)[1]:
        refuse(name, "a constant cannot be changed")
    function = getattr(values[0], step.target) if method else step.target
    found = function(*values[method:], **kwargs)
    return Constant(step.name, found) if isinstance(found, torch.Tensor) else found


def constant_values(name, constant, other):
    """(1, H, W, C) real numbers of a constant that goes with the map of the node ``other``."""
    channels, height, width = other.shape
    try:
        if other.sequence:
            full = constant.values.expand(1, height, channels)[:, :, None]
        elif other.flat:
            full = constant.values.expand(1, channels)[:, None, None]
        else:
            full = constant.values.expand(1, channels, height, width).permute(0, 2, 3, 1)
    except RuntimeError:
        refuse(name, f"a constant {tuple(constant.values.shape)} does not go with {other.shape}")
    return full.double().numpy()


def encode_inputs(fmt, nodes, images):
    """Operand codes of what a network reads; of several inputs a list."""
    inputs = [node for node in nodes if node.kind == "input"]
    if len(inputs) == 1:
        return _encode(fmt, inputs[0], images)
    if not isinstance(images, list | tuple) or len(images) != len(inputs):
        raise ValueError(f"Images must be a list of {len(inputs)}, one for each input")
    return [_encode(fmt, node, part) for node, part in zip(inputs, images, strict=True)]


def _encode(fmt, node, images):
    channels, height, width = node.shape
    images = np.asarray(images)
    if "tokens" in node.options and images.ndim == 2:
        images = _one_hot(images, **node.options)
    images = np.asarray(images, np.float64)
    if images.ndim == 2 and node.flat:
        images = images[:, np.newaxis, np.newaxis]
    if images.ndim == 3 and node.sequence:
        images = images[:, :, np.newaxis]
    if images.shape[1:] != (height, width, channels) or not len(images):
        raise ValueError(
            f"Images must have shape (N, {height}, {width}, {channels}), not {images.shape}"
        )
    return encode(fmt, images)


def _one_hot(codes, tokens, padding):
    """(N, T, tokens): 1 at the token; nothing for padding."""
    if codes.dtype.kind not in "iu" or codes.min() < 0 or codes.max() >= tokens:
        raise ValueError(f"Tokens must be integers from 0 to {tokens - 1}")
    found = np.arange(tokens) == codes[..., np.newaxis]
    return found & (codes != padding)[..., np.newaxis] if padding is not None else found
