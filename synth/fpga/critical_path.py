"""The slowest path of a placed and routed design, named by the blocks it runs through."""

import re

__all__ = ["block_of", "critical_path", "place_name"]

#: What the mapper appends to the name of the signal that a cell computes.
_CELL = re.compile(
    r"_(TRELLIS_FF|TRELLIS_COMB|TRELLIS_RAMW|LUT[1-6]|CCU2C?|PFUMX|L6MUX21|SB_[A-Z]\w*|DFF[A-Z]*"
    r"|FD1P3[A-Z]*|ALU|MUX2_LUT\d|WIDEFN9)_.*$"
)
_GENERATED = re.compile(r"\$.*$")
_HARNESS = "dut."


def place_name(cell: str) -> str:
    """Hierarchical name of what a cell belongs to: ``core0.matrix.array.column3.term[2]``."""
    name = _CELL.sub("", cell.replace("\\", ""))
    name = _GENERATED.sub("", name) or cell
    return name.removeprefix(_HARNESS).rstrip(".")


def block_of(start: str, end: str) -> str:
    """The innermost block that both names are in; "top" where they share none."""
    common = []
    for one, other in zip(start.split(".")[:-1], end.split(".")[:-1], strict=False):
        if one != other:
            break
        common.append(one)
    return ".".join(common) or "top"


def critical_path(report: dict) -> dict | None:
    """From nextpnr's ``--report``; None where it has no path from register to register.

    Returns
    -------
    dict
        ``block``, ``from``, ``to`` (hierarchical names), ``logic_ns``, ``routing_ns``, ``ns``,
        ``levels`` (cells with a logic delay between the registers)
    """
    inside = [
        entry
        for entry in report.get("critical_paths", ())
        if _edge(entry["from"]) and _edge(entry["from"]) == _edge(entry["to"])
    ]
    if not inside:
        return None
    path = max(inside, key=_delay)["path"]
    routing = sum(step["delay"] for step in path if step["type"] == "routing")
    total = sum(step["delay"] for step in path)
    start = place_name(path[0]["from"]["cell"])
    end = place_name(path[-1]["to"]["cell"])
    return {
        "block": block_of(start, end),
        "from": start,
        "to": end,
        "logic_ns": round(total - routing, 3),
        "routing_ns": round(routing, 3),
        "ns": round(total, 3),
        "levels": sum(step["type"] == "logic" for step in path),
    }


def _edge(text):
    """Clock of "posedge clk", None for an asynchronous end."""
    return None if "async" in text else text


def _delay(entry):
    return sum(step["delay"] for step in entry["path"])
