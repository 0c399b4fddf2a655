"""Other ways to train beside plain backpropagation: messages and what is said; the runs themselves
are regressions.

Covers: verif/networks/methods/train_braking.py, verif/networks/methods/train_echo.py,
verif/networks/methods/train_vcas.py, verif/networks/torch_training.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

from golden.layers.optimizer import SGD
from verif.__main__ import main
from verif.networks.methods.beside_plain import BesidePlain
from verif.networks.methods.train_braking import BRAKING, _braked
from verif.networks.torch_training import torch_training
from verif.networks.train_digits import digit_batches
from verif.networks.training_result import Batch


@pytest.mark.parametrize("case", ["train-braking", "train-echo", "train-vcas"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batches", "0"], "batches must be at least 1, not 0"),
        (["--preset", "ulx3s"], "no engines for training"),
    ],
)
def test_messages(case, arguments, message, capsys):
    assert main(["run", case, "--variant", "baseline", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_optimizer_is_that_of_the_digits(seed):
    plain = digit_batches(seed, batches=1, images=4)[0].optimizer
    braked = _braked(plain)
    assert braked.braking == BRAKING
    assert (braked.learning_rate, braked.momentum) == (plain.learning_rate, plain.momentum)
    assert braked.weight_decay == plain.weight_decay


def test_notes():
    beside = BesidePlain(
        what="braked", training=None, cycles=110, plain_cycles=100, plain_batches=66,
        plain_accuracy=0.5, timed_accuracy=0.75,
    )  # fmt: skip
    assert beside.notes == (
        "cycles per batch 110, plain 100; plain backpropagation 50.00% after as many batches, "
        "75.00% after the same time (66 batches, which is skipping for equal time; both in "
        "golden's arithmetic)"
    )


def test_an_echo_in_torch_trains_the_head_alone(rng, seed):
    """With an echo the head has made more steps when the next batch begins, and others none."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))
    images, labels = rng.normal(size=(6, 2, 2, 2)), rng.integers(3, size=6)
    batch = Batch(images=images, targets=labels, optimizer=SGD(learning_rate=0.1, momentum=0.9))
    plain, _ = torch_training(model, [batch, batch], images, labels)
    echoed, _ = torch_training(model, [batch, batch], images, labels, echo=3)
    assert plain[0] == echoed[0] and echoed[1] < plain[1]
    frozen = nn.Sequential(*model)
    frozen[1].requires_grad_(False)
    # Where only the head learns, an echo is the same batch again, as often.
    alone, _ = torch_training(frozen, [batch] * 5, images, labels)
    behind, _ = torch_training(frozen, [batch] * 2, images, labels, echo=3)
    np.testing.assert_allclose(behind, [alone[0], alone[4]], rtol=1e-5)
