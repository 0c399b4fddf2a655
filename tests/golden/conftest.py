"""What several tests of golden share: torch on one thread, small networks with predicted layers."""

import numpy as np
import pytest
import torch
from torch import nn

from golden.arithmetic.dot_product import column_dot, decode, encode
from golden.arithmetic.formats import FLOAT32
from golden.layers.optimizer import SGD
from golden.prediction.config import PredictorConfig
from golden.prediction.step import PredictedTraining

#: Of the networks' optimizer.
RATE, MOMENTUM, DECAY = 0.05, 0.9, 1e-3


@pytest.fixture
def one_thread():
    """Torch's own threads wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class PredictedResidual(nn.Module):
    """A strided block with a projection, then one without; no ReLU is a product's only reader."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 5, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(5)
        self.down = nn.Conv2d(5, 6, 3, stride=2, padding=1, bias=False)
        self.shortcut = nn.Conv2d(5, 6, 1, stride=2)
        self.second = nn.Conv2d(6, 6, 3, padding=1)
        self.unread = nn.Conv2d(6, 2, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.down(x) + self.shortcut(x))
        self.unread(x)
        y = self.second(x)
        z = torch.relu(y)
        x = torch.relu(x + y + z)
        return self.head(torch.flatten(self.pool(x), 1))


def predicted_depthwise():
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 9, 1, groups=3),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(9 * 2 * 2, 7),
        nn.ReLU(),
        nn.Linear(7, 3),
    )


#: model, input shape, batch, rows, predictor's rows, loss, predictor, layers (O, n, source)
PREDICTED_NETWORKS = {
    "residual": lambda: (
        PredictedResidual(),
        ((3, 7, 5), 3, 4, 5, "cross_entropy"),
        PredictorConfig(channels=3),
        {
            "first": (5, 27, "first"),
            "down": (6, 45, "down"),
            "shortcut": (6, 5, "shortcut"),
            "second": (6, 54, "second"),
        },
    ),
    "depthwise": lambda: (
        predicted_depthwise(),
        ((2, 8, 7), 2, 4, 3, "cross_entropy"),
        PredictorConfig(map_size=3, seed=5),
        {"0": (6, 18, "1"), "2": (6, 9, "2"), "8": (7, 36, "9")},
    ),
    "vectors": lambda: (
        nn.Sequential(nn.Linear(7, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5)),
        ((7,), 5, 8, 8, "mean_squared_error"),
        PredictorConfig(map_size=1, channels=2, running=0.75),
        {"0": (6, 7, "0")},
    ),
    "no head": lambda: (
        nn.Sequential(nn.Conv2d(1, 4, (3, 2)), nn.ReLU(), nn.Conv2d(4, 2, 1)),
        ((1, 5, 4), 2, 3, 4, "mean_squared_error"),
        PredictorConfig(channels=1, map_size=2),
        {"0": (4, 6, "1"), "2": (2, 4, "2")},
    ),
}


def make_predicted(name, seed, **options):
    """Training, batches of (images, targets) without an end, expected layers."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model, (shape, batch, rows, predictor_rows, loss), config, layers = PREDICTED_NETWORKS[name]()
    options = {
        "optimizer": SGD(learning_rate=RATE, momentum=MOMENTUM, weight_decay=DECAY),
        "rows": rows,
        "columns": 6,
        "predictor": config,
        "predictor_rows": predictor_rows,
        **options,
    }
    training = PredictedTraining(model, input_shape=shape, loss=loss, **options)
    last = training.nodes[-1]

    def batches():
        while True:
            images = rng.standard_normal((batch, *shape[1:], shape[0]))
            if loss == "cross_entropy":
                yield images, rng.integers(0, last.shape[0], batch)
            else:
                maps = (*last.shape[1:], last.shape[0])
                yield images, rng.standard_normal((batch, *(last.shape[:1] if last.flat else maps)))

    return training, batches(), layers


def assert_same(actual, expected, what):
    """Dictionaries of arrays, or arrays, bit for bit."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys(), what
        for key in expected:
            assert_same(actual[key], expected[key], f"{what}, {key}")
    elif isinstance(expected, tuple):
        for a, b in zip(actual, expected, strict=True):
            assert_same(a, b, what)
    else:
        wrong = np.argwhere(np.asarray(actual) != np.asarray(expected)).tolist()
        if wrong:
            place = tuple(wrong[0])
            pair = np.asarray(actual)[place], np.asarray(expected)[place]
            raise AssertionError(f"{what}{wrong[0]} is {pair[0]:#x}, not {pair[1]:#x}")


class PlainFloat32:
    """The vector unit's operations in NumPy's float32, on values instead of bits."""

    def __init__(self, fmt, rows):
        self.fmt, self.rows = fmt, rows

    @staticmethod
    def rounded(values):
        """Subnormal results are zeros."""
        values = np.asarray(values, np.float32)
        return np.where(np.abs(values) < 2.0**-126, np.copysign(np.float32(0), values), values)

    def add(self, a, b):
        return self.rounded(np.float32(a) + np.float32(b))

    def multiply(self, a, b):
        return self.rounded(np.float32(a) * np.float32(b))

    def divide(self, a, b):
        return self.rounded(np.float32(a) / np.float32(b))

    def operands(self, values):
        """Rounded to operands, as float32 values."""
        return decode(self.fmt, encode(self.fmt, values)).astype(np.float32)

    def sum(self, values):
        """Eight partial sums, then a tree."""
        parts = [np.zeros(values.shape[1:], np.float32)] * 8
        for number, value in enumerate(values):
            parts[number % 8] = self.add(parts[number % 8], value)
        left = self.add(self.add(parts[0], parts[1]), self.add(parts[2], parts[3]))
        return self.add(left, self.add(self.add(parts[4], parts[5]), self.add(parts[6], parts[7])))

    def product(self, a, b):
        """``a`` (M, K) times ``b`` (K, C), operand values, in K tiles of ``rows``."""
        a, b = encode(self.fmt, a), encode(self.fmt, b)
        sums = np.zeros((a.shape[0], b.shape[1]), np.uint32)
        for first in range(0, a.shape[1], self.rows):
            part = slice(first, first + self.rows)
            sums, _ = column_dot(self.fmt, a[:, part], b[part], sums)
        return decode(FLOAT32, sums).astype(np.float32)

    def channel_sum(self, values):
        codes = self.operands(values)
        return self.product(codes[np.newaxis], np.ones((len(codes), 1)))[0, 0]

    def row_sum(self, values):
        blocks = [self.sum(values[first : first + 32]) for first in range(0, len(values), 32)]
        return blocks[0] if len(blocks) == 1 else self.sum(np.stack(blocks))


def bits_of(values):
    """Float32 bits."""
    return encode(FLOAT32, values)


def values_of(bits):
    """Float32 values of float32 bits."""
    return decode(FLOAT32, bits).astype(np.float32)
