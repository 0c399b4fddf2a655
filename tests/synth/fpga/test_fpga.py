"""The FPGA flow on designs of some hundred cells, and what it says about those that do not fit.

Covers: synth/fpga/report.py, synth/fpga/synthesis.py, synth/fpga/tables.py.
"""

import json
from datetime import date

import pytest

from hw.array.pe_array import PEArray
from hw.config import make_config
from hw.formats import FORMATS
from hw.primitives.shared_module import emit_verilog
from synth.__main__ import main
from synth.common import module_synthesis
from synth.common.errors import ToolError
from synth.common.hierarchy import block_counts, resources_of, total
from synth.fpga import nextpnr, synthesis
from synth.fpga import report as fpga
from synth.fpga.devices import device_by_name
from synth.fpga.synthesis import synthesize

pytest.importorskip("pyosys")

CONFIG = make_config(variant="baseline", preset="tiny")


@pytest.fixture
def small(monkeypatch, tmp_path):
    """An array of 1 x 2 PEs in the place of the accelerator, and a cache of the test's own."""
    monkeypatch.setenv("ADAGP_SYNTH_CACHE", str(tmp_path / "cache"))

    def emitted(config, technology="generic"):
        array = PEArray(FORMATS["bf16"], 1, 2)
        return emit_verilog(array, name="adagp_baseline", technology=technology)

    monkeypatch.setattr(fpga, "emitted_verilog", emitted)


def test_placed_and_routed(small, old_entries, monkeypatch, tmp_path, capsys):
    out = tmp_path / "figures.json"
    command = ["fpga", "--variant", "baseline", "--preset", "tiny", "--device", "LFE5U-25"]
    command += ["--json", str(out)]
    assert main([*command, "--seeds", "3"]) == 0
    result = json.loads(out.read_text())
    assert result["device"] == "LFE5U-25F"
    assert result["fits"]
    assert result["resources"]["MULT18X18D"] == {"used": 2, "available": 28, "percent": 7.1}
    assert result["routes"]["3"]["utilisation"]["MULT18X18D"]["used"] == 2
    placed = result["routes"]["3"]["utilisation"]["TRELLIS_FF"]["used"]
    harness = placed - result["resources"]["FF"]["used"]
    assert 0 < harness < 400
    path = result["critical_path"]
    assert path["logic_ns"] + path["routing_ns"] == pytest.approx(path["ns"], abs=0.002)
    # The clock is as long as its critical path, skew apart.
    assert 1000 / result["fmax_mhz"]["3"] == pytest.approx(path["ns"], rel=0.02)
    assert "Fmax: min" in capsys.readouterr().out

    # From the cache: no tool is called, except for another seed.
    def refuse(*arguments, **options):
        raise ToolError("called")

    monkeypatch.setattr(module_synthesis, "run_yosys", refuse)
    monkeypatch.setattr(fpga, "place_and_route", refuse)
    assert date.fromisoformat(result["date"])
    # A measurement keeps its day.
    result["date"] = result["routes"]["3"]["date"] = old_entries(tmp_path / "cache")
    again = fpga.measure(CONFIG, device="LFE5U-25F", seeds=(3,))
    assert {**again, "command": ""} == {**result, "command": ""}
    with pytest.raises(ToolError, match="called"):
        fpga.measure(CONFIG, device="LFE5U-25F", seeds=(3, 4))


@pytest.mark.parametrize(
    ("device", "resource", "number"),
    [
        pytest.param("xc7", "DSP48E1", 2, marks=pytest.mark.long),
        pytest.param("LIFCL-40", "MULT18X18", 2, marks=pytest.mark.long),
        ("GW2A-18C", "LUT4", None),
    ],
)
def test_area(device, resource, number, small):
    result = fpga.measure(CONFIG, device=device, seeds=())
    assert result["fits"]
    assert result["not_routed"] == "no seeds asked for"
    used = result["resources"]
    assert used[resource]["used"] == number if number else used[resource]["used"] > 100
    assert used["FF"]["used"] > 300
    assert sum(block[resource] for block in result["blocks"].values()) == used[resource]["used"]


@pytest.mark.long
def test_module_by_module_against_flat(monkeypatch, tmp_path):
    """Two columns, mapped once: as many multipliers, and no less logic than all at once."""
    monkeypatch.setenv("ADAGP_SYNTH_CACHE", str(tmp_path / "cache"))
    family = device_by_name("xc7").details
    text = emit_verilog(PEArray(FORMATS["int8"], 2, 2), name="dut")

    def used(**options):
        module_synthesis = synthesize(text, top="dut", family=family, directory=tmp_path, **options)
        return module_synthesis, resources_of(total(block_counts(module_synthesis, "dut")), family)

    (module_synthesis, kept), (whole, flat) = used(), used(flat=True)
    (column,) = (name for name in module_synthesis if name.startswith("adagp_column"))
    assert module_synthesis["dut"]["modules"][column] == 2
    assert list(whole) == ["dut"] and not whole["dut"]["modules"]
    assert kept["DSP48E1"] == flat["DSP48E1"] == 2 * module_synthesis[column]["cells"]["DSP48E1"]
    assert flat["FF"] < kept["FF"] < 1.25 * flat["FF"]
    assert flat["LUT"] <= kept["LUT"] < 1.25 * flat["LUT"]


