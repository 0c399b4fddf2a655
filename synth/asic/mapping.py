"""Standard-cell mapping with Yosys: Verilog to a hierarchical netlist of library cells."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from synth.asic.liberty.model import Library
from synth.common.cache import tool_versions
from synth.common.errors import ToolError
from synth.common.hierarchy import block_modules
from synth.common.module_synthesis import (
    lone_modules,
    map_each,
    real_name,
    split_modules,
    yosys_netlist,
)

__all__ = ["SHARED", "MappedDesign", "map_to_cells"]

#: Modules shared by many instances: mapped once, one netlist for all.
SHARED = re.compile(r"adagp_(column|pe|decoder|post_lane)_\w+")

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
    """

    top: str
    modules: dict[str, dict]
    memories: frozenset[str]


def map_to_cells(
    verilog: str,
    *,
    top: str,
    library: Library,
    target_ns: float,
    directory: Path,
    refresh: bool = False,
    progress=lambda text: None,
) -> MappedDesign:
    """Map module ``top`` of ``verilog`` to cells of ``library``.

    The modules of :func:`~synth.common.hierarchy.block_modules` stay modules; what is below them is
    flattened into them, memories (modules ``adagp_ram_*``) are black boxes. Each is mapped once,
    alone, whatever else the design has: Yosys ``synth`` with Booth multipliers, ``dfflibmap``, then
    ``abc`` for ``target_ns`` with buffering and sizing; constants become tie cells. So equal
    modules of different designs are equal netlists, and come from the cache.

    Writes Verilog in and out, script, log and netlist of every module mapped into ``directory``.
    Raises :class:`ToolError` if Yosys is missing, fails, leaves a cell unmapped or needs a latch.
    """
    texts = split_modules(verilog)
    memories = {name for name in texts if _MEMORY.fullmatch(name)}
    kept = block_modules(texts, top, shared=SHARED)
    lone = lone_modules(texts, top, kept, memories)
    mapped = map_each(
        lone,
        step="asic-module",
        key=_key(library, target_ns),
        compute=lambda module: _mapped(module, library, target_ns, directory),
        refresh=refresh,
        progress=lambda text: progress(f"{text} to standard cells"),
    )
    modules = {name: json.loads(entry["json"]) for name, entry in mapped.items()}
    for module in modules.values():
        for cell in module["cells"].values():
            cell["type"] = real_name(cell["type"], top)
    kinds = {cell["type"] for module in modules.values() for cell in module["cells"].values()}
    for name in memories & kinds:
        modules[name] = {"ports": _memory_ports(texts[name]), "cells": {}, "netnames": {}}
    _check(modules, library)
    return MappedDesign(top=top, modules=modules, memories=frozenset(memories & kinds))


def _memory_ports(text):
    """Ports of a memory as in Yosys's JSON; the bits are numbered in order."""
    ports, first = {}, 2
    for direction, left, names in re.findall(
        r"^\s*(input|output)\b\s*(?:reg\b\s*)?(?:\[(\d+):0\])?\s*([^;=]*)", text, re.M
    ):
        for name in names.split(","):
            width = int(left or 0) + 1
            ports[name.strip()] = {
                "direction": direction,
                "bits": list(range(first, first + width)),
            }
            first += width
    return ports


def _options(library, target_ns):
    """Yosys commands that map a module, with {file} and {liberty}; and abc's constraints."""
    (one, one_pin), (zero, zero_pin) = library.tie("1"), library.tie("0")
    constraints = f"set_driving_cell {_driver(library)}\nset_load {_OUTPUT_LOAD_FF} [all_outputs]\n"
    options = (
        "synth -flatten -booth -noabc -top {name}",
        "dfflibmap {liberty}",
        "opt",
        f"abc {{liberty}} -constr {{file}}.constr -D {target_ns * 1000:.0f}",
        "setundef -zero",
        f"hilomap -hicell {one} {one_pin} -locell {zero} {zero_pin}",
        "opt_clean -purge",
        "attrmap -remove src",
    )
    return options, constraints


def _key(library, target_ns):
    options, constraints = _options(library, target_ns)
    return {
        "library": library.sha256,
        "options": [*options, constraints],
        "tools": tool_versions(("pyosys",)),
    }


def _mapped(module, library, target_ns, directory):
    """The netlist of one module."""
    options, constraints = _options(library, target_ns)
    path = f'"{library.path.resolve()}"'
    names = {"name": module.name, "file": module.file, "liberty": f"-liberty {path}"}
    (directory / f"{module.file}.constr").write_text(constraints)
    netlist = yosys_netlist(
        module,
        [line.format(**names) for line in (*options, "write_verilog -noattr {file}.v")],
        directory=directory,
        before=[f"read_liberty -lib {path}"],
    )
    cells = {
        key: {"type": cell["type"], "connections": cell["connections"]}
        for key, cell in netlist["cells"].items()
    }
    names = {
        key: {"bits": net["bits"], "attributes": {"init": net["attributes"]["init"]}}
        for key, net in netlist["netnames"].items()
        if "init" in net.get("attributes", {})
    }
    return {"json": json.dumps({"ports": netlist["ports"], "cells": cells, "netnames": names})}


def _check(modules, library):
    kinds = {cell["type"] for module in modules.values() for cell in module["cells"].values()}
    kinds -= set(modules)
    if unmapped := sorted(kinds - set(library.cells)):
        raise ToolError(f"Yosys left cells unmapped: {', '.join(unmapped)}")
    if other := sorted(kind for kind in kinds if library.cells[kind].kind == "other"):
        raise ToolError(
            f"The netlist has cells that are no gates and no plain flip-flops: {', '.join(other)}"
        )


def _driver(library):
    """The second smallest buffer, or the smallest cell that there is."""
    cells = [cell for cell in library.cells.values() if cell.is_buffer]
    if not cells:
        raise ToolError(f"{library.path} has no buffer and no inverter")
    cells.sort(key=lambda cell: (cell.area, cell.name))
    return cells[min(1, len(cells) - 1)].name
