"""``python -m compiler --table``: what is compiled, what is kept, and the page that is made of it.

Covers: compiler/networks/cells.py.
"""

import argparse
import dataclasses
import re
from pathlib import Path

import pytest

from compiler import TrainingProgram
from compiler.__main__ import main
from compiler.networks import results_table
from compiler.networks.cells import (
    Cell,
    Outcome,
    append_outcome,
    compile_cell,
    compiler_state,
    read_outcomes,
)
from compiler.networks.registry import SMALL, network_names
from compiler.networks.results_table import document, wanted_cells
from hw.config import VARIANTS

RESULTS = Path(__file__).parents[3] / "docs/results_networks.jsonl"
CELL = Cell(
    network="vgg11", input="3x8x8", batch=2, variant="baseline", method="bp", preset="tiny",
    settings=("columns=5",), width=0.0625,
)  # fmt: skip


def options_of(**changes):
    fields = {"only": None, "input": None, "batch": None, "variant": None, "method": None}
    fields |= {"preset": None, "settings": [], "width": 1.0, "limit": 1.0}
    return argparse.Namespace(**fields | changes)


def compiled(cell, seconds=12.0):
    programs = {
        name: {"commands": 1234, "executed": 5678, "cycles": 2_340_000}
        for name in ("bp", "gp")[: 1 + (cell.method == "adagp")]
    }
    return Outcome(
        cell=cell, seconds=seconds, peak_bytes=3 << 29, stream_bytes=5 << 19,
        memory_bytes=7 << 20, programs=programs, state="0123456",
    )  # fmt: skip


def test_wanted_cells():
    cells = wanted_cells(options_of())
    names = {cell.network for cell in cells}
    assert names == set(network_names()) - {"vgg11", "resnet18"}
    # YOLO-v3 is not for 32 × 32 pixels, the Transformer for no images.
    assert len(set(cells)) == len(cells) == (2 * len(names) - 2) * len(VARIANTS)
    assert {cell.network for cell in wanted_cells(options_of(input="7+5"))} == {"transformer"}
    images = {cell.network for cell in wanted_cells(options_of(input="3x64x64"))}
    assert images == names - {"transformer"}
    for cell in cells:
        small = 64 if cell.network == "inception-v4" else 128
        assert cell.batch == (small if cell.input == SMALL else 16)
        assert cell.method == ("bp" if cell.variant == "baseline" else "adagp")
        assert (cell.preset, cell.width) == ("paper", 1.0)
    inputs = {cell.input for cell in cells if cell.network == "inception-v3"}
    assert inputs == {"3x32x32", "3x299x299"}
    few = wanted_cells(
        options_of(only="vgg13,resnet50", input="3x64x64", batch=2, variant="max", method="bp")
    )
    assert [(c.network, c.input, c.batch, c.variant, c.method) for c in few] == [
        (name, "3x64x64", 2, "max", "bp") for name in ("vgg13", "resnet50")
    ]


def test_a_cell(tmp_path):
    """A process compiles it; the figures are those of the program that it would save."""
    saved = tmp_path / "vgg.bin"
    assert main([*CELL.arguments, "-o", str(saved)]) == 0
    program = TrainingProgram.load(saved)
    outcome = compile_cell(CELL, limit=600)
    assert outcome.reason is None
    assert outcome.stream_bytes == len(program.commands)
    assert outcome.memory_bytes == program.memory_size
    assert outcome.programs["bp"]["commands"] == len(program.command_list)
    assert outcome.seconds > 0.5 and outcome.peak_bytes > 50 << 20
    assert outcome.state == compiler_state()
    assert Outcome.from_json(outcome.to_json()) == outcome


@pytest.mark.parametrize(
    ("change", "limit", "reason"),
    [
        ({"batch": 0}, 600, "images: a batch must have at least 1 image, not 0"),
        ({}, 0.01, "not compiled within 0.01 s"),
        ({"variant": "huge"}, 600, r"ended with status 2: .*argument --variant: .*'huge'.*"),
    ],
)
def test_why_there_is_no_program(change, limit, reason):
    outcome = compile_cell(dataclasses.replace(CELL, **change), limit=limit)
    assert re.fullmatch(reason, outcome.reason), outcome.reason
    assert not outcome.programs


def test_the_table_goes_on_where_it_ended(tmp_path, monkeypatch, capsys):
    asked, refused = [], {"max"}

    def compile_one(cell, *, limit):
        asked.append((cell.network, cell.variant, limit))
        if cell.variant in refused:
            return Outcome(cell=cell, reason="too large | by far")
        return compiled(cell)

    monkeypatch.setattr(results_table, "compile_cell", compile_one)
    table, page = tmp_path / "new" / "t.jsonl", tmp_path / "t.md"
    arguments = ["--table", str(table), "--input", SMALL, "--only", "vgg13", "--limit", "5"]
    assert main([*arguments, "--variant", "low"]) == 0
    assert asked == [("vgg13", "low", 5)]
    assert main([*arguments, "--document", str(page)]) == 0
    assert [variant for _, variant, _ in asked] == ["low", "baseline", "efficient", "max"]
    assert "4 cells, 1 of them without a program" in capsys.readouterr().out
    text = page.read_text()
    assert "## 32 × 32, batch 128\n" in text
    row = "| vgg13 | 32×32 | low | 1,234 | 1,234 | 2.50 | 7 | 2.3 | 2.3 | 12 | 1.50 | 0123456 |"
    assert row in text
    assert "| vgg13 | 32×32 | max | no program |  |  |  |  |  | 0 | 0.00 |  |" in text
    assert "- vgg13 3x32x32, batch 128, max, adagp: too large | by far" in text
    # What has no program is tried again on demand; then the file has two lines of it.
    refused.clear()
    assert main([*arguments, "--again"]) == 0
    assert [variant for _, variant, _ in asked] == ["low", "baseline", "efficient", "max", "max"]
    assert len(table.read_text().splitlines()) == 5
    assert all(outcome.reason is None for outcome in read_outcomes(table).values())
    # Nor is what another commit has compiled, but on demand.
    asked.clear()
    for state in ("0123456", "7654321"):
        monkeypatch.setattr(results_table, "compiler_state", lambda state=state: state)
        assert main([*arguments, "--outdated"]) == 0
        assert len(asked) == (0 if state == "0123456" else 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "vgg13,vgg"], "--only must name networks of vgg11, .*, not vgg"),
        (["--limit", "0"], "--limit must be above 0 seconds, not 0.0"),
        (["--batch", "0"], "--batch must be at least 1, not 0"),
        (["--input", "32"], "--input must be channels, height and width .*, not '32'"),
        (["--set", "rows=x"], "rows must be an integer, not 'x'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments, message, tmp_path, capsys):
    table = tmp_path / "t.jsonl"
    assert main(["--table", str(table), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and not table.exists()
    assert re.fullmatch(f"error: {message}\n", captured.err), captured.err


def test_a_file_with_something_else(tmp_path):
    path = tmp_path / "t.jsonl"
    append_outcome(path, compiled(CELL))
    with open(path, "a") as file:
        file.write('{"network": 3}\n')
    with pytest.raises(ValueError, match=r"t.jsonl: line 2 is no result of --table: "):
        read_outcomes(path)


def test_the_page_is_that_of_the_results():
    """docs/results_networks.md is what ``--document`` writes of the file beside it."""
    page = document(read_outcomes(RESULTS).values(), RESULTS.name)
    assert RESULTS.with_suffix(".md").read_text() == page
