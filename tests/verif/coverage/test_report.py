"""Numbers per file, and what is never reached in as few lines as possible."""

import pytest

from verif.coverage.points import Point
from verif.coverage.report import grouped, markdown, percent, summarize, to_json
from verif.coverage.waivers import Waiver, WaiverError


def toggles(name, bits, ways=("0->1", "1->0")):
    return [
        Point(kind="toggle", file="hw/a.py", what=f"{name}[{bit}] {way}", bit=bit)
        for bit in bits
        for way in ways
    ]


LINE = Point(kind="line", file="hw/a.py", what="with m.If(go):: taken")
OTHER = Point(kind="functional", file="hw/b.py", what="max: command LOAD on core 1")
COUNTS = {
    **dict.fromkeys(toggles("count", range(6)), 2),
    **dict.fromkeys(toggles("count", (1, 2, 5)), 0),
    **dict.fromkeys(toggles("count", (3,), ["1->0"]), 0),
    LINE: 0,
    OTHER: 4,
}
WAIVER = Waiver(kind="toggle", file="hw/*", what="count*", reason="nobody counts so far")


def test_signals_are_one_line():
    unreached = [point for point, count in COUNTS.items() if not count]
    texts = [text for _, text in grouped(sorted(unreached))]
    assert texts == ["with m.If(go):: taken", "count [1 to 2, 5] never moves, [3] never falls"]


def test_summary():
    summary = summarize(COUNTS, [WAIVER])
    assert [module.file for module in summary.modules] == ["hw/a.py", "hw/b.py"]
    assert summary.modules[0].totals == {"toggle": (5, 12), "line": (0, 1)}
    assert summary.totals == {"line": (0, 1), "toggle": (5, 12), "functional": (1, 1)}
    assert summary.open == [LINE] and len(summary.waived) == 7 and not summary.idle
    with pytest.raises(WaiverError, match="1 points are not reached and have no reason, first "
                                          "line hw/a.py: with m.If"):  # fmt: skip
        summary.check()
    text = markdown(summary, "Title")
    assert "| hw/a.py | 0.0 | 41.6 |  | 8 | 1 |" in text
    assert "- 7 points, nobody counts so far:" in text and "without a reason:" in text
    values = to_json(summary)
    assert values["modules"]["hw/a.py"]["toggle"] == {"reached": 5, "points": 12}
    assert values["without_reason"] == [str(LINE)]


def test_nothing_is_wrong_and_idle_waivers_are():
    counts = {**COUNTS, LINE: 1}
    summarize(counts, [WAIVER]).check()
    idle = Waiver(kind="line", file="hw/*", what="*", reason="never")
    with pytest.raises(WaiverError, match=r"^1 waivers match nothing that is unreached, first line "
                                          r"hw/\*: \*$"):  # fmt: skip
        summarize(counts, [WAIVER, idle]).check()


def test_percent():
    assert [percent(*pair) for pair in ((0, 0), (0, 3), (2, 3), (9999, 10000), (7, 7))] == [
        "", "0.0", "66.6", "99.9", "100.0"
    ]  # fmt: skip
