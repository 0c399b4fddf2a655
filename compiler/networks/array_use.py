"""How well a batch uses the PE array: by layer and direction, and what it waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.training.program import StepInfo
from hw.config import CoreConfig

__all__ = ["PRODUCTS", "ArrayUse", "cause_of", "ratio", "together"]

#: Directions of products.
PRODUCTS = ("forward", "input gradient", "weight gradient")


@dataclass(frozen=True, kw_only=True)
class ArrayUse:
    """The products of a layer in a direction, or of several.

    Members
    -------
    cycles : that they take
    vectors : that enter the array, in a cycle each
    macs : of weights and numbers that are not padding
    """

    cycles: int = 0
    vectors: int = 0
    macs: int = 0

    def __add__(self, other: "ArrayUse") -> "ArrayUse":
        return ArrayUse(
            cycles=self.cycles + other.cycles,
            vectors=self.vectors + other.vectors,
            macs=self.macs + other.macs,
        )

    def allowed(self, core: CoreConfig) -> float:
        """Share of PEs and cycles that could be used if a vector entered in every cycle: what the
        tiling of channels to rows and columns, and of pixels to rows, allows."""
        return ratio(self.macs, core.rows * core.columns * self.vectors)

    @property
    def busy(self) -> float:
        """Share of cycles in which a vector enters: the share of what tiling allows."""
        return ratio(self.vectors, self.cycles)


def ratio(part: int, whole: int) -> float:
    """``part`` of ``whole``; 0 where there is nothing."""
    return part / whole if whole else 0.0


def cause_of(step: StepInfo) -> str:
    """Why the array takes no vector in cycles of a step: names of units, or of work on them."""
    if step.direction.endswith("update"):
        return "updates (VECTOR)"
    if step.direction == "loss":
        return "loss (LOSS)"
    if step.direction not in (*PRODUCTS, "backward"):
        return "predictor"
    if step.vectors:
        return "loads and stores of products (DMA)"
    return "layers between products (VECTOR)"


def together(uses: Sequence[Mapping[str, ArrayUse]]) -> dict[str, ArrayUse]:
    """Sums by direction."""
    found: dict[str, ArrayUse] = {}
    for use in uses:
        for direction, part in use.items():
            found[direction] = found.get(direction, ArrayUse()) + part
    return found
