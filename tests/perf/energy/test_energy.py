"""Prices, accesses and energies: by hand, and beside the accesses that the RTL recorded.

Covers: perf/energy/prices.py, perf/energy/traffic.py, perf/energy/batches.py,
perf/energy/picture.py, perf/energy/command.py.
"""

import json

import pytest

from golden.prediction.schedule import Phase, ScheduleConfig
from hw.config import VARIANTS, make_config
from perf.__main__ import main
from perf.area.measured import report_designs
from perf.counted import Cell, Count, Store
from perf.counted.count import BatchCount
from perf.energy.batches import CAUSES, energy_of, epoch_share
from perf.energy.prices import prices_of
from perf.energy.traffic import traffic_of

NAMES = ("VECTORS", "TILES", "POST_BUSY", "POST_STALL", "LOAD_BUSY", "STORE_BUSY", "VECTOR_BUSY",
         "VECTOR_STALL")  # fmt: skip


def batch(cores=1, *, cycles=1000, read=2400, written=480, **own):
    counters = {"READ_BYTES": read, "WRITE_BYTES": written}
    for core in range(cores):
        counters |= {f"CORE{core}_{name}": own.get(name.lower(), 0) for name in NAMES}
    return BatchCount(cycles=cycles, counters=counters, layers={})


def test_accesses_by_hand():
    """12 × 15 PEs, words of 24 bytes, groups of 3 of 12 channels; float32 takes two of them."""
    config = make_config(variant="baseline", preset="paper")
    found = traffic_of(
        batch(vectors=100, tiles=5, post_busy=30, post_stall=10, vector_busy=24, load_busy=7,
              store_busy=7),
        config,
    )  # fmt: skip
    assert found.reads[0] == {
        "MATMUL": 100, "WEIGHTS": 5 * 24, "STORE": 20, "VECTOR": 3 * 24 / 2,
    }  # fmt: skip
    assert found.writes[0] == {"LOAD": 100, "POST": 20 / 2, "VECTOR": 24 / 2}
    assert (found.sums_read[0], found.sums_written[0]) == (120, 100)


def test_energy_by_hand():
    prices = prices_of("baseline")
    traffic = traffic_of(batch(vectors=100, load_busy=1, store_busy=1),
                         make_config(variant="baseline", preset="paper"))  # fmt: skip
    found = energy_of(traffic, prices, 10.0)
    assert set(found) == set(CAUSES)
    assert found["DRAM read"] == pytest.approx(2400 * 8 * 10 * 1e-6)
    assert found["buffer: array"] == pytest.approx(100 * prices.read[0] * 1e-6)
    assert found["clock and leakage"] == pytest.approx(1000 * prices.always * 1e-6)
    assert found["logic at work"] == pytest.approx(100 * prices.at_work[0] * 1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_workload_of_the_power_report(variant):
    """A cycle of it costs what the report says its logic takes."""
    design = report_designs()[variant]["asic"]
    power, prices = design["power_mw"], prices_of(variant)
    logic = prices.always + sum(
        prices.at_work[core] * power["utilisation"][f"core{core}"] for core in prices.at_work
    )
    expected = (power["total"] + design["memory_power_mw"]["leakage"]) * 1e3 / power["clock_mhz"]
    assert logic == pytest.approx(expected)


def test_sums_are_those_that_the_rtl_recorded():
    """In that workload, of which the report has the accesses of every bank: a vector writes its
    sums once, and they are read again by the array and by POST."""
    design = report_designs()["baseline"]["asic"]
    banks = [each for each in design["memory_activity"] if "accumulators" in each["path"]]
    busy = design["power_mw"]["utilisation"]["core0"]
    assert sum(bank["writes"] for bank in banks) == pytest.approx(busy, abs=1e-3)
    assert busy < sum(bank["reads"] for bank in banks) < 1.2 * busy


def test_share_of_phase_gp():
    phases = list(ScheduleConfig().phases(90, 60))
    assert epoch_share(None) == 0.5
    assert epoch_share(90) == sum(phase is Phase.GP for phase in phases) / len(phases)


def test_command(tmp_path, capsys):
    store = Store(tmp_path / "cycles.jsonl", published=None)
    for variant in ("baseline", "max"):
        method = "bp" if variant == "baseline" else "adagp"
        cell = Cell(network="vgg13", input="3x32x32", batch=4, variant=variant, method=method)
        cores = len(cell.config.cores)
        found = {"bp": batch(cores, vectors=500)}
        if method == "adagp":
            found["gp"] = batch(cores, read=1200, written=240, cycles=400, vectors=150)
        store.add(Count(cell=cell, batches=found))
    files = [str(tmp_path / name) for name in ("a.md", "a.json", "a.png")]
    arguments = ["energy", "--network", "vgg13", "--batch", "4", "--kept", "--store",
                 str(store.path), "--markdown", files[0], "--json", files[1],
                 "--plot", files[2]]  # fmt: skip
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "| vgg13 | max | 20 |" in text and "-25.0 %" in text  # half of the bytes in one of two
    assert "Paper: memory accesses −34 % on the average" in text
    assert "- vgg13 3x32x32, batch 4, low, adagp" in text
    assert set(json.loads((tmp_path / "a.json").read_text())["energies"]) == {"3.9", "20.0", "40.0"}
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert main([*arguments, "--dram", "0"]) == 2
    assert "dram must be above 0 pJ per bit, not 0.0" in capsys.readouterr().err
