"""What a campaign has found: table, JSON summary, Markdown report of a file."""

from collections import Counter
from dataclasses import dataclass, field

from rich import box
from rich.markup import escape
from rich.table import Table

from .campaign import KILLED, SURVIVED, UNTESTED, Outcome
from .operators import OPERATORS

__all__ = ["FileReport", "print_table"]


@dataclass(frozen=True, kw_only=True)
class FileReport:
    """Outcomes of one file.

    Members
    -------
    file : str
    tests : files of the tests that were tried
    mutants : how many there are; ``outcomes`` may be of a sample
    outcomes : list of :class:`~verif.mutate.campaign.Outcome`
    reasons : name of an equivalent mutant -> why it is that
    faults : what is wrong with the list of equivalents
    """

    file: str
    tests: list[str]
    mutants: int
    outcomes: list[Outcome]
    reasons: dict[str, str]
    faults: list[str] = field(default_factory=list)

    def of(self, verdict):
        """Outcomes with a verdict."""
        return [outcome for outcome in self.outcomes if outcome.verdict == verdict]

    @property
    def survivors(self):
        """Mutants that live and are not known to be equivalent."""
        return [o for o in self.of(SURVIVED) if o.mutant.name not in self.reasons]

    @property
    def equivalents(self):
        """Mutants that live because they change nothing."""
        return [o for o in self.of(SURVIVED) if o.mutant.name in self.reasons]

    @property
    def score(self) -> float:
        """Share that was killed of what was tried and is not equivalent."""
        killed = len(self.of(KILLED))
        return killed / (killed + len(self.survivors)) if killed + len(self.survivors) else 1.0

    def as_dict(self):
        """For the JSON summary."""
        return {
            "file": self.file,
            "tests": self.tests,
            "mutants": self.mutants,
            "tried": len(self.outcomes),
            "killed": len(self.of(KILLED)),
            "equivalent": len(self.equivalents),
            "not_built": len(self.of(UNTESTED)),
            "score": self.score,
            "faults": self.faults,
            "survivors": [outcome.as_dict() for outcome in self.survivors],
            "equivalents": [
                outcome.as_dict() | {"reason": self.reasons[outcome.mutant.name]}
                for outcome in self.equivalents
            ],
        }

    def markdown(self) -> str:
        """The report of the file."""
        lines = [f"# Mutants of {self.file}", ""]
        lines += [
            f"{len(self.outcomes)} of {self.mutants} mutants tried, {len(self.of(KILLED))} killed, "
            f"{len(self.equivalents)} equivalent, {len(self.survivors)} survive, "
            f"{len(self.of(UNTESTED))} not built; score {100 * self.score:.1f} %.",
            "",
            "| operator | tried | killed | equivalent | survive |",
            "| --- | --- | --- | --- | --- |",
        ]
        for operator in OPERATORS:
            counts = [
                sum(outcome.mutant.operator == operator for outcome in outcomes)
                for outcomes in (self.outcomes, self.of(KILLED), self.equivalents, self.survivors)
            ]
            lines.append(f"| {operator} | {' | '.join(map(str, counts))} |")
        lines += ["", "## Survivors", ""]
        for outcome in self.survivors:
            lines += [entry(outcome), ""]
        lines += ["## Equivalent", ""]
        for outcome in self.equivalents:
            mutant = outcome.mutant
            lines.append(
                f"- {mutant.file}:{mutant.line}, {mutant.operator}: `{mutant.change}`. "
                f"{self.reasons[mutant.name]}"
            )
        lines += ["", "## Killed by", ""]
        killers = Counter(outcome.test for outcome in self.of(KILLED))
        lines += [f"- {count} by `{test or 'no test: the process died'}`"
                  for test, count in killers.most_common()]  # fmt: skip
        lines += ["", "| line | operator | change | killed by |", "| --- | --- | --- | --- |"]
        for outcome in self.of(KILLED):
            mutant = outcome.mutant
            change = mutant.change.replace("|", "\\|")
            lines.append(f"| {mutant.line} | {mutant.operator} | `{change}` | {outcome.test} |")
        return "\n".join(lines) + "\n"


def entry(outcome) -> str:
    """A survivor: where it is, and its fields as equivalents.toml has them."""
    mutant = outcome.mutant
    note = f" ({outcome.message})" if outcome.message else ""
    fields = "\n".join(
        f"{name} = {_quoted(getattr(mutant, name))}"
        for name in ("file", "scope", "operator", "statement", "change")
    )
    return f"{mutant.file}:{mutant.line}, mutant {mutant.name}{note}\n\n```toml\n{fields}\n```"


def _quoted(text):
    return f"'{text}'" if "'" not in text else f'"""{text}"""'


def print_table(console, reports) -> None:
    """One line per file."""
    if not console.is_terminal:
        console.width = max(console.width, 120)  # nobody's window would cut it short
    table = Table(box=box.SIMPLE)
    for title in (
        "file",
        "mutants",
        "tried",
        "killed",
        "equivalent",
        "not built",
        "survive",
        "score",
    ):
        table.add_column(title, justify="left" if title == "file" else "right")
    for report in reports:
        counts = (
            report.mutants, len(report.outcomes), len(report.of(KILLED)), len(report.equivalents),
            len(report.of(UNTESTED)), len(report.survivors),
        )  # fmt: skip
        table.add_row(escape(report.file), *map(str, counts), f"{100 * report.score:.1f} %")
    console.print(table)
