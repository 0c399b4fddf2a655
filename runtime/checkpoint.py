"""Checkpoints: dictionaries of tensors and plain values, in one file."""

import pickle
from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch

from cli.atomic_files import replacing

__all__ = ["read_checkpoint", "write_checkpoint"]

_KIND = "ADA-GP training checkpoint 1"


def write_checkpoint(
    path: str | PathLike[str], identity: Mapping[str, Any], contents: Mapping[str, Any]
) -> None:
    """Write ``contents``, which go on where ``identity`` is the same."""
    with replacing(path) as file:
        torch.save({"kind": _KIND, "identity": dict(identity), **contents}, file)


def read_checkpoint(path: str | PathLike[str], identity: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`write_checkpoint` wrote.

    Raises
    ------
    ValueError
        the file is no checkpoint, or was written with another identity: in what, and which
    """
    try:
        contents = torch.load(path, weights_only=True)
        known = contents["kind"] == _KIND
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, TypeError):
        known = False
    if not known:
        raise ValueError(f"{path} is no checkpoint of this version")
    for name, wanted in identity.items():
        found = contents["identity"].get(name)
        if found != wanted:
            raise ValueError(f"{path} was written with {name} {found}, the trainer has {wanted}")
    return dict(contents)
