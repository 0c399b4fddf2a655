"""A run of many batches as the registers hold it."""

import pytest

from emulator.batch_loop import BatchLoop
from golden.prediction.schedule import Phase, ScheduleConfig, Stage
from hw.config import make_config
from hw.registers.map import register_map


def test_registers():
    """Field by field; stages that the schedule lacks are Phase BP to the end."""
    ladder = (Stage(gp=4, bp=2, epochs=3), Stage(gp=255, bp=1, epochs=9))
    schedule = ScheduleConfig(warm_up=7, ladder=ladder)
    loop = BatchLoop(schedule=schedule, batches=9, epoch_batches=11, epoch=8, epoch_batch=2)
    registers = register_map(make_config())
    actual = {
        (name, field.name): (value & field.mask) >> field.lsb
        for name, value in loop.registers().items()
        for field in registers[name].fields
    }
    expected = {
        ("BATCHES", "VALUE"): 9,
        ("EPOCH_BATCHES", "VALUE"): 11,
        ("WARM_UP", "VALUE"): 7,
        ("EPOCH", "VALUE"): 8,
        ("EPOCH_BATCH", "VALUE"): 2,
    }
    for number, stage in enumerate([(4, 2, 3), (255, 1, 9), (0, 1, 0), (0, 1, 0)]):
        for name, value in zip(("GP", "BP", "EPOCHS"), stage, strict=True):
            expected[f"STAGE{number}", name] = value
    assert actual == expected


def test_phases_and_what_is_left():
    schedule = ScheduleConfig(warm_up=1, ladder=(Stage(gp=1, bp=1, epochs=None),))
    loop = BatchLoop(schedule=schedule, batches=7, epoch_batches=3)
    w, b, g = Phase.WARM_UP, Phase.BP, Phase.GP
    assert loop.phases() == [w, w, w, g, b, g, g]
    rest = loop.after(4)
    assert (rest.batches, rest.epoch, rest.epoch_batch) == (3, 1, 1)
    assert rest.phases() == [b, g, g]
    assert rest.after(2).after(1) == loop.after(7)


def test_loops_that_the_registers_cannot_hold():
    stages = tuple(Stage(gp=1) for _ in range(5))
    common = {"batches": 1, "epoch_batches": 1}
    with pytest.raises(ValueError, match="5 stages, at most 4"):
        BatchLoop(schedule=ScheduleConfig(ladder=stages), **common)
    with pytest.raises(ValueError, match="no convert_every"):
        BatchLoop(schedule=ScheduleConfig(convert_every=2), **common)
    with pytest.raises(ValueError, match="gp of stage 0 must be from 0 to 255, not 256"):
        BatchLoop(schedule=ScheduleConfig(ladder=(Stage(gp=256),)), **common)
    with pytest.raises(ValueError, match="epoch_batches must be from 1 to"):
        BatchLoop(schedule=ScheduleConfig(), batches=1, epoch_batches=0)
