"""CACTI 7 as a function: the size of a memory in, area, energies, leakage and times out."""

import csv
import os
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from synth.common.cache import cached_and_dated
from synth.common.errors import ToolError
from synth.common.wheels import WHEELS, wheel_directory

__all__ = ["CELL_TYPES", "NODES", "Technology", "sram_macro"]

#: Feature sizes in nm that CACTI knows, or interpolates between.
NODES = (22, 90)

#: Transistor types of the ITRS roadmap that CACTI models: high performance, low operating power,
#: low standby power.
CELL_TYPES = ("itrs-hp", "itrs-lop", "itrs-lstp")

_SMALLEST_BYTES = 64
_TIMEOUT_SECONDS = 120

# Every option is given: CACTI takes what is missing from uninitialised memory. Most of them belong
# to caches and DRAM and change nothing for a scratchpad memory; the design objective is area alone.
_CONFIGURATION = """\
-size (bytes) {bytes}
-block size (bytes) {word_bytes}
-output/input bus width {width}
-cache type "ram"
-associativity 1
-read-write port 0
-exclusive read port {read_ports}
-exclusive write port {write_ports}
-single ended read ports 0
-UCA bank count 1
-technology (u) {micrometres}
-operating temperature (K) {temperature}
-Data array cell type - "{cell_type}"
-Data array peripheral type - "{cell_type}"
-Tag array cell type - "{cell_type}"
-Tag array peripheral type - "{cell_type}"
-design objective (weight delay, dynamic power, leakage power, cycle time, area) 0:0:0:0:100
-deviate (delay, dynamic power, leakage power, cycle time, area) {any}
-NUCAdesign objective (weight delay, dynamic power, leakage power, cycle time, area) {nuca}
-NUCAdeviate (delay, dynamic power, leakage power, cycle time, area) {any}
-Optimize ED or ED^2 (ED, ED^2, NONE): "NONE"
-Cache model (NUCA, UCA)  - "UCA"
-NUCA bank count 0
-Add ECC - "false"
-Wire signaling (fullswing, lowswing, default) - "Global_30"
-Wire inside mat - "semi-global"
-Wire outside mat - "semi-global"
-Interconnect projection - "conservative"
-Array Power Gating - "false"
-WL Power Gating - "false"
-CL Power Gating - "false"
-Bitline floating - "false"
-Interconnect Power Gating - "false"
-Power Gating Performance Loss 0.01
-tag size (b) "default"
-access mode (normal, sequential, fast) - "normal"
-Core count 8
-Cache level (L2/L3) - "L3"
-Print level (DETAILED, CONCISE) - "CONCISE"
-Print input parameters - "true"
-Force cache config - "false"
-Ndwl 1
-Ndbl 1
-Nspd 0
-Ndcm 1
-Ndsam1 0
-Ndsam2 0
-page size (bits) 8192
-burst length 8
-internal prefetch width 8
-dram_type "DDR3"
-io state "IDLE"
-addr_timing 1.0
-mem_density 4 Gb
-bus_freq 800 MHz
-duty_cycle 1.0
-activity_dq 1.0
-activity_ca 0.5
-num_dq 72
-num_dqs 18
-num_ca 25
-num_clk  2
-num_mem_dq 2
-mem_data_width 8
-rtt_value 10000
-ron_value 34
-tflight_value
-num_bobs 1
-capacity 80
-num_channels_per_bob 1
-first metric "Cost"
-second metric "Bandwidth"
-third metric "Energy"
-DIMM model "ALL"
-mirror_in_bob "F"
"""

#: Our name -> (column of CACTI's table, factor).
_RESULTS = {
    "area_um2": ("Area (mm2)", 1e6),
    "read_energy_pj": ("Dynamic read energy (nJ)", 1e3),
    "write_energy_pj": ("Dynamic write energy (nJ)", 1e3),
    "leakage_mw": ("Standby leakage per bank(mW)", 1),
    "access_time_ns": ("Access time (ns)", 1),
    "cycle_time_ns": ("Random cycle time (ns)", 1),
}


@dataclass(frozen=True, kw_only=True)
class Technology:
    """What the memory is made of.

    Members
    -------
    node_nm : feature size
    cell_type : transistors of the cells and of the periphery, one of :data:`CELL_TYPES`
    temperature_k : 300 to 400 in steps of 10

    Raises :class:`ToolError` for a value that CACTI does not take.
    """

    node_nm: int = 45
    cell_type: str = "itrs-lop"
    temperature_k: int = 300

    def __post_init__(self):
        low, high = NODES
        if not low <= self.node_nm <= high:
            raise ToolError(f"Node must be from {low} to {high} nm, not {self.node_nm}")
        if self.cell_type not in CELL_TYPES:
            allowed = ", ".join(CELL_TYPES)
            raise ToolError(f"Cell type must be one of {allowed}, not {self.cell_type!r}")
        if self.temperature_k not in range(300, 401, 10):
            raise ToolError(
                f"Temperature must be 300 to 400 K in steps of 10, not {self.temperature_k}"
            )


