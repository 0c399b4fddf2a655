"""Steps that are alike are recorded once, and what is replayed is what would be recorded."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from compiler.adagp import compile_adagp
from compiler.adagp.tensors import PredictorShape
from compiler.codegen.cost import Command
from compiler.codegen.dependencies import Recorder, Region
from compiler.codegen.linking.entries import DRAM
from compiler.codegen.replay import Likeness, Recording, Recordings, StepCall
from compiler.tensors.tensor import Tensor
from compiler.training import compile_training
from hw.config import make_config
from hw.isa.encoding import Opcode

IMAGES = 12


def twins():
    """Three products that are alike between others, with normalisation and a sum."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(8, 8, 3, padding=1)
            self.norm = nn.BatchNorm2d(8)

        def forward(self, x):
            return torch.relu(self.norm(self.convolution(x)) + x)

    blocks = [Block() for _ in range(3)]
    return nn.Sequential(nn.Conv2d(3, 8, 1), *blocks, nn.Flatten(), nn.Linear(8 * 36, 4)).train()


@pytest.fixture
def replayed(monkeypatch):
    """Commands of the steps that are replayed."""
    counts = []
    replay = Recording.replay

    def counted(self, recorder, tensors):
        counts.append(len(self.commands))
        return replay(self, recorder, tensors)

    monkeypatch.setattr(Recording, "replay", counted)
    return counts


def never(self, recorder, like):
    return None


def test_training_is_what_would_be_recorded(replayed, monkeypatch):
    config = make_config(variant="baseline", preset="tiny")

    def compiled():
        return compile_training(twins(), config, (3, 6, 6), images=IMAGES, loops=True)

    program = compiled()
    assert len(replayed) >= 6 and sum(replayed) > 100
    monkeypatch.setattr(Recordings, "find", never)
    count = len(replayed)
    assert program.commands == compiled().commands
    assert len(replayed) == count


@pytest.mark.parametrize("variant", ["low", "efficient", "max"])
def test_both_phases_are_what_would_be_recorded(variant, replayed, monkeypatch):
    """The second phase replays steps of the first, and the loop of batches, where the predictor's
    weights are on chip already, those that do not load them."""
    config = make_config(variant=variant, preset="tiny")

    def compiled():
        shape = PredictorShape(channels=4, map_size=2)
        return compile_adagp(twins(), config, (3, 6, 6), shape=shape, images=IMAGES, loops=True)

    program = compiled()
    assert replayed
    monkeypatch.setattr(Recordings, "find", never)
    other = compiled()
    assert {name: part.commands for name, part in program.parts.items()} == {
        name: part.commands for name, part in other.parts.items()
    }
    assert program.loop.commands == other.loop.commands


def test_only_a_step_with_loops_to_be_written_out_is_recorded_again():
    """Loops and lists of jobs are counted from the step's first one."""
    recorder = Recorder(make_config(variant="baseline", preset="tiny"), loops=True, gathered=())
    recorder.begin_run()
    recording = Recordings().record(recorder, "step", [], recorder.begin_run)
    for written_out, gathered, fits in (
        ((), (), True),
        ([(2, 5, 1)], (), True),
        ([(3, 5, 1)], (), True),
        ([(4, 5, 1)], (), False),
        ((), [4], False),
        ((), [3, 5], True),
    ):
        other = Recorder(recorder.config, loops=True, written_out=written_out, gathered=gathered)
        for _ in range(3):
            other.begin_run()
        assert recording.fits(other) == fits, (written_out, gathered)


def tensor(name="x", offset=0, channels=4):
    return Tensor.dense(name, (1, 2, 2, channels), kind="float32", pitch=channels, offset=offset)


@dataclass(frozen=True)
class Options:
    """What a step may be given."""

    name: str
    size: int


def step(program, *tensors, **options):
    """A step that is not written."""


def like(*arguments, touched=None, function=step, others=(), kept=(), **options):
    touched = arguments if touched is None else touched
    call = StepCall(function, arguments, options, touched, others)
    return Likeness(touched, kept=kept).of(call)


