"""Rewrites RTLIL, Amaranth's intermediate form, so that the Verilog of it is free of lint warnings.

Nothing changes in function. Where the form leaves something to the language, it becomes explicit:

- Amaranth shortens operands; here those of comparisons, sums and divisions, and left operands of
  shifts get the width in which the operation happens, by zeros or by copies of the sign.
- The result of a shift that is narrower than its operand is a slice of the full result.
- An unsigned comparison with the smallest or largest number is a constant where it always holds or
  never does.
- A decision without a default gets an empty one: see :mod:`hw.verilog.processes`.
- Wires of zero bits (fields of empty records) and what is connected to them are left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .processes import read_process

__all__ = ["explicit"]

_COMPARISONS = ("$eq", "$ne", "$lt", "$le", "$gt", "$ge")
_SUMS = ("$add", "$sub")
_DIVISIONS = ("$divfloor", "$modfloor")
_SHIFTS = ("$shl", "$shr", "$sshr", "$shift")
_CONSTANT = re.compile(r"(\d+)'([01x-]+)")
_RANGE = re.compile(r"\[(\d+)(?::\d+)?\]")
_FIELD_OF_NOTHING = re.compile(r"\s*connect (\S+) \{ *\}$")


@dataclass
class _Cell:
    """One cell: its lines, parameters and connections.

    ``parameters`` and ``ports`` hold the text behind the name; ``head`` what stands in front of
    the parameters.
    """

    kind: str
    head: list[str]
    parameters: dict[str, str] = field(default_factory=dict)
    ports: dict[str, str] = field(default_factory=dict)

    def width(self, port: str) -> int:
        return int(self.parameters[f"{port}_WIDTH"])

    def signed(self, port: str) -> bool:
        return self.parameters.get(f"{port}_SIGNED") in ("1", "True")

    def extend(self, port: str, width: int, widths: dict[str, int]) -> None:
        """Give operand ``port`` at least ``width`` bits."""
        missing = width - self.width(port)
        if missing <= 0:
            return
        signal = self.ports[port]
        if not self.width(port):
            self.ports[port] = f"{width}'{'0' * width}"
        elif constant := _CONSTANT.fullmatch(signal):
            bits = constant[2]
            top = bits[0] if self.signed(port) else "0"
            self.ports[port] = f"{width}'{top * missing}{bits}"
        else:
            top = _top_bit(signal, widths) if self.signed(port) else ""
            if not top or _CONSTANT.fullmatch(top):
                top = f"{missing}'{(top[-1:] or '0') * missing}"
            else:
                top = " ".join([top] * missing)
            inner = signal[1:-1].strip() if signal.startswith("{") else signal
            self.ports[port] = f"{{ {top} {inner} }}"
        self.parameters[f"{port}_WIDTH"] = str(width)

    def lines(self) -> Iterator[str]:
        yield from self.head
        for name, value in self.parameters.items():
            yield f"    parameter \\{name} {value}\n"
        for name, value in self.ports.items():
            yield f"    connect \\{name} {value}\n"
        yield "  end\n"


def _top_bit(signal: str, widths: dict[str, int]) -> str:
    """The most significant bit of a signal: a one-bit slice or constant."""
    words = signal.strip("{ }").split()
    if constant := _CONSTANT.fullmatch(words[0]):
        return f"1'{constant[2][0]}"
    if len(words) > 1 and (place := _RANGE.fullmatch(words[1])):
        return f"{words[0]} [{place[1]}]"
    return f"{words[0]} [{widths[words[0]] - 1}]"


def _decided(cell: _Cell) -> str:
    """The result of an unsigned comparison that is the same for all A, or nothing."""
    constant = _CONSTANT.fullmatch(cell.ports["B"])
    if not constant or cell.signed("A") or cell.width("Y") != 1:
        return ""
    bits = set(constant[2])
    always = {("$ge", "0"): "1", ("$lt", "0"): "0", ("$le", "1"): "1", ("$gt", "1"): "0"}
    result = always.get((cell.kind, bits.pop())) if len(bits) == 1 else None
    return f"1'{result}" if result else ""


class _Module:
    """What has been read of the current module: widths of its wires, number of new ones."""

    def __init__(self) -> None:
        self.widths: dict[str, int] = {}
        self.new = 0

    def cell(self, cell: _Cell) -> Iterator[str]:
        """The lines of a cell with explicit widths, and of the wire it may need."""
        if cell.kind in _COMPARISONS or cell.kind in _DIVISIONS:
            width = max(cell.width("A"), cell.width("B"))
            cell.extend("A", width, self.widths)
            cell.extend("B", width, self.widths)
            if always := _decided(cell):
                yield f"  connect {cell.ports['Y']} {always}\n"
                return
        elif cell.kind in _SUMS:
            # One bit more than the operands is the carry, which needs no explicit extension.
            width = max(cell.width("A"), cell.width("B"), cell.width("Y") - 1)
            cell.extend("A", width, self.widths)
            cell.extend("B", width, self.widths)
        elif cell.kind in _SHIFTS:
            result = cell.width("Y")
            cell.extend("A", result, self.widths)
            if (width := cell.width("A")) > result:
                self.new += 1
                wire = f"$shifted${self.new}"
                target = cell.ports["Y"]
                cell.ports["Y"] = wire
                cell.parameters["Y_WIDTH"] = str(width)
                yield f"  wire width {width} {wire}\n\n"
                yield from cell.lines()
                yield f"  connect {target} {wire} [{result - 1}:0]\n"
                return
        yield from cell.lines()


def explicit(text: str) -> str:
    """Return the RTLIL text of a design with widths and defaults made explicit, see above."""
    return "".join(_rewritten(iter(text.splitlines(keepends=True))))


def _rewritten(lines: Iterator[str]) -> Iterator[str]:
    module = _Module()
    attributes: list[str] = []
    for line in lines:
        words = line.split()
        match words[:1]:
            case ["attribute"]:
                attributes.append(line)
                continue
            case ["module"]:
                module = _Module()
            case ["wire"]:
                width, name = int(words[words.index("width") + 1]), words[-1]
                module.widths[name] = width
                if not width:
                    attributes = []
                    continue
            case ["connect"] if _FIELD_OF_NOTHING.match(line):
                continue
            case ["cell"]:
                yield from module.cell(_read_cell([*attributes, line], words[1], lines))
                attributes = []
                continue
            case ["process"]:
                yield from read_process([*attributes, line], lines).lines()
                attributes = []
                continue
        yield from attributes
        attributes = []
        yield line


def _read_cell(head: list[str], kind: str, lines: Iterator[str]) -> _Cell:
    cell = _Cell(kind, head)
    for line in lines:
        words = line.split(maxsplit=2)
        if words[0] == "end":
            break
        if words[0] == "parameter" and words[1] in ("signed", "real"):
            name, value = words[2].rstrip("\n").split(maxsplit=1)
            cell.parameters[f"{words[1]} {name}"] = value
        elif words[0] == "parameter":
            cell.parameters[words[1].removeprefix("\\")] = words[2].rstrip("\n")
        elif not _FIELD_OF_NOTHING.match(line) or kind.startswith("$"):
            cell.ports[words[1].removeprefix("\\")] = words[2].rstrip("\n")
    return cell
