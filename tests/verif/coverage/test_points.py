"""Reading what Verilator counts, and its places in Python."""

import pytest

from verif.coverage.points import Point, mapped_points, raw_points
from verif.coverage.source_map import Place, SourceMap


def record(count, **fields):
    text = "".join(f"\x01{key}\x02{value}" for key, value in fields.items())
    return f"C '{text}' {count}"


def data(*records):
    return "\n".join(["# SystemC::Coverage-3", *records]) + "\n"


TOGGLE = {"f": "/tmp/x/top.v", "l": 3, "n": 7, "t": "toggle", "page": "v_toggle/top.a"}
BRANCH = {"f": "/tmp/x/top.v", "l": 9, "n": 5, "t": "branch", "page": "v_branch/top.a"}
MAP = SourceMap(
    signals={
        ("top.a", "count"): Place(file="hw/a.py", what="count"),
        ("top.a", "$signal$3"): Place(file="hw/a.py", what="{x, y = Signal(), Signal()}"),
    },
    branches={9: Place(file="hw/a.py", what="with m.If(go):")},
)


def test_fields():
    (point,) = raw_points(data(record(17, **TOGGLE, o="count[2]:0->1", h="TOP.a")))
    assert (point.file, point.line, point.kind, point.module) == ("top.v", 3, "toggle", "top.a")
    assert (point.comment, point.count) == ("count[2]:0->1", 17)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"cov: line 1 must be '# SystemC::Coverage-3', not \[\]"),
        ("# SystemC::Coverage-9\n", r"cov: line 1 must be .* not \['# SystemC::Coverage-9'\]"),
        (data("C 'half"), 'cov: line 2 is no coverage point: "C \'half"'),
        (data(record(1, f="top.v", l=1)), "cov: line 2 has no field 't'"),
    ],
)
def test_what_is_no_coverage_data(text, message):
    with pytest.raises(ValueError, match=message):
        list(raw_points(text, "cov"))


def test_places_in_python():
    text = data(
        record(5, **TOGGLE, o="count[2]:0->1"),
        record(0, **TOGGLE, o="count[2]:1->0"),
        record(1, **TOGGLE, o="__024signal__0243:0->1"),
        record(4, **TOGGLE, o="other:0->1"),
        record(6, **BRANCH, o="if"),
        record(7, **BRANCH, o="else"),
        record(8, **BRANCH, o="block"),
        record(9, **{**BRANCH, "f": "ram.v"}, o="if"),
    )
    found = list(mapped_points(raw_points(text), {"top.v": MAP}))
    assert found == [
        (Point(kind="toggle", file="hw/a.py", what="count[2] 0->1", bit=2), 5),
        (Point(kind="toggle", file="hw/a.py", what="count[2] 1->0", bit=2), 0),
        (Point(kind="toggle", file="hw/a.py", what="{x, y = Signal(), Signal()} 0->1"), 1),
        (Point(kind="line", file="hw/a.py", what="with m.If(go):: taken"), 6),
        (Point(kind="line", file="hw/a.py", what="with m.If(go):: not taken"), 7),
    ]
