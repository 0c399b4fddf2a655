"""Memories of a configuration: SRAM macros of a chip, block RAM of an FPGA."""

from dataclasses import dataclass

from hw.config import AdaGPConfig
from hw.isa.loops import COMMAND_BYTES
from hw.isa.packing import SLOTS

from .measured import report_designs

__all__ = ["Macro", "block_rams", "other_sram", "sram_macros"]

#: Bits with a write enable of their own.
_LANE = 9
#: Words from which on a small memory is in block RAM.
_DEEP = {"xc7": 65, "ecp5": 64}
#: Words × bits that one block can be. 7-series: in halves of a RAMB36, with parity as data.
_SHAPES = {
    "xc7": (
        (0.5, 512, 36), (0.5, 1024, 18), (0.5, 2048, 9), (0.5, 4096, 4), (0.5, 8192, 2),
        (0.5, 16384, 1), (1, 512, 72), (1, 1024, 36), (1, 2048, 18), (1, 4096, 9), (1, 8192, 4),
        (1, 16384, 2), (1, 32768, 1),
    ),
    "ecp5": (
        (1, 512, 36), (1, 1024, 18), (1, 2048, 9), (1, 4096, 4), (1, 8192, 2), (1, 16384, 1),
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Macro:
    """``count`` equal memories of ``words`` × ``width`` bits, of which ``granularity`` bits are
    written at a time."""

    purpose: str
    words: int
    width: int
    granularity: int
    count: int


def sram_macros(config: AdaGPConfig) -> list[Macro]:
    """The large memories: buffers and accumulators. A test compares them with those that
    ``python -m synth sram`` reads from the Verilog."""
    found = []
    for memory, banks in config.memory_banks.items():
        core = config.memory_core[memory]
        purpose = ("global buffer", "predictor memory")[memory]
        for depth in dict.fromkeys(banks):
            found.append(Macro(purpose=purpose, words=depth, width=core.word_width,
                               granularity=core.group_width, count=banks.count(depth)))  # fmt: skip
    for core in config.cores:
        width = 32 * core.columns
        found.append(Macro(purpose=f"accumulators, core {core.index}",
                           words=core.accumulator_depth, width=width, granularity=width,
                           count=2))  # fmt: skip
    return found


def other_sram(config: AdaGPConfig) -> float:
    """Area in µm² of the small memories (commands, registers of LOSS) as the synthesis report
    measured it: they depend on the number of cores alone."""
    design = report_designs()["max" if config.has_predictor_core else "baseline"]
    large = ("global buffer", "predictor memory", "accumulators")
    return float(sum(
        memory["area_um2"] for memory in design["sram"]["memories"]
        if not memory["purpose"].startswith(large)
    ))  # fmt: skip


def _small_macros(config: AdaGPConfig, family: str) -> list[Macro]:
    """Small memories that are in block RAM nevertheless: those that are too deep for look-up tables
    of the family."""
    found = [
        Macro(
            purpose="parts of packed commands",
            words=SLOTS * COMMAND_BYTES // 8,
            width=64,
            granularity=64,
            count=1,
        ),
        Macro(purpose="last commands", words=64, width=256, granularity=256, count=1),
    ]
    if config.cores[0].has_loss:
        found.append(
            Macro(purpose="registers of LOSS", words=64, width=32, granularity=32, count=2)
        )
    return [macro for macro in found if macro.words >= _DEEP[family]]


def block_rams(config: AdaGPConfig, family: str) -> float:
    """RAMB36 (two RAMB18 count as one) of ``xc7`` or DP16KD of ``ecp5``.

    A group of bits that is written together takes whole lanes of 9 bits, of which a block has as
    many as it is wide; the narrow shapes have none and serve one group. Of the shapes the one with
    the fewest blocks is taken.
    """
    return sum(
        macro.count * min(
            blocks * -(-macro.words // words) * _side_by_side(macro, bits)
            for blocks, words, bits in _SHAPES[family]
        )
        for macro in (*sram_macros(config), *_small_macros(config, family))
    )  # fmt: skip


def _side_by_side(macro: Macro, bits: int) -> int:
    groups = macro.width // macro.granularity
    if bits % _LANE:
        return groups * -(-macro.granularity // bits)
    return -(-groups * -(-macro.granularity // _LANE) // (bits // _LANE))
