"""Compiles a simulation: the Verilog in Verilator, our C++ around it."""

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from boards.soc.sdram.timing import SdramCycles
from verif.sim import environment, runner
from verif.sim.results import tail

__all__ = ["IO_MODELS", "chip_times", "compile_program"]

_SOURCES = Path(__file__).parent / "cpp"
#: Models of the blocks at the pins.
IO_MODELS = Path(__file__).parent / "rtl" / "ecp5_io.v"


def chip_times(cycles: SdramCycles, **numbers: int) -> str:
    """``chip_times.h``: geometry and times of the chip that is simulated, and further numbers."""
    chip = cycles.chip
    values = {
        "ROW_WIDTH": chip.row_width, "COLUMN_WIDTH": chip.column_width,
        "T_RCD": cycles.rcd, "T_RP": cycles.rp, "T_RAS": cycles.ras, "T_RAS_MOST": cycles.ras_most,
        "T_RC": cycles.rc, "T_RRD": cycles.rrd, "T_RFC": cycles.rfc, "T_WR": cycles.wr,
        "T_MRD": cycles.mrd, "T_INIT": cycles.init, "T_REFRESH": cycles.refresh,
        "T_CAS": cycles.cas, **numbers,
    }  # fmt: skip
    lines = [f"static constexpr unsigned {name} = {value};" for name, value in values.items()]
    return "\n".join(["#pragma once", *lines, ""])


def compile_program(
    design: runner.Build | None,
    main: str,
    headers: dict[str, str],
    *,
    directory: Path | None = None,
) -> Path:
    """Compile ``main``, a file of ``boards/sim/cpp/``, with a verilated design, or find it
    compiled.

    Parameters
    ----------
    design : what :func:`verif.sim.runner.build` returned; None: without
    headers : name -> text of headers that are made for it
    directory : where the program goes; by default to the design

    Raises
    ------
    BuildFailed
        the C++ compiler failed
    """
    place = directory or design.directory
    sources = {path.name: path.read_text() for path in sorted(_SOURCES.iterdir())}
    content = repr((main, sources, headers, environment.tool_versions()))
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    executable = place / f"{Path(main).stem}-{key}"
    if executable.is_file():
        return executable
    root = environment.verilator_root() / "include"
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for name, text in headers.items():
            (Path(folder) / name).write_text(text)
        result = Path(folder) / "program"
        command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O2", "-Wno-attributes"]
        command += [f"-I{path}" for path in (folder, _SOURCES)]
        parts = []
        if design is not None:
            command += [f"-I{path}" for path in (design.directory, root, root / "vltstd")]
            parts = [str(design.directory / "Vtop__ALL.a"),
                     *map(str, sorted(design.directory.glob("verilated*.o")))]  # fmt: skip
        command += [str(_SOURCES / main), *parts, "-pthread", "-o", str(result)]
        done = subprocess.run(
            command, env=environment.tool_environment(), capture_output=True, text=True
        )
        if done.returncode:
            raise runner.BuildFailed(f"{main} does not compile\n{tail(done.stderr)}")
        os.replace(result, executable)
    return executable
