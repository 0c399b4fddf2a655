"""Cases of the regression in processes of their own.

Covers: verif/fuzz/elsewhere.py.
"""

import sys

import numpy as np
import pytest
from rich.console import Console

from cli.workers import Workers
from hw.config import make_config
from verif.__main__ import _parser, main
from verif.elsewhere import case_arguments, run_elsewhere
from verif.fuzz import elsewhere
from verif.fuzz.campaign import CHUNK


def test_options_of_a_case():
    """Only what is given and concerns a case; the command line means the same again."""
    words = ["run", "networks", "special", "--variant", "max", "--quick", "--jobs", "2"]
    words += ["--network", "vgg11", "--network", "vgg13", "--set", "rows=5", "--set", "columns=3"]
    options = _parser().parse_args(words)
    again = _parser().parse_args(["run", "networks", *case_arguments("networks", options)])
    same = vars(options) | {"cases": ["networks"], "jobs": 1}
    assert vars(again) == same
    assert "--network" not in case_arguments("special", options)


def test_cases_in_programs_of_their_own(capsys):
    """What they print and their exit status; both of these refuse an integer format."""
    words = ["run", "special", "networks", "--quick", "--format", "int8", "--device", "emulator"]
    options = _parser().parse_args(words)
    console = Console(file=sys.stdout, width=120)
    assert run_elsewhere(console, ["special", "networks"], options, Workers(jobs=1)) == 1
    out = capsys.readouterr().out
    assert "networks train, which needs training and a float format" in out
    assert "FAIL special: exit status 2" in out and "2 cases, 2 failed" in out


@pytest.mark.parametrize("option", ["--json=a.json", "--waves"])
def test_files_stay_where_they_are(option, capsys):
    assert main(["run", "special", "networks", "--jobs", "2", option]) == 2
    assert "--json and --waves leave files" in capsys.readouterr().err


@pytest.mark.parametrize(("first", "count"), [(0, 1), (70, 3000), (5, 10)])
def test_stretches_are_the_campaign(first, count, monkeypatch):
    """Each case in one task, chunks undivided; the counts of all tasks come together."""
    parts = list(elsewhere._stretches(first, count))
    cases = np.concatenate([np.arange(*part) for part in parts])
    assert np.array_equal(cases, np.arange(first, first + count))
    assert all(start % CHUNK == 0 for start, _ in parts[1:])

    def part(config, seed, adversarial, start, end, most):
        return elsewhere.Summary(cases=end - start, ends={"HALT": end - start})

    monkeypatch.setattr(elsewhere, "_stretch", part)
    config = make_config(variant="baseline", preset="tiny")
    summary = elsewhere.run_on_workers(Workers(jobs=1), config, count, seed=1, first=first)
    assert summary.cases == summary.ends["HALT"] == count
