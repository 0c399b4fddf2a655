"""The top module's text, as a dry run writes it.

Covers: boards/bitstream/command.py.
"""

import re

import pytest

from boards.__main__ import main

SMALLEST = [
    "rows=1", "columns=1", "accumulator_depth=16", "buffer_banks=1", "buffer_bank_depth=64",
    "training=false",
]  # fmt: skip


@pytest.mark.parametrize("ratio", [pytest.param(1, marks=pytest.mark.long), 2])
def test_dry_run(ratio, capsys, tmp_path):
    """Pins and nothing else; the clocks come from the PLL; every data pin has its flip-flops."""
    options = [part for setting in SMALLEST for part in ("--set", setting)]
    options += ["--ratio", str(ratio), "--dry-run", "-o", str(tmp_path)]
    assert main(["build", "ulx3s", *options]) == 0
    assert "ulx3s.lpf" in capsys.readouterr().out
    files = ["adagp_board.h", "adagp_regs.h", "ulx3s.lpf", "ulx3s.v"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    text = (tmp_path / "ulx3s.v").read_text()
    header = re.search(r"^module ulx3s\((.*?)\);", text, re.M)[1]
    ports = set(re.split(r",\s*", header))
    assert {"clk25", "uart_rx", "uart_tx", "led", "sdram_dq", "sdram_clk"} < ports
    assert "clk" not in ports and "rst" not in ports
    assert len(re.findall(r"^  BB ", text, re.M)) == 16
    assert len(re.findall(r"^  IFS1P3DX ", text, re.M)) == 16
    # Data and output enable, ras, cas, we, 2 banks, 13 addresses, 2 masks.
    assert len(re.findall(r"^  OFS1P3DX ", text, re.M)) == 2 * 16 + 3 + 2 + 13 + 2
    (pll,) = re.findall(r"^  EHXPLLL #\((.*?)\) \\?pll", text, re.M | re.S)
    divisions = {name: int(value) for name, value in
                 re.findall(r"\.(CLK\w+_DIV)\(32's?d(\d+)\)", pll)}  # fmt: skip
    assert divisions["CLKOS_DIV"] == ratio * divisions["CLKOP_DIV"]
    assert 25 * divisions["CLKFB_DIV"] / divisions["CLKI_DIV"] == 40 * ratio
