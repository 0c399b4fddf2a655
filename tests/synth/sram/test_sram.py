"""CACTI: real runs of small memories, and what is said when something is wrong.

Covers: synth/sram/report.py, synth/sram/cacti.py, synth/common/reproduce.py.
"""

import json
import re

import pytest

from hw.config import make_config
from synth.__main__ import main
from synth.common.errors import ToolError
from synth.common.memories import Memory
from synth.common.reproduce import options_of
from synth.common.wheels import ENVIRONMENT, WHEELS, wheel_directory
from synth.sram import cacti
from synth.sram import report as sram
from synth.sram.cacti import Technology, sram_macro


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAGP_SYNTH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def program(cache):
    try:
        return wheel_directory(WHEELS["cacti"])
    except ToolError as error:
        pytest.skip(str(error))


LOW = Technology()


def test_twice_the_words_cost_about_twice_the_area(program):
    small = sram_macro(words=512, width=64, technology=LOW)
    large = sram_macro(words=1024, width=64, technology=LOW)
    assert small["exact"] and small["modelled"] == {"words": 512, "width": 64}
    assert 1.5 < large["area_um2"] / small["area_um2"] < 2.2
    # A six-transistor cell of 45 nm takes about 0.35 square micrometres, a two-port one twice that.
    assert 0.5 < small["area_um2"] / (512 * 64) < 1.5
    for name in ("read_energy_pj", "write_energy_pj", "leakage_mw", "access_time_ns"):
        assert large[name] > small[name] > 0, name


def test_cell_type_and_temperature_matter(program):
    fast = sram_macro(words=512, width=64, technology=Technology(cell_type="itrs-hp"))
    slow = sram_macro(words=512, width=64, technology=LOW)
    warm = sram_macro(words=512, width=64, technology=Technology(temperature_k=350))
    assert fast["leakage_mw"] > 10 * slow["leakage_mw"]
    assert fast["access_time_ns"] < slow["access_time_ns"]
    assert warm["leakage_mw"] > slow["leakage_mw"]
    assert fast["technology"] == {"node_nm": 45, "cell_type": "itrs-hp", "temperature_k": 300}


def test_too_small_and_ragged_are_marked(program):
    tiny = sram_macro(words=4, width=13, technology=LOW)
    assert not tiny["exact"] and tiny["modelled"]["width"] == 16
    assert 4 < tiny["modelled"]["words"] <= 64


def test_second_call_needs_no_program(program, cache, old_entries, monkeypatch):
    """It has the figures of the first call, and its day."""
    first = sram_macro(words=64, width=8, technology=LOW)
    monkeypatch.setattr(cacti, "_run", None)
    assert sram_macro(words=64, width=8, technology=LOW) == first
    first["date"] = old_entries(cache)
    assert sram_macro(words=64, width=8, technology=LOW) == first
    memory = Memory(
        purpose="a test", core=0, words=64, width=8, granularity=8, macro=True, instances=("a", "b")
    )
    monkeypatch.setattr(sram, "memories_of", lambda config, verilog: [memory])
    assert sram.measure(make_config(variant="low"), verilog="")["date"] == first["date"]


def test_command_line(program, tmp_path, capsys):
    out = tmp_path / "sram.json"
    command = [
        "sram",
        "--variant",
        "efficient",
        "--preset",
        "tiny",
        "--set",
        "accumulator_depth=16",
    ]
    assert main([*command, "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "predictor memory" in printed and "larger than asked for" in printed
    result = json.loads(out.read_text())
    # On a terminal of 80 columns every figure is whole.
    assert "…" not in printed
    for memory in result["memories"]:
        each = memory["each"]
        row = f"{each['read_energy_pj']:.1f}/{each['write_energy_pj']:.1f} "
        assert row in printed and f" {each['access_time_ns']:.2f} " in printed
    memories = result["memories"]
    assert result["area_um2"] == pytest.approx(
        sum(memory["each"]["area_um2"] * memory["count"] for memory in memories)
    )
    accumulators = [m for m in memories if m["purpose"].startswith("accumulators")]
    assert [m["each"]["exact"] for m in accumulators] == [False]
    assert result["commands"] == [
        "python -m synth sram --variant efficient --preset tiny --set accumulator_depth=16 "
        "--node 45 --cell-type itrs-lop --temperature 300"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--node", "7"], "Node must be from 22 to 90 nm, not 7"),
        (["--cell-type", "cmos"], "Cell type must be one of itrs-hp, .*, not 'cmos'"),
        (["--temperature", "305"], "Temperature must be 300 to 400 K in steps of 10, not 305"),
        (["--preset", "huge"], "preset must be one of .* not 'huge'"),
        (["--json", "/nowhere/at/all.json"], "Directory of --json does not exist"),
    ],
)
def test_bad_options(options, message, capsys):
    assert main(["sram", "--variant", "low", *options]) == 2
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.long
def test_missing_program(cache, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "none"))
    monkeypatch.setattr("synth.common.wheels._installed", lambda wheel: None)
    assert main(["sram", "--variant", "low", "--preset", "tiny"]) == 2
    assert "`python -m synth fetch` gets it" in capsys.readouterr().err


def test_output_that_is_not_understood():
    with pytest.raises(ToolError, match="results is empty"):
        cacti._parse("")
    with pytest.raises(ToolError, match=r"no usable 'Area \(mm2\)'"):
        cacti._parse("a, b\n1, 2\n")


def test_options_of_a_configuration():
    assert options_of(make_config(variant="low")) == "--variant low --preset paper"
    changed = make_config(variant="max", preset="tiny", columns=8)
    assert options_of(changed) == "--variant max --preset tiny --set columns=8"
