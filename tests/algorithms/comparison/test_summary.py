"""Comparisons: rates are chosen on other seeds, differences paired and corrected.

Covers: algorithms/comparison/tournament.py, algorithms/comparison/plots.py,
algorithms/comparison/command.py.
"""

import json
from itertools import pairwise

import pytest
from scipy.stats import ttest_rel

from algorithms.__main__ import main
from algorithms.comparison.summary import differences, summary_table
from algorithms.comparison.tournament import Result, Tournament


def result(method, accuracies, tuning=None):
    records = tuple(
        {"curve": [[1.0, value]], "steps": {"bp": 10}, "kept": {}} for value in accuracies
    )
    return Result(method=method, tuning=tuning or {0.1: 0.5, 0.2: 0.6, 0.4: 0.5}, records=records)


ACCURACIES = {
    "bp": [0.80, 0.82, 0.81, 0.83],
    "bp-half": [0.81, 0.83, 0.82, 0.841],
    "echo": [0.80, 0.83, 0.80, 0.83],
    "bp-delay8": [0.70, 0.71, 0.69, 0.70],
    "braking-delay8": [0.75, 0.76, 0.75, 0.74],
}


def test_differences():
    results = [result(*pair) for pair in ACCURACIES.items()]
    found = differences(results)
    assert list(found) == ["bp-half", "echo", "bp-delay8", "braking-delay8"]
    half = found["bp-half"]
    assert half.mean == pytest.approx(1.025)
    assert half.error == pytest.approx(0.025)
    assert (half.wins, half.seeds, half.against) == (4, 4, "bp")
    assert found["braking-delay8"].against == "bp-delay8"
    single = {
        name: ttest_rel(ACCURACIES[name], ACCURACIES[each.against]).pvalue
        for name, each in found.items()
    }
    ordered = sorted(single, key=single.__getitem__)
    assert found[ordered[0]].chance == pytest.approx(4 * single[ordered[0]])
    chances = [found[name].chance for name in ordered]
    assert all(a <= b for a, b in pairwise(chances))
    assert not found["echo"].significant


def test_table():
    tournament = Tournament(data="digits", model="vgg", methods=tuple(ACCURACIES), seeds=4)
    results = [result(*pair) for pair in ACCURACIES.items()]
    text = summary_table(tournament, results)
    assert (
        "| bp-half | 0.2 | 10 | – | 82.53 ± 1.33 | bp | **+1.02 ± 0.03** | 4 of 4 | <0.001 |"
        in text
    )
    assert "Of 4 differences, 3 are significant at 5%" in text
    assert "better: bp-half, braking-delay8; worse: bp-delay8." in text
    edge = result("bp", ACCURACIES["bp"], {0.1: 0.6, 0.2: 0.5})
    assert "| bp | 0.1* |" in summary_table(tournament, [edge, *results[1:]])


def test_command(tmp_path, capsys):
    """Two methods with a delay bring those that they are compared with; records are kept."""
    command = [
        "compare", "--methods", "braking-delay8", "vcas", "--rates", "0.05", "0.02", "--seeds", "2",
        "--tuning-seeds", "1", "--budget", "6", "--train-images", "128", "--test-images", "50",
        "--jobs", "1", "--output", str(tmp_path),
    ]  # fmt: skip
    assert main(command) == 0
    printed = capsys.readouterr().out
    document = json.loads((tmp_path / "comparison-digits-vgg-6.json").read_text())
    assert list(document["methods"]) == ["bp", "vcas", "bp-delay8", "braking-delay8"]
    seeds = {path.name for path in tmp_path.glob("digits-*.json")}
    assert len(seeds) == 4 * (2 + 2)
    for kind in ("time", "kept", "delay"):
        assert (tmp_path / f"comparison-digits-vgg-6-{kind}.png").stat().st_size > 5000
    assert main(["report", str(tmp_path)]) == 0
    report = capsys.readouterr().out
    assert report.splitlines()[0] == printed.splitlines()[0] and "-delay.png" in report
    assert main([*command, "--no-plots"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == printed.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "bpp"], "methods: bpp must be among bp, bp-half"),
        (["--rates", "0"], "rates must be numbers above 0"),
        (["--rates", "inf"], "rates must be numbers above 0"),
        (["--seeds", "1"], "seeds must be at least 2, not 1"),
        (["--budget", "0"], "budget must be at least 1, not 0"),
    ],
)
def test_messages(arguments, message, capsys):
    assert main(["compare", *arguments]) == 2
    assert message in capsys.readouterr().err
