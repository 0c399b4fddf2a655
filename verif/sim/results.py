"""What a cocotb run left behind, and whether it passed.

cocotb's own runner returns normally from a failed run outside pytest, and a filter that matches
nothing leaves an empty file that looks like success; the rules here know both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

__all__ = ["Result", "SimulationFailed", "TestOutcome", "judge", "parse_results", "tail"]

_TAIL_LINES = 60


class SimulationFailed(AssertionError):
    """A cocotb test failed or none ran; ``result`` holds what there is."""

    def __init__(self, message: str, result: "Result"):
        super().__init__(message)
        self.result = result


@dataclass(frozen=True, kw_only=True)
class TestOutcome:
    """How one cocotb test ended: ``status`` is ``passed``, ``failed`` or ``skipped``."""

    __test__ = False  # not a test class, whatever pytest makes of the name

    name: str
    status: str
    message: str
    seconds: float
    simulated_ns: float


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run left behind.

    Members
    -------
    passed : bool
        True when the simulator ended normally, at least one test ran and none failed.
    reason : str
        Why it did not pass; empty otherwise.
    tests : tuple of TestOutcome
        In the order in which they ran.
    directory : Path
        The run's working directory: ``run.log``, ``results.xml`` and what the tests wrote.
    waveform : Path or None
        VCD file, when waves were asked for.
    seed : int
        Seed of the run.
    seconds : float
        Wall time in seconds, start of the simulator included.
    """

    passed: bool
    reason: str
    tests: tuple[TestOutcome, ...]
    directory: Path
    waveform: Path | None
    seed: int
    seconds: float

    @property
    def log(self) -> str:
        """Everything the simulator and the tests printed."""
        return (self.directory / "run.log").read_text(errors="replace")


def judge(
    status: int | None,
    tests: Sequence[TestOutcome],
    names: Sequence[str] | None,
    timeout_seconds: float,
) -> str:
    """Return why a run did not pass, or an empty string."""
    if status is None:
        return f"no end after {timeout_seconds:g} s"
    failed = [test for test in tests if test.status == "failed"]
    if failed:
        first = f"{failed[0].name}: {failed[0].message}".strip()
        return f"{len(failed)} of {len(tests)} tests failed, first {first}"
    if status != 0:
        return f"the simulator ended with status {status}"
    ran = [test.name for test in tests if test.status == "passed"]
    if not ran:
        return "no test ran"
    missing = [
        name
        for name in names or ()
        if not any(test == name or test.startswith(f"{name}/") for test in ran)
    ]
    if missing:
        return f"requested tests did not run: {', '.join(missing)}"
    return ""


def parse_results(results_file: Path) -> tuple[TestOutcome, ...]:
    """Return the outcomes in a JUnit file; nothing when it is missing or broken off."""
    try:
        root = ElementTree.parse(results_file).getroot()
    except (FileNotFoundError, ElementTree.ParseError):
        return ()
    outcomes = []
    for case in root.iter("testcase"):
        problem = case.find("failure")
        problem = case.find("error") if problem is None else problem
        status = "failed" if problem is not None else "passed"
        if status == "passed" and case.find("skipped") is not None:
            status = "skipped"
        attributes = {item.get("name"): item.get("value") for item in case.iter("property")}
        outcomes.append(
            TestOutcome(
                name=case.get("name", "?"),
                status=status,
                message="" if problem is None else (problem.get("message") or "").strip(),
                seconds=float(case.get("time") or 0),
                simulated_ns=float(attributes.get("sim_time_duration") or 0),
            )
        )
    return tuple(outcomes)


def tail(text: str) -> str:
    """Return the last lines of a log."""
    lines = text.splitlines()
    return "\n".join(lines[-_TAIL_LINES:])
