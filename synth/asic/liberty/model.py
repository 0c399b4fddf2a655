"""What a standard-cell library says: cells, pins, timing and power tables, wire loads.

Units: nanoseconds, femtofarads, femtojoules, nanowatts, volts; areas stay in the library's own
unit (square micrometres in every library known to us).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from synth.common.errors import ToolError

from .truth_table import truth_table

__all__ = ["Arc", "Cell", "Library", "Pin", "PowerArc", "Table", "WireLoad"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Values over input transition (rows, ns) and load (columns, fF).

    Of a constraint: over the transition of the constrained and of the related pin, both ns.
    """

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    def __call__(self, row: float, column: float) -> float:
        """Bilinear; outside of the table the outermost two points give the line."""
        i, a = _segment(self.rows, row)
        j, b = _segment(self.columns, column)
        low, high = self.values[i], self.values[min(i + 1, len(self.rows) - 1)]
        k = min(j + 1, len(self.columns) - 1)
        first = low[j] + (low[k] - low[j]) * b
        return float(first + (high[j] + (high[k] - high[j]) * b - first) * a)


def _segment(index, x):
    if len(index) < 2:
        return 0, 0.0
    i = int(np.clip(np.searchsorted(index, x, side="right") - 1, 0, len(index) - 2))
    return i, (x - index[i]) / (index[i + 1] - index[i])


@dataclass(frozen=True, kw_only=True, eq=False)
class Arc:
    """One ``timing`` group: ``kind`` is its timing_type, ``tables`` by the name of the table."""

    related: str
    kind: str
    sense: str
    tables: dict[str, Table]


@dataclass(frozen=True, kw_only=True, eq=False)
class PowerArc:
    """One ``internal_power`` group, energies in fJ. ``related`` is "" for power of an input."""

    related: str
    when: str
    rise: Table
    fall: Table


@dataclass(frozen=True, kw_only=True, eq=False)
class Pin:
    """``rise`` and ``fall``: capacitance in fF for that edge; ``capacitance``: for power;
    ``limit``: of an output, the largest load in fF, infinite where the library states none."""

    name: str
    direction: str
    capacitance: float
    rise: float
    fall: float
    limit: float
    function: str | None
    clock: bool
    arcs: tuple[Arc, ...]
    power: tuple[PowerArc, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """A cell. ``kind`` is "combinational", "register" (one edge-triggered flip-flop), "tie" (a
    constant) or "other" (latches, clock gates, tri-state, physical cells: never chosen).

    Members
    -------
    leakage : (condition or "", nW) of every group; ``default_leakage`` nW where none holds
    next_state, clock : of a register: expression of the new state, clock pin (rising edge)
    state : names of a register's state and of its complement in expressions
    """

    name: str
    kind: str
    area: float
    pins: dict[str, Pin]
    leakage: tuple[tuple[str, float], ...]
    default_leakage: float
    next_state: str = ""
    clock: str = ""
    state: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.pins.values() if p.direction == "input")

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.pins.values() if p.direction == "output")

    @property
    def is_buffer(self) -> bool:
        """A buffer or an inverter."""
        if self.kind != "combinational" or len(self.inputs) != 1 or len(self.outputs) != 1:
            return False
        return truth_table(self.pins[self.outputs[0]].function, self.inputs) in (0b10, 0b01)


@dataclass(frozen=True, kw_only=True)
class WireLoad:
    """Estimated wire: ``lengths`` by fan-out, ``slope`` per pin beyond, fF per length."""

    name: str
    capacitance: float
    slope: float
    lengths: tuple[tuple[int, float], ...]

    def __call__(self, fanout) -> np.ndarray:
        """Capacitance in fF of wires with ``fanout`` loads."""
        fanout = np.asarray(fanout, float)
        if not self.lengths:
            return np.where(fanout > 0, self.slope * fanout, 0.0) * self.capacitance
        pins, lengths = np.array(self.lengths).T
        inside = np.interp(fanout, pins, lengths)
        length = np.where(fanout > pins[-1], lengths[-1] + self.slope * (fanout - pins[-1]), inside)
        return np.where(fanout > 0, length, 0.0) * self.capacitance


@dataclass(frozen=True, kw_only=True, eq=False)
class Library:
    """A library at one corner.

    Members
    -------
    path, sha256 : the file
    voltage, temperature, process : of the operating conditions: V, degrees Celsius, factor
    """

    name: str
    path: Path
    sha256: str
    corner: str
    voltage: float
    temperature: float
    process: float
    cells: dict[str, Cell]
    wire_loads: dict[str, WireLoad]
    default_wire_load: str | None

    def wire_load(self, name: str | None = None) -> WireLoad | None:
        """The named one; for None the library's default; None for "none" or where there is none."""
        name = self.default_wire_load if name is None else name
        if name is None or name == "none":
            return None
        if name not in self.wire_loads:
            known = ", ".join(["none", *self.wire_loads])
            raise ToolError(f"{self.path} has no wire load {name!r}; there are {known}")
        return self.wire_loads[name]

    def tie(self, value: str) -> tuple[str, str]:
        """Name and output of the smallest cell that is constant ``value``, "0" or "1"."""
        ties = (cell for cell in self.cells.values() if cell.kind == "tie")
        found = [
            cell
            for cell in ties
            if truth_table(cell.pins[cell.outputs[0]].function, ()) == int(value)
        ]
        if not found:
            raise ToolError(f"{self.path} has no cell for the constant {value}")
        cell = min(found, key=lambda cell: cell.area)
        return cell.name, cell.outputs[0]

    def description(self) -> dict:
        """What the figures hold for; JSON."""
        return {
            "library": self.name,
            "sha256": self.sha256,
            "corner": self.corner,
            "supply_v": self.voltage,
            "temperature_c": self.temperature,
            "process": self.process,
            "area_unit": "um^2",
        }
