"""What a core does at a stretch: a stage over some images, how it is cut, what orders it."""

import enum
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

from compiler.tensors.intervals import Interval
from compiler.tensors.tensor import Tensor
from hw.config import CoreConfig

from .tiling import Box, Tile

if TYPE_CHECKING:
    from compiler.frontend.sequential import Stage

__all__ = ["Plan", "Run", "Semaphore", "group_unit"]


class Semaphore(enum.IntEnum):
    """Semaphores of one core, counted from its first."""

    X_FULL = 0
    X_FREE = 1
    W_FULL = 2
    W_FREE = 3
    ACC_FULL = 4
    ACC_FREE = 5
    OUT_FULL = 6
    OUT_FREE = 7
    DONE = 8
    #: Counted at the core that waits: the other core has stored an input.
    INPUT = 9


@dataclass(frozen=True, kw_only=True)
class Run:
    """A stage over ``images`` (begin, end) on ``core``.

    Members
    -------
    weights : (KH, KW, CI, CO); ``bias``: (1, 1, column tiles, columns), or None
    waits_input : the other core stores the input; a token says when
    signals_input : the other core reads the output
    first : no run of this core comes before it
    last : none comes after it
    """

    stage: "Stage"
    core: CoreConfig
    images: Interval
    source: Tensor
    target: Tensor
    weights: Tensor
    bias: Tensor | None
    weights_memory: int
    first: bool = True
    last: bool = True
    waits_input: bool = False
    signals_input: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a run is cut.

    Members
    -------
    tiles : output tiles, in order
    boxes : boxes of K tiles
    head_boxes : boxes of the very first product, smaller so that it can begin early
    chunk_x : inputs are loaded for each box instead of for all of them
    resident : all weights stay in the buffer
    x_slots, w_slots, out_slots : slots of each ring
    group : column tiles whose outputs are stored together
    w_group : column tiles whose weights are loaded together
    """

    tiles: tuple[Tile, ...]
    boxes: tuple[Box, ...]
    head_boxes: tuple[Box, ...]
    chunk_x: bool
    resident: bool
    x_slots: int
    w_slots: int
    out_slots: int
    group: int
    w_group: int = 1


def group_unit(core: CoreConfig) -> int:
    """Column tiles after which an output chunk ends at a word's end."""
    return core.rows // gcd(core.rows, core.columns)
