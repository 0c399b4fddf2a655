"""The model of area: exact where its assumptions hold, memories as measured, its error stated.

Covers: perf/area/measured.py, perf/area/memories.py.
"""

import json

import numpy as np
import pytest

from hw.config import make_config
from perf.area.measured import FLOWS, RESULTS, Synthesis, read_synthesis, report_designs, syntheses
from perf.area.memories import block_rams, other_sram, sram_macros
from perf.area.model import GROWTH, AreaModel, _kinds, fitted

#: Resource of an FPGA's flow that holds memories.
BLOCK_RAM = {"xc7": "RAMB36", "ecp5": "DP16KD"}


def made_up(rng, shapes, noise=0.0):
    """Syntheses whose blocks cost what they grow with, by random prices."""
    prices = {kind: rng.uniform(10, 100, len(growth)) for kind, growth in GROWTH.items()}
    found = []
    for rows, columns, width in shapes:
        config = make_config(
            variant="baseline", preset="paper", rows=rows, columns=columns, axi_data_width=width
        )
        blocks = {
            kind: {"um2": float(np.dot(prices[kind], numbers)) * (1 + noise)}
            for kind, numbers in _kinds(config)
        }
        total = sum(block["um2"] for block in blocks.values())
        found.append(
            Synthesis(name=f"{rows}x{columns}", flow="asic", config=config, blocks=blocks,
                      totals={"um2": total}, command="", date="")
        )  # fmt: skip
    return found


SHAPES = [(4, 5, 64), (8, 6, 128), (6, 9, 256), (12, 8, 64), (9, 15, 32), (16, 12, 512)]


def test_prices_are_found(rng):
    """One machine that was not among the fitted ones, and each of them when it is left out."""
    *shown, unseen = made_up(rng, [*SHAPES, (10, 14, 256)])
    model = AreaModel("asic", shown)
    assert model.estimate(unseen.config)["um2"] == pytest.approx(unseen.totals["um2"], rel=1e-6)
    middle, worst = model.error("um2")
    assert middle < 0.02 and worst < 0.1


def test_a_design_of_another_kind_shows_in_the_error(rng):
    shown = made_up(rng, SHAPES)
    shown[2] = made_up(rng, [SHAPES[2]], noise=3.0)[0]
    assert AreaModel("asic", shown).error("um2")[1] > 0.2


def test_what_never_varied_is_said(rng):
    """And costs nothing more elsewhere: it cannot be told from what is always there."""
    model = AreaModel("asic", made_up(rng, [(4, 5, 64), (8, 6, 64), (6, 9, 64), (12, 8, 64)]))
    assert {"lut_pes", "axi"} <= set(model.never_varied)
    assert not {"rows", "columns", "dsp_pes"} & set(model.never_varied)
    narrow, wide = (
        make_config(variant="baseline", preset="paper", axi_data_width=width) for width in (64, 512)
    )
    assert model.estimate(narrow) == model.estimate(wide)
    assert fitted("ecp5").never_varied == []


def test_flow_without_blocks():
    with pytest.raises(ValueError, match="no synthesis for xc7"):
        AreaModel("xc7", [])


@pytest.mark.parametrize("flow", FLOWS)
def test_measured_designs(flow):
    """The fit is close to every design that was mapped block by block; flat ones are smaller or
    larger by what the mapper does across blocks."""
    model = fitted(flow)
    for each in model.syntheses:
        found = model.estimate(each.config)
        for resource in model.resources:
            bound = 0.05 if each.blocks else 0.06
            assert found[resource] == pytest.approx(each.totals[resource], rel=bound), each.name


@pytest.mark.parametrize("flow", BLOCK_RAM)
def test_block_ram_is_exact(flow):
    """Before 64 slots for packed commands came, an ECP5 had no small memory in block RAM."""
    for each in syntheses():
        if each.flow == flow:
            halves = each.totals.get("RAMB18", 0) / 2
            measured = each.totals[BLOCK_RAM[flow]] + halves
            if each.date < "2026-11-27":
                assert flow == "ecp5"
                measured += 12 if each.config.cores[0].has_loss else 10
            assert block_rams(each.config, flow) == measured, each.name


def test_macros_are_those_of_the_verilog():
    """Whose sizes the synthesis report read from it."""
    for synthesis in syntheses():
        if synthesis.flow != "asic" or synthesis.name not in report_designs():
            continue
        sram = report_designs()[synthesis.name]["sram"]
        small = other_sram(synthesis.config)
        large = {
            (macro.purpose, macro.words, macro.width, macro.granularity, macro.count)
            for macro in sram_macros(synthesis.config)
        }
        read = {
            tuple(memory[name] for name in ("purpose", "words", "width", "granularity", "count")):
            memory["area_um2"]
            for memory in sram["memories"]
        }  # fmt: skip
        assert large <= set(read)
        assert small + sum(read[key] for key in large) == pytest.approx(sram["area_um2"])


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"family": "ice40"}))
    with pytest.raises(ValueError, match=r"other\.json: no synthesis for one of asic, xc7, ecp5"):
        read_synthesis(path)
    assert RESULTS.is_dir()
