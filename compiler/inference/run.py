"""What a core does at a stretch: a fused product of some images, and how it is cut."""

from dataclasses import dataclass
from math import gcd

from compiler.tensors.tensor import Tensor
from hw.config import CoreConfig

from .fused_product import FusedProduct
from .tiling import Box, Tile

__all__ = ["Plan", "Run", "group_unit"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A product of all images of ``source`` on ``core``.

    Members
    -------
    source, target : (N, H, W, C)
    weights : (KH, KW, CI, CO); ``bias``: (1, 1, column tiles, columns), or None
    """

    product: FusedProduct
    core: CoreConfig
    source: Tensor
    target: Tensor
    weights: Tensor
    bias: Tensor | None


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
    weights_memory : the one that weights and biases go through, 0 or 1
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
    weights_memory: int
    w_group: int = 1


def group_unit(core: CoreConfig) -> int:
    """Column tiles after which an output chunk ends at a word's end."""
    return core.rows // gcd(core.rows, core.columns)
