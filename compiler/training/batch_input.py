"""A batch as the host gives it, checked and in the shape of its tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from compiler.tensors.host_input import (
    InputLayer,
    OutputLayer,
    check_shape,
    encoded,
    token_codes,
)
from compiler.tensors.tensor import Tensor

__all__ = [
    "LOSSES",
    "LossFunction",
    "each_target",
    "image_codes",
    "label_values",
    "target_codes",
]

LOSSES = ("cross_entropy", "mean_squared_error", "binary_cross_entropy")


@dataclass(frozen=True, kw_only=True)
class LossFunction:
    """The loss of an output in training.

    Members
    -------
    kind : one of :data:`LOSSES`
    smoothing : of cross-entropy: how much of a label all classes share
    ignore : of cross-entropy: the label that does not count; None if all do
    """

    kind: str
    smoothing: float = 0.0
    ignore: int | None = None


def image_codes(tensor: Tensor, images: ArrayLike, layer: InputLayer) -> np.ndarray:
    """Operand codes, of the shape of ``tensor``, of images; see
    :meth:`compiler.training.program.TrainingProgram.batch`.

    ``layer`` is the network's input. Raises ValueError.
    """
    images = np.asarray(images)
    if layer.tokens is not None and images.ndim != 4:
        return token_codes(tensor, images, layer)
    count, length, _, channels = tensor.shape
    if layer.flat:
        expected, axes = (count, channels), "images, features"
        if images.shape == tensor.shape:
            expected, axes = tensor.shape, "images, 1, 1, features"
    elif layer.sequence and images.ndim != 4:
        expected, axes = (count, length, channels), "images, length, channels"
    else:
        expected, axes = tensor.shape, "images, height, width, channels"
    check_shape("images", images, expected, axes)
    codes = images.dtype.kind == "u"
    if images.dtype.kind != "f" and not (codes and images.dtype == tensor.dtype):
        raise ValueError(
            f"images must be real numbers (float16, float32 or float64), or {tensor.kind} codes "
            f"({tensor.dtype}), not {images.dtype}"
        )
    shaped = images.reshape(tensor.shape)
    return shaped if codes else _encoded("images", tensor, shaped, images)


def each_target(targets: Any, outputs: Sequence[str]) -> Sequence[ArrayLike]:
    """The targets of each of the ``outputs``, names of layers; a ValueError if their number is
    another one."""
    if len(outputs) == 1:
        return [targets]
    if not isinstance(targets, list | tuple) or len(targets) != len(outputs):
        what = (
            f"{len(targets)}" if isinstance(targets, list | tuple) else f"{type(targets).__name__}"
        )
        raise ValueError(
            f"targets must be a list of {len(outputs)} arrays, one for each output "
            f"({', '.join(outputs)}), not {what}"
        )
    return targets


def target_codes(
    tensor: Tensor, targets: ArrayLike, *, loss: LossFunction, output: OutputLayer
) -> np.ndarray:
    """Codes, of the shape of ``tensor``, of labels or target maps; 0 for a label that does not
    count.

    ``output`` is the layer, with its ``shape`` (C, H, W) and whether it is ``flat``. Raises
    ValueError.
    """
    targets = np.asarray(targets)
    channels, height, width = output.shape
    if loss.kind == "cross_entropy":
        axes = "images" + (", length" if output.sequence else ", height, width")
        dims = 1 if output.flat else 2 if output.sequence else 3
        check_shape("labels", targets, tensor.shape[:dims], "images" if output.flat else axes)
        if targets.dtype.kind not in "iu":
            raise ValueError(f"labels must be integers, not {targets.dtype}")
        ignored = targets == loss.ignore
        wrong = ~ignored & ((targets < 0) | (targets >= channels))
        if wrong.any():
            place = tuple(int(index) for index in np.argwhere(wrong)[0])
            other = "" if loss.ignore is None else f", or {loss.ignore}"
            raise ValueError(
                f"labels{list(place)} is {targets[place]}; it must be from 0 to "
                f"{channels - 1}{other}"
            )
        if ignored.all():
            raise ValueError(f"all labels are {loss.ignore}; at least one must count")
        targets = np.where(ignored, 0, targets)
        return targets.astype(np.uint32).reshape(tensor.shape)
    if output.flat:
        expected, axes = (tensor.shape[0], channels * height * width), "images, features"
    elif output.sequence:
        expected, axes = (tensor.shape[0], height, channels), "images, length, channels"
    else:
        expected, axes = tensor.shape, "images, height, width, channels"
    check_shape("targets", targets, expected, axes)
    if targets.dtype.kind not in "fiu":
        raise ValueError(f"targets must be real numbers, not {targets.dtype}")
    if loss.kind == "binary_cross_entropy":
        wrong = ~((targets >= 0) & (targets <= 1))
        if wrong.any():
            place = tuple(int(index) for index in np.argwhere(wrong)[0])
            raise ValueError(f"targets{list(place)} is {targets[place]}; it must be from 0 to 1")
    shaped = targets
    if output.flat:
        # What torch sees flattened has its channels outermost, and keeps its map in memory.
        shaped = np.moveaxis(targets.reshape(-1, channels, height, width), 1, 3)
    return _encoded("targets", tensor, shaped.reshape(tensor.shape), targets)


def label_values(
    tensors: Mapping[str, Tensor], labels: ArrayLike, loss: LossFunction
) -> dict[str, np.ndarray]:
    """Float32 numbers that go with checked labels: those that a host writes of the ``tensors`` of a
    :class:`compiler.kernels.updates.loss.LabelTensors`, by their names there."""
    if not tensors:
        return {}
    labels = np.asarray(labels).ravel()
    counts = labels != loss.ignore
    count, found = int(counts.sum()), {}
    if loss.ignore is not None:
        shape = tensors["factors"].shape
        factors = np.full((len(labels), shape[3]), 1.0 / count, np.float32)
        factors[~counts] = -np.inf
        factors[~counts, 0] = 0.0
        found["factors"] = factors.reshape(shape)
        rows = [[1.0 / count, 1.0], [0.0, count - len(labels)]]
        found["summary"] = np.array(rows, np.float32)[np.newaxis, np.newaxis]
    if loss.smoothing:
        shape = tensors["shift"].shape
        classes, part = shape[3], np.nonzero(counts)[0]
        shift = np.zeros((len(labels), classes), np.float32)
        shift[part] = -loss.smoothing / (classes * count)
        shift[part, labels[part]] = loss.smoothing * (1 - 1 / classes) / count
        found["shift"] = shift.reshape(shape)
    return found


def _encoded(name: str, tensor: Tensor, shaped: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Codes of ``shaped``, which holds the numbers of ``given`` in the tensor's order."""
    codes = encoded(tensor, shaped)
    if np.isfinite(tensor.values(codes)).all():
        return codes
    finite = np.isfinite(tensor.values(encoded(tensor, given)))
    place = tuple(int(index) for index in np.argwhere(~finite)[0])
    value = given[place]
    why = f"too large for {tensor.kind}" if np.isfinite(value) else "not finite"
    raise ValueError(f"{name}{list(place)} is {value}, which is {why}")
