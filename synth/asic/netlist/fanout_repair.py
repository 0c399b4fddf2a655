"""Buffers where a net is more than its driver may carry.

Modules are mapped one at a time, so no mapper sees a net that fans out over many instances. This
puts trees of buffers there, as a layout tool would.
"""

from dataclasses import replace

import numpy as np

from synth.asic.liberty.model import Library, WireLoad
from synth.common.errors import ToolError

from .flat_netlist import CellGroup, FlatNetlist

__all__ = ["buffer_cell", "repair_fanout"]

#: A buffer of a tree, and a repaired driver, carries at most this share of what it may.
_SHARE = 0.5


def buffer_cell(library: Library):
    """The smallest buffer that may carry four times as much as the smallest one."""
    buffers = [
        cell
        for cell in library.cells.values()
        if cell.is_buffer and cell.pins[cell.outputs[0]].arcs[0].sense == "positive_unate"
    ]
    if not buffers:
        raise ToolError(f"{library.path} has no buffer")
    buffers.sort(key=lambda cell: (cell.area, cell.name))

    def limit(cell):
        return cell.pins[cell.outputs[0]].limit

    return next((c for c in buffers if limit(c) >= 4 * limit(buffers[0])), buffers[-1])


def repair_fanout(
    netlist: FlatNetlist, load: np.ndarray, wire_load: WireLoad | None, *, ideal=()
) -> tuple[FlatNetlist, int]:
    """Return the netlist with buffer trees, and how many buffers they have.

    Parameters
    ----------
    load : fF at each net, the worse edge
    ideal : nets to leave alone; so are those of constants and memories' outputs' own limits

    A net is repaired when its load exceeds the ``max_capacitance`` of the cell that drives it.
    Buffers belong to the block of the driver. Sinks stay in the order of their blocks, so that a
    buffer serves neighbours.
    """
    cell = buffer_cell(netlist.library)
    input_name, output_name = cell.inputs[0], cell.outputs[0]
    pin = max(cell.pins[input_name].rise, cell.pins[input_name].fall)
    target = _SHARE * cell.pins[output_name].limit
    heavy = _heavy(netlist, load, set(ideal))
    if not heavy:
        return netlist, 0
    arrays = {name: group.nets.copy() for name, group in netlist.groups.items()}
    sinks = _sinks(netlist, heavy)
    new_nets, new_rows, new_blocks = netlist.nets, [], []

    def wire(count):
        return float(wire_load(count)) if wire_load else 0.0

    for net, (limit, block) in sorted(heavy.items()):
        # Each sink: what to do when it moves to another net, and its capacitance.
        level = sorted(sinks[net], key=lambda sink: sink[:2])
        moves = [
            (_mover(arrays[name], index, column), c) for _b, _o, name, index, column, c in level
        ]
        while True:
            total = sum(c for _move, c in moves) + wire(len(moves))
            if total <= _SHARE * limit or len(moves) < 2:
                break
            buffers = []
            for cluster in _clusters(moves, target, wire):
                row = [0, new_nets]
                for move, _c in cluster:
                    move(new_nets)
                new_nets += 1
                new_rows.append(row)
                new_blocks.append(block)
                buffers.append((_mover(row, 0, None), pin))
            if len(buffers) >= len(moves):
                break
            moves = buffers
        for move, _c in moves:
            move(net)
    groups = {name: replace(group, nets=arrays[name]) for name, group in netlist.groups.items()}
    old = groups.get(cell.name)
    rows, blocks = np.array(new_rows), np.array(new_blocks)
    names = dict(old.names) if old else {}
    local = np.zeros(len(blocks), np.int64)
    for module in {netlist.blocks[block].module for block in new_blocks}:
        names[module] = [*names.get(module, []), "fanout_buffer"]
    for index, block in enumerate(new_blocks):
        local[index] = len(names[netlist.blocks[block].module]) - 1
    parts = [(old.nets, old.block, old.local)] if old else []
    parts.append((rows, blocks, local))
    groups[cell.name] = CellGroup(
        cell=cell,
        pins=(input_name, output_name),
        nets=np.concatenate([part[0] for part in parts]),
        block=np.concatenate([part[1] for part in parts]),
        local=np.concatenate([part[2] for part in parts]),
        names=names,
    )
    initial = np.concatenate(
        [netlist.initial, np.zeros(new_nets - netlist.nets, netlist.initial.dtype)]
    )
    repaired = replace(netlist, nets=new_nets, groups=groups, initial=initial)
    return repaired, len(new_rows)


def _heavy(netlist, load, ideal):
    """Net -> (limit of its driver in fF, block of the driver)."""
    heavy = {}
    for group in netlist.groups.values():
        if group.cell.kind not in ("combinational", "register"):
            continue
        for name in group.cell.outputs:
            nets, limit = group.pin(name), group.cell.pins[name].limit
            for index in np.flatnonzero(load[nets] > limit):
                if int(nets[index]) not in ideal:
                    heavy[int(nets[index])] = (limit, int(group.block[index]))
    return heavy


def _sinks(netlist, heavy):
    """Net -> [(block, order, cell, instance, column, fF)], inputs of cells only."""
    wanted = np.zeros(netlist.nets, bool)
    wanted[list(heavy)] = True
    sinks = {net: [] for net in heavy}
    for name, group in netlist.groups.items():
        for column, pin_name in enumerate(group.pins):
            pin = group.cell.pins[pin_name]
            if pin.direction != "input":
                continue
            for index in np.flatnonzero(wanted[group.nets[:, column]]):
                net = int(group.nets[index, column])
                order = len(sinks[net])
                capacitance = max(pin.rise, pin.fall)
                sinks[net].append(
                    (int(group.block[index]), order, name, int(index), column, capacitance)
                )
    return sinks


def _mover(array, index, column):
    def move(net):
        if column is None:
            array[index] = net
        else:
            array[index, column] = net

    return move


def _clusters(moves, target, wire):
    cluster, total = [], 0.0
    for move in moves:
        if cluster and total + move[1] + wire(len(cluster) + 1) > target:
            yield cluster
            cluster, total = [], 0.0
        cluster.append(move)
        total += move[1]
    yield cluster
