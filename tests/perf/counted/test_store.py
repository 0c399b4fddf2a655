"""Counts that are kept, and the command that fills them in.

Covers: perf/counted/cells.py, perf/counted/count.py, perf/counted/command.py.
"""

import json
from dataclasses import replace

import pytest

from cli.workers import Workers
from perf.__main__ import main
from perf.counted import Cell, Count, Store, store
from perf.counted.count import BatchCount

CELL = Cell(network="vgg11", input="3x8x8", batch=2, preset="tiny", width=0.01)


class Killed(BaseException):
    """As from a signal: nobody catches it."""


@pytest.fixture
def counted(monkeypatch):
    """Cells that have been counted, by a stand-in that is ended at batch 7."""
    cells = []

    def count(cell, latencies, *, model, plain):
        if cell.batch == 7:
            raise Killed
        cells.extend(replace(cell, latency=latency) for latency in latencies)
        batch = BatchCount(cycles=cell.batch, counters={}, layers={})
        return [
            Count(cell=each, batches={"bp": batch}, model=model)
            for each in cells[-len(latencies) :]
        ]

    monkeypatch.setattr(store, "count", count)
    return cells


def test_a_tiny_network_is_counted_once(tmp_path, capsys):
    path = tmp_path / "cycles.jsonl"
    arguments = ["count", *CELL.arguments, "--plain", "--store", str(path)]
    assert main(arguments) == 0
    found = Store(path, published=None).get(CELL)
    assert found.bp.cycles == found.bp.counters["CYCLES"] > 1000
    assert sum(sum(phases.values()) for phases in found.bp.layers.values()) == found.bp.cycles
    assert found.configuration == CELL.config.hash and found.stream_bytes > 0
    with pytest.raises(KeyError):
        _ = found.gp
    assert f"bp {found.bp.cycles:,} cycles" in capsys.readouterr().out
    content = path.read_bytes()
    assert main(arguments) == 0
    assert path.read_bytes() == content
    assert "1 cells, 0 of them without a program" in capsys.readouterr().out


def test_a_network_without_a_program_has_a_reason(tmp_path, capsys):
    path, cell = tmp_path / "cycles.jsonl", replace(CELL, batch=1)
    assert main(["count", *cell.arguments, "--plain", "--store", str(path)]) == 0
    found = Store(path, published=None).get(cell)
    assert found.batches == {} and "needs more than one pixel per channel" in found.reason
    assert "1 cells, 1 of them without a program" in capsys.readouterr().out


def test_a_killed_command_goes_on(tmp_path, counted):
    path = tmp_path / "cycles.jsonl"
    cells = [replace(CELL, batch=batch) for batch in (1, 2, 7, 3)]
    with pytest.raises(Killed):
        Store(path, published=None).fill(cells, Workers(jobs=1))
    with open(path, "a") as file:
        file.write('{"network": "vgg1')  # what a killed write may leave
    again = Store(path, published=None)
    assert again.missing(cells) == cells[2:]
    seen = []
    cells[2] = replace(CELL, batch=4)
    again.fill(cells, Workers(jobs=1), report=seen.append)
    assert [each.cell.batch for each in seen] == [4, 3]
    assert [cell.batch for cell in counted] == [1, 2, 4, 3]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["batch"] for line in lines] == [1, 2, 4, 3]
    assert len(Store(path, published=None)) == 4


def test_latencies_share_a_program(tmp_path, counted):
    cells = [replace(CELL, latency=latency) for latency in (10, 100)]
    kept = Store(tmp_path / "cycles.jsonl", published=None)
    kept.fill([*cells, cells[0]], Workers(jobs=1))
    assert counted == cells and len(kept) == 2


