"""Mapping of a whole design to an FPGA family, module by module, and its netlist for routing."""

import base64
import gzip
import json
import time
from collections import Counter
from pathlib import Path

from synth.common.cache import tool_versions
from synth.common.errors import ToolError
from synth.common.hierarchy import kept_modules, plain_name
from synth.common.module_synthesis import (
    canonical_name,
    lone_modules,
    map_each,
    real_name,
    split_modules,
    yosys_netlist,
)
from synth.common.yosys import run_yosys

from .harness import harness_verilog

__all__ = ["METHOD", "link", "link_top", "synthesize"]

#: Changes with the way in which designs are mapped; part of every key of the result cache.
METHOD = 2

_IGNORED = frozenset(("$scopeinfo",))

_LEGALISE = (
    "dfflegalize -cell $_DFF_?_ 01 -cell $_DFF_?P?_ r -cell $_SDFF_?P?_ r -cell $_DFFE_??_ 01 "
    "-cell $_DFFE_?P??_ r -cell $_SDFFE_?P??_ r -minsrst {family.min_reset} "
    "-mince {family.min_enable}"
)


def synthesize(
    verilog: str,
    *,
    top: str,
    family,
    directory: Path,
    flat: bool = False,
    inside: str | None = None,
    refresh: bool = False,
    progress=lambda text: None,
) -> dict[str, dict]:
    """Map module ``top`` of ``verilog`` to the cells of ``family``.

    Unless ``flat``, the blocks of :func:`~synth.common.hierarchy.kept_modules` are mapped one by
    one, each once and alone however many instances it has; nothing crosses their borders. Each
    comes from the result cache where it is known, whatever design it was mapped for. Memories are
    mapped within the module that uses them. ``inside`` is the accelerator's module where ``top`` is
    something around it: its blocks are then mapped one by one as well.

    Writes Verilog, script, log and netlist of every module mapped into ``directory``.

    Returns
    -------
    dict
        module -> ``cells`` and ``modules`` (type -> how many, without what is inside the modules),
        ``netlist`` (packed, for :func:`link`; empty for families without place and route) and
        ``seconds`` that it took

    Raises :class:`ToolError`.
    """
    texts = split_modules(verilog)
    kept = [] if flat else kept_modules(texts, top)
    if inside and not flat:
        kept += [inside, *(name for name in kept_modules(texts, inside) if name not in kept)]
    mapped = map_each(
        lone_modules(texts, top, kept),
        step="fpga-module",
        key={
            "passes": _passes(family),
            "netlist": bool(family.package),
            "method": METHOD,
            "tools": tool_versions(("pyosys",)),
        },
        compute=lambda module: _mapped(module, family, directory),
        refresh=refresh,
        progress=progress,
    )
    for name, entry in mapped.items():
        if left := sorted(kind for kind in entry["cells"] if kind.startswith("$")):
            raise ToolError(f"Yosys left cells of {name} unmapped: {', '.join(left)}")
        entry["modules"] = {real_name(kind, top): n for kind, n in entry["modules"].items()}
    return mapped


def _passes(family):
    """Yosys commands that map a module, with {name}."""
    command = f"{family.synthesis} {family.no_pads} -top {{name}}"
    steps = [f"{command} -run :map_luts"]
    if family.min_reset or family.min_enable:
        legalise = _LEGALISE.format(family=family)
        steps = [f"{command} -run :map_ffs", legalise, "opt_merge", "opt_clean"]
        steps.append(f"{command} -run map_ffs:map_luts")
    # Else abc9 may give two wires of a module with submodules one name, and fail.
    return [*steps, "splitnets", f"{command} -run map_luts:", "attrmap -remove src"]


def _mapped(module, family, directory):
    started = time.monotonic()
    passes = [line.format(name=module.name) for line in _passes(family)]
    netlist = yosys_netlist(module, passes, directory=directory)
    types = Counter(plain_name(cell["type"]) for cell in netlist["cells"].values())
    below = {plain_name(name) for name in split_modules(module.stubs)}
    return {
        "cells": {k: n for k, n in sorted(types.items()) if k not in below | _IGNORED},
        "modules": {k: n for k, n in sorted(types.items()) if k in below},
        "netlist": _pack(netlist) if family.package else "",
        "seconds": round(time.monotonic() - started, 2),
    }


def _pack(netlist: dict) -> str:
    kept = {part: netlist[part] for part in ("ports", "cells", "netnames")}
    kept["cells"] = {k: v for k, v in kept["cells"].items() if v["type"] not in _IGNORED}
    return base64.b64encode(gzip.compress(json.dumps(kept).encode(), 3, mtime=0)).decode()


def _unpack(text: str) -> dict:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def link(modules: dict[str, dict], *, top: str, family, directory: Path) -> None:
    """Put what :func:`synthesize` returned in a harness, flat: ``harness.json`` in ``directory``.

    The harness has four pins, whatever the ports of the design. Raises :class:`ToolError`.
    """
    ports = _write_design(modules, top, directory)
    shape = {name: (port["direction"], len(port["bits"])) for name, port in ports.items()}
    (directory / "harness.v").write_text(harness_verilog(shape, top=top, name="harness"))
    passes = (
        "read_verilog harness.v",
        f"{family.synthesis} -top harness",
        # What stands for the design; the cells of the library stay.
        f"delete ={top}",
        "read_json design.json",
        "hierarchy -top harness",
        "flatten",
        "clean",
        "write_json harness.json",
    )
    run_yosys(passes, name="harness", directory=directory)


def link_top(modules: dict[str, dict], *, top: str, family, directory: Path) -> None:
    """The same for a design whose ports are pins: without a harness, ``top.json``, named after
    ``top``."""
    _write_design(modules, top, directory)
    (directory / "empty.v").write_text("module empty; endmodule\n")
    passes = (
        # Brings the cells of the library.
        "read_verilog empty.v",
        f"{family.synthesis} -top empty",
        "delete empty",
        "read_json design.json",
        f"hierarchy -top {top}",
        "flatten",
        "clean",
        f"write_json {top}.json",
    )
    run_yosys(passes, name=f"{top}_link", directory=directory)


def _write_design(modules, top, directory):
    """All netlists as one: ``design.json``. Returns the ports of ``top``."""
    try:
        netlists = {name: _unpack(entry["netlist"]) for name, entry in modules.items()}
        ports = netlists[top]["ports"]
    except (OSError, ValueError, KeyError) as error:
        raise ToolError(f"The netlist of {top} cannot be read: {error!r}") from None
    named = {canonical_name(name, top): netlist for name, netlist in netlists.items()}
    (directory / "design.json").write_text(json.dumps({"creator": "synth", "modules": named}))
    return ports
