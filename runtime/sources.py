"""What the command line names: modules in files, and data."""

import importlib
import importlib.util
import inspect
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from algorithms.data.datasets import DATASETS, load_images
from algorithms.networks.registry import MODELS

__all__ = ["Samples", "load_model", "load_samples", "load_weights"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Images (N, C, H, W) or vectors (N, features), and labels (N,).

    Members
    -------
    images, labels : to train with
    test_images, test_labels : held out; None if there are none
    classes : all labels of the data are below it, also those that are not used
    """

    images: torch.Tensor
    labels: torch.Tensor
    test_images: torch.Tensor | None
    test_labels: torch.Tensor | None
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image."""
        return tuple(self.images.shape[1:])


def load_samples(name: str, *, train: int | None, test: int | None, seed: int) -> Samples:
    """``name`` is one of DATASETS, a directory with files of MNIST or CIFAR, or an ``.npz`` file
    with arrays ``images`` and ``labels``, and perhaps ``test_images`` and ``test_labels``.

    Raises
    ------
    ValueError
        naming what is missing or wrong.
    """
    if not name.endswith(".npz"):
        if name not in DATASETS and not Path(name).is_dir():
            raise ValueError(
                f"data must be {', '.join(DATASETS)}, a directory, or a file .npz, not {name!r}"
            )
        data = load_images(name, seed=seed, train=train, test=test)
        return Samples(
            images=data.train_images, labels=data.train_labels,
            test_images=data.test_images, test_labels=data.test_labels, classes=data.classes,
        )  # fmt: skip
    try:
        with np.load(name, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError) as error:
        raise ValueError(f"{name}: {getattr(error, 'strerror', None) or error}") from error
    for key in ("images", "labels"):
        if key not in arrays:
            raise ValueError(f"{name} has no array {key}; it has {', '.join(arrays) or 'none'}")
    limits = {"images": train, "labels": train, "test_images": test, "test_labels": test}
    found = {
        key: torch.from_numpy(arrays[key][:limit]) if key in arrays else None
        for key, limit in limits.items()
    }
    for part in ("", "test_"):
        images, labels = found[f"{part}images"], found[f"{part}labels"]
        if images is not None and (labels is None or len(labels) != len(images)):
            count = "none" if labels is None else len(labels)
            raise ValueError(f"{name} has {len(images)} {part}images and {count} {part}labels")
    labels = [arrays[key] for key in ("labels", "test_labels") if key in arrays]
    return Samples(**found, classes=1 + max(int(part.max(initial=0)) for part in labels))


def load_weights(model: torch.nn.Module, name: str, samples: Samples, data: str) -> None:
    """Give ``model``, which is for the classes of ``samples``, loaded from ``data``, the
    state_dict in file ``name``.

    Raises
    ------
    ValueError
        the file holds none, or that of another module, or of one with other classes; in one line
    OSError
    """
    try:
        found = torch.load(name, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError):
        found = None
    if not isinstance(found, dict) or not all(torch.is_tensor(part) for part in found.values()):
        raise ValueError(f"{name} is no state_dict that train has written")
    own = {key: tuple(part.shape) for key, part in model.state_dict().items()}
    there = {key: tuple(part.shape) for key, part in found.items()}
    if own.keys() != there.keys():
        key = min(own.keys() ^ there.keys())
        place = "file" if key in there else "model"
        raise ValueError(f"{name} is of another model: {key} is in the {place} only")
    other = [key for key in own if own[key] != there[key]]
    counts = {there[key][:1] for key in other}
    if len(counts) == 1 and all(
        own[key] == (samples.classes, *there[key][1:]) and there[key] for key in other
    ):
        raise ValueError(
            f"{name} was trained for {counts.pop()[0]} classes, {data} has {samples.classes}"
        )
    if other:
        key = other[0]
        raise ValueError(
            f"{name} is of another model: {key} has shape {there[key]}, not {own[key]}"
        )
    model.load_state_dict(found)


def load_model(name: str, shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    """``name`` is FILE.py:NAME, MODULE:NAME or one of MODELS; what it names is called with the
    shape of an image and the number of classes, if it takes two arguments, or without any.

    Raises
    ------
    ValueError
        naming what is not there, or is no module.
    """
    place, colon, attribute = name.rpartition(":")
    if not colon:
        if name not in MODELS:
            raise ValueError(
                f"model must be FILE.py:NAME, MODULE:NAME or one of {', '.join(MODELS)}, not "
                f"{name!r}"
            )
        make: Any = MODELS[name]
    else:
        module = _module(place)
        make = getattr(module, attribute, None)
        if not callable(make):
            raise ValueError(f"{place} has no class or function {attribute}")
    arguments = (shape, classes) if _takes_two(make) else ()
    model = make(*arguments)
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"{name} makes a {type(model).__name__}, not a torch.nn.Module")
    return model


def _module(place):
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise ValueError(f"there is no file {place}")
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        assert spec is not None and spec.loader is not None, place
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise ValueError(f"there is no module {error.name}") from error


def _takes_two(make):
    """Whether two arguments without names can be given."""
    try:
        inspect.signature(make).bind(None, None)
    except TypeError:
        return False
    return True
