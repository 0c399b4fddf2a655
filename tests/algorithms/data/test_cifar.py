"""Miniatures of CIFAR-10 and CIFAR-100 in their published layouts, written here."""

import pickle
import struct

import numpy as np
import pytest

from algorithms.data.datasets import load_images

#: Names of CIFAR-10 and CIFAR-100: for training, for testing, labels; without .bin.
NAMES = {
    10: ([f"data_batch_{n}" for n in range(1, 6)], "test_batch", "labels"),
    100: (["train"], "test", "fine_labels"),
}


def python_2(text):
    return b"U" + bytes([len(text)]) + text.encode()


def write_python_2(path, pixels, labels):
    """Opcodes as in the published files: protocol 2, text in SHORT_BINSTRING, an old array."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\x01b\x87R"
        b"(K\x01M" + struct.pack("<H", len(pixels)) + b"M" + struct.pack("<H", 3072) + b"\x86"
        b"cnumpy\ndtype\nU\x02u1K\0K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
        b"\x89T" + struct.pack("<I", pixels.size) + pixels.tobytes() + b"tb"
    )  # fmt: skip
    content = python_2("batch_label") + python_2("batch") + python_2("data") + array
    for name, values in labels.items():
        content += python_2(name) + b"](" + b"".join(b"K" + bytes([v]) for v in values) + b"e"
    content += python_2("filenames") + b"](" + python_2("a_s_000004.png") * len(pixels) + b"e"
    path.write_bytes(b"\x80\x02}(" + content + b"u.")


def write_python_3(protocol):
    def write(path, pixels, labels):
        content = {"data": pixels} | {name: values.tolist() for name, values in labels.items()}
        path.write_bytes(pickle.dumps(content, protocol))

    return write


def write_binary(path, pixels, labels):
    rows = [np.array(values, np.uint8)[:, None] for values in labels.values()]
    path.with_suffix(".bin").write_bytes(np.concatenate([*rows, pixels], 1).tobytes())


def write_cifar(directory, rng, write, classes):
    """Two images in each file for training, three for testing; pixels and labels of both parts."""
    directory.mkdir(exist_ok=True)
    train, test, kind = NAMES[classes]
    parts = {"train": [], "test": []}
    for name in (*train, test):
        count = 3 if name == test else 2
        pixels = rng.integers(0, 256, (count, 3072), np.uint8)
        labels = {kind: rng.integers(0, classes, count)}
        if classes == 100:
            labels = {"coarse_labels": rng.integers(0, 20, count)} | labels
        write(directory / name, pixels, labels)
        parts["test" if name == test else "train"].append((pixels, labels[kind]))
    return {name: [np.concatenate(arrays) for arrays in zip(*part)] for name, part in parts.items()}


@pytest.mark.parametrize("classes", NAMES)
@pytest.mark.parametrize(
    "write",
    [write_binary, write_python_2, *map(write_python_3, (2, 4, 5))],
    ids=["binary", "python2", "python3-2", "python3-4", "python3-5"],
)
def test_directory(tmp_path, rng, write, classes):
    expected = write_cifar(tmp_path / "mine", rng, write, classes)
    data = load_images(str(tmp_path / "mine"))
    assert data.name == "mine"
    for part in ("train", "test"):
        pixels, labels = expected[part]
        images = getattr(data, f"{part}_images").numpy() * 255
        wrong = np.argwhere(images != pixels.reshape(-1, 3, 32, 32))
        assert not len(wrong), (part, wrong[0], images[tuple(wrong[0])])
        assert getattr(data, f"{part}_labels").tolist() == labels.tolist(), part


def test_a_pickle_runs_nothing(tmp_path, rng):
    write_cifar(tmp_path, rng, write_python_2, 100)
    (tmp_path / "train").write_bytes(b"cos\nsystem\n(S'touch " + bytes(tmp_path / "x") + b"'\ntR.")
    with pytest.raises(ValueError, match=r"train is no pickle of CIFAR: it holds os\.system"):
        load_images(str(tmp_path))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no pickle of CIFAR: Ran out of input"),
        (pickle.dumps([1]), r"has no data: \(N, 3072\) bytes"),
        (pickle.dumps({"data": np.zeros((2, 3072))}), r"has no data: \(N, 3072\) bytes"),
        (pickle.dumps({"data": np.zeros((2, 9), np.uint8)}), r"has no data: \(N, 3072\) bytes"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8)}), "has no fine_labels: 2 integers"),
        (
            pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "fine_labels": [1]}),
            "has no fine_labels: 2 integers",
        ),
        (
            pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "fine_labels": [1.5, 1]}),
            "has no fine_labels: 2 integers",
        ),
    ],
)
def test_damaged_pickle(tmp_path, rng, content, message):
    write_cifar(tmp_path, rng, write_python_2, 100)
    (tmp_path / "test").write_bytes(content)
    with pytest.raises(ValueError, match=f"{tmp_path / 'test'} {message}"):
        load_images(str(tmp_path))


def test_damaged_binary(tmp_path, rng):
    write_cifar(tmp_path, rng, write_binary, 100)
    (tmp_path / "train.bin").write_bytes(b"\0" * 3073)
    with pytest.raises(ValueError, match=r"train\.bin has 3073 bytes, not a multiple of 3074"):
        load_images(str(tmp_path))
