"""Cycles by layer and phase.

Covers: perf/machine/command.py.
"""

import pytest
from torch import nn

from compiler.training.compile import compile_training
from hw.config import make_config
from perf.__main__ import main
from perf.machine.command import cycles_table
from perf.machine.layers import BEHIND, batches_of, step_ends, time_batch

CONFIG = make_config(variant="baseline", preset="tiny")


def test_layers_and_phases_sum_up_to_the_batch():
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(32, 10)
    )
    program = compile_training(model.train(), CONFIG, (4, 8, 8), images=2)
    assert list(batches_of(program)) == ["bp"]
    batch = time_batch(program, latency=30, compiled=False)
    ends = step_ends(program, batch.result)
    assert all(0 < end <= batch.result.cycles for end in ends)
    total = sum(sum(phases.values()) for phases in batch.layers.values())
    assert total == batch.result.cycles
    assert {"forward", "backward", "update"} <= set(batch.layers["0"])
    assert batch.layers[BEHIND][""] < 100
    table = cycles_table({"bp": batch})
    assert [column.header for column in table.columns][-1] == "bp\nall"
    assert len(table.rows) == len(batch.layers)


def test_layers_come_as_they_do_in_the_network(monkeypatch):
    """Batch normalisation runs ahead of a product, of which its commands are a part."""
    for share in ("_LEAST_SHARE", "_LEAST_HIDDEN"):
        monkeypatch.setattr(f"compiler.codegen.lanes.{share}", 0)
    model = nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 6, 3),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip
    config = make_config(variant="baseline", preset="tiny", buffer_bank_depth=512)
    program = compile_training(model.train(), config, (2, 10, 10), images=8, beside=True)
    written = list(dict.fromkeys(step.layer for step in program.steps))
    assert written.index("3") < written.index("1")
    layers = time_batch(program, latency=30, compiled=False).layers
    assert [layer for layer in layers if layer.isdigit()] == ["0", "1", "3", "4", "6"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "lenet"], "network must be one of"),
        (["--network", "vgg11", "--latency", "-1"], "latency must be at least 0, not -1"),
    ],
)
def test_what_cannot_be(arguments, message, capsys):
    assert main(["cycles", *arguments]) == 2
    assert message in capsys.readouterr().err
