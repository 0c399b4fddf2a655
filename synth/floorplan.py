"""Places for the multiplier blocks of PE arrays, where nextpnr would scatter them.

Multiplier blocks are in a few rows across an ECP5. A placer that spreads cells as if they could be
anywhere and then looks for the nearest free block finds it far away once most blocks are taken: for
12 x 12 PEs on the largest device (148 of 156 blocks) that step took the wire length from 298,000 to
758,000. Here the blocks of a column of PEs are neighbours and columns are in order, row after row.
"""

import json
import re
from pathlib import Path

__all__ = ["CROWDED", "METHOD", "give_settings", "multiplier_places", "place_multipliers"]

#: Share of a device's multiplier blocks from which on they are placed here.
CROWDED = 0.4

#: Changes with the places; part of the key of what is placed and routed.
METHOD = 2

_BLOCK = re.compile(r"(?P<array>.*?)column(?P<column>\d+)\.pe(?P<pe>\d+)\.")


def multiplier_places(names, rows) -> dict[str, str]:
    """Name of a multiplier -> name of its place, for those that belong to a column of an array.

    Parameters
    ----------
    names : of multiplier cells, ``…column<c>.pe<r>.…`` for those of PEs
    rows : places from left to right, one list per row of the device

    Every row of the device gets its share of the columns; what is left of a row is between them.
    Odd rows run from right to left, so that columns that follow each other are close. Without any
    place where the columns do not fit whole.
    """
    columns = {}
    for name in names:
        if match := _BLOCK.match(name):
            key = match["array"], int(match["column"])
            columns.setdefault(key, []).append((int(match["pe"]), name))
    pending = [[name for _pe, name in sorted(columns[key])] for key in sorted(columns)]
    places = {}
    for index, row in enumerate(rows):
        share = -(-sum(map(len, pending)) // (len(rows) - index))
        chosen, used = [], 0
        while pending and used < share and used + len(pending[0]) <= len(row):
            chosen.append(pending.pop(0))
            used += len(chosen[-1])
        free, at = len(row) - used, 0
        ordered = row[::-1] if index % 2 else row
        for number, column in enumerate(chosen, 1):
            places |= zip(column, ordered[at:])
            # The gap to the next column: an equal part of what is free.
            at += len(column) + free * number // len(chosen) - free * (number - 1) // len(chosen)
    return {} if pending else places


def place_multipliers(netlist: Path, device) -> int:
    """Give the multipliers in a netlist for nextpnr their places on an ECP5; how many got one.

    None where the device's places are not known or fewer than :data:`CROWDED` of them are used.
    """
    rows = device.multiplier_rows
    design = json.loads(netlist.read_text())
    cells = _top(design)["cells"]
    names = [name for name, cell in cells.items() if cell["type"] == "MULT18X18D"]
    if len(names) <= CROWDED * sum(map(len, rows)):
        return 0
    places = multiplier_places(names, rows)
    for name, place in places.items():
        cells[name]["attributes"]["BEL"] = place
    netlist.write_text(json.dumps(design))
    return len(places)


def give_settings(netlist: Path, settings: dict[str, str]) -> None:
    """Set what nextpnr has no option for: it takes settings by name from a netlist's top module."""
    design = json.loads(netlist.read_text())
    _top(design)["settings"] = dict(settings)
    netlist.write_text(json.dumps(design))


def _top(design):
    (module,) = (
        module
        for module in design["modules"].values()
        if int(str(module["attributes"].get("top", "0")), 2)
    )
    return module
