"""A Transformer learns to sort: its first batch in the functional model, and to the end.

Covers: examples/learning/command.py.
"""

import pytest

from examples.learning import command, sorting
from examples.learning.command import main
from hw.config import make_config


def test_command(capsys, monkeypatch):
    """Two batches of a shorter task, and what is printed of them."""
    monkeypatch.setattr(sorting, "LENGTH", 2)
    monkeypatch.setattr(sorting, "COUNT", 1)
    monkeypatch.setattr(sorting, "NEW", 3)
    monkeypatch.setattr(command, "end_on_signals", lambda *_: None)
    assert main(sorting.TASK, ["--batches", "2", "--on-device", "1"]) == 0
    printed = capsys.readouterr().out
    assert "PASS examples.learning.sorting on baseline, emulator: 24,2" in printed
    assert "0 tensors differ from golden" in printed
    assert "3 new sequences, sorted without a mistake: golden" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "-1"], "--seed must be at least 0, not -1"),
        (["--batches", "0"], "--batches must be at least 1, not 0"),
        (["--on-device", "0"], "--on-device must be at least 1, not 0"),
        (["--preset", "ulx3s"], "no engines for training"),
    ],
)
def test_messages(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr(command, "end_on_signals", lambda *_: None)
    assert main(sorting.TASK, ["--batches", "2", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
def test_it_learns_to_sort():
    """Its first batch on the RTL."""
    config = make_config(variant="baseline", preset="tiny")
    learned = sorting.run(config, 300, device="rtl", on_device=1)
    assert learned.result.passed
    golden, floats = sorting.accuracies(learned)
    assert golden > 0.8 and floats > 0.8
