"""Work, bounds and what a variant needs, by hand; the command with what was counted.

Covers: perf/roofline/work.py, perf/roofline/needs.py, perf/roofline/picture.py,
perf/roofline/points.py, perf/roofline/command.py.
"""

import json

import numpy as np
import pytest
import torch
from torch import nn

from hw.config import make_config
from perf.__main__ import main
from perf.counted import Cell, Count, Store
from perf.counted.count import BatchCount
from perf.roofline import picture
from perf.roofline.needs import cells_of, pays_from, swept
from perf.roofline.work import point_of, work_of

SHAPE = (3, 4, 4)
SWEEPS = {"batch": (1, 2, 4), "axi_data_width": (64, 128)}


def batch(cycles, read=1024, written=512):
    counters = {"READ_BYTES": read, "WRITE_BYTES": written, "CORE0_VECTOR_BUSY": cycles // 4}
    return BatchCount(cycles=cycles, counters=counters, layers={})


def layers():
    """A convolution, a depthwise one, and a linear layer on the mean of each map."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2),
    )  # fmt: skip


def test_work_by_hand():
    conv, depthwise, head = 5 * 16 * 27 * 8, 5 * 16 * 9 * 8, 5 * 8 * 2
    assert work_of(layers(), SHAPE, 5, backward=False).macs == conv + depthwise + head
    both = work_of(layers(), SHAPE, 5, backward=True)
    assert (both.array, both.depthwise) == (2 * conv + 3 * head, 3 * depthwise)


def test_work_of_an_attention():
    """A query for each of 6 words; keys and values are embeddings of 4 others; constants."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(10, 8)
            self.query = nn.Linear(8, 8)
            self.register_buffer("positions", torch.from_numpy(np.zeros((6, 8), np.float32)))

        def forward(self, target, source):
            keys = self.words(source)
            query = self.query(self.words(target) + self.positions)
            return nn.functional.scaled_dot_product_attention(query, keys, keys)

    forward = 3 * (6 * 8 * 8 + 2 * 6 * 8 * 4)
    lengths = ((6,), (4,))
    assert work_of(Attention(), lengths, 3, backward=False).macs == forward
    assert work_of(Attention(), lengths, 3, backward=True).macs == 3 * forward


def test_the_limit_is_the_largest_bound():
    config = make_config(variant="baseline", preset="tiny", axi_data_width=64)
    work = work_of(layers(), SHAPE, 5, backward=True)
    point = point_of("n", "baseline", "bp", config, work, batch(100_000))
    assert point.bounds == {
        "array": work.array / 16, "vector engine": work.depthwise / config.cores[0].post_lanes,
        "read": 128, "write": 64,
    }  # fmt: skip
    assert point.limit == "vector engine"
    assert point.share == max(point.bounds.values()) / 100_000
    slow = point_of("n", "baseline", "bp", config, work, batch(100_000, read=8, written=800_000))
    assert slow.limit == "write" and slow.bytes == 800_000
    assert slow.roof == pytest.approx(work.macs / 100_000)
    assert point.roof == 16
    assert point.busy["VECTOR"] == 0.25


@pytest.fixture
def store(tmp_path):
    """The variants pay from two images on; ``max`` has no program with a bus of 64 bits."""
    store = Store(tmp_path / "cycles.jsonl", published=None)
    base = Cell(network="vgg11", input="3x32x32", batch=2, width=0.25)
    for cell in cells_of(base, SWEEPS):
        if cell.variant == "max" and "axi_data_width=64" in cell.settings:
            store.add(Count(cell=cell, reason="no room"))
            continue
        found = {"bp": batch(1000 * cell.batch)}
        if cell.variant != "baseline":
            found = {"bp": batch(1000 * cell.batch + 600), "gp": batch(300 * cell.batch + 200)}
        store.add(Count(cell=cell, batches=found))
    return store


def test_what_pays(store):
    base = Cell(network="vgg11", input="3x32x32", batch=2, width=0.25)
    found = swept(base, SWEEPS, store.get)
    speeds = [setting.speed["low"] for setting in found if setting.name == "batch"]
    assert speeds == pytest.approx([2000 / 2100, 4000 / 3400, 8000 / 6000])
    assert pays_from(found, "batch", "low") == 2
    assert pays_from(found, "axi_data_width", "max") == 128
    assert [each.speed["max"] for each in found if each.value == 64] == [None]
    assert swept(base, {"batch": (64,)}, store.get) == []


def test_never_pays():
    base = Cell(network="vgg11", input="3x32x32", batch=2, width=0.25)
    slow = {
        cell: Count(cell=cell, batches={"bp": batch(10), "gp": batch(20)})
        for cell in cells_of(base, {"batch": (1,)})
    }
    assert pays_from(swept(base, {"batch": (1,)}, slow.get), "batch", "max") is None


def test_picture(monkeypatch, tmp_path):
    """Points and the legend have the same marks, and names of buses are left of their roofs."""
    figures = []
    monkeypatch.setattr(picture, "_save", lambda figure, path: figures.append(figure))
    work, config = (
        work_of(layers(), SHAPE, 5, backward=True),
        make_config(variant="max", preset="tiny"),
    )
    points = [
        point_of("n", variant, phase, config, work, batch(1000))
        for variant, phase in (("baseline", "bp"), ("max", "bp"), ("max", "gp"))
    ]
    for shown, names in (
        (points, ["n", "baseline", "max, Phase BP", "max, Phase GP"]),
        (points[::2], ["n", "baseline", "max, Phase GP"]),
    ):
        picture.plot_roofline(shown, tmp_path / "a.png", "Roofline, cifar10")
        (axes,) = figures[-1].axes
        assert axes.get_title(loc="left") == "Roofline, cifar10"
        (legend,) = figures[-1].legends
        assert [text.get_text() for text in legend.get_texts()] == names
        drawn = {(line.get_marker(), line.get_markerfacecolor() == "none")
                 for line in axes.lines if len(line.get_xdata()) == 1}  # fmt: skip
        named = [(line.get_marker(), line.get_markerfacecolor() == "none")
                 for line in legend.get_lines()]  # fmt: skip
        assert drawn == set(named[1:])
        starts = {text.xy for text in axes.texts}
        assert all(text.get_ha() == "right" for text in axes.texts) and len(starts) == 4
        assert axes.get_xlim()[0] < min(x for x, _ in starts)


def test_command(store, tmp_path, capsys):
    files = [str(tmp_path / name) for name in ("a.md", "a.json", "a.png", "b.png")]
    arguments = ["roofline", "--quick", "--kept", "--batch", "2", "--store", str(store.path),
                 "--markdown", files[0], "--json", files[1], "--plot", files[2],
                 "--plot-needs", files[3]]  # fmt: skip
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "- images in a batch: `low` pays from 4 on" in text
    assert "Not counted" in text and "buffer_bank_depth=1024" in text
    found = json.loads((tmp_path / "a.json").read_text())
    assert [point["phase"] for point in found["points"]] == ["bp", *["bp", "gp"] * 3]
    for name in files[2:]:
        with open(name, "rb") as file:
            assert file.read(4) == b"\x89PNG"
    assert main(["roofline", "--network", "transformer", "--kept"]) == 2
    assert "network transformer must be one as 32+32, not 3x32x32" in capsys.readouterr().err
