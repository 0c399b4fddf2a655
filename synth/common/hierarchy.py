"""Counts of a hierarchical netlist: every module is mapped once and multiplied by its instances."""

import fnmatch
import re
from collections import Counter

__all__ = [
    "block_counts",
    "block_modules",
    "kept_modules",
    "plain_name",
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


def kept_modules(names, top: str) -> list[str]:
    """Of the module ``names`` those that an FPGA's mapping keeps: see :func:`block_modules`."""
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


def block_counts(statistics: dict, top: str) -> dict[str, Counter]:
    """Block -> cell type -> how many in all, with what is shared counted where it is used.

    ``statistics``: module -> ``cells`` and ``modules`` (type -> how many) directly in it.
    """
    blocks: dict[str, Counter] = {}

    def walk(name, block, times):
        if name != top and not _REPEATED.match(name):
            core = re.fullmatch(r"adagp_(core\d+)(\..*)?", name)
            own = core.group(1) + (core.group(2) or "") if core else name
            # Instances whose name is a signal's, too, have a number behind it.
            block = re.sub(r"\$\d+$", "", own.removeprefix(f"{top}."))
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
    """Resource of a :class:`~synth.fpga.devices.Family` -> how many ``cells`` take."""
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
