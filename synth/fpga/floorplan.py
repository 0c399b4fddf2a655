"""Places for the multiplier blocks and block RAMs of ECP5, where nextpnr would scatter them.

Both are in a few rows across the device. A placer that spreads cells as if they could be anywhere
and then looks for the nearest free block finds it far away; nextpnr's static placer, besides, waits
for overlaps of blocks to fall below 15 %, which they do not always do. Here

- a column of PEs takes a stripe of the device from top to bottom, columns are in order from left to
  right, and a row of the array is a straight line of blocks: what is broadcast to all columns stays
  in that line, and what a column adds up in its stripe;
- the banks of a memory that hold the same bits of a word are neighbours, and the bits of a word are
  spread over the width of the array that they go to;
- a flip-flop that drives more than a thousand inputs in the columns has a copy in each
  (:mod:`synth.fpga.replicate`).
"""

import json
import re
from pathlib import Path

from .devices import Site
from .replicate import replicate, split

__all__ = ["METHOD", "multiplier_places", "prepare", "ram_places"]

#: Changes with the places and copies; part of the key of what is placed and routed.
METHOD = 8

#: Inputs in columns that a flip-flop may drive without copies.
_MOST_INPUTS = 512
#: Inputs of any kind that a cell may drive where nets are split, and about how many it then does.
_MOST_LINKS, _LINKS = 448, 200
#: Cells that may have copies: type -> output.
_OUTPUTS = {"TRELLIS_FF": "Q", "LUT4": "Z"}

_PE = re.compile(r"(?P<array>.*?)column(?P<column>\d+)\.pe(?P<pe>\d+)\.")
_COLUMN = re.compile(r".*?column\d+(?=\.)")
_RAM = re.compile(r"(?P<memory>.*?)(?:bank(?P<bank>\d+)\.)?mem\.(?P<block>\d+)\.(?P<bits>\d+)$")
_CORE = re.compile(r".*?core\d+\.")


def multiplier_places(names, sites) -> dict[str, Site]:
    """Name of a multiplier -> its place.

    Parameters
    ----------
    names : of multiplier cells, ``<array>column<c>.pe<r>.…`` for those of PEs
    sites : the device's

    Arrays take neighbouring stripes in the middle of the device's width. Other multipliers are
    between the stripes, from the middle of the lower edge on.

    Raises ``ValueError`` for more names than sites.
    """
    _check("multipliers", names, sites)
    columns, others = {}, []
    for name in sorted(names):
        if match := _PE.match(name):
            key = match["array"], int(match["column"])
            columns.setdefault(key, []).append((int(match["pe"]), name))
        else:
            others.append(name)
    ordered = sorted(sites, key=lambda site: (site.x, site.y))
    first, count, gap = (len(sites) - len(names)) // 2, len(columns), len(others)
    at, places = first, {}
    for number, key in enumerate(sorted(columns), 1):
        cells = [name for _pe, name in sorted(columns[key])]
        stripe = sorted(ordered[at : at + len(cells)], key=lambda site: (site.y, site.x))
        places |= zip(cells, stripe, strict=True)
        at += len(cells) + gap * number // count - gap * (number - 1) // count
    middle, bottom = _middle(sites), max(site.y for site in sites)
    taken = set(places.values())
    free = [site for site in ordered[first : first + len(names)] if site not in taken]
    free.sort(key=lambda site: abs(site.x - middle) + abs(site.y - bottom))
    return places | dict(zip(others, free, strict=True))


