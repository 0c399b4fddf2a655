"""Networks cut into stages.

Covers: perf/pipelines/command.py, perf/pipelines/picture.py.
"""

import json
from itertools import combinations, pairwise

import pytest

from perf.__main__ import main
from perf.pipelines.partition import (
    LayerTime,
    layers_by_cycles,
    layers_by_macs,
    partition,
    stages_of,
)


def layers(times):
    return [LayerTime(name=str(n), forward=t, backward=2 * t) for n, t in enumerate(times)]


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_the_longest_stage_is_as_short_as_possible(count, rng):
    times = [int(time) for time in rng.integers(1, 100, size=7)]
    runs = partition(layers(times), count)
    assert [layer.name for run in runs for layer in run] == [str(n) for n in range(7)]
    assert len(runs) == count and all(runs)
    found = max(sum(layer.forward for layer in run) for run in runs)
    cuts = ((0, *inner, 7) for inner in combinations(range(1, 7), count - 1))
    assert found == min(max(sum(times[a:b]) for a, b in pairwise(cut)) for cut in cuts)


def test_stages_have_the_mean_of_even_ones():
    stages = stages_of(partition(layers([1, 2, 3, 4]), 2))
    assert sum(stage.forward + stage.backward for stage in stages) == 2 * 3
    assert all(stage.backward == 2 * stage.forward for stage in stages)


def test_layers_by_macs():
    found = layers_by_macs("vgg11", (3, 32, 32), 10)
    assert found[0].forward == 32 * 32 * 27 * 64 == found[0].backward
    assert all(layer.backward == 2 * layer.forward for layer in found[1:])
    assert len(found) == 9


def test_layers_by_cycles(tmp_path):
    path = tmp_path / "cycles.json"
    cycles = {"bp": {"forward": 10, "backward": 20, "update": 3}}
    path.write_text(json.dumps({"layers": [{"name": "conv", "cycles": cycles},
                                           {"name": "relu", "cycles": {}}]}))  # fmt: skip
    conv, relu = layers_by_cycles(path)
    assert (conv.forward, conv.backward, relu.total) == (10, 23, 0)
    path.write_text(json.dumps({"layers": [{"name": "conv", "cycles": {}}]}))
    with pytest.raises(ValueError, match="has no cycles of layers"):
        layers_by_cycles(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="must be a file that python -m compiler"):
        layers_by_cycles(path)


def test_command(tmp_path, capsys):
    files = tmp_path / "a.json", tmp_path / "a.png"
    command = ["pipelines", "--micro-batches", "4", "3", "--json", str(files[0])]
    assert main([*command, "--plot", str(files[1])]) == 0
    printed = capsys.readouterr().out
    assert "gpipe    21, 25; here 21, 25" in printed
    assert "chimera  16, 20; here 16, 20" in printed
    rows = json.loads(files[0].read_text())
    assert [row["schedule"] for row in rows if row["micro_batches"] == 3] == ["gpipe", "dapple"]
    assert rows[0]["speed_up"] == 1.68
    assert files[1].stat().st_size > 20000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "vgg"], "network must be one of"),
        (["--network", "vgg13", "--input", "32"], "input must be channels, height and width"),
        (["--devices", "1"], "devices must be at least 2, not 1"),
        (["--network", "vgg13", "--devices", "40"], "devices must be at most 11"),
        (["--cycles", "nothing.json"], "nothing.json"),
    ],
)
def test_messages(arguments, message, capsys):
    assert main(["pipelines", *arguments]) == 2
    assert message in capsys.readouterr().err
