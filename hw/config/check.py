"""Which values of a :class:`~hw.config.AdaGPConfig` are allowed; a message for each that is not."""

import dataclasses
from typing import Any

__all__ = ["BUFFER_ADDRESS_WIDTH", "check_fields", "check_together"]

#: Width in bits of the buffer address field in commands; its top bit selects the memory.
BUFFER_ADDRESS_WIDTH = 24


def check_fields(config: Any) -> list[str]:
    """Every field by itself: its type, and its range or choices."""
    problems = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        meta = field.metadata
        if field.type is int and (isinstance(value, bool) or not isinstance(value, int)):
            problems.append(f"{field.name} must be an integer, not {value!r}")
        elif field.type is bool:
            if not isinstance(value, bool):
                problems.append(f"{field.name} must be true or false, not {value!r}")
        elif meta["choices"] is not None:
            if value not in meta["choices"]:
                allowed = ", ".join(str(choice) for choice in meta["choices"])
                problems.append(f"{field.name} must be one of {allowed}, not {value!r}")
        elif not meta["minimum"] <= value <= meta["maximum"]:
            problems.append(
                f"{field.name} must be an integer from {meta['minimum']} to {meta['maximum']}, "
                f"not {value!r}"
            )
    return problems


def check_together(config: Any) -> list[str]:
    """Fields that must fit each other, once each is right by itself."""
    problems = []

    def check(condition: bool, text: str) -> None:
        if not condition:
            problems.append(text)

    for prefix in ("", "predictor_") if config.has_predictor_core else ("",):
        rows, columns = getattr(config, prefix + "rows"), getattr(config, prefix + "columns")
        lanes = getattr(config, prefix + "post_lanes")
        check(
            lanes == 0 or (rows % lanes == 0 and columns % lanes == 0),
            f"{prefix}post_lanes must divide {prefix}rows ({rows}) and {prefix}columns "
            f"({columns}), or be 0, not {lanes!r}",
        )
    lut_rows = config.rows if config.format.is_float else 0
    check(
        config.lut_multiplier_rows <= lut_rows,
        f"lut_multiplier_rows must be at most rows ({config.rows}), and 0 for integer formats, "
        f"not {config.lut_multiplier_rows!r}",
    )
    limit = 1 << (BUFFER_ADDRESS_WIDTH - 1)
    for memory in ("buffer", "predictor_memory"):
        banks, depth = getattr(config, f"{memory}_banks"), getattr(config, f"{memory}_bank_depth")
        check(
            banks * depth <= limit,
            f"{memory}_banks times {memory}_bank_depth must be at most {limit} words, "
            f"not {banks * depth}",
        )
        check(
            depth & (depth - 1) == 0, f"{memory}_bank_depth must be a power of two, not {depth!r}"
        )
    check(
        not config.row_list_depth or config.has_training_engines,
        f"row_list_depth must be 0 without training or a float format, not "
        f"{config.row_list_depth!r}",
    )
    beats = 4096 // config.beat_bytes
    check(
        config.axi_burst_beats <= beats,
        f"axi_burst_beats must be at most {beats} at axi_data_width {config.axi_data_width} "
        f"(a burst stays within 4 KiB), not {config.axi_burst_beats!r}",
    )
    return problems
