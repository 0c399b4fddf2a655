"""The order of dispatch, against commands that are written out by hand."""

from hw.isa.encoding import COMMAND_BYTES, Opcode
from hw.isa.execution import dispatched


def repeat(level, count, first):
    return Opcode.REPEAT, {"level": level, "count": count, "first": 640 + COMMAND_BYTES * first}


PROGRAM = [
    (Opcode.LOAD, {}),
    (Opcode.STORE, {}),
    repeat(0, 2, 1),
    repeat(1, 3, 0),
    (Opcode.HALT, {}),
]


def test_loops_inside_loops():
    order = [(place, counters.values[:2]) for place, counters in dispatched(PROGRAM, 640)]
    once = [0, 1, 2, 1, 2, 3]
    assert [place for place, _ in order] == [*once * 3, 4]
    assert [values for place, values in order if place == 1] == [
        [inner, outer] for outer in range(3) for inner in range(2)
    ]


def test_a_loop_is_cut_short():
    places = [place for place, _ in dispatched(PROGRAM, 640, most=1)]
    assert places == [0, 1, 2, 3, 4]