def ram_places(names, sites, columns) -> dict[str, Site]:
    """Name of a block RAM -> its place.

    Parameters
    ----------
    names : of block RAMs, ``<memory>bank<b>.mem.<block>.<bits>``, the bank if there are several
    sites : the device's
    columns : name of a core, up to the dot behind it, or "" -> places of its array's multipliers

    From left to right the bits of a memory are spread over its core's array; without ``columns``
    they are in the middle of the device. Accumulators are in the row nearest to the middle of the
    array's height, all others in the lowest two rows, and in more only where these are full.

    Raises ``ValueError`` for more names than sites.
    """
    _check("block RAMs", names, sites)
    memories = {}
    for name in sorted(names):
        match = _RAM.match(name)
        memory, bits = (match["memory"], int(match["bits"])) if match else (name, 0)
        bank = (int(match["block"]), int(match["bank"] or 0)) if match else (0, 0)
        memories.setdefault(memory, []).append((bits, bank, name))
    free = set(sites)
    bottom = max(site.y for site in sites)
    places = {}
    # Accumulators first: they are bound to a height. Then large memories, which need most room.
    order = sorted(memories, key=lambda key: ("accumulators." not in key, -len(memories[key]), key))
    for memory in order:
        cells = sorted(memories[memory])
        array = columns.get(_core(memory), ())
        xs = [site.x for site in array] or [_middle(sites)]
        height, rows = bottom, 2
        if array and "accumulators." in memory:
            height, rows = sum(site.y for site in array) / len(array), 1
        window = _window(free, len(cells), (min(xs), max(xs)), height, rows)
        spare, parts = len(window) - len(cells), 1 + cells[-1][0]
        for index, (bits, _bank, name) in enumerate(cells):
            places[name] = window[index + spare * (2 * bits + 1) // (2 * parts)]
            free.remove(places[name])
    return places


def _window(free, count, extent, height, rows):
    """At least ``count`` of the free sites, from left to right: those above ``extent`` in so many
    rows nearest to a height, the lower one first, or more where these are not enough."""
    heights = sorted({site.y for site in free}, key=lambda y: (abs(y - height), -y))
    while sum(site.y in heights[:rows] for site in free) < count:
        rows += 1
    left, right = extent
    near = sorted(
        (max(left - site.x, site.x - right, 0), site.x, site.y, site)
        for site in free
        if site.y in heights[:rows]
    )
    inside = sum(distance == 0 for distance, *_ in near)
    return sorted((entry[-1] for entry in near[: max(count, inside)]), key=lambda s: (s.x, s.y))


def prepare(
    netlist: Path, device, *, split_nets: bool = False, settings: dict[str, str] | None = None
) -> int:
    """Make a netlist for nextpnr ready for ``device``; how many blocks were placed.

    With ``split_nets``, what drives hundreds of inputs, above all resets, has copies. ``settings``
    are beside the family's, or in place of them.

    Multipliers and block RAMs are given places where the device's are known, and flip-flops that
    drive all columns copies. nextpnr takes what it has no option for from the netlist's top module,
    as settings.
    """
    design = json.loads(netlist.read_text())
    top = _top(design)
    places = {}
    if device.multipliers:
        replicate(top, flip_flop="TRELLIS_FF", column=_column, limit=_MOST_INPUTS)
        places = multiplier_places(_named(top, "MULT18X18D"), device.multipliers)
        arrays = {}
        for name, site in places.items():
            if _PE.match(name):
                arrays.setdefault(_core(name), []).append(site)
        places |= ram_places(_named(top, "DP16KD"), device.block_rams, arrays)
    if split_nets:
        split(top, outputs=_OUTPUTS, limit=_MOST_LINKS, share=_LINKS)
    for name, place in places.items():
        top["cells"][name]["attributes"]["BEL"] = place.name
    top["settings"] = dict(device.details.settings) | (settings or {})
    netlist.write_text(json.dumps(design))
    return len(places)


def _named(top, kind):
    return [name for name, cell in top["cells"].items() if cell["type"] == kind]


def _column(name):
    match = _COLUMN.match(name)
    return match and match[0]


def _core(name):
    match = _CORE.match(name)
    return match[0] if match else ""


def _check(what, names, sites):
    if len(names) > len(sites):
        raise ValueError(f"{what} must be at most {len(sites)}, not {len(names)}")


def _middle(sites):
    return sum(site.x for site in sites) / len(sites)


def _top(design):
    (module,) = (
        module
        for module in design["modules"].values()
        if int(str(module["attributes"].get("top", "0")), 2)
    )
    return module
