"""Steps of the head alone: what is compiled and what is refused; whole runs are compared in
tests/verif/networks/methods/test_train_echo.py."""

import pytest
from torch import nn

from compiler.errors import CompileError
from compiler.training.compile import compile_training
from compiler.training.program import ECHO_LOSS, TrainingProgram
from hw.config import make_config

CONFIG = make_config(variant="baseline", preset="tiny")


def compiled(model, echo, **options):
    return compile_training(model, CONFIG, (2, 4, 4), images=3, echo=echo, **options)


def network():
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def test_steps(tmp_path):
    plain, echoed = (compiled(network(), echo) for echo in (0, 2))
    own = [step.name for step in echoed.steps][len(plain.steps) :]
    step = ["3 forward", "loss.echo loss", "3 weight gradient", "3.weight update", "3.bias update"]
    assert own == step * 2
    assert plain.echo_loss_of(bytes(plain.memory_size)) is None
    echoed.save(tmp_path / "echoed.bin")
    loaded = TrainingProgram.load(tmp_path / "echoed.bin")
    assert loaded == echoed and loaded.echo_loss_of(bytes(loaded.memory_size)) == (0.0, 0)


def test_the_features_stay_in_memory():
    """Until the last step has read them; without an echo others may take their place."""
    program = compiled(network(), 1)
    features = program.tensors[program.maps["1"]]
    logits = program.tensors["3.echo"]
    assert features.offset + features.size <= logits.offset or (
        logits.offset + logits.size <= features.offset
    )
    assert ECHO_LOSS in program.tensors


@pytest.mark.parametrize(
    ("model", "echo", "message"),
    [
        (network(), -1, "echo must be an integer of at least 0, not -1"),
        (network(), 1.5, "echo must be an integer of at least 0, not 1.5"),
        (nn.Sequential(nn.Conv2d(2, 3, 4)), 1, r"only output is a linear .* not 0 .convolution"),
    ],
)
def test_refusals(model, echo, message):
    with pytest.raises(CompileError, match=message):
        compiled(model, echo)
