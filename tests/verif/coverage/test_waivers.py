"""Reasons of what is not reached: what they match, and waivers that are wrong."""

import pytest

from verif.coverage.points import Point
from verif.coverage.waivers import WAIVERS, Waiver, WaiverError, apply_waivers, read_waivers


def toggle(bit, way="0->1", file="hw/a.py"):
    return Point(kind="toggle", file=file, what=f"count[{bit}] {way}", bit=bit)


def waiver(**fields):
    return Waiver(
        **{"kind": "toggle", "file": "hw/a.py", "what": "count*", "reason": "why", **fields}
    )


def test_what_matches():
    assert waiver().matches(toggle(3))
    assert not waiver().matches(toggle(3, file="hw/b.py"))
    assert waiver(file="hw/*").matches(toggle(3, file="hw/b.py"))
    assert waiver(what="count[*] 1->0").matches(toggle(3, "1->0"))
    assert not waiver(what="count[*] 1->0").matches(toggle(3))
    assert not waiver(what="count").matches(toggle(3)), "* stands for text, nothing else does"
    assert not waiver(what="count.3. 0->1").matches(toggle(3))
    assert [b for b in range(9) if waiver(bits=(2, 4)).matches(toggle(b))] == [2, 3, 4]
    assert not waiver(bits=(0, 0)).matches(Point(kind="toggle", file="hw/a.py", what="count 0->1"))
    assert not waiver(kind="line").matches(toggle(3))
    limited = waiver(exceptions=("count[3]*", "* 1->0"))
    assert [limited.matches(toggle(*at)) for at in ((3,), (4,), (4, "1->0"))] == [0, 1, 0]


def test_reasons_and_idle_waivers():
    waivers = [waiver(bits=(0, 1)), waiver(what="other"), waiver(reason="second")]
    reasons, idle = apply_waivers(waivers, [toggle(0), toggle(5), toggle(6, file="hw/b.py")])
    assert reasons == {toggle(0): waivers[0], toggle(5): waivers[2]}
    assert idle == [waivers[1]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ('kind = "toggle"\nfile = "a"\nwhat = "b"', "waiver 1: reason must be a text, not None"),
        ('kind = "x"\nfile = "a"\nwhat = "b"\nreason = "c"', "kind must be one of line, toggle"),
        ('kind = "line"\nfile = "a"\nwhat = "b"\nreason = " "', "reason must be a text, not ' '"),
        ('kind = "line"\nfile = "a"\nwhat = "b"\nreason = "c"\nwhy = 1', "unknown why; known are"),
        (
            'kind = "toggle"\nfile = "a"\nwhat = "b"\nreason = "c"\nbits = [4, 3]',
            r"bits must be \[first, last\], not \[4, 3\]",
        ),
        (
            'kind = "line"\nfile = "a"\nwhat = "b"\nreason = "c"\nexcept = "d"',
            "except must be a list of texts, not 'd'",
        ),
        ("kind =", "list: Invalid value"),
    ],
)
def test_wrong_waivers(fields, message):
    with pytest.raises(WaiverError, match=message):
        read_waivers(f"[[waiver]]\n{fields}\n", "list")


def test_the_projects_waivers_are_right():
    names = [(w.kind, w.file, w.what, w.bits) for w in read_waivers(WAIVERS.read_text())]
    assert len(names) == len(set(names)), "a waiver stands there twice"
