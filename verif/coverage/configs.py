"""The configurations that the coverage campaign simulates."""

__all__ = ["CONFIGS", "QUICK"]

#: Sizes at which nothing divides anything.
_UNEVEN = {
    "rows": 6,
    "columns": 5,
    "predictor_rows": 3,
    "predictor_columns": 7,
    "accumulator_depth": 40,
    "predictor_accumulator_depth": 33,
    "buffer_banks": 3,
    "buffer_bank_depth": 1024,
    "predictor_memory_banks": 5,
    "predictor_memory_bank_depth": 512,
}

#: Name -> fields. Every variant; sizes that divide and sizes that do not; words of one and of
#: several groups; a queue of one command; beats narrower and wider than a word; integers.
CONFIGS = {
    "baseline": {"variant": "baseline"},
    "low": {
        "variant": "low",
        "rows": 5,
        "columns": 3,
        "command_queue_depth": 1,
        "axi_data_width": 128,
        "axi_outstanding_reads": 2,
    },
    "efficient": {"variant": "efficient", "rows": 8, "columns": 4},
    "max": {"variant": "max", **_UNEVEN},
    "int8": {"variant": "baseline", **_UNEVEN, "operand_format": "int8"},
}

#: What ``--quick`` simulates.
QUICK = ("baseline",)
