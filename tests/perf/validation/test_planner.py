"""The planner's cycles of commands beside those of the model.

Covers: perf/validation/planner_command.py.
"""

import json

import pytest
from torch import nn

from compiler.codegen.cost import Command, duration
from compiler.training.compile import compile_training
from hw.config import make_config
from hw.isa.encoding import Opcode, decode
from perf.__main__ import main
from perf.machine.events.work import Works
from perf.validation import planner
from perf.validation.planner import planned_cycles, planner_table
from verif.programs.faulty_programs import dma, loss, matmul, post, vector, weights

PAPER = make_config(variant="max", preset="paper")
TINY = make_config(variant="baseline", preset="tiny")
SECOND = 1 << (PAPER.memory_banks[0][0] - 1).bit_length()  # another bank of the buffer


def both(config, *commands):
    """(the planner's cycles, those on the model) of the last of some commands, alone."""
    stream = [decode(command) for command in commands]
    kinds, which = Works(config, 0, compiled=False).of(stream)
    opcode, fields = stream[-1]
    planned, _ = duration(Command.decoded(opcode, fields), config)
    return planned, int(kinds[which[-1, 0]]["cycles"])


@pytest.mark.parametrize("core", [0, 1])
@pytest.mark.parametrize("wide", [0, 1])
def test_post(core, wide):
    """To two cycles, wherever the groups of an output lie in its words."""
    size = PAPER.cores[core]
    for out_group in range(size.groups_per_word):
        for groups, window in [(1, 1), (2, 2), (3, 1), (size.groups_per_vector, 1)]:
            command = post(
                PAPER, core, outputs=12, group_count=groups, out_group=out_group, wide=wide,
                channels=groups * size.post_lanes, pw_count=window, ph_count=window,
                out_wo_stride=4,
            )  # fmt: skip
            planned, measured = both(PAPER, command)
            what = f"{groups} groups from {out_group} on, window {window}"
            assert abs(planned - measured) <= 2, f"{what}: {planned} planned, {measured} measured"


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({}, 0.01),
        ({"wide": 1, "o_i0_stride": 2}, 0.01),
        ({"x_source": 1, "x_i0_stride": 2, "y_source": 0, "y_i0_stride": 1, "term": 1}, 0.01),
        ({"reduce": 1}, 0.04),
        ({"operation": 1, "immediate": 0x40000000, "y_source": 2, "i0_count": 4}, 0.04),
        ({"operation": 3, "i0_count": 4}, 0.04),
    ],
)
def test_vector(fields, part):
    planned, measured = both(PAPER, vector(PAPER, steps=400, **fields))
    assert abs(planned / measured - 1) <= part, f"{planned} planned, {measured} measured"


def test_products_and_transfers():
    """Without conflicts and without the memory's latency."""
    product = weights(PAPER, tiles=9), matmul(PAPER, vectors=200, kw_count=9, x_address=SECOND)
    for commands, part in [
        (product, 0.01),
        ((dma(Opcode.LOAD, PAPER, words=600),), 0.02),
        ((dma(Opcode.STORE, PAPER, words=600),), 0.02),
        ((loss(PAPER),), 0.03),
    ]:
        planned, measured = both(PAPER, *commands)
        assert abs(planned / measured - 1) <= part, f"{planned} planned, {measured} measured"


@pytest.fixture(scope="module")
def program():
    network = nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4)
    )
    return compile_training(network.train(), TINY, (4, 4, 4), images=2)


def test_queues_of_a_program(program, monkeypatch):
    works = Works(TINY, 30, compiled=False)
    found = planned_cycles("bp", program, works)
    assert {item.opcode for item in found} == {"LOAD", "STORE", "MATMUL", "POST", "VECTOR", "LOSS"}
    stream = list(program.command_list)
    for item in found:
        own = [fields for opcode, fields in stream if opcode.name == item.opcode]
        assert item.commands >= len(own) > 0  # those in loops more often
        assert abs(item.error) <= item.distance < 0.25, item
    monkeypatch.setattr(planner, "duration", lambda command, config: (1, 0))
    for before, after in zip(found, planned_cycles("bp", program, works), strict=True):
        assert after.planned == before.commands
        assert after.error < -0.5
        assert after.distance == pytest.approx(-after.error)
    text = [list(column.cells) for column in planner_table(found).columns]
    assert text[2] == [item.opcode for item in found]
    assert text[6] == [f"{item.error:+.2%}" for item in found]


def test_the_command(tmp_path, capsys):
    path = tmp_path / "planner.json"
    arguments = ["--network", "vgg11", "--input", "3x8x8", "--width", "0.01", "--batch", "2"]
    arguments += ["--preset", "tiny", "--plain"]
    assert main(["planner", *arguments, "--json", str(path)]) == 0
    assert "commands differ by" in capsys.readouterr().out
    rows = {row["opcode"]: row for row in json.loads(path.read_text())}
    assert rows["MATMUL"]["measured"] > 0
    assert main(["planner", *arguments, "--latency", "-1"]) == 2
    assert "latency must be at least 0, not -1" in capsys.readouterr().err
