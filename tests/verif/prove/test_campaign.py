"""Every proof holds in its first configuration, and mutants are found out: all with --long.

Covers: verif/prove/check.py, verif/prove/model.py, verif/prove/streams.py, verif/prove/proofs.
"""

import pytest

from verif.prove.campaign import Task, run, tasks
from verif.prove.command import table
from verif.prove.proofs import PROOFS

#: Mutants of a proof that are tried without --long, about.
MOST = 1


def some_tasks(name, others):
    """The design and every so many-th mutant, or with ``others`` the mutants between these."""
    step = -(-len(PROOFS[name].mutants) // MOST)
    return [
        task
        for task in tasks([name], quick=True)
        if others != (task.mutant is None or task.mutant % step == 0)
    ]


@pytest.mark.parametrize("name", PROOFS)
def test_proof(name):
    outcomes = outcomes_of(some_tasks(name, others=False))
    proven = next(outcome for outcome in outcomes if not outcome.mutant)
    assert proven.claims
    assert proven.covers


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in PROOFS if len(PROOFS[n].mutants) > MOST])
def test_other_mutants(name):
    some = len(some_tasks(name, others=False)) - 1
    assert some + len(outcomes_of(some_tasks(name, others=True))) == len(PROOFS[name].mutants)


def outcomes_of(todo):
    """What became of tasks, all of which have to pass."""
    outcomes = list(run(todo, jobs=1, limit=300, runs=False))
    wrong = [
        f"{outcome.configuration} {outcome.mutant or 'the design'}: {outcome.verdict}, "
        f"{outcome.where} {outcome.reason}\n" + (table(outcome.trace) if outcome.trace else "")
        for outcome in outcomes
        if not outcome.passed
    ]
    assert not wrong, "\n".join(wrong)
    assert len(outcomes) == len(todo)
    assert all(outcome.mutant == "" or outcome.trace.broken for outcome in outcomes)
    return outcomes


@pytest.mark.long
@pytest.mark.parametrize("name", PROOFS)
def test_a_run_breaks_a_claim(name):
    """Where a mutant says after how many cycles: a run from a reset breaks a claim there."""
    todo = [
        task
        for task in tasks([name], quick=True)
        if task.mutant is not None and PROOFS[name].mutants[task.mutant].cycles
    ]
    for outcome in run(todo, jobs=2, limit=600):
        assert outcome.where == "run", f"{outcome.mutant}: {outcome.reason or outcome.where}"
        assert outcome.trace.start == "reset"


def test_every_proof_has_a_mutant():
    assert not [name for name, proof in PROOFS.items() if not proof.mutants]


def test_a_process_that_ends_is_a_failure():
    task = Task(proof="planner", configuration="none", arguments={"unknown": 1})
    (outcome,) = run([task], jobs=1, limit=60)
    assert not outcome.passed
    assert outcome.reason == "its process ended with status 1"