def test_designs_share_modules(monkeypatch, tmp_path):
    """An array of three columns has the column of one of two: nothing but its top is mapped."""
    monkeypatch.setenv("ADAGP_SYNTH_CACHE", str(tmp_path / "cache"))
    options = {"family": device_by_name("LFE5U-25F").details, "directory": tmp_path}
    mapped = []

    def array(columns, name):
        text = emit_verilog(PEArray(FORMATS["bf16"], 1, columns), name=name, technology="ecp5")
        return synthesize(text, top=name, **options)

    run_yosys = module_synthesis.run_yosys
    monkeypatch.setattr(
        module_synthesis,
        "run_yosys",
        lambda *a, name, **k: mapped.append(name) or run_yosys(*a, name=name, **k),
    )
    first = array(2, "adagp_low")
    assert len(mapped) == len(first) > 2
    mapped.clear()
    second = array(3, "adagp_max")
    assert mapped == ["adagp_max"]
    (column,) = (name for name in first if name.startswith("adagp_column"))
    assert second[column] == first[column]
    assert second["adagp_max"]["modules"][column] == 3
    assert total(block_counts(second, "adagp_max"))["MULT18X18D"] == 3


def test_unmapped_cells(monkeypatch, tmp_path):
    monkeypatch.setenv("ADAGP_SYNTH_CACHE", str(tmp_path / "cache"))
    netlist = {"cells": {"a": {"type": "$_AND_"}}, "ports": {}, "netnames": {}}
    monkeypatch.setattr(synthesis, "yosys_netlist", lambda *a, **k: netlist)
    family = device_by_name("xc7").details
    with pytest.raises(ToolError, match=r"left cells of a unmapped: \$_AND_"):
        synthesize("module a(); endmodule", top="a", family=family, directory=tmp_path)


def test_too_large(small, monkeypatch, capsys):
    monkeypatch.setattr(fpga, "emitted_verilog", lambda config, technology: _wide())
    command = ["fpga", "--variant", "baseline", "--preset", "tiny", "--device", "iCE40UP5K"]
    assert main(command) == 2
    printed = capsys.readouterr()
    message = printed.err.strip().splitlines()[-1]
    assert message.endswith("does not fit iCE40UP5K: 720 FF too many (6000 of 5280)")
    assert "not available, the design does not fit" in printed.out


def _wide():
    """A shift register of 6000 flip-flops."""
    return """module adagp_baseline(input clk, input rst, input d, output q);
      reg [5999:0] r; always @(posedge clk) r <= {r, d}; assign q = r[5999]; endmodule"""


def test_no_legal_placement(small, monkeypatch, capsys):
    def give_up(*arguments, seed, **options):
        raise nextpnr.PlacementError(f"nextpnr failed, seed {seed}: Unable to find legal placement")

    monkeypatch.setattr(fpga, "place_and_route", give_up)
    result = fpga.measure(CONFIG, device="LFE5U-25F", seeds=(1,))
    assert not result["fits"]
    assert result["fmax_mhz"] == {}
    assert "its cells are few enough" in fpga.misfit(result)
    command = ["fpga", "--variant", "baseline", "--preset", "tiny", "--device", "LFE5U-25F"]
    assert main([*command, "--seeds", "1"]) == 2
    assert "it is not placed and routed: nextpnr failed, seed 1" in capsys.readouterr().err


def test_error_of_the_placer_is_told_from_others(tmp_path):
    """A netlist that is none, and the real tool."""
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ToolError, match="nextpnr failed, seed 1: ") as error:
        nextpnr.place_and_route(
            "x", device=device_by_name("LFE5U-25F"), seed=1, target_mhz=50, directory=tmp_path
        )
    assert not isinstance(error.value, nextpnr.PlacementError)


def test_routing_that_does_not_end(tmp_path):
    """The tool is stopped after so many passes; one that ends in time is not."""
    program = tmp_path / "nextpnr"
    line = "Info: iter=$i wires=100 overused=$((7 + i % 3)) overuse=9"
    text = f'#!/bin/sh\ni=0\nwhile [ $i -lt 30 ]; do i=$((i+1)); echo "{line}"; done\n'
    program.write_text(text + "exec sleep 600\n")
    program.chmod(0o755)

    def run(passes):
        nextpnr.place_and_route(
            "x", device=device_by_name("LFE5U-25F"), seed=4, target_mhz=50, directory=tmp_path,
            program=str(program), passes=passes,
        )  # fmt: skip

    with pytest.raises(nextpnr.PlacementError, match="seed 4 is not routed after 20 passes .*: 7 "):
        run(20)
    program.write_text(text + "echo ERROR: else; exit 1\n")
    with pytest.raises(ToolError, match="ERROR: else") as error:
        run(30)
    assert not isinstance(error.value, nextpnr.PlacementError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--variant", "huge"], "variant must be one of"),
        (["--set", "rowz=3"], "unknown field 'rowz'"),
        (["--json", "/no/where.json"], "Directory of --json does not exist"),
    ],
)
def test_bad_input(options, message, capsys):
    assert main(["fpga", *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "message"),
    [("--freq", "must be a number from 1 to 1000"), ("--passes", "must be an integer from 1")],
)
def test_bad_numbers(option, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fpga", option, "0"])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_another_place_and_route_program(small, tmp_path, capsys):
    """It says its version, which is part of the result; what is none is refused."""
    command = ["fpga", "--variant", "baseline", "--preset", "tiny", "--device", "LFE5U-25F"]
    assert main([*command, "--nextpnr", str(tmp_path / "none")]) == 2
    assert "none cannot be run" in capsys.readouterr().err
    assert main([*command, "--nextpnr", "true"]) == 2
    assert "true is no nextpnr" in capsys.readouterr().err
    program = tmp_path / "nextpnr"
    program.write_text("#!/bin/sh\necho 'nextpnr -- Place and Route (Version nextpnr-9.8)' >&2\n")
    program.chmod(0o755)
    result = fpga.measure(CONFIG, device="LFE5U-25F", seeds=(), nextpnr=str(program))
    assert result["tools"]["nextpnr"] == "nextpnr-9.8"
