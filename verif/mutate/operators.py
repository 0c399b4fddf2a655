"""What a mutant is, and what kinds there are."""

import hashlib
from dataclasses import dataclass

__all__ = ["DROPPED_RESET", "INVERTED", "NARROWER", "OFF_BY_ONE", "OPERATORS", "SWAPPED", "Mutant"]

OFF_BY_ONE = "off by one"
INVERTED = "inverted condition"
DROPPED_RESET = "dropped reset"
NARROWER = "width - 1"
SWAPPED = "swapped operand"

#: Kind of mutant -> what it changes.
OPERATORS = {
    OFF_BY_ONE: "a sum or difference becomes one larger; < becomes <=, > becomes >=, and the other "
    "way round; == compares with one more",
    INVERTED: "the condition of an m.If or m.Elif, a ~, an == or != becomes its opposite",
    DROPPED_RESET: "a register keeps its value through reset, or where 0 is assigned to it",
    NARROWER: "the top bit of everything that is assigned to a signal is 0",
    SWAPPED: "a - b becomes b - a, the choices of a Mux change places, & becomes | and | becomes &",
}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One small fault in one file.

    Members
    -------
    number : int
        Selects it in the rewritten file; from 1 up, 0 selects none.
    file : str
        Path from the project's root, with slashes.
    line : int
    scope : str
        Class and function, ``StoreEngine._send``.
    operator : str
        A key of :data:`OPERATORS`.
    statement : str
        Assignment or condition that it is part of, as Python writes it.
    change : str
        ``before -> after``, or what happens in words.
    twin : int
        How many mutants in front of it are the same in all of this.
    """

    number: int
    file: str
    line: int
    scope: str
    operator: str
    statement: str
    change: str
    twin: int = 0

    @property
    def key(self):
        """What stays when lines move: see equivalents.toml."""
        return (self.file, self.scope, self.operator, self.statement, self.change)

    @property
    def name(self) -> str:
        """Short name that stays the same when lines move."""
        text = "\0".join((*self.key, str(self.twin)))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def as_dict(self):
        """For the JSON summary."""
        return {
            "name": self.name,
            "file": self.file,
            "line": self.line,
            "scope": self.scope,
            "operator": self.operator,
            "statement": self.statement,
            "change": self.change,
        }
