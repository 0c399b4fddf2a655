"""Many checks side by side, each in a process of its own."""

import multiprocessing
import multiprocessing.connection
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .check import Outcome, check
from .proofs import PROOFS

__all__ = ["Task", "run", "tasks"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A proof of a configuration, or of its mutant number ``mutant``."""

    proof: str
    configuration: str
    arguments: dict[str, Any]
    mutant: int | None = None

    @property
    def title(self) -> str:
        """For the progress line."""
        what = f"{self.proof}, {self.configuration}"
        return what if self.mutant is None else f"{what}, mutant {self.mutant + 1}"


def tasks(names, *, quick: bool) -> list[Task]:
    """All checks of the proofs ``names``; with ``quick`` only their first configurations."""
    found = []
    for name in names:
        proof = PROOFS[name]
        configurations = dict(proof.configurations)
        first = next(iter(configurations))
        if quick:
            configurations = {first: configurations[first]}
        elif proof.derived:
            configurations |= proof.derived()
        found += [
            Task(proof=name, configuration=title, arguments=arguments)
            for title, arguments in configurations.items()
        ]
        found += [
            Task(proof=name, configuration=first, arguments=configurations[first], mutant=number)
            for number in range(len(proof.mutants))
        ]
    return found


def run(todo: list[Task], *, jobs: int, limit: float, runs: bool = True) -> Iterator[Outcome]:
    """Yields outcomes as they come. A process that Yosys has ended is one that has failed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    waiting, running = list(reversed(todo)), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task = waiting.pop()
                receive, send = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(send, task, limit, runs))
                process.start()
                send.close()
                running[receive] = process, task
            for receive in multiprocessing.connection.wait(list(running)):
                process, task = running.pop(receive)
                try:
                    outcome = receive.recv()
                except EOFError:
                    process.join()
                    outcome = _ended(task, process.exitcode)
                process.join()
                receive.close()
                yield outcome
    finally:
        for process, _ in running.values():
            process.terminate()
            process.join()


def _work(send, task, limit, runs):
    proof = PROOFS[task.proof]
    mutant = None if task.mutant is None else proof.mutants[task.mutant]
    send.send(check(proof, task.configuration, task.arguments, mutant, limit=limit, runs=runs))
    send.close()


def _ended(task, status):
    name = "" if task.mutant is None else PROOFS[task.proof].mutants[task.mutant].name
    return Outcome(
        proof=task.proof,
        configuration=task.configuration,
        mutant=name,
        verdict="missed" if name else "failed",
        reason=f"its process ended with status {status}",
    )
