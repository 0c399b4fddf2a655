"""LiteX SoCs: their Verilog, and what is refused.

Covers: boards/litex_soc/soc.py, boards/litex_soc/clocks.py, boards/litex_soc/command.py.
"""

import re
import sys

import pytest

from boards.__main__ import main
from boards.catalogue import BoardError, board_by_name
from boards.litex_soc.designs import board_soc, simulated

SMALL = ["rows=2", "columns=2", "buffer_bank_depth=64", "training=false"]
OPTIONS = [part for setting in SMALL for part in ("--set", setting)]


def config(**options):
    return board_by_name("ulx3s").config(settings=SMALL, **options)


def modules(text):
    return set(re.findall(r"(?m)^module (\w+)", text))


def test_simulated():
    pytest.importorskip("litex")
    design = simulated(config())
    top = design.files["litex_board.v"]
    assert modules(top) == {"litex_board"} and "Date" not in top
    assert "adagp_baseline" in modules(design.files["adagp_baseline.v"])
    # Every port of the accelerator is connected.
    ports = re.search(r"adagp_baseline adagp_baseline\((.*?)\n\);", top, re.S).group(1)
    declared = re.search(r"module adagp_baseline\((.*?)\);", design.files["adagp_baseline.v"], re.S)
    names = set(re.findall(r"\.(\w+)\s*\(", ports))
    assert names == set(re.split(r"[\s,]+", declared.group(1).strip()))
    assert design.csrs["sdram_dfii_control"] == 0xF000_0000
    assert [step[1] for step in design.memory_sequence if "Precharge" in step[0]] == [0x400] * 2


@pytest.mark.long
@pytest.mark.parametrize(("board", "name"), [("ulx3s", "radiona_ulx3s"), ("ecpix5", "ecpix5")])
def test_boards(board, name, tmp_path, capsys):
    pytest.importorskip("litex_boards")
    assert main(["litex", board, *OPTIONS, "-o", str(tmp_path)]) == 0
    files = {path.name: path for path in tmp_path.iterdir()}
    assert {"adagp_baseline.v", "adagp_regs.h", "adagp_board.h"} < set(files)
    (top,) = (path.read_text() for path in files.values() if name in path.name)
    assert "EHXPLLL" in top and "adagp_baseline" in top
    assert ("TSHX2DQSA" in top) == (board == "ecpix5")
    width = {"ulx3s": 32, "ecpix5": 128}[board]
    assert f"CONFIG_AXI_DATA_WIDTH {width}\n" in files["adagp_regs.h"].read_text()
    assert str(tmp_path) in capsys.readouterr().out


def test_refused(capsys, monkeypatch):
    with pytest.raises(BoardError, match="board must be one of ulx3s, ecpix5, not 'ulx4'"):
        board_soc("ulx4", config())
    assert main(["sim", "litex", "--memory-test"]) == 2
    assert "litex has neither --memory-test nor --break" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "litex.build.generic_platform", None)
    monkeypatch.setitem(sys.modules, "litex", None)
    with pytest.raises(BoardError, match=r"LiteX is not installed: pip install '.\[litex\]'"):
        simulated(config())


@pytest.mark.long
def test_other_widths():
    pytest.importorskip("litex_boards")
    with pytest.raises(BoardError, match="axi_data_width must be 128, LiteDRAM's native width"):
        board_soc("ecpix5", config())
    with pytest.raises(BoardError, match="ratio must be 2"):
        simulated(config(ratio=1))


@pytest.mark.long
def test_network(capsys):
    pytest.importorskip("litex")
    assert main(["sim", "litex", *OPTIONS, "--run", "digits", "--images", "1", "--no-ideal"]) == 0
    assert "0 violations" in capsys.readouterr().out
