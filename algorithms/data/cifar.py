"""CIFAR-10 and CIFAR-100 in the layouts they are published in: Python pickles, and binary.

The published pickles were written by Python 2; those of Python 3 are read as well. Only
dictionaries, lists, numbers, text, bytes and arrays may be in them, so no file can run anything.
"""

import codecs
import math
import pickle
from pathlib import Path

import numpy as np

__all__ = ["read_cifar"]

_SHAPE = (3, 32, 32)
_PIXELS = math.prod(_SHAPE)
#: Files for training, file for testing, and the last label of an image: its place behind so many
#: bytes in the binary version, its name in the Python version.
_LAYOUTS = (
    ([f"data_batch_{number}.bin" for number in range(1, 6)], "test_batch.bin", 1),
    (["train.bin"], "test.bin", 2),
    ([f"data_batch_{number}" for number in range(1, 6)], "test_batch", "labels"),
    (["train"], "test", "fine_labels"),
)
#: What arrays and bytes in pickles are made by, as NumPy calls it now.
_ALLOWED = {
    ("numpy._core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,
    ("numpy._core.numeric", "_frombuffer"): np._core.numeric._frombuffer,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
}


def read_cifar(directory) -> list[np.ndarray] | None:
    """Images and labels for training, then those for testing; None if there is no CIFAR there.

    Returns
    -------
    list
        float32 (N, 3, 32, 32) between 0 and 1 and labels (N,), twice; of CIFAR-100 the fine labels.

    Raises
    ------
    ValueError
        naming a file that is not what it should be.
    """
    directory = Path(directory)
    for train, test, label in _LAYOUTS:
        if all((directory / name).is_file() for name in (*train, test)):
            read = _read_python if isinstance(label, str) else _read_binary
            parts = [[read(directory / name, label) for name in names] for names in (train, [test])]
            return [np.concatenate(arrays) for part in parts for arrays in zip(*part, strict=True)]
    return None


def _images(pixels):
    return pixels.reshape(-1, *_SHAPE) / np.float32(255)


def _read_binary(path, labels):
    content = np.fromfile(path, np.uint8)
    row = labels + _PIXELS
    if not len(content) or len(content) % row:
        raise ValueError(f"{path} has {len(content)} bytes, not a multiple of {row}")
    rows = content.reshape(-1, row)
    return _images(rows[:, labels:]), rows[:, labels - 1]


class _Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        """Raises UnpicklingError for anything else than data."""
        found = _ALLOWED.get((module.replace("numpy.core.", "numpy._core."), name))
        if found is None:
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        return found


def _read_python(path, label):
    try:
        with open(path, "rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise ValueError(f"{path} is no pickle of CIFAR: {error}") from None
    content = content if isinstance(content, dict) else {}
    pixels, labels = (content.get(name.encode(), content.get(name)) for name in ("data", label))
    if getattr(pixels, "dtype", None) != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        raise ValueError(f"{path} has no data: (N, {_PIXELS}) bytes")
    labels = np.array(labels)
    if labels.dtype.kind not in "iu" or labels.shape != pixels.shape[:1]:
        raise ValueError(f"{path} has no {label}: {len(pixels)} integers")
    return _images(pixels), labels
