"""Names of places on a path, and the path that nextpnr's report holds."""

import pytest

from synth.fpga.critical_path import block_of, critical_path, place_name


def step(kind, delay, start, end):
    return {
        "type": kind,
        "delay": delay,
        "from": {"cell": start, "loc": [1, 1], "port": "Q"},
        "to": {"cell": end, "loc": [2, 1], "port": "D"},
    }


FF = "dut.core0.matrix.array.column3.pe1.distance[2]_TRELLIS_FF_Q"
LUT = "dut.core0.matrix.array.column3.pe1.term_LUT4_Z_3"
END = "dut.core0.matrix.array.column3.rounder.v0_0_TRELLIS_FF_Q_3"
PATH = [
    step("clk-to-q", 0.5, FF, FF),
    step("routing", 1.25, FF, LUT),
    step("logic", 0.25, LUT, LUT),
    step("routing", 2.0, LUT, END),
    step("setup", 0.1, END, END),
]


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        (FF, "core0.matrix.array.column3.pe1.distance[2]"),
        (END, "core0.matrix.array.column3.rounder.v0_0"),
        ("dut.registers.counters_SB_DFFESR_Q_2_D_SB_LUT4_O", "registers.counters"),
        ("to_pins_TRELLIS_FF_Q_52", "to_pins"),
        ("dut.core0.post.lane0.i$65_TRELLIS_FF_Q_14", "core0.post.lane0.i"),
        ("dut.core0.matrix.array.column0.pe1.multiplier.block", None),
        ("$abc$12$lut", "$abc$12$lut"),
    ],
)
def test_names(cell, name):
    assert place_name(cell) == (name or cell.removeprefix("dut."))


def test_blocks():
    assert block_of("core0.post.lane0.x", "core0.post.writer.y") == "core0.post"
    assert block_of("core0.post.x", "registers.y") == "top"


def test_slowest_path_between_registers():
    def entry(start, end, path):
        return {"from": start, "to": end, "path": path}

    report = {
        "critical_paths": [
            entry("<async>", "posedge clk", [step("routing", 99.0, "d", END)]),
            entry("posedge clk", "posedge clk", PATH[1:2]),
            entry("posedge clk", "posedge clk", PATH),
        ]
    }
    assert critical_path(report) == {
        "block": "core0.matrix.array.column3",
        "from": "core0.matrix.array.column3.pe1.distance[2]",
        "to": "core0.matrix.array.column3.rounder.v0_0",
        "logic_ns": 0.85,
        "routing_ns": 3.25,
        "ns": 4.1,
        "levels": 1,
    }
    assert critical_path({"critical_paths": report["critical_paths"][:1]}) is None
