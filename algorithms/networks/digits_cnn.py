"""The digits task: scikit-learn's 8x8 handwritten digits and a small CNN that reads them.

The data set comes with scikit-learn (1797 images of the UCI "Optical Recognition of Handwritten
Digits" test set, 16 grey levels). Weights are never stored in the repository:
:func:`trained_model` trains them in seconds (:mod:`algorithms.common.float_training`) and caches
them under ``build/``.
"""

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from algorithms.common.float_training import Recipe, cached_training

__all__ = [
    "CLASSES",
    "Digits",
    "DigitsCNN",
    "INPUT_SHAPE",
    "NormalizedDigitsCNN",
    "ResidualDigitsCNN",
    "TEST_IMAGES",
    "accuracy",
    "load",
    "to_torch",
    "trained_model",
    "trained_residual",
]

#: Channels, height and width of one image.
INPUT_SHAPE = (1, 8, 8)
CLASSES = 10
#: Images held back for testing; the other 1437 are for training.
TEST_IMAGES = 360
#: Largest grey level in the data set; images are divided by it.
_WHITE = 16.0
_CALIBRATION_IMAGES = 256


@dataclass(frozen=True, kw_only=True)
class Digits:
    """The split data set.

    Members
    -------
    train_images, test_images : float32 (N, 8, 8, 1), NHWC, values k/16 in [0, 1]; exact in every
        floating-point operand format with at least 5 significant bits
    train_labels, test_labels : int64 (N,), 0 to 9
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    @property
    def calibration_images(self):
        """Training images from which the scales of an integer format are chosen."""
        return self.train_images[:_CALIBRATION_IMAGES]


def load(seed=1):
    """Load the images and split them at random, the same way for the same ``seed``."""
    bunch = load_digits()
    images = (bunch.images / _WHITE).astype(np.float32)[..., np.newaxis]
    labels = bunch.target.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(images))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return Digits(
        train_images=images[train],
        train_labels=labels[train],
        test_images=images[test],
        test_labels=labels[test],
    )


class DigitsCNN(nn.Sequential):
    """Three convolutions, max and average pooling and a linear layer: 58 736 MACs per image.

    The channel counts 1, 6, 10, 14 divide by no usual array size on purpose. Input (N, 1, 8, 8)
    as torch has it, output (N, 10) logits.
    """

    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 6, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(6, 10, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(10, 14, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(14 * 2 * 2, CLASSES),
        )


class NormalizedDigitsCNN(nn.Sequential):
    """:class:`DigitsCNN` with batch normalisation, to be trained from the start."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 6, 3, padding=1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 10, 3, padding=1, bias=False),
            nn.BatchNorm2d(10),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(10, 14, 3, padding=1, bias=False),
            nn.BatchNorm2d(14),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(14 * 2 * 2, CLASSES),
        )


class _Residual(nn.Module):
    """Two convolutions with batch normalisation, and what is added to them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != outputs:
            point = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(point, nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.second_norm(self.second(torch.relu(self.first_norm(self.first(x)))))
        return torch.relu(y + self.shortcut(x))


class ResidualDigitsCNN(nn.Module):
    """Two residual blocks with batch normalisation, a depthwise convolution between them."""

    def __init__(self):
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.block = _Residual(6, 6, 1)
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False)
        self.norm, self.down = nn.BatchNorm2d(6), _Residual(6, 14, 2)
        self.head = nn.Linear(14, CLASSES)

    def forward(self, x):
        x = self.block(torch.relu(self.stem_norm(self.stem(x))))
        x = self.down(torch.relu(self.norm(self.depthwise(x))))
        return self.head(x.mean((2, 3)))


def trained_model(seed=1, *, epochs=Recipe.epochs, path=None, fresh=False, report=None):
    """Return :class:`DigitsCNN` trained with ``seed``, in evaluation mode, on the CPU.

    The first call trains (seconds) and caches the weights; later ones read the cache. Same seed,
    library versions and kind of processor, same bits.

    Parameters
    ----------
    seed : of the split, the initial weights and the batch order
    epochs : passes over the training images
    path, fresh, report : see :func:`algorithms.common.float_training.cached_training`
    """
    return _trained("digits", DigitsCNN, seed, epochs, path=path, fresh=fresh, report=report)


def trained_residual(seed=1, *, epochs=Recipe.epochs, path=None, fresh=False, report=None):
    """The same of :class:`ResidualDigitsCNN`."""
    return _trained(
        "digits-residual", ResidualDigitsCNN, seed, epochs, path=path, fresh=fresh, report=report
    )


def _trained(name, network, seed, epochs, **options):
    digits = load(seed)
    return cached_training(
        name,
        network,
        to_torch(digits.train_images),
        torch.from_numpy(digits.train_labels),
        recipe=Recipe(seed=seed, epochs=epochs),
        **options,
    )


def to_torch(images):
    """NHWC NumPy images as the NCHW float32 tensor that torch layers take."""
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def accuracy(logits, labels):
    """Share of rows of ``logits`` (N, 10) whose first maximum is the label."""
    return float(np.mean(np.argmax(np.asarray(logits), axis=1) == np.asarray(labels)))
