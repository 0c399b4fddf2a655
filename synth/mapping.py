"""Standard-cell mapping with Yosys: Verilog to a hierarchical netlist of library cells."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from .cache import cached, text_hash, tool_versions
from .errors import ToolError
from .hierarchy import block_modules, plain_name
from .library import Library
from .yosys import run_yosys

__all__ = ["SHARED", "MappedDesign", "map_to_cells", "split_modules"]

#: Modules shared by many instances: mapped once, one netlist for all.
SHARED = re.compile(r"adagp_(column|pe|decoder|post_lane)_\w+")

#: Memories: black boxes in the netlist.
_MEMORY = re.compile(r"adagp_ram_\w+")

#: What abc assumes to drive inputs of a module and to load its outputs.
_OUTPUT_LOAD_FF = 10.0

#: Stands for the name of the top in names of modules.
_ANY_TOP = "adagp_top"

_INSTANCE = re.compile(
    r"^[ \t]*(\\\S+|[A-Za-z_]\w*)[ \t]+(?:\\\S+[ \t]+|[A-Za-z_]\w*[ \t]*)\(", re.MULTILINE
)


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

    The modules of :func:`~synth.hierarchy.block_modules` stay modules; what is below them is
    flattened into them, memories (modules ``adagp_ram_*``) are black boxes. Each is mapped once,
    alone, whatever else the design has: Yosys ``synth`` with Booth multipliers, ``dfflibmap``, then
    ``abc`` for ``target_ns`` with buffering and sizing; constants become tie cells. So equal
    modules of different designs are equal netlists, and come from the cache.

    Writes Verilog in and out, script, log and netlist of every module mapped into ``directory``.
    Raises :class:`ToolError` if Yosys is missing, fails, leaves a cell unmapped or needs a latch.
    """
    texts = split_modules(verilog)
    if top not in texts:
        raise ToolError(f"The Verilog has no module {top}")
    kept = {top, *block_modules(texts, top, shared=SHARED)}
    memories = {name for name in texts if _MEMORY.fullmatch(name)}
    modules, pending = {}, [top]
    while pending:
        name = pending.pop()
        if name in modules:
            continue
        if name in memories:
            modules[name] = {"ports": _memory_ports(texts[name]), "cells": {}, "netnames": {}}
            continue
        inside, boxes = _below(texts, name, kept | memories)
        text = "\n".join(_canonical(texts[n], top) for n in sorted(inside))
        stubs = "\n".join(_canonical(_stub(texts[n]), top) for n in sorted(boxes))
        progress(f"mapping {name} to standard cells")
        module = _mapped(
            text, stubs, _canonical_name(name, top), library, target_ns, directory, refresh
        )
        for cell in module["cells"].values():
            cell["type"] = _real_name(cell["type"], top)
        modules[name] = module
        pending += sorted(boxes & {cell["type"] for cell in module["cells"].values()})
    _check(modules, library)
    return MappedDesign(top=top, modules=modules, memories=frozenset(memories & set(modules)))


def split_modules(verilog: str) -> dict[str, str]:
    """Module name -> text."""
    found = {}
    for match in re.finditer(r"^module\s+(\\\S+|\w+).*?\bendmodule\b", verilog, re.M | re.S):
        found[plain_name(match[1])] = match[0]
    if not found and (name := re.search(r"^module\s+(\\\S+|\w+)", verilog, re.M)):
        found[plain_name(name[1])] = verilog
    return found


def _below(texts, name, border):
    """Modules that are flattened into ``name``, with itself, and the kept ones they have."""
    inside, boxes, pending = set(), set(), [name]
    while pending:
        current = pending.pop()
        inside.add(current)
        for match in _INSTANCE.finditer(texts[current]):
            child = plain_name(match[1])
            if child in border:
                boxes.add(child)
            elif child in texts and child not in inside:
                pending.append(child)
    return inside, boxes


def _stub(text):
    """The ports of a module, as a module that holds nothing."""
    header = re.match(r"module.*?;", text, re.S)[0]
    ports = re.findall(r"^\s*(input|output)\b\s*(?:reg\b|wire\b)?([^;=]*)", text, re.M)
    lines = "".join(f"  {direction} {rest.strip()} ;\n" for direction, rest in ports)
    return f"(* blackbox *)\n{header}\n{lines}endmodule"


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


def _canonical(text, top):
    """Text that does not depend on what else the design has: no name of the top, no counters."""
    return re.sub(r"(dump_module)\$\d+", r"\1$", text).replace(f"{top}.", f"{_ANY_TOP}.")


def _canonical_name(name, top):
    return name.replace(f"{top}.", f"{_ANY_TOP}.")


def _real_name(name, top):
    return name.replace(f"{_ANY_TOP}.", f"{top}.")


def _mapped(text, stubs, name, library, target_ns, directory, refresh):
    """The netlist of one module, from the cache where it is known."""
    (one, one_pin), (zero, zero_pin) = library.tie("1"), library.tie("0")
    constraints = f"set_driving_cell {_driver(library)}\nset_load {_OUTPUT_LOAD_FF} [all_outputs]\n"
    file = re.sub(r"\W", "_", name)
    options = (
        f"synth -flatten -booth -noabc -top {name}",
        "dfflibmap {liberty}",
        "opt",
        f"abc {{liberty}} -constr {file}.constr -D {target_ns * 1000:.0f}",
        "setundef -zero",
        f"hilomap -hicell {one} {one_pin} -locell {zero} {zero_pin}",
        "opt_clean -purge",
        "attrmap -remove src",
    )
    liberty = f'-liberty "{library.path.resolve()}"'
    passes = (
        f'read_liberty -lib "{library.path.resolve()}"',
        f"read_verilog {file}.in.v",
        f"hierarchy -top {name}",
        *(line.replace("{liberty}", liberty) for line in options),
        f"write_verilog -noattr {file}.v",
        f"write_json {file}.json",
    )

    def compute():
        (directory / f"{file}.in.v").write_text(f"{text}\n{stubs}\n")
        (directory / f"{file}.constr").write_text(constraints)
        run_yosys(passes, name=file, directory=directory)
        try:
            module = json.loads((directory / f"{file}.json").read_text())["modules"][name]
        except (OSError, ValueError, KeyError) as error:
            raise ToolError(f"The netlist of Yosys cannot be read: {error!r}") from None
        cells = {
            key: {"type": cell["type"], "connections": cell["connections"]}
            for key, cell in module["cells"].items()
        }
        names = {
            key: {"bits": net["bits"], "attributes": {"init": net["attributes"]["init"]}}
            for key, net in module["netnames"].items()
            if "init" in net.get("attributes", {})
        }
        return {"json": json.dumps({"ports": module["ports"], "cells": cells, "netnames": names})}

    key = {
        "verilog": text_hash(text),
        "stubs": text_hash(stubs),
        "name": name,
        "library": library.sha256,
        "options": [*options, constraints],
        "tools": tool_versions(("pyosys",)),
    }
    return json.loads(cached("asic-module", key, compute, refresh=refresh)["json"])


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
