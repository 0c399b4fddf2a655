"""Places for the multiplier blocks of PE arrays, where nextpnr would scatter them.

Multiplier blocks are in a few rows across an ECP5. A placer that spreads cells as if they could be
anywhere and then looks for the nearest free block finds it far away once most blocks are taken: for
12 x 12 PEs on the largest device (148 of 156 blocks) that step took the wire length from 298,000 to
758,000. Here the blocks of a column of PEs are neighbours and columns are in order, row after row.
"""

import json
import re
from pathlib import Path

__all__ = ["CROWDED", "METHOD", "multiplier_places", "prepare"]

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


def prepare(netlist: Path, device) -> int:
    """Make a netlist for nextpnr ready for ``device``; how many multipliers were placed.

    They are given places where the device's are known and more than :data:`CROWDED` of them are
    used. nextpnr takes what it has no option for from the netlist's top module, as settings.
    """
    design = json.loads(netlist.read_text())
    top = _top(design)
    places = _places(top["cells"], device.multiplier_rows)
    for name, place in places.items():
        top["cells"][name]["attributes"]["BEL"] = place
    top["settings"] = dict(device.details.settings)
    netlist.write_text(json.dumps(design))
    return len(places)


def _places(cells, rows):
    names = [name for name, cell in cells.items() if cell["type"] == "MULT18X18D"]
    if len(names) <= CROWDED * sum(map(len, rows)):
        return {}
    return multiplier_places(names, rows)


def _top(design):
    (module,) = (
        module
        for module in design["modules"].values()
        if int(str(module["attributes"].get("top", "0")), 2)
    )
    return module
