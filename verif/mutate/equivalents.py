"""Mutants that no test can kill, each with the reason: ``equivalents.toml``."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["EQUIVALENTS", "Equivalents"]

#: The data file.
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")

_FIELDS = ("file", "scope", "operator", "statement", "change", "reason")


@dataclass(frozen=True, kw_only=True)
class _Entry:
    file: str
    scope: str
    operator: str
    statement: str | None
    changes: tuple
    reason: str

    def matches(self, mutant):
        return (
            (mutant.file, mutant.scope, mutant.operator) == (self.file, self.scope, self.operator)
            and self.statement in (None, mutant.statement)
            and mutant.change in self.changes
        )

    def __str__(self):
        return f"{self.file} {self.scope}, {self.operator}"


@dataclass
class Equivalents:
    """The entries of a data file.

    An entry names mutants by file, scope, operator and change as they are printed, not by lines.
    ``change`` may be a list; ``statement`` may be left out and is any, then.
    """

    entries: list = field(default_factory=list)

    @classmethod
    def read(cls, path: Path = EQUIVALENTS):
        """Read a data file.

        Raises
        ------
        ValueError
            An entry lacks something, or has something that is unknown.
        """
        entries = []
        for number, values in enumerate(tomllib.loads(path.read_text()).get("equivalent", []), 1):
            if {"statement", *values} != set(_FIELDS) or not all(values.values()):
                raise ValueError(
                    f"{path.name}: entry {number} must have {', '.join(_FIELDS)} (statement may "
                    f"be missing), none of them empty, not {', '.join(values)}"
                )
            values.setdefault("statement", None)
            change = values.pop("change")
            changes = tuple(change) if isinstance(change, list) else (change,)
            entries.append(_Entry(**values, changes=changes))
        return cls(entries)

    def reason(self, mutant) -> str | None:
        """Why a mutant is equivalent, or None."""
        return next((entry.reason for entry in self.entries if entry.matches(mutant)), None)

    def faults(self, file: str, mutants, killed) -> list[str]:
        """What is wrong with the entries of ``file``: nothing matches, or a test has killed it.

        ``killed`` are the names of the mutants that tests have killed.
        """
        faults = []
        for entry in self.entries:
            if entry.file != file:
                continue
            for change in entry.changes:
                found = [m for m in mutants if entry.matches(m) and m.change == change]
                if not found:
                    faults.append(f"no mutant is {entry}: {change}")
                elif all(mutant.name in killed for mutant in found):
                    faults.append(f"a test kills what is called equivalent: {entry}: {change}")
        return faults
