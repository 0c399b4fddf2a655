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
