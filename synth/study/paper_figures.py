"""Figures of the ADA-GP paper that this project's synthesis results are put beside.

Source: V. Janfaza, S. Mandal, F. Mahmud, A. Muzahid, "ADA-GP: Accelerating DNN Training By Adaptive
Gradient Prediction", MICRO 2023, arXiv:2305.13236; Table 4 (FPGA) and
Table 5 (ASIC) of its hardware section. Only what is known for certain stands here. A cell that is
None was not at hand when this was written: it is shown as such and never estimated.
"""

__all__ = [
    "AREA_OVERHEAD_PERCENT",
    "ASIC_COLUMNS",
    "FPGA_COLUMNS",
    "NOT_AT_HAND",
    "PREDICTOR_MEMORY_RAMB36",
    "SOURCE",
    "as_json",
]

SOURCE = "Janfaza et al., ADA-GP, MICRO 2023, arXiv:2305.13236"

NOT_AT_HAND = "not at hand"

#: Area over that of the baseline accelerator, in per cent.
AREA_OVERHEAD_PERCENT = {"low": 1.7, "efficient": 2.6, "max": 8.3}

#: Block RAMs that the predictor memory adds, in the designs that have one.
PREDICTOR_MEMORY_RAMB36 = 1080

#: Columns of Table 4.
FPGA_COLUMNS = ("LUT", "FF", "RAMB36", "RAMB18", "DSP48E1")

#: Columns of Table 5, those of its area part and those of its power part.
ASIC_COLUMNS = {
    "area": ("combinational", "sequential", "buffers_inverters", "net interconnect", "total"),
    "power": ("internal", "switching", "leakage", "total"),
}


def as_json() -> dict:
    """All of it."""
    return {
        "source": SOURCE,
        "area_overhead_percent": dict(AREA_OVERHEAD_PERCENT),
        "predictor_memory_ramb36": PREDICTOR_MEMORY_RAMB36,
        "not_at_hand": "absolute figures of Tables 4 and 5",
    }
