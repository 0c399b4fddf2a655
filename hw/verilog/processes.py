"""Processes of RTLIL: decision trees of assignments, as Amaranth writes them.

A tree is cleaned: switches without assignments go, as do empty cases at a switch's end. What then
leaves cases out gets an empty default, so that the Verilog says that nothing happens in them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Process", "read_process"]


@dataclass
class _Switch:
    """``signal`` is compared with the patterns of one case after the other; none is a default."""

    signal: str
    cases: list[tuple[list[str], "_Body"]] = field(default_factory=list)

    def clean(self) -> None:
        for _patterns, body in self.cases:
            body.clean()
        while self.cases and self.cases[-1][1].empty:
            self.cases.pop()

    @property
    def leaves_out(self) -> bool:
        """Whether it becomes a ``case`` statement, and one without a default."""
        if not self.cases[-1][0] or self.signal in ("{}", "{  }"):
            return False
        # The question whether one bit is set becomes an `if`, or an `else if`.
        return any(
            len(patterns) != 1 or patterns[0].partition("'")[2].replace("-", "") != "1"
            for patterns, _body in self.cases
        )

    def lines(self, indent: str) -> Iterator[str]:
        yield f"{indent}switch {self.signal}\n"
        for patterns, body in self.cases:
            yield f"{indent}  case {', '.join(patterns)}".rstrip() + "\n"
            yield from body.lines(f"{indent}    ")
        if self.leaves_out:
            yield f"{indent}  case\n"
        yield f"{indent}end\n"


@dataclass
class _Body:
    """Assignments, (target, value) each, and then switches, whose assignments override them."""

    assignments: list[tuple[str, str]] = field(default_factory=list)
    switches: list[_Switch] = field(default_factory=list)

    def clean(self) -> None:
        self.assignments = [(to, value) for to, value in self.assignments if to.strip("{ }")]
        for switch in self.switches:
            switch.clean()
        self.switches = [switch for switch in self.switches if switch.cases]

    @property
    def empty(self) -> bool:
        return not self.assignments and not self.switches

    def lines(self, indent: str) -> Iterator[str]:
        for target, value in self.assignments:
            yield f"{indent}assign {target} {value}\n"
        for switch in self.switches:
            yield from switch.lines(indent)


@dataclass
class Process:
    """A process: ``head`` are the lines up to its name."""

    head: list[str]
    body: _Body

    def lines(self) -> Iterator[str]:
        """What is left of it: a process, a connection if it has no condition, or nothing."""
        self.body.clean()
        if self.body.empty:
            return
        if not self.body.switches and len(self.body.assignments) == 1:
            target, value = self.body.assignments[0]
            yield f"  connect {target} {value}\n"
            return
        yield from self.head
        yield from self.body.lines("    ")
        yield "  end\n"


def read_process(head: list[str], lines: Iterator[str]) -> Process:
    """Read a process whose ``head`` has been read, up to and with its ``end``."""
    process = Process(head, _Body())
    bodies, switches = [process.body], []
    for line in lines:
        words = line.split(maxsplit=1)
        match words[0]:
            case "assign":
                bodies[-1].assignments.append(_target_and_value(words[1].rstrip("\n")))
            case "switch":
                switches.append(_Switch(words[1].rstrip("\n")))
                bodies[-1].switches.append(switches[-1])
                bodies.append(_Body())  # until its first case
            case "case":
                patterns = [word.strip() for word in "".join(words[1:]).split(",") if word.strip()]
                bodies[-1] = _Body()
                switches[-1].cases.append((patterns, bodies[-1]))
            case "end" if switches:
                bodies.pop()
                switches.pop()
            case "end":
                return process
            case other:
                raise ValueError(f"a process has the statement {other!r}, not one that is known")
    raise ValueError("the text ends in a process")


def _target_and_value(text: str) -> tuple[str, str]:
    """The two signals of an assignment."""
    if text.startswith("{"):
        cut = text.index("}") + 1
    else:
        cut = len(text.split(" ", 1)[0])
        if text[cut:].startswith(" ["):
            cut = text.index("]", cut) + 1
    return text[:cut], text[cut:].strip()
