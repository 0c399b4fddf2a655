"""Results of several comparisons in one table, and the clock of the machine.

Covers: algorithms/comparison/significance.py, algorithms/comparison/cycles.py.
"""

import json
from dataclasses import replace

import pytest

from algorithms.__main__ import main
from algorithms.comparison.answer import answer_table, keep_results, read_results
from algorithms.comparison.contestants import CONTESTANTS
from algorithms.comparison.cycles import StepCycles, read_cycles
from algorithms.comparison.race import Race, run_race
from algorithms.comparison.summary import write_summary
from algorithms.comparison.tournament import Result, Tournament

ACCURACIES = {
    "bp": [0.80, 0.82, 0.81, 0.83],
    "echo": [0.81, 0.83, 0.82, 0.841],
    "vcas": [0.80, 0.83, 0.80, 0.83],
}


def results(change=0.0):
    return [
        Result(
            method=method, tuning={0.1: 0.5, 0.2: 0.6, 0.4: 0.5},
            records=tuple(
                {
                    "curve": [[1.0, value - change * (method == "vcas")]],
                    "steps": {"bp": 10},
                    "kept": {},
                }
                for value in values
            ),
        )
        for method, values in ACCURACIES.items()
    ]  # fmt: skip


def test_table(tmp_path, capsys):
    path = tmp_path / "all.jsonl"
    for model, change in (("vgg", 0.0), ("resnet", 0.5)):
        tournament = Tournament(data="digits", model=model, methods=tuple(ACCURACIES))
        keep_results(tournament, results(), path)
        keep_results(tournament, results(change), path)  # in place of what was there
    assert len(read_results(path)) == 6
    assert main(["answer", str(path)]) == 0
    text = capsys.readouterr().out
    assert "| method | digits resnet, 300 batches in MACs, 4 seeds | digits vgg, 300" in text
    assert "| bp | 81.50 | 81.50 |" in text
    # Corrected for all four of both tasks: 0.000009 times 4, and so on.
    assert "| echo | **82.53 (+1.02 ± 0.03)** | **82.53 (+1.02 ± 0.03)** |" in text
    assert "| vcas | **31.50 (-50.00 ± 0.41)** | 81.50 (+0.00 ± 0.41) |" in text
    assert "4 differences; 3 of them (bold) are significant at 5%" in text
    assert "0 of them" in answer_table([])
    lines = [line | {"machine_batches": 302.4} for line in read_results(path)]
    assert "| **82.53 (+1.02 ± 0.03) [302]** |" in answer_table(lines)
    cycles = answer_table(line | {"clock": "cycles"} for line in lines)
    assert "300 batches in cycles" in cycles and "[302]" not in cycles


def test_no_results(tmp_path, capsys):
    path = tmp_path / "all.jsonl"
    keep_results(Tournament(data="digits", model="vgg", methods=("echo",)), results()[:2], path)
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    none = "line 2, is no result of compare --store"
    for line, message in (
        ({"data": "digits"}, none),
        (second | {"method": "nosuch"}, none),
        (second | {"accuracies": [0.5, "x"]}, none),
        (second | {"accuracies": [0.5]}, none),
        (second | {"accuracies": second["accuracies"][:3]}, "echo has 3 seeds, and bp, which it"),
    ):
        path.write_text(f"{json.dumps(first)}\n{json.dumps(line)}\n")
        for arguments in (["answer", str(path)], ["compare", "--store", str(path)]):
            assert main(arguments) == 2
            error = capsys.readouterr().err
            assert message in error and error.count("\n") == 1
    path.write_bytes(b"\xff\xfe")
    assert main(["answer", str(path)]) == 2
    assert "line 1, is no result of compare --store" in capsys.readouterr().err
    path.write_text("")
    assert main(["answer", str(path)]) == 2
    assert "holds no results" in capsys.readouterr().err


def test_programs():
    programs = {name: contestant.program for name, contestant in CONTESTANTS.items()}
    assert programs["bp-half"] == programs["bp"] == "bp"
    assert (programs["echo-half"], programs["adagp"]) == ("echo4", "adagp")
    assert (programs["braking"], programs["adam"]) == ("braked", "adam")
    for name in ("head-rate", "mean", "coast", "vcas", "bp-delay8", "stages", "adamomentum"):
        assert programs[name] is None


@pytest.fixture
def cycles(tmp_path):
    steps = [
        {"model": "vgg", "shape": [1, 8, 8], "images": images, "program": program, "cycles": each}
        for images, program, each in (
            (64, "bp", {"bp": 100}), (32, "bp", {"bp": 60}), (64, "adagp", {"bp": 110, "gp": 40}),
        )
    ]  # fmt: skip
    (tmp_path / "cycles.json").write_text(json.dumps({"machine": "a machine", "steps": steps}))
    return read_cycles(tmp_path / "cycles.json")


def test_cycles_of_batches(cycles, tmp_path):
    assert isinstance(cycles, StepCycles) and cycles.machine == "a machine"
    assert cycles.of(CONTESTANTS["vcas"], "vgg", (1, 8, 8), 64) is None
    with pytest.raises(ValueError, match="none of echo4 for vgg, images of 1x8x8, batches of 64"):
        cycles.of(CONTESTANTS["echo"], "vgg", (1, 8, 8), 64)
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ValueError, match="is no file of python -m perf steps"):
        read_cycles(tmp_path / "other.json")


def test_the_clock_of_the_machine(cycles, tmp_path):
    """Methods without a program are left out; time ends when the cycles are spent."""
    options = {"data": "digits", "model": "vgg", "methods": ("bp-half", "adagp", "vcas")}
    tournament = Tournament(**options, clock="cycles", cycles=cycles)
    assert tournament.methods == ("bp", "bp-half", "adagp")
    assert tournament.step_cycles() == {
        "bp": {"bp": 100, "unit": 100},
        "bp-half": {"bp": 60, "unit": 100},
        "adagp": {"bp": 110, "gp": 40, "unit": 100},
    }
    assert Tournament(**options).step_cycles()["vcas"] is None
    half = Result(method="bp-half", tuning={0.1: 1.0}, records=({"steps": {"bp": 20}},),
                  cycles=tournament.step_cycles()["bp-half"])  # fmt: skip
    assert half.machine_batches == 12
    record = run_race(
        Race(data="digits", model="vgg", method="bp-half", seed=1, rate=0.1, budget=6,
             train_images=128, test_images=50, cycles=half.cycles)
    )  # fmt: skip
    assert record["steps"] == {"bp": 10} and record["budget"] == record["spent"] == 600
    done = [replace(each, records=results()[0].records, cycles=tournament.step_cycles()["bp"])
            for each in results()[:1]]  # fmt: skip
    text, files = write_summary(tournament, done, tmp_path, plots=False)
    assert "by backpropagation, in cycles; 5 seeds" in text and "Machine: a machine." in text
    assert "| bp | 0.2 | 10 | 10.0 | 81.50" in text
    assert [file.name for file in files] == [
        "comparison-digits-vgg-300-cycles.md", "comparison-digits-vgg-300-cycles.json",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="clock cycles needs cycles"):
        Tournament(**options, clock="cycles")
    with pytest.raises(ValueError, match="clock must be one of macs, cycles, not 'hours'"):
        Tournament(**options, clock="hours")
