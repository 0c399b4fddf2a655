"""Programs that have to be written again; compiler/training/test_loops.py has more of them."""

from math import inf

import pytest

from compiler.codegen.attempts import Findings, write_program
from compiler.codegen.dependencies import Scattered
from compiler.codegen.linking.linker import Crowded
from compiler.codegen.linking.loops import Unsettled
from hw.config import make_config


@pytest.mark.parametrize(
    ("loops", "least", "tried"),
    [(True, 1, [1]), (True, 4, [1, 4]), (True, inf, [1, 4, inf]), (False, 2, [1, inf])],
)
def test_too_few_semaphores(loops, least, tried):
    """Fewer steps beside each other, then none."""
    seen = []

    def write(recorder):
        seen.append(recorder.hides)
        recorder.together += 1
        if recorder.hides < least:
            raise Crowded("too few")
        return "written"

    config = make_config(variant="low", preset="tiny")
    assert write_program(config, write, loops=loops) == "written"
    assert seen == tried


def test_too_few_semaphores_anyway():
    def write(recorder):
        raise Crowded("too few")

    with pytest.raises(Crowded, match="too few"):
        write_program(make_config(variant="low", preset="tiny"), write, loops=True)


def test_findings_of_another_program():
    """What cannot be as it was tried first is not tried again in the next program."""
    findings, seen = Findings(), []

    def write(recorder):
        seen.append((set(recorder.written_out), set(recorder.gathered)))
        if "loop" not in recorder.written_out:
            raise Unsettled(frozenset(["loop"]))
        if 3 not in recorder.gathered:
            raise Scattered(3)
        return len(seen)

    config = make_config(variant="low", preset="tiny")
    assert write_program(config, write, loops=True, findings=findings) == 3
    assert seen == [(set(), set()), ({"loop"}, set()), ({"loop"}, {3})]
    assert write_program(config, write, loops=True, findings=findings) == 4
    assert seen[3] == seen[2]
    assert write_program(config, write, loops=True) == 7, "findings that nobody has handed over"
