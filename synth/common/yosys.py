"""Synthesis with Yosys, in a process of its own."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .errors import ToolError

__all__ = ["CellCounts", "run_yosys", "synthesize_ecp5"]


@dataclass(frozen=True, kw_only=True)
class CellCounts:
    """Cells of a netlist.

    Members
    -------
    lut4 : four-input look-up tables, without those of carry chains
    ccu2c : carry cells, two look-up tables each
    mult18 : MULT18X18D blocks
    ff : flip-flops
    """

    lut4: int
    ccu2c: int
    mult18: int
    ff: int

    @property
    def lut4eq(self) -> int:
        """Look-up tables in all: LUT4 + 2 CCU2C."""
        return self.lut4 + 2 * self.ccu2c

    @classmethod
    def from_statistics(cls, text: str, top: str) -> "CellCounts":
        """From what Yosys ``stat -json`` wrote about the flat module ``top``."""
        try:
            cells = json.loads(text)["modules"]["\\" + top]["num_cells_by_type"]
        except (ValueError, KeyError) as error:
            raise ToolError(f"The cell statistics of {top} cannot be read: {error!r}") from None
        unknown = [name for name in cells if name.startswith("$") and name != "$scopeinfo"]
        if unknown:
            raise ToolError(f"Yosys left cells unmapped: {', '.join(sorted(unknown))}")
        return cls(
            lut4=cells.get("LUT4", 0),
            ccu2c=cells.get("CCU2C", 0),
            mult18=cells.get("MULT18X18D", 0),
            ff=cells.get("TRELLIS_FF", 0),
        )


def synthesize_ecp5(verilog: str, *, top: str, name: str, directory: Path) -> CellCounts:
    """Map module ``top`` of ``verilog`` to ECP5 cells, flattened, with ``synth_ecp5``.

    Writes ``name.v``, ``name.json`` (netlist), ``name.stat`` and ``name.log`` into ``directory``.
    Raises :class:`ToolError` if Yosys is not installed or fails.
    """
    (directory / f"{name}.v").write_text(verilog)
    (directory / f"{name}.stat").unlink(missing_ok=True)
    passes = (
        f"read_verilog {name}.v",
        f"synth_ecp5 -top {top} -json {name}.json",
        f"tee -q -o {name}.stat stat -json",
    )
    run_yosys(passes, name=name, directory=directory)
    statistics = directory / f"{name}.stat"
    if not statistics.exists():
        raise ToolError(f"Yosys failed on {name}: no statistics (log: {directory / name}.log)")
    return CellCounts.from_statistics(statistics.read_text(), top)


def run_yosys(passes, *, name: str, directory: Path) -> None:
    """Run Yosys commands in ``directory``.

    Writes ``name.ys.py``, which runs them again, and ``name.log``. Raises
    :class:`ToolError` if Yosys is not installed, or with the first error it reports.
    """
    if importlib.util.find_spec("pyosys") is None:
        raise ToolError("Yosys is not installed: pip install pyosys")
    # A process of its own: Yosys ends the interpreter when it meets an error.
    program = "from pyosys import libyosys as y\nd = y.Design()\n"
    program += "".join(f"y.run_pass({command!r}, d)\n" for command in passes)
    (directory / f"{name}.ys.py").write_text(program)
    log = directory / f"{name}.log"
    with log.open("w") as output:
        done = subprocess.run(
            [sys.executable, f"{name}.ys.py"],
            cwd=directory,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        lines = log.read_text().strip().splitlines()
        reason = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "?")
        raise ToolError(f"Yosys failed on {name}: {reason} (log: {log})")
