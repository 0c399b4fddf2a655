"""Timing figures of a netlist: Fmax, the critical path by block, the distribution of slack."""

import numpy as np

from synth.asic.netlist.flat_netlist import FlatNetlist
from synth.asic.netlist.static_timing import Endpoint, TimingGraph

from .area import merged_name

__all__ = ["timing_report"]

_BINS = 40
_PATHS = 5


def timing_report(graph: TimingGraph, *, clock_ns: float) -> dict:
    """Timing between registers and memories; paths of ports apart.

    Parameters
    ----------
    clock_ns : period that slack refers to

    Returns
    -------
    dict
        ``period_ns``, ``fmax_mhz``, ``clock_ns``, ``meets_clock``, ``logic_levels`` (gates on the
        longest chain), ``critical_path`` and ``paths`` (the worst of each pair of blocks, at most
        five), each with ``from``, ``to``, ``from_block``, ``to_block``, ``to_kind``, ``ns``,
        ``setup_ns``, ``gates``, ``through``, ``cells``; ``slack`` (histogram: ``edges_ns``,
        ``ends``), ``input_to_register_ns`` and ``register_to_output_ns`` (None where there is
        none), ``register_to_register_ns`` (paths that neither begin nor end at a memory)
    """
    netlist = graph.netlist
    arrival = graph.arrivals()
    node, setup, kind, cell = graph.requirements()
    needed = arrival.reshape(-1)[node] + setup
    inside = np.flatnonzero((kind < 2) & np.isfinite(needed))
    if not len(inside):
        return {"period_ns": None, "fmax_mhz": None, "critical_path": None, "paths": []}
    # One figure for each end: its worse edge.
    ends = np.unique((node[inside] // 2) * 2 + kind[inside], return_inverse=True)[1]
    worst = np.full(ends.max() + 1, -np.inf)
    np.maximum.at(worst, ends, needed[inside])
    period = float(needed[inside].max())
    counts, edges = np.histogram(clock_ns - worst, bins=_BINS)
    paths, seen = [], set()
    for index in _worst_ends(graph, inside, needed, kind, cell):
        end = graph.endpoint(int(kind[index]), int(cell[index]))
        steps = graph.trace(arrival, int(node[index]))
        path = _path(netlist, steps, end, float(needed[index]), float(setup[index]))
        pair = merged_name(path["from_block"]), merged_name(path["to_block"])
        if pair not in seen:
            seen.add(pair)
            paths.append(path)
        if len(paths) == _PATHS:
            break
    from_inputs = graph.arrivals(inputs=True).reshape(-1)[node] + setup
    outputs = needed[kind == 2]
    registers = graph.arrivals(memories=False).reshape(-1)[node] + setup
    return {
        "period_ns": round(period, 6),
        "fmax_mhz": round(1000 / period, 2),
        "clock_ns": clock_ns,
        "meets_clock": period <= clock_ns,
        "logic_levels": graph.depth - 1,
        "critical_path": paths[0],
        "paths": paths,
        "slack": {
            "edges_ns": [round(float(edge), 4) for edge in edges],
            "ends": [int(count) for count in counts],
        },
        "input_to_register_ns": _largest(from_inputs[kind < 2]),
        "register_to_output_ns": _largest(outputs),
        "register_to_register_ns": _largest(registers[kind == 0]),
    }


def _worst_ends(graph, inside, needed, kind, cell):
    """The worst path end of every block, the worst block first."""
    blocks = graph.end_blocks(kind[inside], cell[inside])
    order = np.argsort(-needed[inside], kind="stable")
    _block, first = np.unique(blocks[order], return_index=True)
    return inside[order[np.sort(first)]]


def _largest(values):
    values = values[np.isfinite(values)]
    return round(float(values.max()), 6) if len(values) else None


def _path(netlist: FlatNetlist, steps, end: Endpoint, needed: float, setup: float) -> dict:
    begin_block = steps[0][2]
    cells = []
    previous = 0.0
    for _node, instance, block, arrival in steps:
        delay = round(arrival - previous, 6)
        cells.append({"cell": instance, "block": _name(netlist, block), "ns": delay})
        previous = arrival
    return {
        "from": _short(netlist, begin_block, steps[0][1]),
        "to": _short(netlist, end.block, end.name),
        "from_block": _name(netlist, begin_block),
        "to_block": _name(netlist, end.block),
        "to_kind": end.kind,
        "ns": round(needed, 6),
        "setup_ns": round(setup, 6),
        "gates": len(steps) - 1,
        "through": list(dict.fromkeys(step["block"] for step in cells)),
        "cells": cells,
    }


def _name(netlist, block):
    return netlist.blocks[block].name or "(top)"


def _short(netlist, block, name):
    """A generated name tells nothing: then the block stands for it."""
    return _name(netlist, block) if "$" in name else name
