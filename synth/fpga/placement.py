"""Where nextpnr has put the cells of a design."""

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["read_placement"]

# nextpnr writes an attribute to a line; the file is too large to be parsed as a whole.
_OPENED = re.compile(r'^\s*"(.*)": \{\s*$')
_TYPE = re.compile(r'^\s*"type": "(.*)",?\s*$')
_BEL = re.compile(r'^\s*"NEXTPNR_BEL": "X(\d+)/Y(\d+)/.*",?\s*$')


def read_placement(path: Path) -> Iterator[tuple[str, str, int, int]]:
    """(name, type, column, row) of every cell that has a place, from what nextpnr's ``--write``
    wrote: types as nextpnr calls them, columns and rows of tiles, counted from the top left."""
    name = cell = kind = ""
    with path.open() as lines:
        for line in lines:
            if found := _OPENED.match(line):
                name = found[1]
            elif '"hide_name"' in line:
                cell, kind = name, ""
            elif not kind and (found := _TYPE.match(line)):
                kind = found[1]
            elif cell and (found := _BEL.match(line)):
                yield cell, kind, int(found[1]), int(found[2])
                cell = ""
