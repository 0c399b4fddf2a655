"""Schedules that all end, on the accelerator; and their comparison, which can fail."""

import dataclasses

import pytest

from golden.prediction.schedule import Phase
from hw.config import make_config
from hw.registers.map import PhaseCode
from verif.coverage.schedules import check_schedules, schedule_runs
from verif.system import accelerator

CONFIG = make_config(variant="max", preset="tiny")


def test_they_go_beyond_the_last_stage():
    ending, long = (run.loop for run in schedule_runs(CONFIG))
    phases = ending.phases()
    epochs = [phases[2 * n : 2 * n + 2] for n in range(8)]
    assert epochs[0] == [Phase.WARM_UP] * 2
    assert epochs[5] == [Phase.GP] * 2 and epochs[6:] == [[Phase.BP] * 2] * 2
    assert long.after(long.batches).epoch == 0xFFFF and long.after(long.batches).epoch_batch == 0


@pytest.fixture(scope="module")
def outcomes(request):
    seed = request.config.getoption("seed")
    return accelerator.run(accelerator.build(CONFIG), schedule_runs(CONFIG), seed=seed)[0]


@pytest.mark.long
def test_accelerator(outcomes):
    check_schedules(CONFIG, schedule_runs(CONFIG), outcomes)


@pytest.mark.long
def test_the_comparison_can_fail(outcomes):
    runs = schedule_runs(CONFIG)

    def with_batch(**fields):
        batch = outcomes[0].batches[3]
        record = dataclasses.replace(batch.record, **fields)
        batches = list(outcomes[0].batches)
        batches[3] = dataclasses.replace(batch, record=record)
        return [dataclasses.replace(outcomes[0], batches=batches), outcomes[1]]

    with pytest.raises(AssertionError, match="schedule 0, batch 3 is WARM_UP, not BP"):
        check_schedules(CONFIG, runs, with_batch(phase=PhaseCode.WARM_UP.name))
    with pytest.raises(AssertionError, match=r"batch 3 ends at \(9, 0\), not \(2, 0\)"):
        check_schedules(CONFIG, runs, with_batch(epoch=9))
    wrong = bytearray(runs[0].image)
    wrong[5] ^= 1
    changed = [dataclasses.replace(runs[0], image=bytes(wrong)), runs[1]]
    with pytest.raises(AssertionError, match="schedule 0, batch 0: byte 0x5 is 0xa5, expected"):
        check_schedules(CONFIG, changed, outcomes)
