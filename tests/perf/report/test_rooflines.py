"""Rooflines of the report: of what has been counted, and what it says of the rest."""

import pytest

from perf.counted import Count, Store
from perf.counted.count import BatchCount
from perf.report.rooflines import rooflines
from perf.report.section import NOT_RUN, Picture
from perf.report.wanted import Wanted
from perf.roofline.points import points_of

WANTED = Wanted(networks=["vgg13", "mobilenet-v2"], data=["cifar10"], swept=[], others=False)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cycles.jsonl", published=None)


def add(store, cell, cycles):
    """Batches of so many cycles, that read a beat in each of them and write nothing."""
    found = {
        name: BatchCount(
            cycles=count, layers={},
            counters={"READ_BYTES": 32 * count, "WRITE_BYTES": 0, "CORE0_VECTORS": count // 2},
        )
        for name, count in cycles.items()
    }  # fmt: skip
    store.add(Count(cell=cell, batches=found))


def test_nothing_has_been_counted(store):
    section = rooflines(WANTED, store)
    assert section.parts[1:] == [f"**cifar10**, batch 128: {NOT_RUN} (see Figure 17)."]
    assert [text for _, _, text in section.glance] == [NOT_RUN]
    assert len(section.missing) == 2 * 4
    assert section.why == "nothing has been counted."


def test_a_row_for_each_phase(store, tmp_path):
    def cell(variant):
        return WANTED.cell("mobilenet-v2", "cifar10", variant)

    add(store, cell("baseline"), {"bp": 1000})
    add(store, cell("low"), {"bp": 1100, "gp": 500})
    add(store, cell("max"), {"bp": 1050, "gp": 400})
    section = rooflines(WANTED, store)
    _, caption, table, picture = section.parts
    assert caption == "**cifar10**, batch 128:"
    rows = [[part.strip() for part in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert [row[:3] for row in rows] == [
        ["mobilenet-v2", "baseline", "BP"], ["mobilenet-v2", "max", "GP"]
    ]  # fmt: skip
    assert [row[10] for row in rows] == ["50 %", "50 %"]
    assert {each.variant for each in section.missing if each.network != "vgg13"} == {"efficient"}
    points = points_of(store, [cell(name) for name in ("baseline", "low", "efficient", "max")])
    phases = [(point["variant"], point["phase"]) for point in section.data["points"]["cifar10"]]
    assert phases == [(point.variant, point.phase) for point in points]
    (glance,) = section.glance
    assert glance[2] == f"mobilenet-v2 {100 * points[0].share:.0f} %"
    assert "mobilenet-v2" in section.why
    assert isinstance(picture, Picture)
    picture.draw(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"


def test_small_images_and_large_ones(store):
    both = Wanted(networks=["vgg13"], data=["imagenet", "cifar10", "cifar100"], swept=[])
    for data in both.data:
        add(store, both.cell("vgg13", data, "baseline"), {"bp": 10**9})
    section = rooflines(both, store)
    pictures = [part.name for part in section.parts if isinstance(part, Picture)]
    assert pictures == ["roofline_cifar10", "roofline_imagenet"]
    small, large = (section.data["points"][data][0] for data in ("cifar10", "imagenet"))
    assert large["macs"] > 6 * small["macs"]  # 49 times as many pixels, an eighth of the images


def test_other_tasks(store):
    """Networks of Tables 2 and 3, each with its own batch."""
    wanted = Wanted(networks=[], data=["cifar10"], swept=[])
    add(store, wanted.other_cell("transformer", "baseline"), {"bp": 10**9})
    add(store, wanted.other_cell("yolo-v3", "baseline"), {"bp": 10**9})
    section = rooflines(wanted, store)
    assert "**other tasks**, batch 16:" in section.parts
    points = section.data["points"]["other tasks"]
    assert [point["network"] for point in points] == ["transformer", "yolo-v3"]
    assert {each.variant for each in section.missing} == {"low", "efficient", "max"}
