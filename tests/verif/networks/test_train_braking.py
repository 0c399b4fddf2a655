"""Braked gradients on the RTL: messages and what is said; the run itself is a regression."""

import pytest

from verif.__main__ import main
from verif.networks.train_braking import BRAKING, BrakingTraining, _braked
from verif.networks.train_digits import digit_batches


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batches", "0"], "batches must be at least 1, not 0"),
        (["--preset", "ulx3s"], "no engines for training"),
    ],
)
def test_messages(arguments, message, capsys):
    assert main(["run", "train-braking", "--variant", "baseline", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_optimizer_is_that_of_the_digits(seed):
    plain = digit_batches(seed, batches=1, images=4)[0].optimizer
    braked = _braked(plain)
    assert braked.braking == BRAKING
    assert (braked.learning_rate, braked.momentum) == (plain.learning_rate, plain.momentum)
    assert braked.weight_decay == plain.weight_decay


def test_notes():
    training = BrakingTraining(
        braked=None, cycles=110, plain_cycles=100, plain_batches=66, plain_accuracy=0.5,
        timed_accuracy=0.75,
    )  # fmt: skip
    assert training.notes == (
        "cycles per batch 110, not braked 100; without braking 50.00% after as many batches, "
        "75.00% after the same time (66 batches; both in golden's arithmetic)"
    )
