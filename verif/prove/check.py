"""One proof of one configuration, or one mutant of it: model, base case, step, covers."""

import time
from dataclasses import dataclass, field
from typing import Any

from .harness import Harness
from .model import ModelError, build_model
from .proof import Mutant, MutantError, Proof, design_module
from .solve import OutOfTime, Trace, check_base, check_cover, check_run, check_step

__all__ = ["Outcome", "check"]


@dataclass(kw_only=True)
class Outcome:
    """What came of it.

    Members
    -------
    proof, configuration, mutant : names; ``mutant`` is empty for the design itself
    verdict : "proven" or "failed"; of a mutant "found" or "missed"
    where : what a counterexample came from: "base case", "step", or "run" from a reset
    reason : why it has failed or is missed, if not by a counterexample
    claims, invariants, registers : how many of each; registers in bits
    covers : cycles behind a reset in which each was reached
    seconds, cpu_seconds : for the whole of it
    trace : the counterexample
    """

    proof: str
    configuration: str
    mutant: str = ""
    verdict: str = "failed"
    where: str = ""
    reason: str = ""
    claims: int = 0
    invariants: int = 0
    registers: int = 0
    covers: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    trace: Trace | None = None

    @property
    def passed(self) -> bool:
        return self.verdict in ("proven", "found")

    def as_dict(self) -> dict[str, Any]:
        """For JSON; of the trace, what is broken."""
        values = {name: value for name, value in vars(self).items() if name != "trace"}
        values["induction_depth"] = 1
        if self.trace:
            values["broken"] = list(self.trace.broken)
        return values


def check(
    proof: Proof,
    configuration: str,
    arguments: dict[str, Any],
    mutant: Mutant | None = None,
    *,
    limit: float,
    runs: bool = True,
) -> Outcome:
    """Prove it, or find what is wrong with a mutant.

    Parameters
    ----------
    limit : seconds for each question to the solver
    runs : look for a run of a mutant from reset first; else the induction is enough
    """
    outcome = Outcome(
        proof=proof.name, configuration=configuration, mutant=mutant.name if mutant else ""
    )
    begin = time.perf_counter(), time.process_time()
    try:
        harness = Harness()
        proof.build(harness, design_module(proof.module, mutant), **arguments)
        model = build_model(harness)
        outcome.claims, outcome.invariants = len(harness.claims), len(harness.invariants)
        outcome.registers = model.register_bits
        if mutant is None:
            _prove(outcome, harness, model, limit)
        else:
            _find(outcome, harness, model, limit, mutant.cycles if runs else 0)
    except (OutOfTime, ModelError, MutantError) as error:
        outcome.verdict = "missed" if mutant else "failed"
        outcome.reason = str(error)
    outcome.seconds = time.perf_counter() - begin[0]
    outcome.cpu_seconds = time.process_time() - begin[1]
    return outcome


def _prove(outcome, harness, model, limit):
    for where, question in (("base case", check_base), ("step", check_step)):
        outcome.trace = question(harness, model, limit=limit)
        if outcome.trace:
            outcome.where = where
            return
    for name in harness.covers:
        witness = check_cover(harness, model, name, limit=limit)
        if witness is None:
            outcome.reason = f"not reached, so the claims may say nothing: {name}"
            return
        outcome.covers[name] = len(witness.cycles) - 1
    outcome.verdict = "proven"


def _find(outcome, harness, model, limit, cycles):
    outcome.verdict = "missed"
    questions = [("base case", check_base), ("step", check_step)]
    if cycles:
        questions.insert(
            0, ("run", lambda *given, limit: check_run(*given, cycles=cycles, limit=limit))
        )
    for where, question in questions:
        outcome.trace = question(harness, model, limit=limit)
        if outcome.trace:
            outcome.where, outcome.verdict = where, "found"
            return
    outcome.reason = "everything is proven of it as well"
