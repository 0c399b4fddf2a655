"""Commands and sizes as kernels take them: arrays of one record."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from golden.arithmetic.formats import FloatFormat, IntFormat
from hw.config import CoreConfig
from hw.isa.encoding import ENGINE_FIELDS, Opcode

__all__ = ["LAYOUT", "command_record", "layout_record"]

_NAMES = {
    opcode: tuple(field.name for field in fields)
    for opcode, fields in ENGINE_FIELDS.items()
    if len(fields) > 1
}
_TYPES = {
    opcode: np.dtype([(name, np.int64) for name in names]) for opcode, names in _NAMES.items()
}
_VALUES = {opcode: itemgetter(*names) for opcode, names in _NAMES.items()}

#: Sizes of a core. ``first0`` and ``first1`` are the places of memories 0 and 1 in the array of all
#: of them, in bytes, or -1 if the core does not reach them; ``depth0`` and ``depth1`` count words.
LAYOUT = np.dtype(
    [
        (name, np.int64)
        for name in (
            "rows", "columns", "item_bytes", "word_bytes", "group_bytes", "post_lanes",
            "bias_words", "first0", "first1", "depth0", "depth1", "mantissa_bits",
            "exponent_bits",
        )
    ]
)  # fmt: skip


def command_record(opcode: Opcode, fields: Mapping[str, int]) -> np.ndarray[Any, Any]:
    """The engine's fields of a command."""
    return np.array([_VALUES[opcode](fields)], _TYPES[opcode])


def layout_record(
    core: CoreConfig,
    fmt: FloatFormat | IntFormat,
    first: Mapping[int, int],
    depth: Mapping[int, int],
) -> np.ndarray[Any, Any]:
    """Sizes of ``core``; ``first`` and ``depth`` of each memory, see :data:`LAYOUT`."""
    values = {
        "rows": core.rows,
        "columns": core.columns,
        "item_bytes": fmt.width // 8,
        "word_bytes": core.word_bytes,
        "group_bytes": core.group_width // 8,
        "post_lanes": core.post_lanes,
        "bias_words": core.bias_words,
        "mantissa_bits": fmt.mantissa_bits if fmt.is_float else 0,
        "exponent_bits": fmt.exponent_bits if fmt.is_float else 0,
    }
    for number in range(2):
        reached = number in core.memories
        values[f"first{number}"] = first[number] if reached else -1
        values[f"depth{number}"] = depth[number] if reached else 0
    return np.array([tuple(values[name] for name in LAYOUT.names or ())], LAYOUT)