def sram_macro(
    *,
    words: int,
    width: int,
    technology: Technology,
    read_ports: int = 1,
    write_ports: int = 1,
    refresh: bool = False,
) -> dict:
    """What CACTI says about one memory, the smallest it can lay out.

    A width that is no multiple of 8 is rounded up, and a memory below CACTI's smallest gets more
    words until it is accepted: ``modelled`` holds the words and the width that the figures are
    about, ``exact`` whether these are the ones asked for.

    Returns
    -------
    dict
        ``area_um2``, ``read_energy_pj`` and ``write_energy_pj`` (a whole word), ``leakage_mw``,
        ``access_time_ns``, ``cycle_time_ns``, ``modelled``, ``exact``, ``technology``, ``date``

    Raises :class:`ToolError` when CACTI is missing or fails.
    """
    directory = wheel_directory(WHEELS["cacti"])
    key = {
        "words": words,
        "width": width,
        "read_ports": read_ports,
        "write_ports": write_ports,
        "technology": asdict(technology),
        "tool": f"{WHEELS['cacti'].name} {WHEELS['cacti'].version}",
        "options": _CONFIGURATION,
    }

    def compute():
        rounded = -(-width // 8) * 8
        size = max(words, -(-_SMALLEST_BYTES * 8 // rounded))
        while True:
            table = _run(
                directory,
                words=size,
                width=rounded,
                read_ports=read_ports,
                write_ports=write_ports,
                technology=technology,
            )
            if table is not None:
                break
            if size >= 8 * max(words, 64):
                raise ToolError(f"CACTI finds no layout for {words} words of {width} bits")
            size = 1 << size.bit_length()
        return {
            **{
                name: round(float(table[column]) * factor, 9)
                for name, (column, factor) in _RESULTS.items()
            },
            "modelled": {"words": size, "width": rounded},
            "exact": (size, rounded) == (words, width),
            "technology": asdict(technology),
        }

    return cached_and_dated("sram", key, compute, refresh=refresh)


def _run(directory, *, words, width, read_ports, write_ports, technology):
    """CACTI's table of results, or None when it has no organisation for this size."""
    text = _CONFIGURATION.format(
        bytes=words * width // 8,
        word_bytes=width // 8,
        width=width,
        read_ports=read_ports,
        write_ports=write_ports,
        micrometres=technology.node_nm / 1000,
        temperature=technology.temperature_k,
        cell_type=technology.cell_type,
        any=":".join(["100000"] * 5),
        nuca="100:100:0:0:100",
    )
    # It reads its tables from the directory in which it runs and writes next to its input.
    with tempfile.TemporaryDirectory(prefix="cacti-") as temporary:
        work = Path(temporary)
        (work / "tech_params").symlink_to((directory / "tech_params").absolute())
        program = Path(shutil.copy(directory / "cacti", work / "cacti"))
        program.chmod(0o755)
        (work / "memory.cfg").write_text(text)
        try:
            done = subprocess.run(
                ["./cacti", "-infile", "memory.cfg"],
                cwd=work,
                env={**os.environ, "LC_ALL": "C"},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolError(f"CACTI could not be run: {error}") from None
        output = done.stdout + done.stderr
        if "no valid data array organizations" in output:
            return None
        result = work / "memory.cfg.out"
        if done.returncode or not result.exists():
            lines = output.strip().splitlines() or [f"exit status {done.returncode}"]
            reason = next((line for line in lines if "ERROR" in line.upper()), lines[-1])
            raise ToolError(f"CACTI failed on {words} words of {width} bits: {reason}")
        return _parse(result.read_text())


def _parse(text: str) -> dict[str, str]:
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.strip().splitlines())]
    if len(rows) < 2:
        raise ToolError("CACTI's table of results is empty")
    table = dict(zip(rows[0], rows[-1]))
    for column, _factor in _RESULTS.values():
        try:
            usable = float(table[column]) > 0
        except (KeyError, ValueError):
            usable = False
        if not usable:
            raise ToolError(f"CACTI's table of results has no usable {column!r}")
    return table
