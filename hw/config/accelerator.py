"""The one configuration object: every size of the accelerator, validated on construction.

Everything else (Verilog, manifest, C header, documentation, compiler, drivers, models) is derived
from an :class:`AdaGPConfig`. A *variant* is a choice of cores and memories, nothing else; a
*preset* is a named set of sizes.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import gcd, lcm
from typing import Any

from hw.formats import FORMATS, FloatFormat, IntFormat

from .check import check_fields, check_together
from .core import CoreConfig

__all__ = [
    "AdaGPConfig",
    "ConfigError",
    "PRESETS",
    "TECHNOLOGIES",
    "VARIANTS",
    "make_config",
]

#: Variant name -> (has a predictor memory, has a predictor core). Paper, section 4.2.
VARIANTS = {
    "baseline": (False, False),
    "low": (False, False),
    "efficient": (True, False),
    "max": (True, True),
}

#: What Verilog is written for: any tool, or Lattice ECP5 with its multiplier blocks instantiated.
TECHNOLOGIES = ("generic", "ecp5")

_AXI_DATA_WIDTHS = (32, 64, 128, 256, 512)


class ConfigError(ValueError):
    """One or more configuration fields are wrong.

    ``problems`` lists one message for every bad field; the exception text joins them.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(self.problems))


def _field(
    default: Any, doc: str, *, minimum: int | None = None, maximum: int | None = None,
    choices: tuple[Any, ...] | None = None,
) -> Any:  # fmt: skip
    return dataclasses.field(
        default=default,
        metadata={"doc": doc, "minimum": minimum, "maximum": maximum, "choices": choices},
    )


