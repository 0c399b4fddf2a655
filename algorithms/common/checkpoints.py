"""Reading what an interrupted training has left."""

import pickle
from pathlib import Path

import torch

__all__ = ["read_checkpoint"]


def read_checkpoint(path: str | Path) -> dict:
    """What ``torch.save`` has written, with all tensors on the processor.

    Raises
    ------
    ValueError
        naming a file that is damaged.
    """
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except (EOFError, RuntimeError, pickle.UnpicklingError):
        raise ValueError(f"checkpoint {path} is damaged; delete it to start again") from None