def test_a_count_of_cycles_stands(tmp_path, monkeypatch):
    """Beside one of events of the same state; a newer state's replaces it."""
    monkeypatch.setattr(store, "model_state", lambda: "now")
    kept = Store(tmp_path / "cycles.jsonl", published=None)
    for state, model, cycles in [
        ("now", "events", 1), ("now", "cycles", 2), ("now", "events", 3), ("later", "events", 4),
    ]:  # fmt: skip
        batch = BatchCount(cycles=cycles, counters={}, layers={})
        kept.add(Count(cell=CELL, batches={"bp": batch}, model=model, state=state))
        assert kept.get(CELL).bp.cycles == {1: 1, 2: 2, 3: 2, 4: 4}[cycles]
        again = Store(kept.path, published=None).get(CELL)
        assert again == kept.get(CELL)
        wanted = kept.missing([CELL], model="cycles")
        assert wanted == ([CELL] if again.model == "events" else [])
        assert kept.missing([CELL], model="events") == []


def test_events_are_asked_for_by_name(tmp_path, counted, capsys):
    path = tmp_path / "cycles.jsonl"
    assert main(["count", *CELL.arguments, "--model", "events", "--store", str(path)]) == 0
    assert Store(path, published=None).get(CELL).model == "events"
    assert "counted by events in 0 s" in capsys.readouterr().out
    assert main(["count", *CELL.arguments, "--store", str(path)]) == 0
    assert Store(path, published=None).get(CELL).model == "cycles"


def test_what_is_outdated_is_counted_again(tmp_path, counted):
    kept = Store(tmp_path / "cycles.jsonl", published=None)
    kept.add(Count(cell=CELL, state="0000000"))
    assert kept.missing([CELL]) == [] and kept.missing([CELL], outdated=True) == [CELL]
    kept.fill([CELL], Workers(jobs=1), outdated=True)
    assert Store(kept.path, published=None).get(CELL).bp.cycles == CELL.batch


def test_a_count_of_another_machine_is_none(tmp_path, counted):
    """As when a preset has got other sizes since."""
    path = tmp_path / "cycles.jsonl"
    count = Count(cell=CELL, configuration=CELL.config.hash)
    other = replace(count, cell=replace(CELL, batch=3), configuration="0" * 16)
    path.write_text("".join(each.to_json() + "\n" for each in (count, other)))
    kept = Store(path, published=None)
    assert [each.cell for each in kept] == [CELL]
    kept.fill([CELL, other.cell], Workers(jobs=1))
    assert counted == [other.cell]


def test_own_counts_go_before_published_ones(tmp_path):
    published, own = tmp_path / "published.jsonl", tmp_path / "own.jsonl"
    other = replace(CELL, batch=3)
    for cell in (CELL, other):
        Store(published, published=None).add(Count(cell=cell, state="published"))
    Store(own, published=None).add(Count(cell=CELL, state="own"))
    both = Store(own, published=published)
    assert both.get(CELL).state == "own" and both.get(other).state == "published"
    assert len(own.read_text().splitlines()) == 1


def test_a_file_of_something_else(tmp_path, capsys):
    path = tmp_path / "cycles.jsonl"
    path.write_text("{}\n")
    assert main(["count", *CELL.arguments, "--store", str(path)]) == 2
    assert "line 1 is no count" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "lenet"}, "network must be one of"),
        ({"input": "8"}, "--input must be"),
        ({"batch": 0}, "batch must be at least 1, not 0"),
        ({"width": 0.0}, "width must be above 0 and at most 16, not 0.0"),
        ({"latency": -1}, "latency must be at least 0, not -1"),
        ({"classes": 0}, "classes must be at least 1, not 0"),
        ({"settings": ("rows=x",)}, "rows must be"),
    ],
)
def test_what_cannot_be(change, message, capsys):
    cell = replace(CELL)
    for name, value in change.items():
        object.__setattr__(cell, name, value)
    assert main(["count", *cell.arguments]) == 2
    assert message in capsys.readouterr().err


def test_baseline_cannot_predict(capsys):
    assert main(["count", *CELL.arguments, "--method", "adagp"]) == 2
    assert "baseline has no predictor" in capsys.readouterr().err
