"""The case networks of the regression, on a network that is smaller still."""

import json

import pytest
from torch import nn

from algorithms.networks.blocks import basic_block
from hw.config import make_config
from verif import regression
from verif.__main__ import main
from verif.networks import reduced_networks
from verif.networks.reduced_networks import REDUCED, ReducedNetwork, network_run
from verif.networks.training_run import TrainingRun


def small(shape, classes, *, width):
    """A residual block and a linear layer."""
    channels = int(16 * width)
    return nn.Sequential(
        nn.Conv2d(shape[0], channels, 1), basic_block(channels, channels, stride=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes),
    )  # fmt: skip


class Outputs(nn.Module):
    """Two outputs."""

    def __init__(self, shape, classes, *, width):
        super().__init__()
        self.stem, self.one = nn.Conv2d(shape[0], 4, 1), nn.Conv2d(4, classes, 1)
        self.other = nn.Conv2d(4, 2, 2)

    def forward(self, x):
        x = self.stem(x).relu()
        return self.one(x), self.other(x)


@pytest.fixture
def networks(monkeypatch):
    """Two networks in place of the paper's, in the memory that most tests have."""
    own = {
        "small": ReducedNetwork(make=small, shape=(2, 3, 3), width=0.25),
        "outputs": ReducedNetwork(make=Outputs, shape=(2, 2, 3), loss="mean_squared_error"),
    }
    saved = dict(REDUCED)
    REDUCED.clear()
    REDUCED.update(own)
    monkeypatch.setattr(reduced_networks, "MEMORY_BYTES", 0)
    yield own
    REDUCED.clear()
    REDUCED.update(saved)


def test_all_networks_of_the_paper_are_there():
    """15 networks: 13 that classify, in the paper's tables, and two smaller relatives of them; and
    a detector."""
    assert {"vgg13", "resnet50", "mobilenet-v2", "densenet121", "inception-v3"} < set(REDUCED)
    assert {"inception-v4", "densenet201", "resnet152", "vgg19", "yolo-v3"} < set(REDUCED)
    assert set(regression.QUICK) < set(REDUCED)


def test_on_the_accelerator(networks, tmp_path, capsys):
    """All networks by backpropagation: the table, and the same as JSON."""
    file = tmp_path / "networks.json"
    arguments = ["--variant", "baseline", "--method", "bp", "--json", str(file)]
    assert main(["run", "networks", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "array busy" in printed
    steps = json.loads(file.read_text())
    assert [step["network"] for step in steps] == list(networks)
    for step in steps:
        assert f"PASS networks {step['network']} bp baseline tiny" in printed
        assert step["passed"] and step["compared"] > 200 and step["variant"] == "baseline"
        assert [batch["phase"] for batch in step["batches"]] == ["B", "B"]
        for batch in step["batches"]:
            assert 0 < batch["vectors"] < batch["cycles"] and batch["loss"] > 0


def test_in_the_functional_model(networks, seed, tmp_path):
    """A batch of Phase BP and one of Phase GP."""
    file = tmp_path / "networks.json"
    arguments = ["--emulator", "--variant", "low", "--method", "adagp", "--seed", str(seed)]
    assert main(["run", "networks", "--network", "small", *arguments, "--json", str(file)]) == 0
    (step,) = json.loads(file.read_text())
    assert [batch["phase"] for batch in step["batches"]] == ["B", "G"]
    assert step["compared"] > 1000 and "cycles" not in step["batches"][0]


def test_every_map_of_backpropagation_is_compared(networks, seed):
    config = make_config(variant="max", preset="tiny")
    expected = network_run("outputs", "bp", config, seed).expected[0]
    assert {"map one", "gradient of stem", "gradient of other.weight", "loss.1"} <= set(expected)
    predicted = network_run("outputs", "adagp", config, seed).expected[0]
    assert "predictor.full" in predicted and "map one" not in predicted


def test_the_first_difference_ends_it(networks, monkeypatch, capsys):
    """With its place, and with exit status 1."""

    def wrong(run, seed):
        memory = bytearray(run.memory())
        return run._result([bytes(memory)] * 2, [None] * 2)

    monkeypatch.setattr(TrainingRun, "interpret", wrong)
    assert main(["run", "networks", "--emulator"]) == 1
    printed = capsys.readouterr().out
    assert "FAIL networks small bp" in printed and "adagp" not in printed
    assert "batch 0: map 0[0, 0, 0, 0] is 0x0 (0), expected" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["networks", "--network", "vgg14"], "unknown network vgg14; networks are vgg11, vgg13"),
        (["digits", "--network", "vgg13"], "--network is of the case networks, which is not named"),
        (["networks", "--width", "5"], "--width must be above 0 and at most 4, not 5"),
        (["digits", "--json", "x"], "--json is of the case networks, which is not named"),
        (["networks", "--network", "vgg13", "--format", "int8"], "float format"),
    ],
)
def test_messages(arguments, message, capsys):
    assert main(["run", *arguments]) == 2
    assert message in capsys.readouterr().err
