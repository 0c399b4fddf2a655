"""The figures that the ADA-GP paper publishes, as data: ``figures.json`` and its reader.

Nothing here is measured by this project, and nothing in the file is more than a figure with its
place in the paper. A package that puts a result beside the paper reads it from here.
"""

import json
from pathlib import Path

__all__ = ["SOURCE", "figures", "table"]

#: How the source is named wherever one of its figures stands.
SOURCE = "Janfaza et al., ADA-GP, MICRO 2023, arXiv:2305.13236"


def figures() -> dict:
    """Everything in ``figures.json``, a new copy for each call.

    Returns
    -------
    dict
        ``source``: authors, title, venue and arXiv number; ``tables``: number of the table -> as
        :func:`table` reads it; the other keys name figures and quantities of the text
    """
    return json.loads((Path(__file__).parent / "figures.json").read_text(encoding="utf-8"))


def table(number: str) -> dict[str, dict[str, float]]:
    """A table of the paper: row -> column -> figure, in the unit that the table has.

    ``number`` is that of the paper, "4a" for the first part of Table 4. Raises ``ValueError`` for a
    table that is not there.
    """
    tables = figures()["tables"]
    if number not in tables:
        raise ValueError(f"Table must be one of {', '.join(tables)}, not {number!r}")
    entry = tables[number]
    return {row: dict(zip(entry["columns"], cells)) for row, cells in entry["rows"].items()}