def test_places_and_names_make_no_difference():
    here = like(tensor("x"), tensor("y", 64), relu=True, options=Options("a", 3))
    assert here is not None
    assert here == like(tensor("u", 640), tensor("v", 128), relu=True, options=Options("b", 3))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((tensor("x"), tensor("y", 64)), {"relu": 1, "options": Options("a", 3)}),
        ((tensor("x"), tensor("y", 64)), {"relu": True, "options": Options("a", 4)}),
        ((tensor("x"), tensor("y", 128, channels=8)), {"relu": True, "options": Options("a", 3)}),
        ((tensor("x"), tensor("x")), {"relu": True, "options": Options("a", 3)}),
    ],
    ids=["another type", "another number", "another size", "the same tensor twice"],
)
def test_what_makes_a_difference(arguments, options):
    touched = list({one.name: one for one in arguments}.values())
    found = like(*arguments, touched=touched, **options)
    assert found is not None
    assert found != like(tensor("x"), tensor("y", 64), relu=True, options=Options("a", 3))


def test_part_of_a_tensor_by_its_place_in_it():
    whole = tensor(channels=8)
    parts = [replace(tensor("part", channels=4), offset=offset) for offset in (0, 16)]
    first, second = (like(part, touched=[whole]) for part in parts)
    assert first is not None and first != second
    moved = replace(parts[1], offset=parts[1].offset + 256)
    assert second == like(moved, touched=[replace(whole, offset=256)])


def test_a_tensor_that_is_not_touched_may_be_anywhere():
    x, y = tensor("x"), tensor("y", 64)
    found = {like(x, replace(y, offset=n), touched=[x], others={"y"}) for n in (0, 64)}
    assert len(found) == 1
    assert len({like(x, touched=[x], kept=kept) for kept in ((), {"x"}, {"y"})}) == 2


def test_no_likeness():
    x, size = tensor("x"), 3
    assert like(x, tensor("y", 8)) is None  # they have bytes in common
    assert like(x, more=object()) is None
    assert like(x, function=lambda program, x: size) is None  # it knows more than it is given


def test_commands_outside_of_the_tensors_are_noticed():
    recorder = Recorder(make_config(variant="baseline", preset="tiny"), loops=True)
    fields = {"buffer_address": 0, "run_bytes": 16, "run_count": 1, "run_stride": 0,
              "row_bytes": 16, "dram_address": 64}  # fmt: skip
    x = tensor("x")

    def write():
        regions = (Region("dram", 64, 80),), (Region(("buffer", 0), 0, 2),)
        recorder.append(Command(Opcode.LOAD, fields=fields), *regions)

    recording = Recordings().record(recorder, "step", [x], write)
    with pytest.raises(AssertionError, match="0x40 is in none of the tensors"):
        recording.replay(recorder, [x])


def test_what_commands_have_in_common_is_kept_once():
    """Fields and regions that are equal are one object; places in DRAM stay as they are."""
    recordings = Recordings()
    config = make_config(variant="baseline", preset="tiny")
    recorder = Recorder(config, loops=True, recordings=recordings)

    def vector(address):
        recorder.emit(
            Opcode.VECTOR,
            {"operation": 0, "dst_address": address},
            reads=[Region(("buffer", 0), address, address + 1)],
            writes=[Region(("buffer", 0), 8, 9)],
        )

    with recorder.recording(recording := Recording((), 0, 0)):
        for address in (3, 4, 3):
            vector(address)
    first, other, again = recording.commands
    assert first[1:] == again[1:] and first[1:] != other[1:]
    assert all(a is b for a, b in zip(first[1:], again[1:], strict=True))
    for _ in range(2):
        place, regions = {"dram_address": 64, "run_bytes": 8}, ((Region(DRAM, 64, 72),), ())
        fields, touched = recordings.shared(place, regions)
        assert fields is place and touched is regions
    swapped, _ = recordings.shared({"b": 1, "a": 2}, ((), ()))
    fields, _ = recordings.shared({"a": 1, "b": 2}, ((), ()))
    assert fields == {"a": 1, "b": 2} != swapped
