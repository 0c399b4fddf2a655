"""Sizes of one core, as its blocks see them."""

from dataclasses import dataclass
from functools import cached_property

__all__ = ["CoreConfig"]


@dataclass(frozen=True, kw_only=True)
class CoreConfig:
    """Sizes of one core, derived from :class:`hw.config.AdaGPConfig`; not constructed by users.

    Members
    -------
    index : position of the core (0: main, 1: predictor)
    rows, columns : PE array size; a buffer word of this core holds one operand per row
    operand_width : bits of one operand
    post_lanes : channels in a group
    post_groups : groups that post-processing handles per cycle
    accumulator_depth : vectors of ``columns`` accumulators in each of the two banks
    memories : ids of the memories this core's ports reach (0 global buffer, 1 predictor memory)
    has_vector, has_loss : which of the engines for training exist
    lut_multiplier_rows : rows whose multipliers are made of LUTs
    """

    index: int
    rows: int
    columns: int
    operand_width: int
    post_lanes: int
    post_groups: int
    accumulator_depth: int
    memories: tuple[int, ...]
    has_vector: bool = False
    has_loss: bool = False
    lut_multiplier_rows: int = 0

    @property
    def word_width(self) -> int:
        """Bits of a buffer word: one operand per row."""
        return self.rows * self.operand_width

    @cached_property
    def word_bytes(self) -> int:
        return self.word_width // 8

    @property
    def group_width(self) -> int:
        """Bits of a group: ``post_lanes`` operands, the unit of buffer write enables."""
        return self.post_lanes * self.operand_width

    @cached_property
    def groups_per_word(self) -> int:
        return self.rows // self.post_lanes

    @property
    def groups_per_vector(self) -> int:
        """Groups in one accumulator vector."""
        return self.columns // self.post_lanes

    @cached_property
    def chunks_per_wide(self) -> int:
        """Buffer groups that ``post_lanes`` 32-bit values take."""
        return 32 // self.operand_width

    @property
    def bias_words(self) -> int:
        """Buffer words that hold ``columns`` 32-bit biases in front of the weight tiles."""
        return -(-self.columns * 32 // self.word_width)

    @property
    def pes(self) -> int:
        return self.rows * self.columns
