"""Steps of recorded trainings."""

import json

import pytest

from perf.__main__ import main
from perf.pipelines.recorded import recorded_steps


def passes(order, batch, epoch=0):
    """Passes from words such as F0, B0 and G0."""
    kinds = {"F": "forward", "B": "backward", "G": "GP"}
    return [
        {"kind": kinds[word[0]], "epoch": epoch, "batch": batch, "micro_batch": int(word[1:])}
        for word in order.split()
    ]


def trace(tmp_path, **content):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(content))
    return path


def gpipe(devices=4):
    order = passes("G0 G1 G2 G3", 0) + passes("F0 F1 F2 F3 B0 B1 B2 B3", 1)
    return {"schedule": "gpipe", "micro_batches": 4, "stages": [order] * devices}


def test_figure_20(tmp_path, capsys):
    path = trace(tmp_path, **gpipe())
    found = recorded_steps(path)
    assert (found.batch, found.pair) == (21, 25)
    assert float(found.bubbles) == pytest.approx(9 / 21)
    picture = tmp_path / "picture.png"
    assert main(["pipelines", "--trace", str(path), "--plot", str(picture)]) == 0
    output = capsys.readouterr().out
    assert "a batch of backpropagation: 21 steps, simulated 21, paper 21" in output
    assert "a pair, GP then BP: 25 steps, simulated 25, paper 25" in output
    assert picture.stat().st_size > 1000


def test_a_worse_order_takes_longer(tmp_path):
    """What is counted is the order that was recorded, not the name of the schedule."""
    content = gpipe()
    content["stages"][1:] = [
        passes("G0 G1 G2 G3", 0) + passes("F0 F1 F2 F3 B3 B2 B1 B0", 1) for _ in range(3)
    ]
    assert recorded_steps(trace(tmp_path, **content)).batch > 21


def test_never_emptied(tmp_path):
    """Two devices: the first is two batches late, and never idle in between."""
    first = [*passes("F0", 0), *passes("F0", 1), *passes("F0", 2), *passes("B0", 0)]
    for batch in range(3, 50):
        first += [*passes("F0", batch), *passes("B0", batch - 2)]
    last = [one for batch in range(50) for one in passes("F0 B0", batch)]
    first += [*passes("B0", 48), *passes("B0", 49)]
    content = {"schedule": "async", "micro_batches": 1, "stages": [first, last]}
    found = recorded_steps(trace(tmp_path, **content))
    assert found.batch is None and found.pair is None and float(found.bubbles) < 0.05


def test_another_file(tmp_path, capsys):
    path = tmp_path / "trace.json"
    path.write_text("{}")
    assert main(["pipelines", "--trace", str(path)]) == 2
    assert "must be the trace.json that python -m algorithms pipeline writes" in (
        capsys.readouterr().err
    )
