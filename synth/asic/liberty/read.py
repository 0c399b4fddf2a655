"""Liberty files: find one, read it into a :class:`~synth.asic.liberty.model.Library`."""

import hashlib
import re
from functools import lru_cache
from pathlib import Path

import numpy as np

from synth.common import wheels
from synth.common.errors import ToolError

from .model import Arc, Cell, Library, Pin, PowerArc, Table, WireLoad
from .syntax import Group, parse
from .truth_table import truth_table, variables

__all__ = ["DEFAULT_FILE", "DEFAULT_WHEEL", "find", "read"]

#: The library that ``python -m synth fetch`` gets; which of :data:`synth.common.wheels.WHEELS`, and
#: file.
DEFAULT_WHEEL, DEFAULT_FILE = "nangate45", "stdcells.lib"

_SCALE = {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15}
_FIRST = ("input_net_transition", "input_transition_time", "constrained_pin_transition")


def find(path: Path | None = None) -> Path:
    """``path``, or the file that was fetched or is in an installed package.

    Raises :class:`ToolError` where there is none, saying how to get one.
    """
    if path is not None:
        if not Path(path).is_file():
            raise ToolError(f"Liberty file {path} does not exist")
        return Path(path)
    try:
        return wheels.wheel_directory(wheels.WHEELS[DEFAULT_WHEEL]) / DEFAULT_FILE
    except ToolError as error:
        raise ToolError(f"{error}; or give another library with --liberty FILE") from None


