"""The configurations that the coverage campaign simulates."""

__all__ = ["BLOCKS", "CONFIGS", "PARTS", "QUICK"]

#: Name -> fields. Every variant; sizes that divide and sizes that do not; words of one and of
#: several groups; a queue of one command; beats narrower and wider than a word; addresses of 32 and
#: of 40 bits. Arrays are small: their size decides about the time to compile, and says nothing
#: about what is reached.
CONFIGS = {
    "baseline": {"variant": "baseline"},
    "low": {
        "variant": "low",
        "rows": 3,
        "columns": 2,
        "command_queue_depth": 1,
        "axi_data_width": 128,
        "axi_outstanding_reads": 2,
    },
    "efficient": {
        "variant": "efficient",
        "rows": 4,
        "columns": 2,
        "post_lanes": 2,
        "axi_address_width": 40,
    },
    "max": {
        "variant": "max",
        "rows": 3,
        "columns": 3,
        "predictor_rows": 2,
        "predictor_columns": 3,
        "accumulator_depth": 40,
        "predictor_accumulator_depth": 33,
        "buffer_banks": 3,
        "buffer_bank_depth": 1024,
        "predictor_memory_banks": 5,
    },
}

#: Benches of single blocks, which have configurations of their own.
BLOCKS = "blocks"
#: Everything that a campaign simulates.
PARTS = (*CONFIGS, BLOCKS)
#: What ``--quick`` simulates.
QUICK = ("baseline",)
