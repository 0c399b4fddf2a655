"""What a command has made of a box of a tensor: once for every time it is loaded."""

from unittest.mock import Mock

from compiler.codegen.core_builder import Need
from compiler.codegen.scratchpad import Scratch
from compiler.kernels.tiling.in_place import ChangedBoxes
from hw.config import make_config


def test_made_once_for_every_load():
    """Whether it is made or not, the commands of a job follow from that: it is always run, and not
    taken to emit what another one has emitted on the same blocks."""
    scratch = Scratch(make_config(variant="baseline", preset="tiny"))
    load, command = Mock(), Mock()
    program = Mock(scratch=scratch, need=Mock(return_value=Need("box", 4, load)))
    boxes = ChangedBoxes(program)
    need = boxes.need(Mock(), (0, 1), (0, 1), (0, 1))
    block = scratch.take(4)
    made = []
    for loads in (True, False, True):
        if loads:
            need.load(block)
        before = scratch.changes
        boxes.make(block, command)
        assert scratch.changes > before
        made.append(command.call_count)
    assert made == [1, 1, 2] and load.call_count == 2
