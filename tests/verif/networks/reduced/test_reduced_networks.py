"""The case networks of the regression, on a network that is smaller still.

Covers: verif/networks/reduced/network_step.py, verif/networks/reduced/emulated.py.
"""

import json

import numpy as np
import pytest
import torch
from torch import nn

from algorithms.networks.blocks import basic_block
from cli.source_state import source_state
from emulator.memory import FunctionalError
from hw.config import make_config
from verif import regression
from verif.__main__ import main
from verif.networks.reduced import reduced_networks
from verif.networks.reduced.emulated import emulate
from verif.networks.reduced.reduced_networks import (
    DEVICES,
    REDUCED,
    SOURCES,
    ReducedNetwork,
    network_run,
)
from verif.networks.training_run import TrainingRun
from verif.system.simulator import MINIMUM_MEMORY_BYTES


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


class Sentences(nn.Module):
    """Tokens of two sentences, a class for each of the second."""

    def __init__(self, shapes, classes, *, width):
        super().__init__()
        self.first, self.second = nn.Embedding(classes, 4), nn.Embedding(classes, 4)
        self.head = nn.Linear(4, classes)

    def forward(self, first, second):
        return self.head(self.second(second) + self.first(first))


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
    """15 networks that classify: the 13 of the paper's tables and two smaller relatives of them; a
    detector; a Transformer."""
    assert {"vgg13", "resnet50", "mobilenet-v2", "densenet121", "inception-v3"} < set(REDUCED)
    assert {"inception-v4", "densenet201", "resnet152", "vgg19", "yolo-v3"} < set(REDUCED)
    assert len(REDUCED) == 17 and set(regression.QUICK) < set(REDUCED)


def test_the_transformer_is_reduced_as_published():
    """Width, heads and layers of the publication, and a sixteenth of its width."""
    reduced = REDUCED["transformer"]
    assert reduced.reads_tokens and "7, 5, width 0.0625" == reduced.size
    for own, numbers in ((reduced, 32), (reduced.widened(1), 512)):
        with torch.device("meta"):
            model = own.make(own.shape, 10, width=own.width).to("meta")
        assert len(model.encoder) == len(model.decoder) == 3
        layer = model.decoder[2]
        assert layer.own.query.weight.shape == (numbers, numbers) and layer.own.heads == 8
        assert layer.forward_network[0].out_features == numbers and layer.dropout.p == 0.1
        with torch.device("meta"):
            sentences = [torch.zeros(2, *shape, dtype=torch.int64) for shape in own.shape]
            assert model(*sentences).shape == (2, 5, 10)


def test_on_the_accelerator(networks, tmp_path, capsys, monkeypatch):
    """All networks by backpropagation: the table, and the same as JSON."""
    # The simulator of most tests.
    monkeypatch.setattr(reduced_networks, "MEMORY_BYTES", MINIMUM_MEMORY_BYTES)
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
        assert step["state"] == source_state(*SOURCES)
        assert step["configuration"] == make_config(variant="baseline", preset="tiny").hash
        assert (step["beside"], step["latency"], step["stall_share"]) == (None, 0, 0)
        assert [batch["phase"] for batch in step["batches"]] == ["B", "B"]
        for batch in step["batches"]:
            counters = batch["counters"]
            assert 0 < counters["CORE0_VECTORS"] < batch["cycles"] == counters["CYCLES"]
            assert counters["READ_BYTES"] > 0 < counters["COMMANDS"]
            assert batch["loss"] > 0


