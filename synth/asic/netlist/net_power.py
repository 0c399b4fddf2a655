"""Power of a flat netlist from how often its nets change: internal, switching, leakage.

Energies are femtojoules per clock cycle until the end; divided by the period in nanoseconds they
are microwatts. What is averaged, and how, stands with :class:`PowerModel`.
"""

import numpy as np

from synth.asic.liberty.model import Cell, PowerArc, Table
from synth.asic.liberty.truth_table import truth_table

from .flat_netlist import CellGroup, FlatNetlist
from .gate_simulation import Counts
from .lookup_tables import TableSet
from .static_timing import TimingGraph

__all__ = ["PowerModel"]

_CLOCK_CHANGES = 2.0


class PowerModel:
    """Energy per cycle of every cell and net.

    - *Switching*: half of C V^2 for every change of a net, C the pins on it and its wire, the mean
      of rising and falling. The clock changes twice a cycle and is loaded by pins alone.
    - *Internal*: tables over the slew of the input and the load, from timing. A change of an output
      is blamed on the cell's inputs in proportion to how often each changes; half of the changes
      rise. ``when`` conditions are weighted by how likely they are: inputs of gates independent of
      each other, a register's D and Q by how often they met the clock edge in each state.
    - *Leakage*: by state with the same probabilities, what no condition covers by the cell's
      default.

    Parameters
    ----------
    graph : of the same netlist, for loads and slews

    Members
    -------
    internal, switching : fJ per cycle, for every block of the netlist
    leakage : nW, for every block
    clock : fJ per cycle, the clock's share of both (pins of registers, and their power)
    """

    def __init__(self, netlist: FlatNetlist, graph: TimingGraph, counts: Counts):
        self._netlist, self._counts = netlist, counts
        self._load = graph.load.mean(axis=1)
        self._slew = graph.slew.mean(axis=1)
        self._rate = counts.changes / counts.cycles
        self._one = counts.ones / counts.cycles
        self._tables = TableSet()
        self._clock_nets = set(map(int, netlist.inputs.get("clk", ())))
        blocks = len(netlist.blocks)
        self.internal, self.switching, self.leakage = (np.zeros(blocks) for _ in range(3))
        self.clock = 0.0
        for group in netlist.groups.values():
            self._group(group)
        self._nets()

    def milliwatts(self, period_ns: float) -> dict[str, float]:
        """``internal``, ``switching``, ``leakage``, ``total``, and ``clock``, a part of these."""
        parts = {
            "internal": self.internal.sum() / period_ns * 1e-3,
            "switching": self.switching.sum() / period_ns * 1e-3,
            "leakage": self.leakage.sum() * 1e-6,
        }
        result = {**parts, "total": sum(parts.values()), "clock": self.clock / period_ns * 1e-3}
        return {name: round(float(value), 6) for name, value in result.items()}

    def block_milliwatts(self, period_ns: float) -> np.ndarray:
        """Total of every block."""
        return (self.internal + self.switching) / period_ns * 1e-3 + self.leakage * 1e-6

    def _nets(self):
        """Switching energy, at the block of the driver."""
        voltage, netlist = self._netlist.library.voltage, self._netlist
        energy = 0.5 * voltage**2 * self._load * self._rate
        energy[sorted(self._clock_nets)] = 0.0  # counted at the registers
        driver = np.zeros(netlist.nets, np.int64)  # inputs count for the top
        for group in netlist.groups.values():
            for name in group.cell.outputs:
                driver[group.pin(name)] = group.block
        for macro in netlist.macros:
            for nets in macro.outputs.values():
                driver[nets] = macro.block
        np.add.at(self.switching, driver, energy)

    def _group(self, group: CellGroup):
        cell, count = group.cell, len(group.block)
        blocks = len(self._netlist.blocks)
        states = _States(self, group)
        covered, nanowatts = np.zeros(count), np.zeros(count)
        for when, value in cell.leakage:
            probability = states.probability(when)
            covered += probability
            nanowatts += probability * value
        # Conditions that overlap would count twice.
        scale = np.where(covered > 1, 1 / np.maximum(covered, 1), 1.0)
        nanowatts = nanowatts * scale + np.maximum(0, 1 - covered) * cell.default_leakage
        self.leakage += np.bincount(group.block, nanowatts, blocks)
        energy = np.zeros(count)
        for name, pin in cell.pins.items():
            own = [arc for arc in pin.power if not arc.related]
            if cell.kind == "register" and name == cell.clock:
                clock = self._clock_power(own, states)
                voltage = self._netlist.library.voltage
                wire = 0.5 * voltage**2 * (pin.rise + pin.fall) / 2 * _CLOCK_CHANGES
                self.clock += float(clock.sum()) + wire * count
                self.switching += wire * np.bincount(group.block, minlength=blocks)
                energy += clock
            elif own:
                mean = self._mean(own, states, self._slew[group.pin(name)], np.zeros(count))
                energy += self._rate[group.pin(name)] * mean
            if pin.direction == "output":
                energy += self._output_power(group, name, states)
        self.internal += np.bincount(group.block, energy, blocks)

    def _output_power(self, group, name, states):
        """Changes of an output times the mean energy of one, over the inputs that cause them."""
        arcs = {}
        for arc in group.cell.pins[name].power:
            if arc.related in group.pins:
                arcs.setdefault(arc.related, []).append(arc)
        nets, count = group.pin(name), len(group.block)
        if not arcs:
            return np.zeros(count)
        rates = np.array([self._rate[group.pin(related)] for related in arcs])
        if group.cell.kind == "register":
            rates = np.array([np.full(count, float(r == group.cell.clock)) for r in arcs])
        total = rates.sum(axis=0)
        shares = np.where(total > 0, rates / np.where(total > 0, total, 1), 1 / len(arcs))
        mean = np.zeros(count)
        for share, (related, choices) in zip(shares, arcs.items()):
            mean += share * self._mean(
                choices, states, self._slew[group.pin(related)], self._load[nets]
            )
        return self._rate[nets] * mean

    def _mean(self, arcs: list[PowerArc], states, slew, load):
        """Energy of one change, half of them rising, over the conditions of ``arcs``."""
        weights = np.array([states.probability(arc.when) for arc in arcs])
        total = weights.sum(axis=0)
        # Where no condition can hold, all of them weigh the same.
        weights = np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / len(arcs))
        energy = np.zeros(len(slew))
        for weight, arc in zip(weights, arcs):
            edges = self._look_up(arc.rise, slew, load) + self._look_up(arc.fall, slew, load)
            energy += weight * 0.5 * edges
        return energy

    def _clock_power(self, arcs, states):
        """One rising and one falling edge a cycle, in the states of the register."""
        energy = np.zeros(states.count)
        zero = np.zeros(states.count)
        for arc in arcs:
            edges = self._look_up(arc.rise, zero, zero) + self._look_up(arc.fall, zero, zero)
            energy += states.probability(arc.when, ignore=states.cell.clock) * edges
        return energy

    def _look_up(self, table: Table, slew, load):
        number = self._tables.add(table)
        return self._tables.look_up(np.full(len(slew), number), slew, load)


