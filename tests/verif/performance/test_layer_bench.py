"""Cycles per layer and direction, and what bounds them."""

import io

import numpy as np
from rich.console import Console
from torch import nn

from hw.config import make_config
from hw.isa.encoding import Opcode
from verif.performance.layer_bench import bounds, layer_table, measure_layers


def test_a_small_network(seed):
    config = make_config(variant="baseline", preset="tiny")
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(32, 10)
    )
    rows, differences = measure_layers(
        config, images=2, seed=seed, model=model, input_shape=(4, 8, 8)
    )
    assert not differences, differences[0]
    by_name = {(row["layer"], row["direction"]): row for row in rows}
    assert list(by_name)[:3] == [("0", "forward"), ("2", "forward"), ("4", "forward")]
    forward = by_name["0", "forward"]
    # 128 pixels, 9 taps of one word, two column tiles.
    assert forward["vectors"] == forward["bounds"]["array"] == 128 * 9 * 2
    assert by_name["4", "weight gradient"]["write_bytes"] >= 32 * 10 * 4
    for row in rows:
        assert row["cycles"] >= max(row["bounds"].values()), row
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(layer_table(rows, config))
    text = console.export_text()
    assert f"{forward['cycles']:,}" in text
    assert "weight gradient" in text


def test_bounds_of_commands():
    core = make_config(variant="baseline", preset="paper").cores[0]
    loops = dict.fromkeys(
        ("pw_count", "ph_count", "group_count", "wo_count", "ho_count", "n_count"), 1
    )
    post = loops | {"group_count": 5, "wo_count": 10, "wide": 0, "out_group": 0}
    pooled = post | {"pw_count": 2, "ph_count": 2}
    vector = {"i0_count": 7, "i1_count": 3, "i2_count": 1, "cb_count": 2, "wide": 0}
    vector |= {"x_source": 0, "y_source": 0, "z_source": 0, "reduce": 0}
    counters = {"CORE0_VECTORS": 11, "READ_BEATS": 22, "WRITE_BEATS": 33}
    wide = post | {"wide": 1}
    commands = [(Opcode.POST, post), (Opcode.POST, pooled), (Opcode.POST, wide)]
    crossing = post | {"out_group": 1}
    commands += [(Opcode.POST, crossing), (Opcode.VECTOR, vector)]
    found = bounds(commands, counters, core)
    # Five groups, two at a time; ten groups of words; five of which a pair crosses a word's end.
    post_cycles = 30 + 120 + 50 + 40
    assert found == {
        "array": 11, "bus": 33, "post": post_cycles, "vector": 42 * core.groups_per_word
    }  # fmt: skip
    assert np.prod([core.post_lanes, core.groups_per_word]) == core.rows