@pytest.mark.parametrize("device", [device for device in DEVICES if device != "rtl"])
def test_in_the_functional_models(networks, device, seed, tmp_path, capsys):
    """Batches of Phase BP and Phase GP, behind each other in every order but the first again."""
    file = tmp_path / "networks.json"
    arguments = ["--device", device, "--variant", "low", "--method", "adagp", "--seed", str(seed)]
    assert main(["run", "networks", "--network", "small", *arguments, "--json", str(file)]) == 0
    (step,) = json.loads(file.read_text())
    assert [batch["phase"] for batch in step["batches"]] == ["B", "G", "G", "B"]
    assert step["compared"] > 1000 and step["passed"] and step["device"] == device
    assert "cycles" not in step["batches"][0] and step["batches"][0]["commands"] > 100
    printed = capsys.readouterr().out
    assert f"2 images in a batch, {device}" in printed and "array busy" not in printed


def test_the_emulator_counts_what_the_guard_rejects(networks, seed):
    config = make_config(variant="low", preset="tiny")
    run = network_run("small", "bp", config, seed)
    run.batches[1].images[0, 0, 0, 0] = np.inf
    result = emulate(TrainingRun(run.model, config, (2, 3, 3), run.batches, reuse=False))
    assert result.passed and result.rejected[0] == 0 < result.rejected[1]


def test_as_many_batches_as_are_asked_for(networks, seed):
    config = make_config(variant="low", preset="tiny")
    run = network_run("small", "adagp", config, seed, batches=5)
    assert "".join(batch.phase.value for batch in run.batches) == "BGGBB"


def test_sentences(networks, seed):
    networks_of_tokens = ReducedNetwork(make=Sentences, shape=[(3,), (3,)])
    config = make_config(variant="low", preset="tiny")
    for method in ("bp", "adagp"):
        result = emulate(network_run("small", method, config, seed, networks_of_tokens))
        assert result.passed and result.compared, "\n".join(map(str, result.differences[:5]))


def test_every_map_of_backpropagation_is_compared(networks, seed):
    config = make_config(variant="max", preset="tiny")
    expected = network_run("outputs", "bp", config, seed).expected[0]
    assert {"map one", "gradient of stem", "gradient of other.weight", "loss.1"} <= set(expected)
    predicted = network_run("outputs", "adagp", config, seed).expected[0]
    assert "predictor.full" in predicted and "map one" not in predicted


def test_all_that_is_wrong_is_in_one_table(networks, monkeypatch, capsys):
    """A difference with its place, what the compiler refuses, a program that breaks off; exit
    status 1."""

    def wrong(run, seed):
        if len(run.program.outputs) == 2:
            raise FunctionalError("command 3 (LOAD): too far")
        return run.result([bytes(run.memory())] * 2, [None] * 2)

    monkeypatch.setattr(TrainingRun, "interpret", wrong)
    REDUCED["refused"] = ReducedNetwork(
        make=lambda *_, width: nn.Sequential(nn.Conv2d(2, 4, 1), nn.PReLU()), shape=(2, 3, 3)
    )
    arguments = ["--device", "interpreter", "--method", "bp"]
    assert main(["run", "networks", *arguments]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "batch 0: map 0[0, 0, 0, 0] is 0x0 (0), expected" in printed
    assert "networks outputs bp: command 3 (LOAD): too far" in printed
    assert "networks refused bp: refused: " in printed and "PReLU" in printed
    assert printed.count("FAIL networks") == 3 and "3 failed" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["networks", "--network", "vgg14"], "unknown network vgg14; networks are vgg11, vgg13"),
        (["digits", "--network", "vgg13"], "--network is of the case networks, which is not named"),
        (["networks", "--width", "5"], "--width must be above 0 and at most 4, not 5"),
        (["digits", "--json", "x"], "--json is of the case networks, which is not named"),
        (["networks", "--network", "vgg13", "--format", "int8"], "float format, not training=True"),
        (["digits", "--device", "emulator"], "--device is of the case networks, which is not"),
        (["networks", "--network", "vgg11", "--batches", "0"], "batches must be at least 1, not 0"),
        (["networks", "--device", "emulator", "--stalls"], "not of --device emulator"),
    ],
)
def test_messages(arguments, message, capsys):
    assert main(["run", *arguments]) == 2
    assert message in capsys.readouterr().err
