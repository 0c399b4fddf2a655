"""What the host gives a program as the network's inputs."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from hw.formats import format_by_name

from .encoding import codes_of
from .tensor import Tensor

__all__ = ["InputLayer", "OutputLayer", "check_shape", "each_input", "encoded", "token_codes"]


class OutputLayer(Protocol):
    """What is asked of a :class:`compiler.training.program.LayerInfo`."""

    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def flat(self) -> bool: ...
    @property
    def sequence(self) -> bool: ...


class InputLayer(OutputLayer, Protocol):
    """The same of an input."""

    @property
    def name(self) -> str: ...
    @property
    def tokens(self) -> int | None: ...
    @property
    def padding(self) -> int | None: ...


def each_input(images: Any, inputs: Sequence[InputLayer]) -> Sequence[ArrayLike]:
    """What the host gives for each of the ``inputs``; a ValueError if their number is another."""
    if len(inputs) == 1:
        return [images]
    if not isinstance(images, list | tuple) or len(images) != len(inputs):
        raise ValueError(
            f"images must be a list of {len(inputs)} arrays, one for each input "
            f"({', '.join(layer.name for layer in inputs)})"
        )
    return images


def token_codes(tensor: Tensor, tokens: np.ndarray, layer: InputLayer) -> np.ndarray:
    """Codes, of the shape of ``tensor``, of a 1 at each token, and of nothing for padding.

    Raises
    ------
    ValueError
        for tokens of another shape than (N, T), or that the ``layer`` does not have
    """
    count, length, _, channels = tensor.shape
    check_shape(layer.name, tokens, (count, length), "sentences, tokens")
    if tokens.dtype.kind not in "iu":
        raise ValueError(f"{layer.name} must be integers, not {tokens.dtype}")
    wrong = (tokens < 0) | (tokens >= channels)
    if wrong.any():
        place = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise ValueError(
            f"{layer.name}{list(place)} is {tokens[place]}; it must be from 0 to {channels - 1}"
        )
    found = (np.arange(channels) == tokens[..., np.newaxis]).astype(np.float64)
    if layer.padding is not None:
        found[tokens == layer.padding] = 0.0
    return encoded(tensor, found.reshape(tensor.shape))


def check_shape(name: str, values: np.ndarray, expected: tuple[int, ...], axes: str) -> None:
    """Raise unless ``values`` have the shape ``expected``."""
    if values.shape == expected:
        return
    if values.ndim == len(expected) and values.shape[1:] == expected[1:]:
        raise ValueError(
            f"{name} of a batch of {len(values)}: the program was compiled for batches of "
            f"{expected[0]}"
        )
    shown = f"({axes},)" if len(expected) == 1 else f"({axes})"
    raise ValueError(f"{name} must have shape {shown} = {expected}, not {values.shape}")


def encoded(tensor: Tensor, values: np.ndarray) -> np.ndarray:
    """Codes of real numbers in the format of ``tensor``."""
    if tensor.kind != "float32":
        return codes_of(format_by_name(tensor.kind), values)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, np.float32).view(np.uint32)
