"""What the report measures: which designs, each once, and what an error does."""

import time

import pytest

from cli.workers import Workers
from hw.config import VARIANTS, make_config
from synth.common.errors import ToolError
from synth.study import collect


def test_probes_differ_in_columns_only():
    for preset, columns, predictor in (("paper", 18, 8), ("tiny", 8, 8)):
        configs = collect.configurations(preset)
        main_probe, predictor_probe = configs["probe_main"], configs["probe_predictor"]
        assert main_probe.columns == columns
        assert main_probe.cores[0].post_lanes == configs["baseline"].cores[0].post_lanes
        assert predictor_probe.predictor_columns == predictor
        old, new = configs["max"].cores[1], predictor_probe.cores[1]
        assert (new.post_lanes, new.rows) == (old.post_lanes, old.rows)
    assert configs["low"] == make_config(variant="low", preset="tiny")
    assert list(collect.configurations("tiny", probes=False)) == list(VARIANTS)


def test_collect_measures_each_once(monkeypatch, capsys):
    """Every flow for every design, the probes without place and route; an error ends it."""
    calls = []

    def measure(flow, config, device, seeds, workload, refresh, progress):
        time.sleep(0.1 if flow == "xc7" else 0)  # it is ready after the others
        calls.append((flow, config.hash))
        assert (workload is None) == (config.predictor_columns == 8)
        return {"flow": flow}

    monkeypatch.setattr(collect, "_measure", measure)
    configs = collect.configurations("tiny")
    options = {"device": "LFE5U-25F", "seeds": (1,)}
    designs = collect.collect(configs, flows=("ecp5", "xc7"), workers=Workers(jobs=2), **options)
    assert len(calls) == len(set(calls)) == 6 + 4
    assert [key for key in designs["low"] if key in collect.FLOWS] == ["xc7", "ecp5"]
    assert designs["max"]["ecp5"] == {"flow": "ecp5"} and "ecp5" not in designs["probe_main"]
    assert "[10/10]" in capsys.readouterr().err

    def fail(*_arguments, **_options):
        raise ToolError("no tool")

    monkeypatch.setattr(collect, "_measure", fail)
    with pytest.raises(ToolError, match="no tool"):
        collect.collect(configs, flows=("xc7",), **options)


def test_only_what_is_placed_is_mapped_to_the_device(monkeypatch):
    monkeypatch.setattr(collect, "_measure", lambda flow, *_: {"of": flow})
    configs = collect.configurations("tiny", probes=False)
    options = {"device": "LFE5U-25F", "seeds": (1,), "placed": ("baseline",)}
    found = collect.collect(configs, flows=("ecp5", "xc7"), **options)
    assert [name for name in found if "ecp5" in found[name]] == ["baseline"]
    assert all("xc7" in design for design in found.values())


@pytest.mark.parametrize(("excess", "rows"), [(0, 0), (1, 1), (5, 2), (99, 4)])
def test_multipliers_that_do_not_fit_become_look_up_tables(monkeypatch, excess, rows):
    """Four columns: each row of the array frees four multiplier blocks."""
    calls = []

    def measure(config, *, device, seeds, refresh, progress):
        calls.append((config.lut_multiplier_rows, seeds))
        return {"over": {"MULT18X18D": excess} if excess and not seeds else {}}

    monkeypatch.setattr(collect.fpga, "measure", measure)
    options = {"device": "LFE5U-25F", "refresh": False, "progress": print}
    config = make_config(variant="low", preset="tiny")
    collect._ecp5(config, seeds=(7,), **options)
    assert calls == [(0, ()), (rows, (7,))]
