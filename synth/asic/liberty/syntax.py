"""Text of a Liberty file to a tree of groups."""

import re
from dataclasses import dataclass, field

from synth.common.errors import ToolError

__all__ = ["Group", "parse"]

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\\(?=\s)|/\*.*?\*/|//[^\n]*)"""
    r"""|(?P<string>"[^"]*")"""
    r"""|(?P<mark>[{}();:,])"""
    r"""|(?P<word>(?:[^\s{}();:,"/\\]|/(?![*/]))+)""",
    re.DOTALL,
)


@dataclass
class Group:
    """``kind (arguments) { ... }``.

    Members
    -------
    kind, arguments : what stands before the brace
    attributes : name -> value of ``name : value ;``; the last one wins
    lists : name -> arguments of every ``name (arguments) ;``
    groups : inner groups in order
    """

    kind: str
    arguments: list[str]
    attributes: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[list[str]]] = field(default_factory=dict)
    groups: list["Group"] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.arguments[0] if self.arguments else ""

    def all(self, *kinds: str) -> list["Group"]:
        return [group for group in self.groups if group.kind in kinds]

    def first(self, kind: str) -> "Group | None":
        return next((group for group in self.groups if group.kind == kind), None)


class _Reader:
    def __init__(self, text, source):
        self._text, self._source = text, source
        self._tokens, self._places = [], []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.error(f"unexpected {text[position]!r}", position)
            if match.lastgroup != "skip":
                self._tokens.append(match[0])
                self._places.append(position)
            position = match.end()
        self._next = 0

    def error(self, message, position=None):
        if position is None:
            known = self._next < len(self._places)
            position = self._places[self._next] if known else len(self._text)
        line = self._text.count("\n", 0, position) + 1
        return ToolError(f"Liberty file {self._source}, line {line}: {message}")

    def peek(self):
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def take(self, *expected):
        token = self.peek()
        if token is None:
            raise self.error("the file ends in the middle of a group")
        if expected and token not in expected:
            raise self.error(f"expected {' or '.join(map(repr, expected))}, not {token!r}")
        self._next += 1
        return token

    def word(self):
        token = self.peek()
        if token is not None and token in "{}();:,":
            raise self.error(f"expected a name, not {token!r}")
        return _unquote(self.take())

    def arguments(self):
        self.take("(")
        arguments = []
        while self.peek() != ")":
            # A bus range such as A[3:0] is several tokens, one argument.
            argument = self.word()
            while self.peek() not in (",", ")", "(", "{", "}", ";", None):
                argument += _unquote(self.take())
            arguments.append(argument)
            if self.peek() == ",":
                self.take()
        self.take(")")
        return arguments

    def value(self):
        parts = []
        while self.peek() not in (";", "}", "{"):
            parts.append(_unquote(self.take()))
        if self.peek() == "{":
            raise self.error("expected ';', not '{'")
        return " ".join(parts)

    def body(self, group):
        """Statements up to the closing brace; the deepest nesting of the format is small."""
        self.take("{")
        while self.peek() != "}":
            if self.peek() == ";":
                self.take()
                continue
            name = self.word()
            if self.peek() == ":":
                self.take()
                group.attributes[name] = self.value()
                continue
            if self.peek() != "(":
                raise self.error(f"expected ':' or '(' after {name!r}")
            arguments = self.arguments()
            if self.peek() == "{":
                inner = Group(name, arguments)
                self.body(inner)
                group.groups.append(inner)
            else:
                group.lists.setdefault(name, []).append(arguments)
        self.take("}")


def _unquote(token):
    if token.startswith('"'):
        return re.sub(r"\\\s*\n\s*", " ", token[1:-1])
    return token


def parse(text: str, source: str) -> Group:
    """The ``library`` group of ``text``; ``source`` names the file in messages.

    Raises :class:`ToolError` with the line when the text is not one complete library.
    """
    reader = _Reader(text, source)
    if reader.peek() != "library":
        raise reader.error("does not begin with 'library'")
    reader.take()
    library = Group("library", reader.arguments())
    reader.body(library)
    if reader.peek() is not None:
        raise reader.error(f"text after the library: {reader.peek()!r}")
    return library
