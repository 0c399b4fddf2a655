"""Area of a netlist of standard cells: by kind of cell and by block."""

import re

import numpy as np

from synth.asic.netlist.flat_netlist import FlatNetlist

__all__ = ["areas", "block_areas", "block_of", "merged_name"]

#: Path of a block, from the core on -> what it is called in reports. The first that matches counts.
_PURPOSES = (
    (r"core(\d+)\.matrix\.array(\..*)?", "array"),
    (r"core(\d+)\.matrix\.accumulators(\..*)?", "accumulators"),
    (r"core(\d+)\.matrix\.(matmul|weights)(\..*)?", "array control"),
    (r"core(\d+)\.post(\..*)?", "post-processing"),
    (r"core(\d+)\.vector(\..*)?", "vector engine"),
    (r"core(\d+)\.loss(\..*)?", "loss engine"),
    (r"core(\d+)\.(load|store)(\..*)?", "DMA"),
    (r"core(\d+)\.\w+_queue(\..*)?", "command queues"),
    (r"core(\d+)\.buffer(\..*)?", "buffer ports"),
    (r"core(\d+)(\..*)?", "connections"),
    (r"registers(\..*)?", "register file"),
    (r"(fetch|sequencer|semaphores|loops)(\..*)?", "sequencer"),
    (r"batches(\$\d+)?(\..*)?", "batch control"),
    (r"(read|write)_mux(\..*)?", "bus"),
    (r".*", "connections"),
)


def block_of(path: str) -> str:
    """Name in reports of the block at ``path``; a second core's blocks are the predictor's."""
    for pattern, purpose in _PURPOSES:
        match = re.fullmatch(pattern, path)
        if match:
            core = match[1] if match.re.groups and path.startswith("core") else None
            return f"predictor {purpose}" if core not in (None, "0") else purpose
    raise AssertionError(path)


def merged_name(path: str) -> str:
    """``path`` with the numbers of equal neighbours replaced by ``*``; cores keep theirs, and names
    that a signal has as well lose the number that tells them apart."""
    parts = [re.sub(r"\$\d+$", "", part) for part in path.split(".")]
    return ".".join(
        part if re.fullmatch(r"core\d+", part) else re.sub(r"\d+$", "*", part) for part in parts
    )


def _per_block(netlist: FlatNetlist) -> dict[str, np.ndarray]:
    count = len(netlist.blocks)
    found = {name: np.zeros(count) for name in ("combinational", "sequential", "buffers_inverters")}
    found["cells"] = np.zeros(count, np.int64)
    for group in netlist.groups.values():
        instances = np.bincount(group.block, minlength=count)
        kind = "sequential" if group.cell.kind == "register" else "combinational"
        found[kind] += instances * group.cell.area
        if group.cell.is_buffer:
            found["buffers_inverters"] += instances * group.cell.area
        found["cells"] += instances
    return found


def areas(netlist: FlatNetlist) -> dict[str, float]:
    """Area in the library's unit: ``combinational`` (``buffers_inverters`` are part of it),
    ``sequential`` and their ``total``. Memories are not in it."""
    found = {name: float(values.sum()) for name, values in _per_block(netlist).items()}
    found.pop("cells")
    rounded = {name: round(value, 3) for name, value in found.items()}
    return {**rounded, "total": round(found["combinational"] + found["sequential"], 3)}


def block_areas(netlist: FlatNetlist) -> tuple[dict[str, float], list[dict]]:
    """Area by block, and the same in detail.

    Returns
    -------
    blocks : name of the block (see :func:`block_of`) -> area, largest first; sums to the total
    details : for every place in the hierarchy, equal ones together, ``path``, ``block``,
        ``module``, ``instances``, ``cells``, and areas without those of the modules below
    """
    found = _per_block(netlist)
    blocks, details = {}, {}
    for index, block in enumerate(netlist.blocks):
        own = {name: found[name][index].item() for name in found}
        total = own["combinational"] + own["sequential"]
        name = block_of(block.name)
        blocks[name] = blocks.get(name, 0.0) + total
        row = details.setdefault(
            merged_name(block.name),
            {
                "path": merged_name(block.name) or "(top)",
                "block": name,
                "module": block.module,
                "instances": 0,
                **dict.fromkeys(own, 0),
                "total": 0.0,
            },
        )
        row["instances"] += 1
        row["total"] += total
        for key, value in own.items():
            row[key] += value
    for row in details.values():
        for key, value in row.items():
            if isinstance(value, int | float):
                row[key] = int(value) if key in ("instances", "cells") else round(float(value), 3)
    ordered = sorted(((n, round(a, 3)) for n, a in blocks.items() if a), key=lambda item: -item[1])
    return dict(ordered), [row for row in details.values() if row["cells"]]
