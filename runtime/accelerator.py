"""An accelerator, as users have it."""

from typing import Any, Self

import numpy as np
import torch

from .connection import Connection
from .inference import Inference

__all__ = ["Accelerator"]


class Accelerator(Connection):
    """An accelerator on a device; parameters are those of :class:`~runtime.connection.Connection`.

    It is a context manager: at the end the device is closed.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def predict(self, model: torch.nn.Module, images: Any, *, batch: int = 64) -> np.ndarray:
        """Classes (N,) of images (N, C, H, W) or vectors (N, features), ``batch`` of them at a
        time; errors as :meth:`runtime.inference.Inference.__call__`."""
        with Inference(self, model) as network:
            parts = [network(images[i : i + batch]) for i in range(0, len(images), batch)]
        return np.concatenate(parts).argmax(1)
