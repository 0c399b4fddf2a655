"""The controller with the model of the chip at its pins: no rule broken, all data right, so many
bytes per cycle; and each deliberate mistake is found.

Covers: boards/soc/sdram/scheduler.py, boards/soc/sdram/phy.py, boards/soc/pads.py,
boards/sim/memory_test.py, boards/sim/memory_bench.py, boards/sim/cpp/memory_test.cpp.
"""

import pytest

from boards.sim.memory_test import LEAST, memory_test
from boards.soc.sdram.controller import SdramController
from boards.soc.sdram.phy import SdramPhy
from boards.soc.sdram.scheduler import TickTimes
from boards.soc.sdram.timing import CHIPS, FAULTS, SdramCycles

REQUESTS = 1500


def run(kind, seed, *, clock_mhz=80, ratio=2, data_width=32, requests=REQUESTS, chip="any", **more):
    return memory_test(
        CHIPS[chip], clock_mhz=clock_mhz, ratio=ratio, data_width=data_width, kind=kind,
        requests=requests, seed=seed, **more,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["random", "stream", "stalls"])
def test_traffic(kind, seed):
    result = run(kind, seed)
    assert (result.violations, result.wrong, result.text) == (0, 0, "")
    assert result.rate >= LEAST[kind] and result.passed
    assert result.refreshes > 8


@pytest.mark.long
@pytest.mark.parametrize(
    ("ratio", "data_width", "clock_mhz", "chip"),
    [
        (1, 32, 50, "any"),
        (1, 64, 100, "AS4C32M16SB-7"),
        (2, 64, 133, "MT48LC16M16A2-75"),
        (2, 128, 66, "IS42S16160G-7"),
    ],
)
@pytest.mark.parametrize("kind", ["random", "stream", "stalls"])
def test_other_shapes(kind, ratio, data_width, clock_mhz, chip, seed):
    result = run(kind, seed, clock_mhz=clock_mhz, ratio=ratio, data_width=data_width, chip=chip)
    assert (result.violations, result.wrong, result.text) == (0, 0, "")
    assert result.passed


@pytest.mark.long
@pytest.mark.parametrize("longest", [1, 3, 200])
def test_other_bursts(longest, seed):
    """Single beats, and bursts that do not fit into the controller."""
    for kind in ("random", "stalls"):
        result = run(kind, seed, longest=longest, requests=400)
        assert (result.violations, result.wrong, result.text) == (0, 0, "")


@pytest.mark.long
@pytest.mark.parametrize("broken", FAULTS)
def test_mistakes(broken, seed):
    result = run("random", seed, broken=broken, requests=3000)
    rule = {"trcd": "tRCD", "refresh": "refresh", "init": "initialisation"}[broken]
    assert not result.passed and rule in result.text


def test_slow_chip(seed):
    """The mistake that needs no other controller: the chip is slower than it was made for."""
    result = run("random", seed, broken="trcd", requests=100)
    assert result.violations and not result.passed and "tRCD" in result.text


def test_ticks():
    """A row command is an odd cycle, a column command an even one."""
    times = TickTimes(SdramCycles(chip=CHIPS["any"], clock_mhz=100))
    assert times.activate_to_column == 2 and times.precharge_to_activate == 2
    assert times.read_to_write == 3 and times.refresh_to_any == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": 3}, "ratio must be 1 or 2, not 3"),
        ({"data_width": 256}, "data_width must be 32, 64 or 128, not 256"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        SdramController(SdramCycles(chip=CHIPS["any"], clock_mhz=100), **options)
    with pytest.raises(ValueError, match="cas must be 2 or 3, not 4"):
        SdramPhy(4)
