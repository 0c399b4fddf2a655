"""Standard-cell mapping with Yosys: Verilog to a hierarchical netlist of library cells."""

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .errors import ToolError
from .library import Library

__all__ = ["MappedDesign", "block_modules", "map_to_cells"]

#: Blocks of a core that keep their hierarchy; anything below is flattened into them.
_CORE_BLOCKS = ("matrix.array", "matrix.matmul", "matrix.weights", "matrix.accumulators")

#: Modules shared by many instances: mapped once, one netlist for all.
_SHARED = re.compile(r"adagp_(column|pe|decoder|post_lane)_\w+")

#: Memories: black boxes in the netlist.
_MEMORY = re.compile(r"adagp_ram_\w+")

#: What abc assumes to drive inputs of a module and to load its outputs.
_OUTPUT_LOAD_FF = 10.0


@dataclass(frozen=True, kw_only=True)
class MappedDesign:
    """Result of mapping.

    Members
    -------
    top : name of the top module
    modules : module -> netlist of it as in Yosys's JSON, with ``ports`` and ``cells`` only
    memories : names of the modules that are memories
    log : what Yosys wrote
    """

    top: str
    modules: dict[str, dict]
    memories: frozenset[str]
    log: Path


def block_modules(names, top: str) -> list[str]:
    """Of module ``names`` those that stay modules: shared ones, cores, blocks of core and top.

    In a design that is none of the accelerator's everything is flattened into the top.
    """
    kept = []
    for name in names:
        parent, _, child = name.partition(".")
        if name == top or _MEMORY.fullmatch(name):
            continue
        core = re.fullmatch(r"adagp_core\d+", parent)
        if core:
            if not child or child in _CORE_BLOCKS or (child != "matrix" and "." not in child):
                kept.append(name)
        elif _SHARED.fullmatch(name) or (parent == top and child and "." not in child):
            kept.append(name)
    return kept


def map_to_cells(
    verilog: str, *, top: str, library: Library, target_ns: float, directory: Path, keep=None
) -> MappedDesign:
    """Map module ``top`` of ``verilog`` to cells of ``library``.

    Yosys ``synth`` with Booth multipliers, ``dfflibmap``, then ``abc`` for ``target_ns`` with
    buffering and sizing; constants become tie cells; memories (modules ``adagp_ram_*``) are black
    boxes. Modules ``keep`` (by default :func:`block_modules`) stay modules, each mapped once
    however many instances it has; what is below them is flattened into them.

    Writes ``mapped.*`` into ``directory``: Verilog in and out, script, log, netlist as JSON.
    Raises :class:`ToolError` if Yosys is missing, fails, leaves a cell unmapped or needs a latch.
    """
    if importlib.util.find_spec("pyosys") is None:
        raise ToolError("Yosys is not installed: pip install pyosys")
    names = [_plain(name) for name in re.findall(r"^module\s+(\\\S+|\w+)", verilog, re.MULTILINE)]
    if top not in names:
        raise ToolError(f"The Verilog has no module {top}")
    keep = block_modules(names, top) if keep is None else keep
    memories = [name for name in names if _MEMORY.fullmatch(name)]
    (directory / "mapped.in.v").write_text(verilog)
    (directory / "mapped.constr").write_text(
        f"set_driving_cell {_driver(library)}\nset_load {_OUTPUT_LOAD_FF} [all_outputs]\n"
    )
    liberty = str(library.path.resolve())
    (one, one_pin), (zero, zero_pin) = library.tie("1"), library.tie("0")
    passes = (
        f'read_liberty -lib "{liberty}"',
        "read_verilog mapped.in.v",
        *(f"blackbox {name}" for name in memories),
        f"hierarchy -top {top}",
        *(f"setattr -mod -set keep_hierarchy 1 {name}" for name in keep),
        f"synth -flatten -booth -noabc -top {top}",
        f'dfflibmap -liberty "{liberty}"',
        "opt",
        f'abc -liberty "{liberty}" -constr mapped.constr -D {target_ns * 1000:.0f}',
        "setundef -zero",
        f"hilomap -hicell {one} {one_pin} -locell {zero} {zero_pin}",
        "opt_clean -purge",
        "attrmap -remove src",
        "write_verilog -noattr mapped.v",
        "write_json mapped.json",
    )
    run_yosys(passes, name="mapped", directory=directory)
    try:
        netlist = json.loads((directory / "mapped.json").read_text())["modules"]
    except (OSError, ValueError, KeyError) as error:
        raise ToolError(f"The netlist of Yosys cannot be read: {error!r}") from None
    modules = {}
    for name in _used(netlist, top, library):
        module = netlist[name]
        modules[name] = {
            "ports": module["ports"],
            "cells": {} if name in memories else module["cells"],
            "netnames": {} if name in memories else module["netnames"],
        }
    unmapped = {
        cell["type"]
        for module in modules.values()
        for cell in module["cells"].values()
        if cell["type"] not in modules and cell["type"] not in library.cells
    }
    if unmapped:
        raise ToolError(f"Yosys left cells unmapped: {', '.join(sorted(unmapped))}")
    other = {
        cell["type"]
        for module in modules.values()
        for cell in module["cells"].values()
        if cell["type"] in library.cells and library.cells[cell["type"]].kind == "other"
    }
    if other:
        raise ToolError(
            f"The netlist has cells that are no gates and no plain flip-flops: "
            f"{', '.join(sorted(other))}"
        )
    return MappedDesign(
        top=top,
        modules=modules,
        memories=frozenset(name for name in memories if name in modules),
        log=directory / "mapped.log",
    )


def run_yosys(passes, *, name: str, directory: Path) -> None:
    """Run Yosys commands in a process of its own (Yosys ends it at an error).

    Writes ``name.ys.py`` and ``name.log``. Raises :class:`ToolError` with the first error.
    """
    program = "from pyosys import libyosys as y\nd = y.Design()\n"
    program += "".join(f"y.run_pass({command!r}, d)\n" for command in passes)
    (directory / f"{name}.ys.py").write_text(program)
    log = directory / f"{name}.log"
    with open(log, "w") as output:
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


def _plain(name):
    return name[1:] if name.startswith("\\") else name


def _used(netlist, top, library):
    """Modules below ``top`` that are no library cells, each once."""
    names, pending = [], [top]
    while pending:
        name = pending.pop()
        if name in names:
            continue
        names.append(name)
        for cell in netlist[name]["cells"].values():
            if cell["type"] in netlist and cell["type"] not in library.cells:
                pending.append(cell["type"])
    return names


def _driver(library):
    """The second smallest buffer, or the smallest cell that there is."""
    cells = [cell for cell in library.cells.values() if cell.is_buffer]
    if not cells:
        raise ToolError(f"{library.path} has no buffer and no inverter")
    cells.sort(key=lambda cell: (cell.area, cell.name))
    return cells[min(1, len(cells) - 1)].name
