"""Figures of the ADA-GP paper that this project's synthesis results are put beside.

Source: V. Janfaza, S. Mandal, F. Mahmud, A. Muzahid, "ADA-GP: Accelerating DNN Training By Adaptive
Gradient Prediction", MICRO 2023, arXiv:2305.13236; Table 4 (FPGA) and Table 5 (ASIC). The figures
are read from the package :mod:`paper`, which holds all that the paper publishes.
"""

from paper import SOURCE, figures, table

__all__ = [
    "AREA_OVERHEAD_PERCENT",
    "ASIC_AREA",
    "ASIC_POWER",
    "EQUAL_COST_PES_PERCENT",
    "FPGA_POWER",
    "FPGA_POWER_OVERHEAD_PERCENT",
    "FPGA_RESOURCES",
    "PREDICTOR_MEMORY_RAMB36",
    "RESOURCE_NAMES",
    "SOURCE",
    "beyond_baseline_percent",
]

_FIGURES = figures()

#: Variant -> column -> cells, after the columns of Table 4.
FPGA_RESOURCES = table("4a")

#: Variant -> part -> watt, Table 4.
FPGA_POWER = table("4b")

#: Variant -> column -> area, Table 5. The paper does not state the unit.
ASIC_AREA = table("5a")

#: Variant -> part -> microwatt, Table 5.
ASIC_POWER = table("5b")

#: Resource as :mod:`synth.fpga.report` calls it -> column of Table 4.
RESOURCE_NAMES = {
    "LUT": "CLB LUTs",
    "FF": "CLB registers",
    "RAMB36": "RAMB36",
    "RAMB18": "RAMB18",
    "DSP48E1": "DSP48E1",
}

#: Area over that of the baseline accelerator as the text states it, in per cent.
AREA_OVERHEAD_PERCENT = _FIGURES["overheads_percent"]["asic_area"]

#: Power on the FPGA over that of the baseline as the text states it, in per cent.
FPGA_POWER_OVERHEAD_PERCENT = _FIGURES["overheads_percent"]["fpga_power"]

#: What is equal -> PEs that a baseline of equal cost has beyond the baseline, in per cent.
EQUAL_COST_PES_PERCENT = {
    name.removeprefix("same_"): entry["more_pes"]
    for name, entry in _FIGURES["same_cost_baseline_percent"].items()
}

#: Block RAMs that the predictor memory adds, in the designs that have one.
PREDICTOR_MEMORY_RAMB36 = (
    FPGA_RESOURCES["efficient"]["RAMB36"] - FPGA_RESOURCES["baseline"]["RAMB36"]
)


def beyond_baseline_percent(rows: dict, column: str) -> dict[str, float]:
    """Variant -> how much more of ``column`` it takes than ``baseline``, in per cent."""
    base = rows["baseline"][column]
    return {
        variant: 100 * (row[column] - base) / base
        for variant, row in rows.items()
        if variant != "baseline"
    }
