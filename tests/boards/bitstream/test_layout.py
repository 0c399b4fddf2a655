"""The picture of a placed design: which block a cell belongs to, and what is drawn."""

import json

import pytest

from boards.__main__ import main
from boards.bitstream import layout
from tests.synth.fpga.test_placement import TEXT


@pytest.mark.parametrize(
    ("cell", "block"),
    [
        ("system.accelerator.core0.matrix.array.x_TRELLIS_FF_Q", "PE array"),
        ("system.accelerator.core1.matrix.weights.words", "weights, accumulators, MATMUL"),
        ("system.accelerator.core0.vector.lane0.x", "VECTOR"),
        ("system.accelerator.core0.vector_queue.write", "commands, queues, bus"),
        ("system.accelerator.core0.load.planner.x", "buffer, LOAD, STORE"),
        ("system.controller.scheduler.x", "SDRAM controller"),
        ("sdram.dq3_pad", "SDRAM controller"),
        ("system.receiver.x", "host link, clocks, pins"),
        ("blink[0]_TRELLIS_FF_Q", "host link, clocks, pins"),
    ],
)
def test_blocks(cell, block):
    assert layout.block_of(cell) == block


def test_picture(tmp_path, capsys):
    placed = tmp_path / "ulx3s-1.placed.json"
    placed.write_text(TEXT.replace("system.core0", "system.accelerator.core0"))
    layout.keep_placement(placed, tmp_path, "LFE5U-85F")
    assert not placed.exists()
    assert json.loads((tmp_path / layout.PLACEMENT).read_text()) == {
        "device": "LFE5U-85F",
        "tiles": [["VECTOR", 12, 7, 1], ["host link, clocks, pins", 0, 95, 1]],
    }
    assert main(["layout", str(tmp_path), "-o", str(tmp_path / "a.png")]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "VECTOR                               1 cells",
        "host link, clocks, pins              1 cells",
    ]
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert main(["layout", str(tmp_path / "other")]) == 2
    assert "does not exist: `python -m boards build` writes it" in capsys.readouterr().err
