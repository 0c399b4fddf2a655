"""When line and accelerator work: with two input buffers, the line works during a batch."""

import pytest

from boards.__main__ import main
from boards.catalogue import board_by_name
from boards.sim.timeline import Timeline, draw, record

SMALL = ["rows=2", "columns=2", "buffer_bank_depth=1024"]


def test_picture(tmp_path):
    timeline = Timeline(
        buffers=2, batches=[("WARM_UP", 100, 900), ("GP", 900, 1500)], waited=0, compared=1,
        link=[("inputs", 0, 100), ("registers", 120, 130)], wrong=0, violations=0,
    )  # fmt: skip
    assert timeline.cycles == 1500
    draw([timeline], board_by_name("ulx3s").config(variant="low"), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_bad_input(capsys):
    assert main(["timeline", "ulx3s", "--batches", "3"]) == 2
    assert "must be a multiple of 4, not 3" in capsys.readouterr().err


@pytest.mark.long
def test_two_buffers():
    board = board_by_name("ulx3s")
    config = board.config(variant="low", settings=SMALL)
    one, two = (
        record(board, config, buffers=buffers, images=2, batches=4) for buffers in (1, 2)
    )  # fmt: skip
    for timeline in (one, two):
        assert (timeline.wrong, timeline.violations) == (0, 0) and timeline.compared > 10_000
        ends = [end for _, _, end in timeline.batches]
        assert ends == sorted(ends) and len(ends) == 4
        # Between the batches it waits, by the picture as by its own counter.
        gaps = [begin - end for (_, begin, _), end in zip(timeline.batches[1:], ends, strict=False)]
        assert sum(gaps) == pytest.approx(timeline.waited, abs=2000)
    assert two.waited < one.waited / 5
    assert two.cycles < one.cycles
    # The inputs of the second batch cross the line while the first is computed.
    _, begin, end = two.batches[0]
    assert any(what == "inputs" and begin <= a and b <= end for what, a, b in two.link)