@dataclass(frozen=True, kw_only=True)
class AdaGPConfig:
    """Sizes and choices of one accelerator.

    All fields are checked on construction.

    Raises
    ------
    ConfigError
        naming every field that is wrong, its value and what is allowed.
    """

    variant: str = _field("max", "which cores and memories exist", choices=tuple(VARIANTS))
    operand_format: str = _field(
        "bf16", "number format of activations and weights", choices=tuple(FORMATS)
    )
    technology: str = _field(
        "generic",
        "what the Verilog is for: any tool, or ECP5 with MULT18X18D blocks instantiated",
        choices=TECHNOLOGIES,
    )
    rows: int = _field(12, "rows of the main PE array", minimum=1, maximum=256)
    columns: int = _field(15, "columns of the main PE array", minimum=1, maximum=256)
    predictor_rows: int = _field(8, "rows of the predictor PE array (max)", minimum=1, maximum=256)
    predictor_columns: int = _field(
        10, "columns of the predictor PE array (max)", minimum=1, maximum=256
    )
    lut_multiplier_rows: int = _field(
        0,
        "rows of the main PE array whose multipliers are made of LUTs, where a device has fewer "
        "multiplier blocks than PEs (float formats)",
        minimum=0,
        maximum=256,
    )
    post_lanes: int = _field(
        0,
        "channels in a group, which VECTOR handles per cycle, in the main core; divides rows and "
        "columns; 0 chooses the largest such number up to 4",
        minimum=0,
        maximum=256,
    )
    predictor_post_lanes: int = _field(
        0, "the same for the predictor core (max)", minimum=0, maximum=256
    )
    post_groups: int = _field(
        2,
        "groups post-processed per cycle in each core; no more than a word or a vector has",
        minimum=1,
        maximum=2,
    )
    accumulator_depth: int = _field(
        512, "output vectors in each of the two accumulator banks", minimum=16, maximum=1 << 16
    )
    predictor_accumulator_depth: int = _field(
        256, "the same for the predictor core (max)", minimum=16, maximum=1 << 16
    )
    buffer_banks: int = _field(4, "banks of the global buffer", minimum=1, maximum=16)
    buffer_bank_depth: int = _field(
        4096, "words in each bank of the global buffer", minimum=16, maximum=1 << 20
    )
    predictor_memory_banks: int = _field(
        4, "banks of the predictor memory (efficient, max)", minimum=1, maximum=16
    )
    predictor_memory_bank_depth: int = _field(
        8192, "words in each bank of the predictor memory", minimum=16, maximum=1 << 20
    )
    axi_data_width: int = _field(
        256, "bits of the AXI4 data bus", minimum=32, maximum=512, choices=_AXI_DATA_WIDTHS
    )
    axi_address_width: int = _field(40, "bits of an AXI4 address", minimum=32, maximum=64)
    axi_prot: int = _field(
        0,
        "AxPROT of all memory accesses: a sum of 1 privileged, 2 non-secure, 4 instruction",
        minimum=0,
        maximum=7,
    )
    axi_burst_beats: int = _field(16, "longest AXI4 burst in beats", minimum=1, maximum=256)
    axi_outstanding_reads: int = _field(
        16, "read bursts a DMA channel may have in flight", minimum=1, maximum=64
    )
    command_queue_depth: int = _field(4, "commands each queue holds", minimum=1, maximum=64)
    semaphores: int = _field(
        16,
        "token counters that order the queues of one core; the compiler needs 10, for training 16",
        minimum=10,
        maximum=16,
    )
    training: bool = _field(
        True,
        "the engines for VECTOR (every core) and LOSS (main core) exist; integer formats have none "
        "whatever this says",
        choices=(True, False),
    )
    row_list_depth: int = _field(
        0,
        "rows that the list of a sampled backward pass may have; 0 leaves such lists out, a float "
        "format and training are needed for others",
        minimum=0,
        maximum=1 << 16,
    )

    def __post_init__(self) -> None:
        problems = check_fields(self) or check_together(self)
        if problems:
            raise ConfigError(problems)

    # Derived ----------------

    @property
    def format(self) -> FloatFormat | IntFormat:
        """The operand's :class:`~hw.formats.FloatFormat` or :class:`~hw.formats.IntFormat`."""
        return FORMATS[self.operand_format]

    @property
    def has_predictor_memory(self) -> bool:
        return VARIANTS[self.variant][0]

    @property
    def has_predictor_core(self) -> bool:
        return VARIANTS[self.variant][1]

    @property
    def has_training_engines(self) -> bool:
        """Whether VECTOR and LOSS exist."""
        return self.training and self.format.is_float

    @cached_property
    def cores(self) -> tuple[CoreConfig, ...]:
        """The cores this variant has: a tuple of one or two :class:`CoreConfig`."""
        width = self.format.width
        main = CoreConfig(
            index=0,
            rows=self.rows,
            columns=self.columns,
            operand_width=width,
            **self._groups(self.rows, self.columns, self.post_lanes),
            accumulator_depth=self.accumulator_depth,
            memories=(0, 1) if self.has_predictor_memory and not self.has_predictor_core else (0,),
            has_vector=self.has_training_engines,
            has_loss=self.has_training_engines,
            lut_multiplier_rows=self.lut_multiplier_rows,
        )
        if not self.has_predictor_core:
            return (main,)
        predictor = CoreConfig(
            index=1,
            rows=self.predictor_rows,
            columns=self.predictor_columns,
            operand_width=width,
            **self._groups(self.predictor_rows, self.predictor_columns, self.predictor_post_lanes),
            accumulator_depth=self.predictor_accumulator_depth,
            memories=(1,),
            has_vector=self.has_training_engines,
        )
        return (main, predictor)

    def _groups(self, rows: int, columns: int, lanes: int) -> dict[str, Any]:
        lanes = lanes or _auto_lanes(rows, columns)
        most = min(rows, columns) // lanes
        return {"post_lanes": lanes, "post_groups": min(self.post_groups, most)}

    @property
    def pes(self) -> int:
        """Multiply-accumulate units in all cores."""
        return sum(core.pes for core in self.cores)

    @cached_property
    def memory_banks(self) -> dict[int, tuple[int, ...]]:
        """Memory id -> tuple of bank depths in words."""
        banks = {0: (self.buffer_bank_depth,) * self.buffer_banks}
        if self.has_predictor_memory:
            banks[1] = (self.predictor_memory_bank_depth,) * self.predictor_memory_banks
        return banks

    @property
    def memory_depth(self) -> dict[int, int]:
        """Memory id -> words."""
        return {memory: sum(banks) for memory, banks in self.memory_banks.items()}

    @property
    def memory_core(self) -> dict[int, CoreConfig]:
        """Memory id -> the :class:`CoreConfig` whose word it holds."""
        return {memory: core for core in self.cores for memory in core.memories}

    @cached_property
    def beat_bytes(self) -> int:
        return self.axi_data_width // 8

    @property
    def granule_bytes(self) -> int:
        """Alignment in bytes of every DRAM address, run, row and stride in a program.

        The largest unit that divides an AXI beat and the words of all cores.
        """
        return gcd(self.beat_bytes, *(core.word_bytes for core in self.cores))

    @property
    def granule_operands(self) -> int:
        """Operands in a granule, or in the fewest whole granules that hold whole operands."""
        width = self.format.width
        return lcm(8 * self.granule_bytes, width) // width

    @property
    def semaphore_count(self) -> int:
        return self.semaphores * len(self.cores)

    def as_dict(self) -> dict[str, Any]:
        """Every field, in declaration order."""
        return dataclasses.asdict(self)

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits that identify the configuration. What is left out counts for
        nothing: without lists of rows the hardware is what it was before there were any."""
        fields = self.as_dict()
        if not self.row_list_depth:
            del fields["row_list_depth"]
        text = json.dumps(fields, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _auto_lanes(rows: int, columns: int) -> int:
    common = gcd(rows, columns)
    return max(lanes for lanes in range(1, min(4, common) + 1) if common % lanes == 0)


#: Preset name -> (one line about it, fields that differ from the defaults).
PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny": (
        "4 x 4 PEs and 4 x 4 for the predictor; for tests, simulates fast",
        {
            "rows": 4,
            "columns": 4,
            "predictor_rows": 4,
            "predictor_columns": 4,
            "accumulator_depth": 128,
            "predictor_accumulator_depth": 128,
            "buffer_banks": 4,
            "buffer_bank_depth": 512,
            "predictor_memory_banks": 4,
            "predictor_memory_bank_depth": 512,
            "axi_data_width": 64,
            "axi_address_width": 32,
        },
    ),
    "ulx3s": (
        "4 x 8 PEs and 4 x 4 for the predictor, forward only; fits an ECP5-85",
        {
            "technology": "ecp5",
            "rows": 4,
            "columns": 8,
            "predictor_rows": 4,
            "predictor_columns": 4,
            "post_lanes": 1,
            "predictor_post_lanes": 1,
            "post_groups": 1,
            "accumulator_depth": 256,
            "predictor_accumulator_depth": 128,
            "buffer_banks": 4,
            "buffer_bank_depth": 1024,
            "predictor_memory_banks": 4,
            "predictor_memory_bank_depth": 512,
            "axi_data_width": 64,
            "axi_address_width": 32,
            "axi_outstanding_reads": 8,
            "training": False,
        },
    ),
    "paper": (
        "12 x 15 PEs and 8 x 10 for the predictor, as in the paper (section 6.1)",
        {},
    ),
}


def make_config(*, variant: str = "max", preset: str = "paper", **fields: Any) -> AdaGPConfig:
    """Build a configuration from a preset and single fields that override it.

    Raises
    ------
    ConfigError
        for an unknown preset or field, or for any wrong value.
    """
    problems = []
    if preset not in PRESETS:
        problems.append(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    known = [field.name for field in dataclasses.fields(AdaGPConfig)]
    for name in fields:
        if name not in known:
            problems.append(f"unknown field {name!r}; fields are {', '.join(known)}")
    if problems:
        raise ConfigError(problems)
    return AdaGPConfig(**{"variant": variant, **PRESETS[preset][1], **fields})
