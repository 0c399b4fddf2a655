"""Runs for a budget: what they cost, and that every method learns.

Covers: algorithms/comparison/contestants.py, algorithms/comparison/steppers.py,
algorithms/common/devices.py.
"""

import pytest
import torch
from torch.fx.experimental._config import patch
from torch.utils._python_dispatch import TorchDispatchMode

from algorithms.comparison.contestants import CONTESTANTS
from algorithms.comparison.race import Race, read_record, record_path, run_race, write_record
from algorithms.comparison.steppers import TimedSchedule
from golden.prediction.schedule import Phase


def race(**changes):
    settings = {"data": "digits", "model": "vgg", "method": "bp", "seed": 1, "rate": 0.1}
    return Race(**settings | {"budget": 30, "train_images": 256, "test_images": 100} | changes)


@pytest.mark.parametrize(
    "method",
    ["bp", "bp-half", "head-rate", "echo", "adagp", "mean", "history", "vcas", "braking-delay8"],
)
def test_methods(method):
    """The budget is spent, and no more than a batch above it."""
    record = run_race(race(method=method))
    assert record["budget"] <= record["spent"] < record["budget"] * (1 + 1.1 / 30)
    times = [time for time, _ in record["curve"]]
    assert times == sorted(times) and times[-1] == 1
    assert record["curve"][-1][1] > (0.05 if CONTESTANTS[method].delay else 0.2)
    steps = {"bp": 30, "head-rate": 30, "bp-half": 60}
    if method in steps:
        assert record["steps"] == {"bp": steps[method]}
    elif method in ("adagp", "mean", "history"):
        # A batch of Phase GP costs a third.
        assert record["steps"]["gp"] > 10 and sum(record["steps"].values()) > 40
        assert record["kept"]["cosine"]
    elif CONTESTANTS[method].delay:
        assert all(-1 <= cosine < 0.9 for _, cosine in record["kept"]["late"])


class MetaNumbers(TorchDispatchMode):
    """Numbers that are read from the meta device are 1."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return 1.0 if args[0].is_floating_point() else 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", ["adagp", "vcas", "braking-delay8"])
def test_everything_is_on_one_device(method, monkeypatch):
    """On torch's meta device, which any machine has: an operand from the CPU would be refused."""
    monkeypatch.setattr("algorithms.common.devices.DEVICES", ("cpu", "meta"))
    with MetaNumbers(), patch(meta_nonzero_assume_all_nonzero=True):
        record = run_race(race(method=method, device="meta", budget=12, train_images=192))
    assert sum(record["steps"].values()) >= 12


def test_the_same_settings_give_the_same_record(tmp_path):
    first = run_race(race(method="vcas"))
    assert first == run_race(race(method="vcas"))
    write_record(first, race(method="vcas"), tmp_path)
    assert read_record(race(method="vcas"), tmp_path) == first
    record_path(race(method="vcas"), tmp_path).write_text("{")
    with pytest.raises(ValueError, match=r"vcas-.*json is no record of a finished run; delete it"):
        read_record(race(method="vcas"), tmp_path)


def test_phases_by_time():
    schedule, phases = TimedSchedule(0.2), []
    for number in range(100):
        schedule.gone = number / 100
        phase = schedule.phase(0, number)
        schedule.over(phase)
        phases.append(phase)
    assert set(phases[:20]) == {Phase.WARM_UP}
    letters = "".join(phase.value for phase in phases)
    assert letters[20:30] == "GGGGBGGGGB"
    assert letters[-20:] == "GB" * 10 or letters[-20:] == "BG" * 10


def test_wrong_settings():
    message = "method must be one of .* not 'x'; batch must be at least 6, not 1; rate must be"
    with pytest.raises(ValueError, match=message):
        race(method="x", batch=1, rate=0)
    with pytest.raises(ValueError, match="device must be one of cpu, cuda, not 'tpu'"):
        race(device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device must be cpu: torch has no CUDA device here"):
            race(device="cuda")
    with pytest.raises(ValueError, match="batch must be at most 256"):
        run_race(race(batch=300))
    with pytest.raises(ValueError, match="pool must be at most 8, the pixels of a side, not 9"):
        run_race(race(pool=9))
