"""Equal time: what backpropagation does while ADA-GP predicts, if it leaves batches out instead."""

from collections.abc import Callable
from dataclasses import dataclass

from perf.counted import Count
from perf.counted.count import BatchCount

from .designs import VARIANTS

__all__ = ["Skipping", "forward_cycles", "skipping"]


@dataclass(frozen=True, kw_only=True)
class Skipping:
    """In the time in which ``variant`` does one batch of Phase BP and one of Phase GP, ``baseline``
    does so many with exact gradients. ADA-GP's own number is 1.

    Members
    -------
    free : if each goes with a skipped batch that costs nothing, which is plain backpropagation on
        half of the data in the same time
    forward : if each goes with a skipped batch that costs its forward pass
    """

    network: str
    variant: str
    free: float
    forward: float


def forward_cycles(batch: BatchCount) -> int:
    """Cycles of the forward pass with the loss, by the layers' clock."""
    return sum(
        phases.get(phase, 0) for phases in batch.layers.values() for phase in ("forward", "loss")
    )


def skipping(network: str, baseline: Count, get: Callable[[str], Count | None]) -> list[Skipping]:
    """Every variant that was counted; ``get``: its count by name."""
    found = []
    plain = baseline.bp.cycles
    for variant in VARIANTS:
        own = get(variant)
        if own is not None and own.reason is None:
            pair = own.bp.cycles + own.gp.cycles
            found.append(
                Skipping(network=network, variant=variant, free=pair / plain,
                         forward=pair / (plain + forward_cycles(baseline.bp)))
            )  # fmt: skip
    return found
