"""The digits that are learned on the RTL: batches and messages; the run itself is a regression."""

import io

import numpy as np
import pytest
from rich.console import Console

from algorithms.networks import digits_cnn
from golden.prediction.schedule import Phase
from verif.__main__ import main
from verif.networks.adagp_run import AdaGPResult
from verif.networks.train_adagp import AdaGPTraining, print_adagp
from verif.networks.train_digits import DigitsTraining, digit_batches, print_training
from verif.networks.training_result import TrainingResult
from verif.regression import TrainingStep


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


def printed(function, *arguments):
    console = Console(file=io.StringIO(), width=200)
    function(console, *arguments)
    return console.file.getvalue()


def finished(**more):
    """What two batches on the RTL leave."""
    return {
        "differences": [], "losses": [2.0, 1.0], "correct": [1, 2], "rejected": [0, 0],
        "cycles": [10, 10], "counters": [{"CORE0_VECTORS": 3}] * 2, "compared": 7, "final": b"",
        **more,
    }  # fmt: skip


def test_the_verdict_says_who_classified_the_images():
    """The RTL trains; what is measured on held-out images is golden's arithmetic on its weights."""
    training = DigitsTraining(
        result=TrainingResult(**finished()), commands=1, memory_bytes=1, images=4,
        test_images=360, trained=[0, 1], torch_losses=[2.0, 1.0], rtl_accuracy=0.925,
        torch_accuracy=0.93,
    )  # fmt: skip
    step = TrainingStep(name="train-digits low", result=training.result, training=training)
    line = printed(print_training, step).splitlines()[-1]
    assert (
        "360 held-out images: 92.50% with the RTL's weights in golden's arithmetic, "
        "torch float32 93.00% (varies a little with the processor);"
    ) in line


def test_the_table_of_adagp_says_who_classified_the_images():
    training = AdaGPTraining(
        result=AdaGPResult(**finished(gates=[{"0": 1.0}] * 2)), phases=[Phase.BP, Phase.GP],
        accuracy={"RTL": (0.5, 1), "bp": (0.6, 2)}, images=4, test_images=360,
    )  # fmt: skip
    lines = [line.split() for line in printed(print_adagp, "train-adagp", training).splitlines()]
    title = "360 held-out images, in golden's arithmetic".split()
    begin = lines.index(title)
    assert ["weights", "of", "correct", "batches", "with", "backpropagation"] in lines[begin:]
    assert "RTL, ADA-GP 50.00% 1 of 2".split() in lines[begin:]
