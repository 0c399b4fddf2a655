"""Fixtures whose numbers can be worked out by hand: a tiny standard-cell library and netlists of
it, measurements of whole designs; and a result cache whose entries are old."""

import json
from pathlib import Path

import pytest

from synth.asic.area import block_of
from synth.asic.liberty import read as liberty

TINY = Path(__file__).with_name("asic") / "tiny.lib"

#: Net of the clock in netlists written by hand.
CLK = 2


def port(direction, *bits):
    """A port as in Yosys's JSON."""
    return {"direction": direction, "bits": list(bits)}


def cell(kind, **wires):
    """A cell as in Yosys's JSON; a pin is at one net or at a list of nets."""
    return {
        "type": kind,
        "connections": {
            pin: list(bits) if isinstance(bits, list | tuple) else [bits]
            for pin, bits in wires.items()
        },
    }


@pytest.fixture
def old_entries():
    """Function that makes all entries of a result cache old, and says the day that they have."""

    def change(directory):
        paths = list(Path(directory).glob("*.json"))
        assert paths, f"no entries in {directory}"
        for path in paths:
            entry = json.loads(path.read_text())
            path.write_text(json.dumps(entry | {"date": "2001-02-03T04:05:06+00:00"}))
        return "2001-02-03"

    return change


@pytest.fixture(scope="session")
def tiny_path() -> Path:
    return TINY


@pytest.fixture(scope="session")
def tiny():
    return liberty.read(TINY)


def made_up(*, arrays, lut, area, power, memory, blocks, fits=True):
    """One design with figures that are easy to reckon with."""
    return {
        "configuration": {},
        "configuration_hash": "0" * 12,
        "options": "--variant x --preset paper",
        "pes": sum(rows * columns for rows, columns in arrays),
        "arrays": arrays,
        "xc7": {
            "device": "xc7",
            "resources": {
                "LUT": {"used": lut, "available": None},
                "FF": {"used": lut // 2, "available": None},
                "RAMB36": {"used": 12, "available": None},
                "RAMB18": {"used": 0, "available": None},
                "DSP48E1": {"used": 180, "available": None},
            },
            "blocks": {block: {"LUT": value} for block, value in blocks.items()},
            "commands": ["python -m synth fpga --device xc7"],
            "date": "2026-01-03",
        },
        "ecp5": {
            "device": "LFE5U-85F",
            "fits": fits,
            "over": {} if fits else {"LUT4EQ": lut * 2 - 100},
            "not_routed": None if fits else "the design does not fit",
            "config": {"lut_multiplier_rows": 2},
            "resources": {
                "LUT4EQ": {"used": lut * 2, "available": 83640 if fits else 100},
                "MULT18X18D": {"used": 156, "available": 156},
            },
            "blocks": {block: {"LUT4EQ": 2 * value} for block, value in blocks.items()},
            "command": "python -m synth fpga --device LFE5U-85F --no-route",
            "fmax_mhz": {"1": 50.0, "2": 56.5, "3": 53.0} if fits else {},
            "critical_path": {"from": "a.b", "to": "c.d", "block": "main array"},
            "date": "2026-01-03",
        },
        "asic": {
            "library": "made-up cells",
            "node_nm": 45,
            "corner": "typical",
            "basis": "no placement",
            "area_um2": {
                "combinational": area * 0.7,
                "sequential": area * 0.2,
                "buffers_inverters": area * 0.1,
                "total": area,
            },
            "blocks": {
                block_of(path): area * value / sum(blocks.values())
                for path, value in blocks.items()
            },
            "date": "2026-01-02",
            "fmax_mhz": 400.0,
            "critical_path": {"from": "x", "to": "y", "block": "main array"},
            "power_mw": {
                "internal": power / 2,
                "switching": power / 4,
                "leakage": power / 4,
                "total": power,
                "clock_mhz": 100.0,
                "activity": "a made-up run",
                "cycles": 2000,
            },
            "memory_power_mw": {"dynamic": 5.0, "leakage": 11.0},
            "not_available": {"net interconnect area": "the library has none"},
        },
        "sram": {
            "memories": [
                {
                    "purpose": "global buffer",
                    "count": 4,
                    "words": 4096,
                    "width": 192,
                    "bits": 4 * 4096 * 192,
                    "area_um2": memory,
                    "leakage_mw": 11.0,
                    "each": {
                        "area_um2": memory / 4,
                        "read_energy_pj": 37.0,
                        "write_energy_pj": 38.0,
                        "leakage_mw": 2.75,
                        "access_time_ns": 1.75,
                        "exact": variant_is_exact(memory),
                    },
                }
            ],
            "area_um2": memory,
            "leakage_mw": 11.0,
            "area_by_purpose_um2": {"global buffer": memory},
            "technology": {"node_nm": 45, "cell_type": "itrs-lop", "temperature_k": 300},
            "notes": ["An estimate."],
            "date": "2026-01-02",
        },
    }


def variant_is_exact(memory):
    return memory != 2_000_000


@pytest.fixture
def designs():
    main_array = {"core0.matrix.array": 30_000, "core0.load": 7_000, "core0.store": 3_000}
    base = {"arrays": [[12, 15]], "memory": 2_000_000.0}
    two = [[12, 15], [8, 10]]
    predictor = {**main_array, "core1.matrix.array": 16_000, "core1.matrix.matmul": 4_000}
    return {
        "baseline": made_up(lut=40_000, area=1e6, power=100.0, blocks=main_array, **base),
        "low": made_up(lut=40_400, area=1.01e6, power=101.0, blocks=main_array, **base),
        "efficient": made_up(
            lut=41_000, area=1.02e6, power=103.0, blocks=main_array, arrays=[[12, 15]], memory=3e6
        ),
        "max": made_up(
            lut=60_000, area=1.5e6, power=150.0, blocks=predictor, arrays=two, memory=3e6,
            fits=False,
        ),
        # 36 PEs more for 9000 LUTs, 180 000 square micrometres, 18 mW.
        "probe_main": made_up(
            lut=49_000, area=1.18e6, power=118.0, blocks=main_array, arrays=[[12, 18]], memory=2e6
        ),
        # Two of ten columns less: 4000 LUTs, 80 000 square micrometres.
        "probe_predictor": made_up(
            lut=56_000, area=1.42e6, power=142.0, blocks=predictor, arrays=[[12, 15], [8, 8]],
            memory=3e6,
        ),
    }  # fmt: skip
