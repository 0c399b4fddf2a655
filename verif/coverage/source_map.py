"""From the lines of generated Verilog back to the Python that they come from.

The text comes from :func:`hw.primitives.shared_module.emit_verilog` with ``sources=True``: modules,
signals and the wires of expressions carry the file and line of their Python. Verilator counts
coverage by the Verilog's lines; :func:`read_sources` says what stands there.

- A *signal* is a named wire or register that a module of this project declares. Its inputs are
  left out: they are what another module drives. So are anonymous signals and those of modules that
  Amaranth's library brings.
- A *branch* is a condition (``m.If``, ``m.Elif``) or a value that a ``m.Switch`` or FSM compares
  with. The Verilog holds it once for every signal that it decides about; the branches of the same
  condition count as one. Left out are constants, and the default behind all values that there are.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Place", "SourceMap", "read_sources"]

_NAME = r"(?:\\(?P<escaped>\S+) |(?P<plain>[A-Za-z_][\w$]*))"
_SOURCE = re.compile(r'\(\* src = "(?P<file>[^"|]+?):(?P<line>\d+)[^"]*" \*\)')
_MODULE = re.compile(rf"^module {_NAME}")
_DECLARATION = re.compile(
    rf"^  (?P<kind>input|output|reg|wire|integer) (?:\[(?P<high>\d+):0\] )?{_NAME}"
)
_ASSIGNMENT = re.compile(rf"^  assign {_NAME} *=")
_IF = re.compile(r"\bif \((?P<condition>.*)\) begin")
_CASE = re.compile(r"^ *casez \((?P<subject>.*)\)$")
_ITEM = re.compile(r"^ *(?P<value>(?:\d+'\w+[\w?]*(?:, )?)+|default):")
_CONSTANT = re.compile(r"^(?P<width>\d+)'h[0-9a-f]+$")
_LITERAL = re.compile(r"= \d+'h[0-9a-f]+;$")
_BARE = re.compile(r"^(?:\\(?P<escaped>\S+)|(?P<plain>[A-Za-z_][\w$]*)) ?(?P<index>\[[\d:]+\])?$")
#: What yosys or Amaranth add to a name that occurs twice.
_SUFFIX = re.compile(r"\$\d+$")


@dataclass(frozen=True, kw_only=True)
class Place:
    """What stands on a line of Verilog.

    Members
    -------
    file : Python file, from the project's root
    what : name of a signal, or the Python text of a condition; its line numbers would change with
        every edit of the file
    """

    file: str
    what: str


@dataclass(kw_only=True)
class SourceMap:
    """Where the coverage points of a Verilog text come from.

    Members
    -------
    signals : (module, name) -> :class:`Place`, of the signals that count
    branches : Verilog line -> :class:`Place`, of conditions and values
    ignored : (first, last) Verilog lines of declarations that do not count
    """

    signals: dict[tuple[str, str], Place] = field(default_factory=dict)
    branches: dict[int, Place] = field(default_factory=dict)
    ignored: list[tuple[int, int]] = field(default_factory=list)

    def configuration(self, file: str) -> str:
        """Lines of a Verilator configuration that switch coverage off where nothing counts."""
        return "\n".join(
            f'coverage_off -file "*/{file}" -lines {first}-{last}' for first, last in self.ignored
        )


def read_sources(text: str, root: Path) -> SourceMap:
    """The :class:`SourceMap` of a Verilog text; files are relative to ``root``.

    Raises
    ------
    ValueError
        if no module names its source: the text was emitted without.
    """
    reader = _Reader(Path(root).resolve(), _constants(text))
    for number, line in enumerate(text.splitlines(), 1):
        reader.read(number, line)
    if not reader.modules:
        raise ValueError("the Verilog names no sources; emit it with sources=True")
    reader.ignore_up_to(number)
    return reader.map


def _constants(text):
    """(module, name) of the wires that always have the same value."""
    found, module = set(), None
    for line in text.splitlines():
        if match := _MODULE.match(line):
            module = _name(match)
        elif (match := _ASSIGNMENT.match(line)) and _LITERAL.search(line):
            found.add((module, _name(match)))
    return found


class _Reader:
    def __init__(self, root, constants):
        self.root = root
        self.constants = constants
        self.map = SourceMap()
        self.modules = 0
        self.module, self.file = None, None
        self.pending = None  # source of the declaration that follows
        self.expressions = {}  # anonymous wire -> its source, in this module
        self.subjects = []  # of the case statements around, each with the values so far
        self.counted = set()  # lines that Verilator counts, whether they are points or not
        self.texts = {}

    def read(self, number, line):
        sources = list(_SOURCE.finditer(line))
        if sources and line.lstrip().startswith("(*") and line.rstrip().endswith("*)"):
            self.pending = self._source(sources[-1])
            return
        if match := _MODULE.match(line):
            self._begin_module(match)
        elif self.file is None:
            pass  # of another library
        elif match := _DECLARATION.match(line):
            self._declare(number, match)
        elif (match := _ASSIGNMENT.match(line)) and sources:
            source = self._source(sources[-1])
            if source is not None:
                self.expressions[_name(match)] = source
        elif match := _CASE.match(line):
            self.subjects.append((match["subject"].strip(), set()))
        elif line.strip() == "endcase":
            self.subjects.pop()
        elif (match := _ITEM.match(line)) and self.subjects:
            self._item(number, *self.subjects[-1], match["value"])
        elif match := _IF.search(line):
            self._branch(number, match["condition"].strip(), None)
        if not line.lstrip().startswith("(*"):
            self.pending = None

    def _source(self, match):
        """(file, line) inside the project, or None; its environment's libraries are not."""
        path = Path(match["file"])
        if "site-packages" in path.parts or not path.is_relative_to(self.root):
            return None
        return str(path.relative_to(self.root)), int(match["line"])

    def _text(self, source):
        """What stands in a line of Python."""
        file, line = source
        if file not in self.texts:
            self.texts[file] = (self.root / file).read_text().splitlines()
        return self.texts[file][line - 1].strip()

    def _begin_module(self, match):
        self.module = _name(match)
        self.file = self.pending[0] if self.pending else None
        self.modules += self.file is not None
        self.expressions, self.subjects = {}, []

    def _declare(self, number, match):
        name, kind = _name(match), match["kind"]
        own = self.pending is not None and self.pending[0] == self.file
        what = _SUFFIX.sub("", name)
        if name.startswith("$signal") and own:
            # Of several in one line, which have no names here.
            what = f"{{{self._text(self.pending)}}}"
        elif name.startswith(("$", "port$", "_")):
            return
        if (self.module, name) in self.map.signals:
            self.counted.add(number)  # the second declaration of an output
        elif (own and kind != "input") or kind == "output":
            self.map.signals[self.module, name] = Place(file=self.file, what=what)
            self.counted.add(number)

    def _item(self, number, subject, before, value):
        """A value of a ``case`` about ``subject``, behind those ``before``."""
        values = [_CONSTANT.match(item) for item in before]
        complete = all(values) and values and len(values) == 1 << int(values[0]["width"])
        if value == "default" and complete:
            self.counted.add(number)
        else:
            self._branch(number, subject, value)
        before.update(value.split(", "))

    def _branch(self, number, condition, value):
        if condition == r"\$start":
            return  # every process begins with it
        if _CONSTANT.match(condition):
            self.counted.add(number)
            return
        what = condition
        if match := _BARE.match(condition):
            name = _name(match)
            if (self.module, name) in self.constants:
                self.counted.add(number)
                return
            index = match["index"] or ""
            if (known := self.map.signals.get((self.module, name))) is not None:
                what = known.what + index
            elif name.startswith("$") and name in self.expressions:
                source = self.expressions[name]
                what = self._text(source)
                if source[0] != self.file:
                    what = f"{source[0]}: {what}"
            else:
                what = (_SUFFIX.sub("", name) or "a signal without a name") + index
        if value is not None:
            what = f"{what} = {value}"
        self.map.branches[number] = Place(file=self.file, what=what)

    def ignore_up_to(self, last):
        """Collect runs of lines that count neither as signals nor as branches."""
        before = 0
        for number in [*sorted(self.counted | set(self.map.branches)), last + 1]:
            if number > before + 1:
                self.map.ignored.append((before + 1, number - 1))
            before = number


def _name(match):
    return match["escaped"] or match["plain"]
