"""Which steps are beside each other.

Covers: compiler/training/units.py.
"""

import pytest

from compiler.training.groups import grouped
from compiler.training.step import ARRAY, VECTOR, Step


def step(name, unit, reads, writes, cycles=1, direction="", **options):
    return Step(layer=name, direction=direction, reads=tuple(reads), writes=tuple(writes),
                unit=unit, cycles=cycles, write=lambda *_: None, **options)  # fmt: skip


def names(groups):
    return [["".join(s.layer for s in part) for part in (g.main, g.beside)] for g in groups]


def test_the_longest_chain_comes_first():
    """The gradient of the next layer (b) is what others wait for: the product (w) that nobody waits
    for covers it, and not the one that takes longer (v)."""
    steps = [
        step("v", ARRAY, "x", "V", 6), step("i", ARRAY, "x", "d", 3), step("w", ARRAY, "x", "W", 4),
        step("b", VECTOR, "d", "e", 4), step("j", ARRAY, "e", "f", 3), step("u", VECTOR, "W", "U"),
    ]  # fmt: skip
    assert names(grouped(steps, str)) == [["i", ""], ["w", "b"], ["v", "u"], ["j", ""]]
    # In the memory of what others read.
    found = names(grouped(steps, lambda name: "x" if name == "e" else name))
    assert [place for place, group in enumerate(found) if "b" in "".join(group)] == [3]


def test_the_predictor_comes_first():
    """What it leads to (u) can be beside a product (c) then, though others wait for this one."""
    steps = [
        step("a", ARRAY, "", "a", 2), step("p", "", "a", "p", predictor=True),
        step("u", VECTOR, "p", "u"), step("c", ARRAY, "a", "c", 2), step("d", ARRAY, "c", "d", 3),
    ]  # fmt: skip
    assert names(grouped(steps, str)) == [["a", ""], ["p", ""], ["c", "u"], ["d", ""]]


@pytest.mark.parametrize(("cycles", "found"), [(9, [["c", "s"]]), (3, [["c", ""]])])
def test_what_others_wait_for_waits_where_products_are_many(cycles, found):
    """Sums (s) behind a map (b) from which an update (u) follows in the end: beside the product (c)
    if the one behind it (d) has time for the update, else before it."""
    steps = [
        step("b", VECTOR, "", "b", 2), step("s", VECTOR, "b", "s"), step("c", ARRAY, "b", "c", 2),
        step("p", "", "s", "p", predictor=True), step("u", VECTOR, "p", "u", 4),
        step("d", ARRAY, "c", "d", cycles),
    ]  # fmt: skip
    groups = names(grouped(steps, str))
    assert [group for group in groups if group[0] == "c"] == found
    assert groups[0] == ["b" if found == [["c", "s"]] else "bs", ""]


@pytest.mark.parametrize(
    ("cycles", "others", "found"),
    [
        ((4, 4, 900), False, [("c", "", "bp")]),
        ((4, 4, 900), True, [("bp", "", ""), ("c", "r", "")]),
        ((9, 9, 900), True, [("c", "", "bp"), ("r", "", "")]),
    ],
)  # fmt: skip
def test_steps_ahead_of_a_product(cycles, others, found):
    """Normalisation (b) and pooling (p), which the product (c) needs: ahead of it, unless they are
    short and something else (r) might be beside it."""
    forward = {"direction": "forward"}
    steps = [
        step("b", VECTOR, "x", "b", cycles[0], **forward),
        step("p", VECTOR, "b", "p", cycles[1], **forward),
        step("c", ARRAY, "p", "c", cycles[2], **forward),
    ]
    if others:
        steps.append(step("r", VECTOR, "x", "r", 3))
    parts = [
        tuple("".join(s.layer for s in part) for part in (g.main, g.beside, g.ahead))
        for g in grouped(steps, str)
    ]
    assert parts == found
