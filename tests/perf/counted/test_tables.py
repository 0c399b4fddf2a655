"""What the commands share that show tables of counts."""

import argparse
import json
from dataclasses import replace

from rich.console import Console

from perf.counted import Cell, Store
from perf.counted.count import BatchCount, Count
from perf.counted.tables import NETWORKS, add_batch, add_documents, fill_unless_kept, show

CELL = Cell(network="vgg11", input="3x8x8", batch=2, preset="tiny", width=0.01)


def options_of(*arguments):
    parser = argparse.ArgumentParser()
    add_batch(parser)
    add_documents(parser)
    return parser.parse_args(arguments)


def test_what_is_missing_is_named_once(tmp_path, capsys):
    options = options_of("--kept", "--markdown", f"{tmp_path}/a.md", "--json", f"{tmp_path}/a.json")
    assert options.network is None and (options.batch, options.width) == (16, 1.0)
    store, console = Store(tmp_path / "cycles.jsonl", published=None), Console(highlight=False)
    store.add(Count(cell=CELL, batches={"bp": BatchCount(cycles=9, counters={}, layers={})}))
    other = replace(CELL, batch=3)
    missing = fill_unless_kept(store, [CELL, other, other], options, console)
    assert missing == [other]
    show(options, console, ["## A table", ""], missing, {"figure": 9})
    text = (tmp_path / "a.md").read_text()
    assert text == f"## A table\n\n## Not counted\n\n- {other.text}\n"
    assert capsys.readouterr().out == text + "\n"
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["figure"] == 9
    assert [each["batch"] for each in document["not_counted"]] == [3]
    show(options, console, ["all there"], [], {})
    assert (tmp_path / "a.md").read_text() == "all there"


def test_the_usual_networks_are_known():
    for name in NETWORKS:
        assert replace(CELL, network=name).network == name
