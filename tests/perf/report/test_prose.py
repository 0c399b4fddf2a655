"""What README.md and docs/paper.md say of the evaluation is what docs/evaluation.json has.

Covers: perf/report/document.py.
"""

import json
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).parents[3]


def said(name):
    """The text of a page in one line."""
    return " ".join((ROOT / name).read_text().split())


@pytest.fixture(scope="module")
def gains():
    """Speed-ups by schedule B that were counted, of all networks: (data set, variants) -> list."""
    sections = json.loads((ROOT / "docs/evaluation.json").read_text())["sections"]

    def of(data, *variants):
        networks = sections["figure-17"][data].values()
        found = [own["counted"][name]["B"] for own in networks for name in variants]
        assert len(found) == 13 * len(variants)
        return found

    return of


def spread(values):
    return f"{min(values):.2f} to {max(values):.2f}"


def test_readme(gains):
    cifar, imagenet = gains("cifar10", "max"), gains("imagenet", "max")
    others = gains("imagenet", "low", "efficient")
    text = said("README.md")
    assert f"`max` gains {spread(cifar)}, on the average {mean(cifar):.2f}, with 10" in text
    assert f"{mean(gains('cifar100', 'max')):.2f}" == f"{mean(cifar):.2f}"
    low = mean(gains("cifar10", "low", "efficient"))
    assert f"`low` and `efficient`, which cost next to no logic, gain {low:.2f}, too" in text
    assert (
        f"ImageNet's size `max` gains {spread(imagenet)}, on the average {mean(imagenet):.2f} "
        f"(`low` and `efficient` {spread(others)}, {mean(others):.2f})" in text
    )


def test_paper(gains):
    cifar, more, imagenet = (gains(data, "max") for data in ("cifar10", "cifar100", "imagenet"))
    low, others = gains("cifar10", "low", "efficient"), gains("imagenet", "low", "efficient")
    assert (
        f"`max` {spread(cifar)}, on the average {mean(cifar):.2f}, `low` and `efficient` "
        f"{mean(low):.2f}; `max` with 100 classes {spread(more)}, on the average {mean(more):.2f}, "
        f"and with 16 images of ImageNet's size {spread(imagenet)}, on the average "
        f"{mean(imagenet):.2f} (`low` and `efficient` {spread(others)}, {mean(others):.2f})"
        in said("docs/paper.md")
    )


def test_energy(gains):
    sections = json.loads((ROOT / "docs/evaluation.json").read_text())["sections"]
    changes = sections["figure-21"]["beyond_baseline_percent"].values()
    found = [own["max"]["memories, B"] for own in changes]
    assert len(found) == 13
    assert (
        f"`max` takes −{-max(found):.0f} to −{-min(found):.0f} % of memory energy, "
        f"−{-mean(found):.0f} % on the average" in said("docs/paper.md")
    )
