"""The command line: lists, wrong input, exit status, summary."""

import json

import pytest

from verif.__main__ import main
from verif.prove import campaign
from verif.prove.check import Outcome
from verif.prove.proofs import PROOFS
from verif.prove.solve import Trace


@pytest.fixture
def failing(monkeypatch):
    """A campaign in which one proof holds, one does not, and a mutant is missed."""
    trace = Trace(
        broken=("it holds",),
        cycles=({"a": 0, "wide": 1}, {"a": 1, "wide": 1 << 99}),
        widths={"a": 1, "wide": 100},
        start="any state",
    )
    outcomes = [
        Outcome(proof="one", configuration="c", verdict="proven", claims=3, registers=7),
        Outcome(proof="two", configuration="c", where="step", trace=trace),
        Outcome(proof="two", configuration="c", mutant="m", verdict="missed", reason="why"),
    ]
    monkeypatch.setattr(campaign, "run", lambda todo, **options: iter(outcomes))


def test_list(capsys):
    assert main(["prove", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(PROOFS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "plan"], f"unknown proof plan; proofs are {', '.join(PROOFS)}"),
        (["--jobs", "0"], "--jobs must be above 0, not 0"),
        (["--timeout", "-1"], "--timeout must be above 0, not -1"),
    ],
)
def test_wrong_input(arguments, message, capsys):
    assert main(["prove", *arguments]) == 2
    assert capsys.readouterr().err == f"verif: {message}\n"


def test_a_failure(failing, tmp_path, capsys):
    file = tmp_path / "summary.json"
    assert main(["prove", "--quick", "--json", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ("proven  one c: 3 claims, 0 invariants, k = 1, 7 bits of registers, 0.0 s")
    assert lines[1] == "failed  two c: does not hold, step: it holds, 0.0 s"
    assert lines[2].split(", ") == [lines[2].split(", ")[0], "cycle 1"]
    assert lines[3].split() == ["a", "0", "1"]
    assert lines[4].split() == ["wide", "…" + 15 * "0" + "1", "…" + 16 * "0"]
    assert lines[5] == "  broken: it holds"
    assert lines[6] == "missed  two c: mutant 'm': why, 0.0 s"
    assert lines[7] == "1 proofs, 0 mutants found, 2 wrong, 0 s"
    document = json.loads(file.read_text())
    assert document["passed"] is False
    assert [entry["verdict"] for entry in document["checks"]] == ["proven", "failed", "missed"]
    assert document["checks"][1]["broken"] == ["it holds"]
    assert set(document["tools"]) == {"pyosys", "bitwuzla", "amaranth"}