class _States:
    """How likely a condition is, for every instance of a group."""

    def __init__(self, model: PowerModel, group: CellGroup):
        self.cell: Cell = group.cell
        self.count = len(group.block)
        self._known = {}
        if self.cell.kind == "register":
            self._register(model, group)
            return
        self._names = self.cell.inputs
        ones = [model._one[group.pin(name)] for name in self._names]
        self._weights = np.ones((1, self.count))
        for one in ones:
            self._weights = np.concatenate([self._weights * (1 - one), self._weights * one])

    def _register(self, model, group):
        cell, states = self.cell, model._counts.states[self.cell.name]
        data = cell.next_state.strip(" ()")
        others = [name for name in cell.inputs if name != data]
        self._names = (data, cell.state[0], *others)
        joint = states / np.maximum(states.sum(axis=1, keepdims=True), 1)
        # The counts are at 2 * D + Q; the index here has D as its lowest bit.
        self._weights = joint.T[[0, 2, 1, 3]]
        for name in others:
            one = 0.5 if name == cell.clock else model._one[group.pin(name)]
            self._weights = np.concatenate([self._weights * (1 - one), self._weights * one])

    def probability(self, when: str, *, ignore: str | None = None) -> np.ndarray:
        """Of ``when``, 1 for no condition; ``ignore`` is a pin whose value does not matter."""
        if not when:
            return np.ones(self.count)
        if (when, ignore) not in self._known:
            self._known[when, ignore] = self._evaluate(when, ignore)
        return self._known[when, ignore]

    def _evaluate(self, when, ignore):
        names = list(self._names)
        expression = when
        if self.cell.kind == "register":
            # Outputs are the state or its complement.
            extra = list(self.cell.outputs)
            table = truth_table(expression, (*names, *self.cell.state[1:], *extra))
            return self._of_register(table, len(names), extra, ignore)
        table = truth_table(expression, tuple(names))
        chosen = [index for index in range(len(self._weights)) if table >> index & 1]
        return self._weights[chosen].sum(axis=0)

    def _of_register(self, table, count, extra, ignore):
        chosen, q = np.zeros(self.count), 1
        position = self._names.index(ignore) if ignore in self._names else None
        for index, weight in enumerate(self._weights):
            values = [index]
            if position is not None:
                values = [index & ~(1 << position), index | 1 << position]
            for value in values:
                state = value >> q & 1
                full = value | (1 - state) << count
                for place, name in enumerate(extra, start=count + len(self.cell.state[1:])):
                    plain = self.cell.pins[name].function == self.cell.state[0]
                    full |= (state if plain else 1 - state) << place
                if table >> full & 1:
                    chosen += weight
                    break
        return chosen
