"""The mapped design as one flat netlist of library cells in arrays."""

import re
from dataclasses import dataclass, field

import numpy as np

from synth.asic.liberty.model import Cell, Library
from synth.common.errors import ToolError

__all__ = ["ONE", "ZERO", "Block", "CellGroup", "FlatNetlist", "Macro", "flatten"]

#: Nets of the constants, in every netlist.
ZERO, ONE = 0, 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """An instance of a module; ``path`` is () for the top, ``parent`` an index or -1."""

    path: tuple[str, ...]
    module: str
    parent: int

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, kw_only=True, eq=False)
class CellGroup:
    """All instances of one library cell.

    Members
    -------
    nets : int array (instances, pins) in the order ``pins``
    block : index of the block each instance is in
    local : index of each instance among those of this cell in its module, see ``names``
    names : module -> names of the instances of this cell in it
    """

    cell: Cell
    pins: tuple[str, ...]
    nets: np.ndarray
    block: np.ndarray
    local: np.ndarray
    names: dict[str, list[str]]

    def pin(self, name: str) -> np.ndarray:
        """Nets at a pin, one per instance."""
        return self.nets[:, self.pins.index(name)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Macro:
    """A memory: its place and the nets at its ports."""

    block: int
    module: str
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class FlatNetlist:
    """Nets are numbers from 0; 0 and 1 are the constants.

    Members
    -------
    groups : cell name -> instances
    inputs, outputs : port of the top -> nets, least significant bit first
    """

    library: Library
    nets: int
    groups: dict[str, CellGroup]
    blocks: list[Block]
    macros: list[Macro]
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    initial: np.ndarray = field(repr=False)

    @property
    def cells(self) -> int:
        return sum(len(group.block) for group in self.groups.values())

    def registers(self):
        return [g for g in self.groups.values() if g.cell.kind == "register"]

    def instance(self, group: CellGroup, index: int) -> str:
        """Path of an instance: blocks and its name in the module."""
        block = self.blocks[group.block[index]]
        name = group.names[block.module][group.local[index]]
        return ".".join([*block.path, name])


@dataclass(eq=False)
class _Module:
    """One module with its own net numbers."""

    nets: int
    ports: dict[str, tuple[str, list[int]]]
    groups: dict[str, tuple[np.ndarray, list[str]]]
    children: list[tuple[str, str, dict[str, list[int]]]]
    initial: list[tuple[int, int]]


def flatten(modules: dict[str, dict], top: str, library: Library, memories=()) -> FlatNetlist:
    """Join ``modules`` (Yosys's JSON) below ``top``; those in ``memories`` become macros.

    The result has a net for each driver: ports are joined, whatever the hierarchy. An input that
    nothing drives is constant zero.
    """
    compiled = {name: _compile(name, modules, library) for name in modules}
    flat = _Flattener(compiled, top, library, frozenset(memories))
    return flat.netlist()


def _compile(name, modules, library) -> _Module:
    content = modules[name]
    numbers = {"0": ZERO, "1": ONE, "x": ZERO, "z": ZERO}
    for bit in _bits(content):
        if isinstance(bit, int) and bit not in numbers:
            numbers[bit] = len(numbers) - 2
    count = len(numbers) - 2
    ports = {
        port: (description["direction"], [numbers[bit] for bit in description["bits"]])
        for port, description in content["ports"].items()
    }
    rows, names, children = {}, {}, []
    for cell_name, cell in sorted(content["cells"].items()):
        kind, connections = cell["type"], cell["connections"]
        if kind in modules:
            wires = {port: [numbers[bit] for bit in bits] for port, bits in connections.items()}
            children.append((cell_name, kind, wires))
            continue
        library_cell = library.cells[kind]
        row = []
        for pin in (*library_cell.inputs, *library_cell.outputs):
            bits = connections.get(pin) or []
            if bits:
                row.append(numbers[bits[0]])
            elif library_cell.pins[pin].direction == "output":
                row.append(count)
                count += 1
            else:
                row.append(ZERO)
        rows.setdefault(kind, []).append(row)
        names.setdefault(kind, []).append(cell_name)
    initial = []
    for net in content.get("netnames", {}).values():
        text = str(net.get("attributes", {}).get("init", ""))
        if re.fullmatch("[01x]+", text):
            initial += [
                (numbers[bit], 1)
                for bit, value in zip(net["bits"], reversed(text), strict=False)
                if value == "1" and bit in numbers
            ]
    groups = {kind: (np.array(rows[kind], np.int64), names[kind]) for kind in rows}
    return _Module(nets=count, ports=ports, groups=groups, children=children, initial=initial)


def _bits(content):
    for description in content["ports"].values():
        yield from description["bits"]
    for cell in content["cells"].values():
        for bits in cell["connections"].values():
            yield from bits


class _Flattener:
    def __init__(self, modules, top, library, memories):
        self._modules, self._library, self._memories = modules, library, memories
        self._next = 2
        self._joined = {}
        self._blocks, self._macros, self._initial = [], [], []
        self._parts = {}
        ports = modules[top].ports
        outer = {name: self._fresh(len(bits)) for name, (_direction, bits) in ports.items()}
        self._place(top, (), -1, outer)
        self._ports = {name: (ports[name][0], outer[name]) for name in ports}

    def _fresh(self, count):
        first, self._next = self._next, self._next + count
        return np.arange(first, self._next)

    def _find(self, net):
        while net in self._joined:
            net = self._joined[net]
        return net

    def _join(self, one, other):
        one, other = self._find(int(one)), self._find(int(other))
        if one != other:
            if {one, other} == {ZERO, ONE}:
                raise ToolError("The netlist joins the two constants")
            self._joined[max(one, other)] = min(one, other)

    def _place(self, name, path, parent, outer):
        """Add an instance whose ports are at the nets ``outer``."""
        module = self._modules[name]
        index = len(self._blocks)
        self._blocks.append(Block(path=path, module=name, parent=parent))
        if name in self._memories:
            ports = {
                direction: {p: outer[p] for p, (d, _) in module.ports.items() if d == direction}
                for direction in ("input", "output")
            }
            self._macros.append(
                Macro(block=index, module=name, inputs=ports["input"], outputs=ports["output"])
            )
            return
        mapped = np.full(module.nets, -1)
        mapped[:2] = ZERO, ONE
        for port, (_direction, bits) in module.ports.items():
            for bit, net in zip(bits, outer[port]):
                if mapped[bit] < 0:
                    mapped[bit] = net
                else:
                    self._join(mapped[bit], net)
        inner = mapped < 0
        mapped[inner] = self._fresh(int(inner.sum()))
        self._initial += [int(mapped[bit]) for bit, _value in module.initial]
        for kind, (nets, _names) in module.groups.items():
            part = self._parts.setdefault(kind, ([], [], []))
            part[0].append(mapped[nets])
            part[1].append(np.full(len(nets), index))
            part[2].append(np.arange(len(nets)))
        for child_name, kind, wires in module.children:
            ports = {}
            for port, (direction, bits) in self._modules[kind].ports.items():
                nets = mapped[np.array(wires.get(port, []), int)]
                missing = len(bits) - len(nets)
                extra = np.full(missing, ZERO) if direction == "input" else self._fresh(missing)
                ports[port] = np.concatenate([nets, extra])
            self._place(kind, (*path, *_path(child_name)), index, ports)

    def netlist(self) -> FlatNetlist:
        translate = np.arange(self._next)
        for net in self._joined:
            translate[net] = self._find(net)
        used, numbers = np.unique(np.concatenate([[ZERO, ONE], translate]), return_inverse=True)
        translate = numbers[2:]
        groups = {}
        for kind, (nets, blocks, local) in sorted(self._parts.items()):
            cell = self._library.cells[kind]
            groups[kind] = CellGroup(
                cell=cell,
                pins=(*cell.inputs, *cell.outputs),
                nets=translate[np.concatenate(nets)],
                block=np.concatenate(blocks),
                local=np.concatenate(local),
                names={
                    name: module.groups[kind][1]
                    for name, module in self._modules.items()
                    if kind in module.groups
                },
            )
        for macro in self._macros:
            for ports in (macro.inputs, macro.outputs):
                ports.update({port: translate[nets] for port, nets in ports.items()})
        initial = np.zeros(len(used), np.uint8)
        initial[translate[np.array(self._initial, int)]] = 1

        def ports(wanted):
            return {
                name: translate[nets]
                for name, (direction, nets) in self._ports.items()
                if direction == wanted
            }

        return FlatNetlist(
            library=self._library,
            nets=len(used),
            groups=groups,
            blocks=self._blocks,
            macros=self._macros,
            inputs=ports("input"),
            outputs=ports("output"),
            initial=initial,
        )


def _path(name):
    """Instance names of Yosys may hold a flattened path and an escaping backslash."""
    return tuple(part.lstrip("\\") for part in name.split("."))
