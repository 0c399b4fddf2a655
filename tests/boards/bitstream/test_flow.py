"""The way to a bitstream: what is too slow or too large is said; a small design goes all the way.

Covers: boards/bitstream/command.py.
"""

import pytest

from boards.__main__ import main
from boards.bitstream import flow
from boards.bitstream.flow import Built, missed
from boards.catalogue import board_by_name
from boards.soc.pll import pll_settings
from synth.common.errors import ToolError
from synth.fpga.devices import device_by_name

SETTINGS = pll_settings(25.0, 40, 2)
SMALLEST = [
    "rows=1", "columns=1", "accumulator_depth=16", "buffer_banks=1", "buffer_bank_depth=64",
    "training=false", "semaphores=10", "axi_outstanding_reads=1", "axi_burst_beats=4",
    "command_queue_depth=1",
]  # fmt: skip


def built(clocks, crossings):
    return Built(
        resources={"LUT4EQ": (9, 100), "COMB": (10, 100)}, placed={"COMB": 12}, clocks=clocks,
        crossings=crossings, critical_path=None,
        seconds={"Verilog": 1.0}, files={"ulx3s.bit": 5},
    )  # fmt: skip


def test_missed():
    assert not missed(built({"a": (40.0, 40.0), "b": (81.0, 80.0)}, {"a → b": (12.4, 12.5)}))
    assert missed(built({"a": (39.9, 40.0), "b": (81.0, 80.0)}, {"a → b": (12.6, 12.5)})) == [
        "a reaches 39.9 MHz, 40.0 are needed",
        "a path a → b takes 12.6 ns, there are 12.5",
    ]


def test_clocks():
    """Both must be constrained, by what the PLL makes."""
    found = {"s": {"achieved": 50.0, "constraint": 40.0}, "d": {"achieved": 90, "constraint": 80.0}}
    assert flow._clocks(found, SETTINGS) == {"s": (50.0, 40.0), "d": (90, 80.0)}
    assert flow._crossings({("s", "d"): 3.0}, SETTINGS) == {"s → d": (3.0, 12.5)}
    # The nets of the board have names.
    slow, fast = "$glbnet$clk", "$glbnet$sdram.sdram_clk"
    assert flow._clocks({slow: found["s"], fast: found["d"]}, SETTINGS) == {
        "accelerator": (50.0, 40.0), "SDRAM": (90, 80.0),
    }  # fmt: skip
    assert flow._crossings({(slow, fast): 3.0}, SETTINGS) == {"accelerator → SDRAM": (3.0, 12.5)}
    with pytest.raises(ToolError, match=r"no clock of 80 MHz: it knows s \(40 MHz\)"):
        flow._clocks({"s": found["s"]}, SETTINGS)


def test_too_large():
    modules = {"top": {"cells": {"LUT4": 90_000, "DP16KD": 3}, "modules": {}}}
    with pytest.raises(ToolError, match=r"does not fit LFE5U-85F: 90000 LUT4EQ of 83640"):
        flow._resources(modules, "top", device_by_name("LFE5U-85F"))


def test_mapped_at_once(monkeypatch, tmp_path):
    """On the smaller FPGAs."""
    board, seen = board_by_name("ulx3s"), {}

    def synthesize(_verilog, **options):
        seen.update(options)
        return {"ulx3s": {"cells": {"LUT4": 5}, "modules": {}}}

    monkeypatch.setattr(flow, "synthesize", synthesize)
    monkeypatch.setattr(flow, "emit", lambda *_: {"ulx3s.v": ""})
    for device, flat in {"LFE5U-85F": False, "LFE5U-45F": True}.items():
        chosen = board.with_device(device)
        flow.synthesize_system(chosen, chosen.config(settings=SMALLEST), directory=tmp_path)
        assert seen["flat"] == flat and seen["inside"] == "adagp_baseline"


def test_exit_status(capsys, monkeypatch, tmp_path):
    """1 if a clock is missed; what was reached is printed."""
    result = built({"a": (30.0, 40.0)}, {"a → b": (1.0, 12.5)})
    monkeypatch.setattr("boards.bitstream.command.build", lambda *_, **__: result)
    assert main(["build", "ulx3s", "-o", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "too slow: a reaches 30.0 MHz, 40.0 are needed" in text and "30.00 MHz" in text
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines()]
    assert ["LUT4EQ", "9", "", "100", "9.0"] in rows and ["COMB", "10", "12", "100", "12.0"] in rows
    good = built({"a": (41.0, 40.0)}, {})
    monkeypatch.setattr("boards.bitstream.command.build", lambda *_, **__: good)
    assert main(["build", "ulx3s", "-o", str(tmp_path)]) == 0


@pytest.mark.long
def test_whole_way(capsys, tmp_path):
    options = [part for setting in SMALLEST for part in ("--set", setting)]
    assert main(["build", "ulx3s", *options, "--clock", "25", "-o", str(tmp_path)]) == 0
    assert "MHz" in capsys.readouterr().out
    assert (tmp_path / "ulx3s.bit").stat().st_size > 100_000
    assert (tmp_path / "ulx3s.svf").stat().st_size > 100_000


@pytest.mark.long
def test_placement(capsys, tmp_path):
    options = [part for setting in SMALLEST for part in ("--set", setting)]
    options += ["--clock", "25", "--placement-only", "-o", str(tmp_path)]
    assert main(["build", "ulx3s", *options]) == 0
    text = capsys.readouterr().out
    assert "25.00 MHz" in text and "50.00 MHz" in text and "placement.json" in text
    assert main(["layout", str(tmp_path)]) == 0
    assert (tmp_path / "layout.png").stat().st_size > 10_000
    assert not list(tmp_path.glob("*.bit")) and not list(tmp_path.glob("*.placed.json"))