def read(path: Path) -> Library:
    """Read a Liberty file; a second read of the same file is free. Raises :class:`ToolError`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ToolError(f"Liberty file {path} cannot be read: {error.strerror}") from None
    return _read(Path(path), data)


@lru_cache(maxsize=4)
def _read(path, data):
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ToolError(f"Liberty file {path} is not text") from None
    root = parse(text, str(path))
    try:
        return _library(root, path, hashlib.sha256(data).hexdigest())
    except (ValueError, KeyError, IndexError) as error:
        raise ToolError(f"Liberty file {path} cannot be used: {error}") from None


def _library(root: Group, path: Path, digest: str) -> Library:
    units = _units(root)
    templates = {g.name: g for g in root.all("lu_table_template", "power_lut_template")}
    conditions = root.first("operating_conditions")
    default = root.attributes.get("default_operating_conditions")
    for group in root.all("operating_conditions"):
        conditions = group if group.name == default else conditions

    def nominal(name):
        value = conditions.attributes.get(name) if conditions else None
        return float(value if value is not None else root.attributes.get(f"nom_{name}", "nan"))

    cells = {}
    for group in root.all("cell"):
        try:
            cells[group.name] = _cell(group, units, templates, root)
        except (ValueError, KeyError) as error:
            raise ValueError(f"cell {group.name}: {error}") from None
    if not any(cell.kind == "register" for cell in cells.values()):
        raise ValueError("it has no flip-flop")
    if not any(cell.kind == "combinational" for cell in cells.values()):
        raise ValueError("it has no combinational cell")
    if not nominal("voltage") > 0:
        raise ValueError("it states no supply voltage")
    loads = {
        group.name: WireLoad(
            name=group.name,
            capacitance=float(group.attributes.get("capacitance", 0)) * units["capacitance"],
            slope=float(group.attributes.get("slope", 0)),
            lengths=tuple(
                sorted((int(float(n)), float(x)) for n, x, *_ in group.lists["fanout_length"])
            )
            if "fanout_length" in group.lists
            else (),
        )
        for group in root.all("wire_load")
    }
    return Library(
        name=root.name,
        path=path,
        sha256=digest,
        corner=conditions.name if conditions else "nominal",
        voltage=nominal("voltage"),
        temperature=nominal("temperature"),
        process=nominal("process"),
        cells=cells,
        wire_loads=loads,
        default_wire_load=root.attributes.get("default_wire_load"),
    )


def _units(root):
    """Factors to ns, fF, fJ and nW."""

    def unit(name, symbol, default):
        text = root.attributes.get(name, default)
        match = re.fullmatch(rf"\s*([0-9.]+)\s*([munpf]?){symbol}\s*", text, re.IGNORECASE)
        if match is None:
            raise ValueError(f"{name} is {text!r}")
        return float(match[1]) * _SCALE[match[2].lower()]

    number, prefix = root.lists.get("capacitive_load_unit", [["1", "pf"]])[0]
    capacitance = float(number) * _SCALE[prefix.lower().removesuffix("f")]
    voltage = unit("voltage_unit", "v", "1V")
    return {
        "time": unit("time_unit", "s", "1ns") / 1e-9,
        "capacitance": capacitance / 1e-15,
        "energy": capacitance * voltage**2 / 1e-15,
        "leakage": unit("leakage_power_unit", "w", "1nW") / 1e-9,
        "voltage": voltage,
    }


def _numbers(lists):
    return np.array([float(x) for text in lists for x in re.split(r"[\s,]+", text.strip()) if x])


def _table(group: Group, units, templates, scale) -> Table:
    template = templates.get(group.name)

    def index(name):
        lists = group.lists.get(name) or (template.lists.get(name) if template else None)
        return _numbers(lists[0]) if lists else np.zeros(1)

    rows, columns = index("index_1"), index("index_2")
    values = _numbers(group.lists["values"][0])
    if group.name == "scalar" or len(values) == 1:
        rows = columns = np.zeros(1)
    if len(values) != len(rows) * len(columns):
        raise ValueError(
            f"table {group.kind} has {len(values)} values for {len(rows)} x {len(columns)} indices"
        )
    for name, axis in (("index_1", rows), ("index_2", columns)):
        if np.any(np.diff(axis) <= 0):
            raise ValueError(f"{name} of table {group.kind} does not rise")
    values = values.reshape(len(rows), len(columns)) * scale
    names = [template.attributes.get(f"variable_{n}", "") if template else "" for n in (1, 2)]
    if len(columns) == 1 and len(rows) > 1 and names[0] not in ("", *_FIRST):
        names[1] = names[1] or _FIRST[0]  # a one-dimensional table over the load
    if names[0] not in ("", *_FIRST) or names[1] in _FIRST:
        rows, columns, values, names = columns, rows, values.T, names[::-1]

    def scaled(axis, name):
        kind = "capacitance" if "capacitance" in name else "time"
        return axis * units[kind]

    constraint = group.kind.endswith("_constraint")
    second = names[1] or ("related_pin_transition" if constraint else "capacitance")
    return Table(rows=scaled(rows, "time"), columns=scaled(columns, second), values=values)


def _cell(group: Group, units, templates, root) -> Cell:
    pins = {
        pin.name: _pin(pin, units, templates, root)
        for pin in group.all("pin")
        if pin.attributes.get("direction") in ("input", "output", "inout")
    }
    leakage = tuple(
        (
            g.attributes.get("when", ""),
            float(g.attributes.get("value") or g.lists["value"][0][0]) * units["leakage"],
        )
        for g in group.all("leakage_power")
        if "value" in g.attributes
    )
    flip_flop = group.first("ff")
    cell = Cell(
        name=group.name,
        kind=_kind(group, pins),
        area=float(group.attributes.get("area", 0)),
        pins=pins,
        leakage=leakage,
        default_leakage=float(
            group.attributes.get(
                "cell_leakage_power", root.attributes.get("default_cell_leakage_power", 0)
            )
        )
        * units["leakage"],
    )
    if cell.kind != "register":
        return cell
    return Cell(
        **{
            **cell.__dict__,
            "next_state": flip_flop.attributes["next_state"],
            "clock": variables(flip_flop.attributes["clocked_on"])[0],
            "state": tuple(flip_flop.arguments),
        }
    )


def _kind(group, pins):
    directions = {pin.direction for pin in pins.values()}
    outputs = [pin for pin in pins.values() if pin.direction == "output"]
    flip_flop = group.first("ff")
    special = ("latch", "latch_bank", "ff_bank", "statetable", "test_cell")
    tri_state = any("three_state" in pin.attributes for pin in group.all("pin"))
    if any(group.first(kind) for kind in special) or "inout" in directions or tri_state:
        return "other"
    if flip_flop:
        attributes = flip_flop.attributes
        plain = not {"clear", "preset"} & set(attributes)
        rising = re.fullmatch(r"\(?\s*\w+\s*\)?", attributes.get("clocked_on", ""))
        return "register" if plain and rising else "other"
    if not outputs or any(pin.function is None for pin in outputs):
        return "other"
    inputs = tuple(pin.name for pin in pins.values() if pin.direction == "input")
    for pin in outputs:
        truth_table(pin.function, inputs)
    return "combinational" if inputs else "tie"


def _pin(group: Group, units, templates, root) -> Pin:
    attributes = group.attributes
    default = root.attributes.get(f"default_{attributes['direction']}_pin_cap", 0)
    capacitance = float(attributes.get("capacitance", default)) * units["capacitance"]

    def edge(name):
        text = attributes.get(name)
        return capacitance if text is None else float(text) * units["capacitance"]

    arcs, power = [], []
    for timing in group.all("timing"):
        tables = {
            g.kind: _table(g, units, templates, units["time"])
            for g in timing.groups
            if g.kind.endswith(("_rise", "_fall", "_transition", "_constraint"))
        }
        for related in timing.attributes.get("related_pin", "").split():
            arcs.append(
                Arc(
                    related=related,
                    kind=timing.attributes.get("timing_type", "combinational"),
                    sense=timing.attributes.get("timing_sense", "non_unate"),
                    tables=tables,
                )
            )
    for internal in group.all("internal_power"):
        tables = {
            g.kind: _table(g, units, templates, units["energy"])
            for g in internal.all("rise_power", "fall_power", "power")
        }
        both = tables.get("power")
        zero = Table(rows=np.zeros(1), columns=np.zeros(1), values=np.zeros((1, 1)))
        for related in internal.attributes.get("related_pin", "").split() or [""]:
            power.append(
                PowerArc(
                    related=related,
                    when=internal.attributes.get("when", ""),
                    rise=tables.get("rise_power", both or zero),
                    fall=tables.get("fall_power", both or zero),
                )
            )
    return Pin(
        name=group.name,
        direction=attributes["direction"],
        capacitance=capacitance,
        rise=edge("rise_capacitance"),
        fall=edge("fall_capacitance"),
        limit=float(attributes.get("max_capacitance", "inf")) * units["capacitance"],
        function=attributes.get("function"),
        clock=attributes.get("clock", "false") == "true",
        arcs=tuple(arcs),
        power=tuple(power),
    )
