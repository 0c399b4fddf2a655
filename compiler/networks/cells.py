"""One network at one size on one variant, compiled in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from cli.source_state import source_state
from compiler.errors import CompileError

__all__ = [
    "Cell",
    "Outcome",
    "append_outcome",
    "compile_cell",
    "compiler_state",
    "read_outcomes",
]

#: Seconds between two looks at a process.
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is compiled: options of ``python -m compiler --network``."""

    network: str
    input: str
    batch: int
    variant: str
    method: str
    preset: str
    settings: tuple[str, ...] = ()
    width: float = 1.0

    @property
    def arguments(self) -> list[str]:
        """The command line behind ``python -m compiler``."""
        found = ["--network", self.network, "--input", self.input, "--batch", str(self.batch)]
        found += ["--variant", self.variant, "--method", self.method, "--preset", self.preset]
        if self.width != 1:
            found += ["--width", str(self.width)]
        for setting in self.settings:
            found += ["--set", setting]
        return found


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a cell.

    Members
    -------
    reason : why there is no program; None if there is
    seconds : of processor time
    peak_bytes : of memory that the process had at most
    stream_bytes : of the program for a run
    memory_bytes : of DRAM, programs included
    programs : batch -> commands, executed, cycles, of
        :class:`~compiler.networks.summary.ProgramSummary`
    state : of the project, see :func:`compiler_state`; "" if it is not known
    """

    cell: Cell
    reason: str | None = None
    seconds: float = 0.0
    peak_bytes: int = 0
    stream_bytes: int = 0
    memory_bytes: int = 0
    programs: dict[str, dict[str, int]] = field(default_factory=dict)
    state: str = ""

    def to_json(self) -> str:
        """One line."""
        values = asdict(self)
        return json.dumps(values.pop("cell") | values)

    @classmethod
    def from_json(cls, line: str) -> "Outcome":
        """What :meth:`to_json` wrote; raises ValueError, TypeError or KeyError."""
        values = json.loads(line)
        own = {part.name: values.pop(part.name) for part in fields(Cell) if part.name in values}
        own["settings"] = tuple(own.get("settings", ()))
        return cls(cell=Cell(**own), **values)


def compiler_state() -> str:
    """The state of the project as far as programs depend on it, or "" if it is not known."""
    return source_state("compiler", "hw", "algorithms/networks")


def read_outcomes(path: Path) -> dict[Cell, Outcome]:
    """Those of a file, a line each, the last one of each cell; none if there is no file.

    Raises
    ------
    CompileError
        for a line that is none.
    """
    if not path.exists():
        return {}
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            outcome = Outcome.from_json(line)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CompileError(f"{path}: line {number} is no result of --table: {error}") from error
        found[outcome.cell] = outcome
    return found


def compile_cell(cell: Cell, *, limit: float) -> Outcome:
    """Compile ``cell``, at most ``limit`` seconds long."""
    state = compiler_state()
    with tempfile.TemporaryDirectory() as folder:
        result, errors = Path(folder) / "result.json", Path(folder) / "errors"
        command = [sys.executable, "-m", "compiler", *cell.arguments, "--json", str(result)]
        with open(errors, "wb") as file:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
            status, usage = _wait(process, time.monotonic() + limit)
        known: dict[str, Any] = {
            "seconds": round(usage.ru_utime + usage.ru_stime, 1),
            "peak_bytes": usage.ru_maxrss * 1024,
            "state": state,
        }
        if status is None:
            reason = f"not compiled within {limit:g} s"
        elif status == 0:
            found: dict[str, Any] = json.loads(result.read_text())
            sizes = {name: found[name] for name in ("stream_bytes", "memory_bytes", "programs")}
            return Outcome(cell=cell, **sizes, **known)
        else:
            reason = _reason(status, errors.read_text(errors="replace").splitlines())
        return Outcome(cell=cell, reason=reason, **known)


def _wait(process: subprocess.Popen[bytes], deadline: float) -> tuple[int | None, Any]:
    """(exit status, or None if it was still running then; its use of resources)."""
    late = False
    while True:
        number, status, usage = os.wait4(process.pid, os.WNOHANG)
        if number:
            process.returncode = os.waitstatus_to_exitcode(status)
            return (None if late else process.returncode), usage
        if time.monotonic() > deadline and not late:
            process.kill()
            late = True
        time.sleep(_LOOK_SECONDS)


def _reason(status: int, lines: Sequence[str]) -> str:
    """Why a process ended with this status: the last thing that it said."""
    last = next((line for line in reversed(lines) if line.strip()), "")
    if status == 2 and last.startswith("error: "):
        return last.removeprefix("error: ")
    return f"ended with status {status}: {last}" if last else f"ended with status {status}"


def append_outcome(path: Path, outcome: Outcome) -> None:
    """Add a line to a file; it is there whatever comes next."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(outcome.to_json() + "\n")
        file.flush()
        os.fsync(file.fileno())
