"""Counts of a hierarchical netlist: every module is mapped once and multiplied by its instances."""

import fnmatch
import json
import re
from collections import Counter

from .errors import ToolError

__all__ = [
    "block_counts",
    "block_modules",
    "kept_modules",
    "plain_name",
    "read_statistics",
    "resources_of",
    "total",
]

#: Modules with many instances, mapped once; what is in them (processing elements) is flattened
#: into them. The memories are not among them: they have nothing to share.
_SHARED = re.compile(r"adagp_(column|decoder|post_lane)_\w+")
#: Modules that are no block of their own, whatever becomes of them: they count where they are used.
_REPEATED = re.compile(r"adagp_(column|decoder|pe|post_lane|ram)_")
#: Blocks of a core that are counted apart.
_CORE_BLOCKS = ("matrix.array", "matrix.matmul", "matrix.weights", "matrix.accumulators")
_IGNORED = ("$scopeinfo",)


def kept_modules(verilog: str, top: str) -> list[str]:
    """Modules of ``verilog`` that stay modules: shared ones and the blocks of top and cores."""
    names = re.findall(r"^module \\?([^\s(]+)", verilog, re.MULTILINE)
    return block_modules(names, top, shared=_SHARED)


def block_modules(names, top: str, *, shared: re.Pattern) -> list[str]:
    """Of the module ``names`` those that stay modules: ``shared``, cores, blocks of core and top.

    ``shared`` matches the whole names of modules with many instances. In a design that is none of
    the accelerator's everything is flattened into the top.
    """
    kept = []
    for name in names:
        if name == top:
            continue
        parent, _, child = name.partition(".")
        if re.fullmatch(r"adagp_core\d+", parent):
            if not child or child in _CORE_BLOCKS or (child != "matrix" and "." not in child):
                kept.append(name)
        elif shared.fullmatch(name) or (parent == top and child and "." not in child):
            kept.append(name)
    return kept


def read_statistics(text: str) -> dict[str, dict[str, Counter]]:
    """Module -> ``cells`` and ``modules`` (type -> how many), from Yosys ``stat -json``.

    Raises :class:`ToolError` if the text is not that, or if cells are unmapped.
    """
    try:
        modules = json.loads(text)["modules"]
        cells = {name: dict(entry["num_cells_by_type"]) for name, entry in modules.items()}
        inner = {name: entry.get("num_submodules_by_type") for name, entry in modules.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolError(f"The cell statistics cannot be read: {error!r}") from None
    plain = {plain_name(name) for name in cells}
    result = {}
    for name, types in cells.items():
        types = Counter({plain_name(kind): count for kind, count in types.items()})
        types.update({plain_name(kind): count for kind, count in (inner[name] or {}).items()})
        own = Counter({k: n for k, n in types.items() if k not in plain and k not in _IGNORED})
        left = sorted(kind for kind in own if kind.startswith("$"))
        if left:
            raise ToolError(f"Yosys left cells unmapped: {', '.join(left)}")
        below = Counter({kind: count for kind, count in types.items() if kind in plain})
        result[plain_name(name)] = {"cells": own, "modules": below}
    return result


def block_counts(statistics: dict, top: str) -> dict[str, Counter]:
    """Block -> cell type -> how many in all, with what is shared counted where it is used."""
    if top not in statistics:
        raise ToolError(f"The cell statistics of {top} cannot be read: no such module")
    blocks: dict[str, Counter] = {}

    def walk(name, block, times):
        if name != top and not _REPEATED.match(name):
            core = re.fullmatch(r"adagp_(core\d+)(\..*)?", name)
            own = core.group(1) + (core.group(2) or "") if core else name
            block = own.removeprefix(f"{top}.")
        counts = blocks.setdefault(block, Counter())
        for kind, number in statistics[name]["cells"].items():
            counts[kind] += number * times
        for child, number in statistics[name]["modules"].items():
            walk(child, block, times * number)

    walk(top, "top", 1)
    return {block: counts for block, counts in blocks.items() if counts}


def total(blocks: dict[str, Counter]) -> Counter:
    """Cells of all blocks together."""
    return sum(blocks.values(), Counter())


def resources_of(cells: dict[str, int], family) -> dict[str, int]:
    """Resource of a :class:`~synth.devices.Family` -> how many ``cells`` take."""
    return {
        resource: sum(
            weight * number
            for pattern, weight in weights.items()
            for kind, number in cells.items()
            if fnmatch.fnmatchcase(kind, pattern)
        )
        for resource, weights in family.cells.items()
    }


def plain_name(name: str) -> str:
    """An identifier of Verilog without the backslash that escapes it."""
    return name.removeprefix("\\")
