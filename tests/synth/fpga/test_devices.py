"""The device table, and what the command line says about names that are not in it."""

import pytest

from synth.__main__ import main
from synth.common.errors import ToolError
from synth.common.hierarchy import resources_of
from synth.fpga.devices import DEVICES, FAMILIES, device_by_name


def test_names():
    for name, device in DEVICES.items():
        assert device_by_name(name.lower()) is device
        assert device.family in FAMILIES
        assert set(device.available) <= set(device.details.cells)
        assert not device.options or device.details.package
        assert device.details.package or device.details.reason
    assert device_by_name("LFE5U-85") is DEVICES["LFE5U-85F"]


def test_unknown_name():
    with pytest.raises(ToolError, match=r"not 'LFE5U-86F'; did you mean LFE5U-85F\?"):
        device_by_name("LFE5U-86F")
    with pytest.raises(ToolError, match="Device must be one of LFE5U-25F, .*, not 'z'$"):
        device_by_name("z")


def test_packages():
    device = device_by_name("LFE5U-85F")
    assert device.variant() is device
    smaller = device.variant("CABGA381", "8")
    assert smaller.options == ("--85k", "--speed", "8", "--package", "CABGA381")
    assert smaller.pins == {"clk": "G2"} and smaller.note == "CABGA381, speed grade 8"
    assert smaller.available == device.available and smaller.packages == device.packages
    with pytest.raises(ToolError, match="package of LFE5U-25F must be one of CABGA381, not 'X'"):
        device_by_name("LFE5U-25F").variant("X")
    with pytest.raises(ToolError, match="speed grade of LFE5U-85F must be one of 6, 7, 8, not '9'"):
        device.variant(speed="9")
    with pytest.raises(ToolError, match="package of GW2A-18C must be left out, not 'X'"):
        device_by_name("GW2A-18C").variant("X")


def test_command_line(capsys):
    assert main(["fpga", "--device", "stratix"]) == 2
    assert "Device must be one of" in capsys.readouterr().err
    assert main(["fpga", "--list"]) == 0
    assert "LFE5U-45F" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("family", "cells", "expected"),
    [
        (
            "ecp5",
            {"LUT4": 10, "CCU2C": 3, "TRELLIS_DPR16X4": 2, "TRELLIS_FF": 7, "PFUMX": 4},
            {"LUT4EQ": 16, "COMB": 28, "FF": 7, "MULT18X18D": 0, "DP16KD": 0},
        ),
        (
            "xc7",
            {"LUT1": 1, "LUT6": 2, "RAM32M": 3, "FDRE": 4, "FDSE": 5, "RAMB18E1": 6, "BUFG": 1},
            {"LUT": 15, "FF": 9, "RAMB36": 0, "RAMB18": 6, "DSP48E1": 0, "CARRY4": 0},
        ),
        (
            "ice40",
            {"SB_LUT4": 5, "SB_DFF": 1, "SB_DFFESR": 2, "SB_CARRY": 3, "SB_RAM40_4K": 4},
            {"LUT4": 5, "FF": 3, "CARRY": 3, "RAM4K": 4},
        ),
    ],
)
def test_what_cells_take(family, cells, expected):
    assert resources_of(cells, FAMILIES[family]) == expected
