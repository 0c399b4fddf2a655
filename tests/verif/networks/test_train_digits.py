"""The digits that are learned on the RTL: batches and messages; the run itself is a regression."""

import numpy as np
import pytest

from algorithms.networks import digits_cnn
from verif.__main__ import main
from verif.networks.train_digits import digit_batches


def test_batches(seed):
    batches = digit_batches(seed, batches=9, images=200)
    again = digit_batches(seed, batches=9, images=200)
    assert all(np.array_equal(a.images, b.images) for a, b in zip(batches, again, strict=True))
    rates = [batch.optimizer.learning_rate for batch in batches]
    assert rates[5] == rates[0] > rates[6] == rates[8]
    # Every image once before any comes again.
    count = len(digits_cnn.load(seed).train_images)
    images = np.concatenate([batch.images for batch in batches])[:count].reshape(count, -1)
    wanted = digits_cnn.load(seed).train_images.reshape(count, -1)
    assert np.array_equal(np.sort(images.sum(1)), np.sort(wanted.sum(1)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batches", "0"], "batches must be at least 1, not 0"),
        (["--batch-size", "0"], "batch size must be from 1 to 1437, not 0"),
        (["--preset", "ulx3s"], "no engines for training"),
        (["--format", "int8"], "float format"),
    ],
)
def test_messages(arguments, message, capsys):
    assert main(["run", "train-digits", "--variant", "baseline", *arguments]) == 2
    assert message in capsys.readouterr().err
