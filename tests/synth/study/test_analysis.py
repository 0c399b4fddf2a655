"""Exact arithmetic on made-up measurements."""

import pytest

from synth.fpga.tables import fmax_summary
from synth.study.analysis import (
    area_by_block,
    batch_control,
    block_growth,
    equal_baseline,
    luts_per_mac,
    marginal_per_pe,
    metric,
    overhead_percent,
    predictor_budget,
)


def test_overheads(designs):
    assert overhead_percent(designs, "asic_logic") == pytest.approx(
        {"low": 1.0, "efficient": 2.0, "max": 50.0}
    )
    assert overhead_percent(designs, "xc7_lut") == {"low": 1.0, "efficient": 2.5, "max": 50.0}
    assert overhead_percent(designs, "asic_memory") == {"low": 0, "efficient": 50, "max": 50}
    total = overhead_percent(designs, "asic_total")
    assert total["efficient"] == pytest.approx(100 * (4.02 - 3.0) / 3.0)
    power = overhead_percent(designs, "asic_power_total")
    assert power["max"] == pytest.approx(100 * (166 - 116) / 116)
    del designs["low"]["asic"], designs["max"]
    assert overhead_percent(designs, "asic_logic")["low"] is None
    assert overhead_percent(designs, "xc7_lut")["max"] is None
    assert metric(designs["low"], "asic_total") is None


def test_halves_of_block_rams():
    resources = {"RAMB36": {"used": 3}, "RAMB18": {"used": 3}}
    assert metric({"xc7": {"resources": resources}}, "xc7_ram") == 4.5
    assert metric({"xc7": {"resources": {}}}, "xc7_ram") is None


def test_equal_baselines(designs):
    assert marginal_per_pe(designs, "asic_logic") == pytest.approx(5000)
    assert marginal_per_pe(designs, "xc7_lut") == 250
    area = equal_baseline(designs, "asic_logic")
    # 10 000, 20 000 and 500 000 square micrometres at 5000 each; 12 PEs make a column.
    assert [round(area[v]["extra_pes"], 6) for v in ("low", "efficient", "max")] == [2, 4, 100]
    assert [area[v]["columns"] for v in ("low", "efficient", "max")] == [15, 15, 23]
    assert area["max"]["pes_percent"] == pytest.approx(100 * 100 / 180)
    assert equal_baseline(designs, "asic_power")["max"]["extra_pes"] == pytest.approx(100)
    designs["low"]["xc7"]["resources"]["LUT"]["used"] = 39_000
    assert equal_baseline(designs, "xc7_lut")["low"]["extra_pes"] == -4
    assert equal_baseline(designs, "xc7_lut")["low"]["columns"] == 15
    del designs["probe_main"]
    assert set(equal_baseline(designs, "asic_logic").values()) == {None}


def test_predictor_budget(designs):
    """8.3 % of a million are 83 000: two columns; but 100 000 are needed before the first one."""
    budget = predictor_budget(designs, "asic_logic", 8.3)
    assert budget["per_column"] == pytest.approx(40_000)
    assert budget["fixed"] == pytest.approx(100_000)
    assert (budget["fixed_percent"], budget["array_percent"]) == pytest.approx((10, 40))
    assert budget["array_alone_pes"] == pytest.approx(83_000 / 40_000 * 8)
    assert budget["columns"] == 0
    assert predictor_budget(designs, "asic_logic", 18.5)["columns"] == 2
    del designs["probe_predictor"]["asic"]
    assert predictor_budget(designs, "asic_logic", 8.3) is None


def test_batch_control(designs):
    """400 of 40,000 look-up tables; nothing where no such block is known."""
    assert batch_control(designs) == {}
    designs["baseline"]["xc7"]["blocks"] = {"batches": {"LUT": 400}, "fetch": {"LUT": 39_600}}
    designs["baseline"]["asic"]["blocks"] = {"batch control": 30.0, "array": 970.0}
    assert batch_control(designs) == {"xc7": 1.0, "asic": 3.0}


def test_blocks_and_macs(designs):
    """Blocks of FPGAs are called as those of standard cells; two of one purpose are one."""
    assert area_by_block(designs["baseline"], "xc7") == {"array": 30_000, "DMA": 10_000}
    assert block_growth(designs, "max", "xc7") == {
        "predictor array": 40.0,
        "predictor array control": 10.0,
    }
    macs = luts_per_mac(designs["max"])
    assert macs["array"] == 2 * 46_000 / 260 and macs["accelerator"] == 120_000 / 260
    assert luts_per_mac({"pes": 1}) is None
    assert fmax_summary(designs["low"]["ecp5"]) == {
        "seeds": 3,
        "min": 50.0,
        "median": 53.0,
        "max": 56.5,
    }
    assert fmax_summary(designs["max"]["ecp5"]) is None
