"""Static timing of a flat netlist over the tables of its library.

Worst-case arrival times of rising and falling edges, graph-based: the slew at a net is the largest
of all edges that arrive there, whatever path they belong to. Clock and reset are ideal (every
flip-flop sees an edge of no transition time at time 0); wires are capacitance only, from the
library's wire-load model.
"""

from dataclasses import dataclass, field

import numpy as np

from synth.asic.liberty.model import WireLoad
from synth.common.errors import ToolError

from .flat_netlist import FlatNetlist
from .levelize import levelise
from .lookup_tables import TableSet

__all__ = ["Endpoint", "MemoryTiming", "TimingGraph"]

RISE, FALL = 0, 1
_NAMES = ("rise", "fall")
_EDGES = {
    "positive_unate": ((RISE, RISE), (FALL, FALL)),
    "negative_unate": ((FALL, RISE), (RISE, FALL)),
    "non_unate": ((RISE, RISE), (RISE, FALL), (FALL, RISE), (FALL, FALL)),
}
_COMBINATIONAL = ("combinational", "combinational_rise", "combinational_fall")


@dataclass(frozen=True, kw_only=True)
class MemoryTiming:
    """Times of a memory in ns, capacitance of its input pins in fF.

    A memory module is no library cell: these are parameters, stated with the results.
    """

    access_ns: float = 1.0
    setup_ns: float = 0.1
    slew_ns: float = 0.05
    input_ff: float = 5.0


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A place where a path ends: ``kind`` "register", "memory" or "output"."""

    kind: str
    name: str
    block: int


@dataclass(eq=False)
class _Arcs:
    """Edges of the timing graph; nodes are 2 * net + edge."""

    source: list = field(default_factory=list)
    target: list = field(default_factory=list)
    delay: list = field(default_factory=list)
    slew: list = field(default_factory=list)
    cell: list = field(default_factory=list)

    def add(self, source, target, delay, slew, cell):
        count = len(target)
        self.source.append(np.broadcast_to(source, count))
        self.target.append(target)
        self.delay.append(np.full(count, delay, np.int32))
        self.slew.append(np.full(count, slew, np.int32))
        self.cell.append(cell)

    def joined(self):
        return [
            np.concatenate(parts) if parts else np.zeros(0, np.int64)
            for parts in (self.source, self.target, self.delay, self.slew, self.cell)
        ]


class TimingGraph:
    """Loads, delays and slews of a netlist.

    Parameters
    ----------
    wire_load : estimated wires, None for none
    memory : module name -> :class:`MemoryTiming`; others have the default
    ideal : inputs of the top that are ideal networks and carry no load

    Members
    -------
    load : fF at each net for a rising and a falling edge, (nets, 2)
    slew : ns at each net, (nets, 2); zero where no edge arrives
    wire : fF of each net's wire
    fanout : loads of each net

    Raises :class:`ToolError` where gates form a loop.
    """

    def __init__(
        self,
        netlist: FlatNetlist,
        *,
        wire_load: WireLoad | None = None,
        memory: dict[str, MemoryTiming] | None = None,
        ideal=("clk", "rst"),
    ):
        self.netlist = netlist
        self._memory = memory or {}
        self._ideal = {
            int(net) for name in ideal if name in netlist.inputs for net in netlist.inputs[name]
        }
        self._tables = TableSet()
        self._by_target = None
        self._loads(wire_load)
        self._launch()
        self._gates()
        self._levels()
        self._delays()

    def memory_timing(self, module: str) -> MemoryTiming:
        return self._memory.get(module, MemoryTiming())

    def _loads(self, wire_load):
        netlist = self.netlist
        self.fanout = np.zeros(netlist.nets, np.int64)
        self.load = np.zeros((netlist.nets, 2))
        for group in netlist.groups.values():
            for name in group.cell.inputs:
                pin, nets = group.cell.pins[name], group.pin(name)
                count = np.bincount(nets, minlength=netlist.nets)
                self.fanout += count
                self.load[:, RISE] += count * pin.rise
                self.load[:, FALL] += count * pin.fall
        for macro in netlist.macros:
            pins = self.memory_timing(macro.module).input_ff
            nets = np.concatenate(list(macro.inputs.values()))
            np.add.at(self.fanout, nets, 1)
            np.add.at(self.load, nets, pins)
        self.wire = wire_load(self.fanout) if wire_load else np.zeros(netlist.nets)
        ideal = np.array(sorted(self._ideal | {0, 1}))
        self.wire[ideal] = 0.0
        self.load += self.wire[:, None]

    def _launch(self):
        """Edges that leave registers and memories: target node, arrival, slew, cell."""
        arcs = _Arcs()
        self._cells = list(self.netlist.groups.values())
        for number, group in enumerate(self._cells):
            if group.cell.kind != "register":
                continue
            for output in group.cell.outputs:
                for arc in group.cell.pins[output].arcs:
                    if arc.kind == "rising_edge":
                        self._add(arcs, arc, group, output, number, (RISE,))
        self._launch_arcs = arcs.joined()

    def _gates(self):
        arcs = _Arcs()
        for number, group in enumerate(self._cells):
            if group.cell.kind != "combinational":
                continue
            for output in group.cell.outputs:
                for arc in group.cell.pins[output].arcs:
                    if arc.kind in _COMBINATIONAL:
                        self._add(arcs, arc, group, output, number, (RISE, FALL))
        self._gate_arcs = arcs.joined()

    def _add(self, arcs, arc, group, output, number, from_edges):
        source, target = group.pin(arc.related), group.pin(output)
        identity = (number << 32) + np.arange(len(target))
        for first, last in _EDGES[arc.sense]:
            delay = arc.tables.get(f"cell_{_NAMES[last]}")
            slew = arc.tables.get(f"{_NAMES[last]}_transition")
            if first not in from_edges or delay is None or slew is None:
                continue
            numbers = self._tables.add(delay), self._tables.add(slew)
            arcs.add(2 * source + first, 2 * target + last, *numbers, identity)

    def _levels(self):
        """Sort the edges so that all edges into a net come before those out of it."""
        source, target, *_ = self._gate_arcs
        level = levelise(self.netlist.nets, source // 2, target // 2)
        if np.any(level < 0):
            raise ToolError(f"Gates form a loop through {self._loop(level < 0)}")
        order = np.lexsort((target, level[target // 2]))
        self._gate_arcs = [part[order] for part in self._gate_arcs]
        of_arc = level[self._gate_arcs[1] // 2]
        cuts = np.flatnonzero(np.diff(of_arc)) + 1
        self._slices = list(zip([0, *cuts], [*cuts, len(of_arc)])) if len(of_arc) else []
        self.depth = int(level.max()) + 1

    def _loop(self, nets):
        for group in self._cells:
            if group.cell.kind == "combinational":
                inside = np.flatnonzero(nets[group.pin(group.cell.outputs[0])])
                if len(inside):
                    return self.netlist.instance(group, inside[0])
        return "an unknown cell"

    def _delays(self):
        """Slew of every node, delay of every edge, one level after the other."""
        nodes = 2 * self.netlist.nets
        load, slew = self.load.reshape(-1), np.zeros(nodes)
        _source, target, delay, transition, _cell = self._launch_arcs
        zero = np.zeros(len(target))
        self._launch_delay = (
            self._tables.look_up(delay, zero, load[target]) if len(target) else zero
        )
        if len(target):
            np.maximum.at(slew, target, self._tables.look_up(transition, zero, load[target]))
        for macro in self.netlist.macros:
            timing = self.memory_timing(macro.module)
            nets = np.concatenate(list(macro.outputs.values()))
            for edge in (RISE, FALL):
                slew[2 * nets + edge] = timing.slew_ns
        source, target, delay, transition, _cell = self._gate_arcs
        self._gate_delay = np.zeros(len(source))
        for first, last in self._slices:
            part = slice(first, last)
            at, loads = slew[source[part]], load[target[part]]
            self._gate_delay[part] = self._tables.look_up(delay[part], at, loads)
            out = self._tables.look_up(transition[part], at, loads)
            np.maximum.at(slew, target[part], out)
        self.slew = slew.reshape(-1, 2)

    def arrivals(self, *, inputs: bool = False, memories: bool = True) -> np.ndarray:
        """Latest arrival in ns at each net and edge, (nets, 2); -inf where none does.

        From registers and, with ``memories``, from memories; with ``inputs`` from the inputs of the
        top instead, at time 0.
        """
        arrival = np.full(2 * self.netlist.nets, -np.inf)
        if inputs:
            for name, nets in self.netlist.inputs.items():
                if not set(map(int, nets)) & self._ideal:
                    for edge in (RISE, FALL):
                        arrival[2 * self.netlist.inputs[name] + edge] = 0.0
        else:
            np.maximum.at(arrival, self._launch_arcs[1], self._launch_delay)
            for macro in self.netlist.macros if memories else ():
                nets = np.concatenate(list(macro.outputs.values()))
                for edge in (RISE, FALL):
                    arrival[2 * nets + edge] = self.memory_timing(macro.module).access_ns
        source, target, *_ = self._gate_arcs
        for first, last in self._slices:
            part = slice(first, last)
            np.maximum.at(arrival, target[part], arrival[source[part]] + self._gate_delay[part])
        return arrival.reshape(-1, 2)

    def requirements(self):
        """What every path end needs: nodes (net and edge), setup in ns, and its identity.

        Returns
        -------
        tuple of arrays
            node, setup, kind (0 register, 1 memory, 2 output), cell (register) or port number
        """
        nodes, setups, kinds, cells = [], [], [], []
        for number, group in enumerate(self._cells):
            if group.cell.kind != "register":
                continue
            for name in group.cell.inputs:
                for arc in group.cell.pins[name].arcs:
                    if arc.kind != "setup_rising" or name == group.cell.clock:
                        continue
                    for edge in (RISE, FALL):
                        table = arc.tables.get(f"{_NAMES[edge]}_constraint")
                        if table is None:
                            continue
                        node = 2 * group.pin(name) + edge
                        at = self.slew.reshape(-1)[node]
                        number_of = np.full(len(node), self._tables.add(table))
                        setups.append(self._tables.look_up(number_of, at, np.zeros(len(node))))
                        nodes.append(node)
                        kinds.append(np.zeros(len(node), np.int64))
                        cells.append((number << 32) + np.arange(len(node)))
        for index, macro in enumerate(self.netlist.macros):
            nets = np.concatenate(
                [nets for port, nets in macro.inputs.items() if port not in ("clk", "rst")]
            )
            for edge in (RISE, FALL):
                nodes.append(2 * nets + edge)
                setups.append(np.full(len(nets), self.memory_timing(macro.module).setup_ns))
                kinds.append(np.ones(len(nets), np.int64))
                cells.append(np.full(len(nets), index))
        for index, nets in enumerate(self.netlist.outputs.values()):
            for edge in (RISE, FALL):
                nodes.append(2 * nets + edge)
                setups.append(np.zeros(len(nets)))
                kinds.append(np.full(len(nets), 2))
                cells.append(np.full(len(nets), index))
        return [np.concatenate(part) for part in (nodes, setups, kinds, cells)]

    def end_blocks(self, kind: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """Block of every path end, for ``kind`` and ``cell`` of :meth:`requirements`."""
        blocks = np.zeros(len(kind), np.int64)
        for number, group in enumerate(self._cells):
            mine = (kind == 0) & (cell >> 32 == number)
            blocks[mine] = group.block[cell[mine] & 0xFFFFFFFF]
        macros = np.array([macro.block for macro in self.netlist.macros], np.int64)
        if len(macros):
            blocks[kind == 1] = macros[cell[kind == 1]]
        return blocks

    def endpoint(self, kind: int, cell: int) -> Endpoint:
        if kind == 0:
            group, index = self._cells[cell >> 32], cell & 0xFFFFFFFF
            name = self.netlist.instance(group, index)
            return Endpoint(kind="register", name=name, block=int(group.block[index]))
        if kind == 1:
            block = self.netlist.macros[cell].block
            return Endpoint(kind="memory", name=self.netlist.blocks[block].name, block=block)
        return Endpoint(kind="output", name=list(self.netlist.outputs)[cell], block=0)

    def trace(self, arrival: np.ndarray, node: int) -> list[tuple[int, str, int, float]]:
        """The latest path to ``node``, from its begin: node, instance, block, arrival."""
        arrival = arrival.reshape(-1)
        source, target, _delay, _slew, cell = self._gate_arcs
        if self._by_target is None:
            order = np.argsort(target, kind="stable")
            self._by_target = order, target[order]
        order, sorted_target = self._by_target
        steps = []
        while True:
            low, high = np.searchsorted(sorted_target, [node, node + 1])
            edges = order[low:high]
            if not len(edges):
                break
            values = arrival[source[edges]] + self._gate_delay[edges]
            best = edges[int(np.argmax(values))]
            steps.append((int(node), *self._instance(cell[best]), float(arrival[node])))
            node = source[best]
        steps.append((int(node), *self._begin(int(node)), float(arrival[node])))
        return steps[::-1]

    def _instance(self, cell):
        group, index = self._cells[cell >> 32], cell & 0xFFFFFFFF
        return self.netlist.instance(group, index), int(group.block[index])

    def _begin(self, node):
        at = np.flatnonzero(self._launch_arcs[1] == node)
        if len(at):
            return self._instance(self._launch_arcs[4][at[0]])
        for macro in self.netlist.macros:
            if any(node // 2 in nets for nets in macro.outputs.values()):
                return self.netlist.blocks[macro.block].name, macro.block
        for name, nets in self.netlist.inputs.items():
            if node // 2 in nets:
                return name, 0
        return "constant", 0
