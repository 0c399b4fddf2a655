"""The column report: real synthesis of a small column, and what it says about trouble.

Covers: synth/fpga/column.py, synth/common/yosys.py, synth/fpga/nextpnr.py, synth/fpga/harness.py.
"""

import json

import pytest
from rich.console import Console

from synth.__main__ import main
from synth.common.errors import ToolError
from synth.common.yosys import CellCounts, synthesize_ecp5
from synth.fpga import nextpnr
from synth.fpga.column import ColumnReport, print_report


def test_small_column(tmp_path, capsys):
    """Two int8 lanes: one multiplier each, and the decoders' share is what the difference says."""
    pytest.importorskip("pyosys")
    out = tmp_path / "figures.json"
    command = ["column", "--format", "int8", "--lanes", "2", "--columns", "4", "--seeds", ""]
    assert main([*command, "--json", str(out), "--keep", str(tmp_path / "kept")]) == 0
    figures = json.loads(out.read_text())
    bare, standalone = figures["area"]["alone"], figures["area"]["standalone"]
    assert bare["mult18"] == standalone["mult18"] == 2
    assert bare["lut4eq"] == bare["lut4"] + 2 * bare["ccu2c"] > 32
    assert standalone["lut4eq_per_mac"] == standalone["lut4eq"] / 2
    once = standalone["lut4eq"] - bare["lut4eq"]
    shared = figures["area"]["in_array"]
    assert shared["lut4eq_per_mac"] == pytest.approx((bare["lut4eq"] + once / 4) / 2)
    assert (figures["fmax_mhz"], figures["fmax_summary_mhz"]) == ({}, {})
    assert (tmp_path / "kept" / "column.json").exists()
    assert "2 lanes of int8" in capsys.readouterr().out


def test_counts_come_from_the_statistics():
    text = json.dumps(
        {"modules": {"\\a": {"num_cells_by_type": {"LUT4": 10, "CCU2C": 3, "TRELLIS_FF": 7}}}}
    )
    counts = CellCounts.from_statistics(text, "a")
    assert (counts.lut4eq, counts.ff, counts.mult18) == (16, 7, 0)
    with pytest.raises(ToolError, match="statistics of b cannot be read"):
        CellCounts.from_statistics(text, "b")
    left = text.replace("LUT4", "$_AND_")
    with pytest.raises(ToolError, match=r"left cells unmapped: \$_AND_"):
        CellCounts.from_statistics(left, "a")


def test_decoders_are_shared():
    def cells(luts):
        return CellCounts(lut4=luts, ccu2c=0, mult18=0, ff=0)

    report = ColumnReport(
        format="bf16",
        lanes=10,
        columns=5,
        technology="generic",
        bare=cells(1000),
        standalone=cells(1500),
        fmax_mhz={},
        latency=1,
        psum_latency=1,
    )
    assert (report.standalone_per_mac, report.shared_per_mac) == (150, 110)


def test_keys_of_the_figures(capsys):
    """Area and Fmax are neighbours at the top; each has the rows and seeds that are printed."""
    report = ColumnReport(
        format="bf16",
        lanes=10,
        columns=5,
        technology="ecp5",
        bare=CellCounts(lut4=1000, ccu2c=0, mult18=10, ff=0),
        standalone=CellCounts(lut4=1500, ccu2c=0, mult18=10, ff=0),
        fmax_mhz={3: 90.0, 1: 80.0, 2: 100.0},
        latency=1,
        psum_latency=1,
    )
    figures = report.as_json()
    keys = list(figures)
    assert keys[keys.index("area") + 1] == "fmax_mhz"
    per_mac = {row: cells["lut4eq_per_mac"] for row, cells in figures["area"].items()}
    assert per_mac == {"alone": 100.0, "standalone": 150.0, "in_array": 110.0}
    assert figures["fmax_mhz"] == {"3": 90.0, "1": 80.0, "2": 100.0}
    assert figures["fmax_summary_mhz"] == {"min": 80.0, "median": 90.0, "max": 100.0}
    print_report(report, Console(width=120))
    printed = capsys.readouterr().out
    assert "90.0 MHz" in printed and "in an array of 5" in printed


def test_last_frequency_counts():
    log = (
        "Info: Max frequency for clock '$glbnet$clk': 101.00 MHz (FAIL at 150.00 MHz)\n"
        "Info: Max frequency for clock '$glbnet$clk': 123.45 MHz (FAIL at 150.00 MHz)\n"
    )
    assert nextpnr.max_frequency(log) == 123.45
    with pytest.raises(ToolError, match="no maximum frequency"):
        nextpnr.max_frequency("")


def test_yosys_error_is_named(tmp_path):
    pytest.importorskip("pyosys")
    with pytest.raises(ToolError, match="Yosys failed on broken: .*ERROR"):
        synthesize_ecp5("module dut(; endmodule", top="dut", name="broken", directory=tmp_path)


def test_missing_tool(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("synth.common.yosys.importlib.util.find_spec", lambda name: None)
    assert main(["column", "--lanes", "2", "--keep", str(tmp_path)]) == 2
    assert "Yosys is not installed" in capsys.readouterr().err
    monkeypatch.setattr("synth.fpga.nextpnr.shutil.which", lambda name, path=None: None)
    with pytest.raises(ToolError, match="nextpnr is not installed"):
        nextpnr.place_and_route_ecp5("x", seed=1, target_mhz=100, directory=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lanes", "0"], "must be an integer from 1 to 64, not '0'"),
        (["--format", "fp12"], "invalid choice: 'fp12'"),
        (["--seeds", "1,x"], "must be numbers separated by commas, not '1,x'"),
    ],
)
def test_bad_options(options, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["column", *options])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_bad_paths(tmp_path, capsys):
    assert main(["column", "--json", str(tmp_path / "no" / "where.json")]) == 2
    (tmp_path / "file").write_text("")
    assert main(["column", "--keep", str(tmp_path / "file")]) == 2
    err = capsys.readouterr().err
    assert "Directory of --json does not exist" in err
    assert "Directory of --keep cannot be made" in err
