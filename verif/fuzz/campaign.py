"""Many cases in several processes, and what came of them."""

import itertools
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from hw.isa.encoding import Opcode

from .commands import opcode_of
from .generate import Generator
from .harness import Finding, Harness, Outcome, Program

__all__ = ["CHUNK", "Found", "Summary", "by_kind", "run_cases"]

#: Cases that run one after the other without a reset; then the accelerator is switched on anew.
CHUNK = 64


@dataclass(frozen=True, kw_only=True)
class Found:
    """A finding, with the cases that ran since the accelerator was switched on; the last shows it.

    Members
    -------
    number : of the case in the campaign
    """

    number: int
    finding: Finding
    cases: tuple


@dataclass(kw_only=True)
class Summary:
    """Counts of a campaign.

    Members
    -------
    ends, units : how runs under test ended, and what reported the error
    generated, executed : opcodes in the programs, and of the commands that were dispatched
    features : cases with a reset, a slave that stops answering, and so on
    cycles : simulated, everything together
    """

    cases: int = 0
    cycles: int = 0
    seconds: float = 0.0
    ends: Counter = field(default_factory=Counter)
    units: Counter = field(default_factory=Counter)
    generated: Counter = field(default_factory=Counter)
    executed: Counter = field(default_factory=Counter)
    features: Counter = field(default_factory=Counter)
    goods: Counter = field(default_factory=Counter)
    found: list = field(default_factory=list)

    def add(self, case, result: Outcome | Finding, goods) -> None:
        """Count one case."""
        self.cases += 1
        self.features.update(_features(case))
        self.generated.update(map(_name, case.commands))
        self.goods[goods[case.good].name] += 1
        if isinstance(result, Finding):
            self.cycles += result.cycles
            self.ends["finding"] += 1
            return
        self.cycles += result.all_cycles
        if result.end:
            self.ends[result.end] += 1
            self.units[result.unit] += 1
            done = case.commands[: result.commands]
            codes = [_name(command) for command in done]
            for number, code in enumerate(codes):
                if code in (Opcode.BATCH.name, Opcode.REPEAT.name):
                    del codes[number + 1 :]  # nobody knows what came behind it
                    break
            self.executed.update(codes)

    def merge(self, other: "Summary") -> None:
        """Count the cases of another part of the campaign as well."""
        self.cases += other.cases
        self.cycles += other.cycles
        for name in ("ends", "units", "generated", "executed", "features", "goods"):
            getattr(self, name).update(getattr(other, name))
        self.found = sorted([*self.found, *other.found], key=lambda found: found.number)

    def as_json(self) -> dict:
        """Plain values; findings without their cases."""
        return {
            "cases": self.cases,
            "findings": [
                {"case": f.number, "kind": f.finding.kind, "text": f.finding.text}
                for f in self.found
            ],
            "cycles": self.cycles,
            "seconds": round(self.seconds, 3),
            "cases_per_second": round(self.cases / max(self.seconds, 1e-9), 1),
            **{
                name: dict(sorted(getattr(self, name).items()))
                for name in ("ends", "units", "generated", "executed", "features", "goods")
            },
        }


def _name(command):
    opcode = opcode_of(command)
    return opcode.name if opcode else "undefined"


def _features(case):
    slave = case.slave
    named = {
        "reset": case.reset_at,
        "reset, slave not reset": case.reset_at and not case.reset_slave,
        "slave stops answering": case.dead_at,
        "restart while answers are owed": case.restart,
        "watchdog": case.watchdog,
        "host accesses registers": case.script,
        "interleaved reads": slave.interleave,
        "data before address": slave.order == 2,
        "answers to nothing": slave.strays,
        "errors injected": slave.read_errors or slave.write_errors,
        "latency above 100": max(slave.read_high, slave.write_high) > 100,
    }
    return [name for name, value in named.items() if value]


def run_cases(
    program: Program,
    generator: Generator,
    count: int,
    *,
    first: int = 0,
    jobs: int = 1,
    most: int = 1,
    change=None,
    progress=lambda done: None,
) -> Summary:
    """Run cases ``first`` to ``first + count - 1``, at most until there are ``most`` findings.

    Which cases follow each other without a reset depends on their numbers alone, so that ``jobs``,
    the number of simulators, changes nothing. ``change`` is applied to every case.
    """
    summary, lock, begin = Summary(), threading.Lock(), time.perf_counter()
    starts = iter(range(first - first % CHUNK, first + count, CHUNK))

    def chunks():
        while True:
            with lock:
                start = next(starts, None)
                if start is None or len(summary.found) >= most:
                    return
            numbers = range(max(start, first), min(start + CHUNK, first + count))
            cases = [generator.case(n, fresh=n == numbers[0]) for n in numbers]
            yield numbers, [change(case) for case in cases] if change else cases

    def work():
        todo = chunks()
        with Harness(program) as harness:
            current = next(todo, None)
            if current:
                harness.send(current[1])
            while current:
                following = next(todo, None)
                if following:  # the simulator is not to wait
                    harness.send(following[1])
                take(harness, *current)
                current = following

    def take(harness, numbers, cases):
        since = 0
        for index, (number, case) in enumerate(zip(numbers, cases, strict=True)):
            result = harness.receive()
            with lock:
                summary.add(case, result, program.goods)
                if isinstance(result, Finding):
                    summary.found.append(
                        Found(number=number, finding=result, cases=tuple(cases[since : index + 1]))
                    )
                    since = index + 1
                progress(summary.cases)

    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(work) for _ in range(jobs)]:
            future.result()
    summary.seconds = time.perf_counter() - begin
    summary.found.sort(key=lambda found: found.number)
    return summary


def by_kind(found) -> list[Found]:
    """The first finding of every kind."""
    ordered = sorted(found, key=lambda item: item.finding.kind)
    return [next(group) for _, group in itertools.groupby(ordered, lambda f: f.finding.kind)]
