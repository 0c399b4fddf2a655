"""Where the cycles of ADA-GP go: the arithmetic of the tables, and a small network on the RTL.

Covers: verif/performance/cycles_report.py.
"""

import io

import pytest
from rich.console import Console

from golden.prediction.schedule import Phase, ScheduleConfig
from verif.__main__ import main
from verif.performance.cycles import (
    EPOCH_BATCHES,
    EPOCHS,
    BatchCycles,
    Segment,
    VggLike,
    exposed,
    hidden,
    late,
    measure,
    memory_stall,
    speed_ups,
    traffic,
)
from verif.performance.cycles_report import order_of, plot, tables


def batch(variant, part, ends, total, bytes_=1000, beside=0):
    """A batch whose layers end at ``ends``: two forward, one backward with backpropagation."""
    names = [("one", "forward"), ("two", "forward"), ("two", "backward")]
    segments, begin = [], 0
    for (layer, direction), end in zip(names, ends, strict=False):
        segments.append(
            Segment(
                layer=layer,
                direction=direction,
                begin=begin,
                end=end,
                memory_stall=begin + 3,
                array=50,
                predictor=0,
                beside=beside,
            )
        )
        begin = end
    return BatchCycles(
        variant=variant, part=part, cycles=total, segments=segments, read_bytes=bytes_,
        write_bytes=0, counters={"CORE0_STALL_WEIGHTS": 7, "CORE0_STALL_BUFFER": 4},
        differences=[],
    )  # fmt: skip


BATCHES = [
    batch("baseline", "bp", (100, 300, 900), 900),
    batch("low", "bp", (110, 330, 990), 1100, 1300),
    batch("low", "gp", (150, 450), 450, 600),
    batch("efficient", "bp", (110, 320, 960), 1000, 1200),
    batch("efficient", "gp", (150, 400), 410, 500),
    batch("max", "bp", (100, 300, 910), 920, 1200),
    batch("max", "gp", (105, 305), 340, 500, beside=50),
]


def test_exposed_is_what_a_layer_takes_longer_and_what_comes_behind():
    gp = exposed(BATCHES, BATCHES[6])
    assert gp == {("one", "forward"): 5, ("two", "forward"): 0, ("behind", ""): 35}
    bp = exposed(BATCHES, BATCHES[3])
    assert bp["two", "backward"] == 40 and bp["behind", ""] == 40


def test_hidden_is_a_share_of_what_the_predictor_s_core_takes():
    assert hidden(BATCHES) == {("one", "forward"): 0.9, ("two", "forward"): 1.0}
    assert hidden(BATCHES[:5]) == {}
    longer = batch("max", "gp", (105, 305), 340, beside=150)
    assert hidden([*BATCHES[:6], longer]) == {("two", "forward"): 1.0}


def test_late_where_more_hardware_takes_longer():
    assert late(BATCHES) == []
    assert "no later than" in order_of(BATCHES)
    slow = [*BATCHES[:4], batch("efficient", "gp", (151, 400), 451), *BATCHES[5:]]
    assert late(slow) == [
        ("gp", "one", "forward", "efficient", "low"), ("gp", "behind", "", "efficient", "low"),
    ]  # fmt: skip
    assert order_of(slow) == (
        "done later with more hardware: one forward GP (efficient than low), "
        "behind GP (efficient than low)"
    )


def test_speed_up_of_both_schedules():
    phases = list(ScheduleConfig().phases(EPOCHS, EPOCH_BATCHES))
    share = phases.count(Phase.GP) / len(phases)
    found = speed_ups(BATCHES)["max"]
    assert found == pytest.approx((900 / ((1 - share) * 920 + share * 340), 1800 / 1260))
    # The ideal of section 6: backward takes two thirds, and nothing of the predictor is seen.
    ideal = [batch("baseline", "bp", (1,), 3), batch("x", "bp", (1,), 3), batch("x", "gp", (1,), 1)]
    assert speed_ups(ideal)["x"] == pytest.approx((1.465, 1.5), abs=0.001)


def test_traffic_of_a_pair_of_batches():
    assert traffic(BATCHES)["max"] == (1200, 500, pytest.approx(0.15))


def test_tables_and_chart(tmp_path):
    console = Console(width=160, record=True, file=io.StringIO())
    for table in tables(BATCHES, "small"):
        console.print(table)
    text = console.export_text()
    assert memory_stall(BATCHES[0].counters) == 11 and "11 + 11" in text
    # A layer without a place in Phase GP has no stall there.
    rows = [line.split() for line in text.splitlines() if line.split()[:1] in (["one"], ["two"])]
    assert rows[-2:] == [
        ["two", "forward", "103", "113", "153", "113", "153", "103", "108"],
        ["two", "backward", "303", "333", "323", "303"],
    ]
    assert "1.429" in text and "behind the last layer" in text and "+35" in text
    plot({"small": BATCHES}, tmp_path / "cycles.png")
    assert (tmp_path / "cycles.png").stat().st_size > 10_000


@pytest.mark.parametrize("options", [["--size", "9"], ["--images", "0"], ["--preset", "huge"]])
def test_wrong_options(options, capsys):
    assert main(["cycles", *options]) == 2
    assert options[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    "variant",
    ["baseline", *(pytest.param(v, marks=pytest.mark.long) for v in ("efficient", "max"))],
)
def test_cycles_of_a_small_network(variant):
    """The parts of a batch come from different places and have to fit: counters of the RTL, the
    program, the memory."""
    found = measure(
        variant, "tiny", images=2, model=VggLike(widths=(4,), size=8, hidden=8, classes=4),
        input_shape=(3, 8, 8), classes=4,
    )  # fmt: skip
    for result in found:
        assert not result.differences, result.differences[0]
        # On one core the predictor's vectors go through the same array.
        main_core = sum(segment.array + segment.predictor for segment in result.segments)
        assert main_core == result.counters["CORE0_VECTORS"]
        ends = [segment.end for segment in result.segments]
        assert ends == sorted(ends) and 0 < ends[0] and ends[-1] <= result.cycles
        stalls = [segment.memory_stall for segment in result.segments]
        assert min(stalls) >= 0 and 0 < sum(stalls) <= memory_stall(result.counters)
    if variant == "max":
        bp, gp = found
        assert gp.cycles < bp.cycles and gp.read_bytes < bp.read_bytes
