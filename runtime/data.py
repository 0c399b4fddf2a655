"""Batches as torch's users have them, as the compiler takes them."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

__all__ = ["as_batch", "as_images", "input_shape", "with_following"]

Batch = TypeVar("Batch")


def _array(name: str, values: Any) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    values = np.asarray(values)
    if values.dtype == object:
        raise ValueError(f"{name} must be an array of numbers, not {values!r:.60}")
    return values


def as_images(images: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Images (N, C, H, W), or vectors (N, features), as float32 (N, H, W, C), or as they are.

    ``shape``: (C, H, W) or (features,) that they must have. Raises ValueError.
    """
    images = _array("images", images)
    if images.ndim not in (2, 4):
        raise ValueError(
            "images must be (N, C, H, W) or vectors (N, features), as in torch, not of shape "
            f"{images.shape}"
        )
    if not len(images):
        raise ValueError("a batch must have at least one image, not 0")
    if shape is not None and images.shape[1:] != tuple(shape):
        hint = ""
        if images.ndim == 4 and images.shape[1:] == (*shape[1:], shape[0]):
            hint = "; the channels come first, as in torch: images.permute(0, 3, 1, 2)"
        raise ValueError(f"images must be of shape (N, {', '.join(map(str, shape))}), not "
                         f"{images.shape}{hint}")  # fmt: skip
    if images.dtype.kind not in "fiu":
        raise ValueError(f"images must be real numbers, not {images.dtype}")
    images = images.astype(np.float32)
    return np.ascontiguousarray(np.moveaxis(images, 1, 3)) if images.ndim == 4 else images


def as_batch(batch: Any, shape: tuple[int, ...] | None = None) -> tuple[np.ndarray, Any]:
    """(images, targets) of what a loader yields: a pair; images as :func:`as_images`, targets that
    are maps (N, C, H, W) likewise, a list of them for networks with several outputs. Raises
    ValueError."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise ValueError(f"a loader must yield pairs (images, labels), not {type(batch).__name__}")
    images = as_images(batch[0], shape)
    several = isinstance(batch[1], tuple | list)
    targets = [_targets(one, len(images)) for one in (batch[1] if several else [batch[1]])]
    return images, targets if several else targets[0]


def _targets(values: Any, count: int) -> np.ndarray:
    targets = _array("labels", values)
    if targets.ndim == 4:
        targets = np.ascontiguousarray(np.moveaxis(targets, 1, 3))
    if len(targets) != count:
        raise ValueError(f"{count} images come with {len(targets)} labels")
    return targets


def input_shape(images: np.ndarray) -> tuple[int, ...]:
    """(C, H, W) or (features,) of what :func:`as_images` returned."""
    if images.ndim == 2:
        return images.shape[1:]
    return (images.shape[3], *images.shape[1:3])


def with_following(batches: Iterable[Batch]) -> Iterator[tuple[Batch, Batch | None]]:
    """Each batch with the next one, None behind the last. An error of ``batches`` comes when it is
    the turn of the batch that could not be had, not of the one before it."""
    iterator = iter(batches)
    current = next(iterator, None)
    while current is not None:
        following, error = None, None
        try:
            following = next(iterator, None)
        except Exception as caught:
            error = caught
        yield current, following
        if error is not None:
            raise error
        current = following
