"""Differences paired by seed, and which of them count."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from scipy.stats import ttest_rel

__all__ = ["LEVEL", "Difference", "corrected", "difference"]

#: A difference counts if chance makes one as large in fewer cases than this, all of them together.
LEVEL = 0.05

_Key = TypeVar("_Key")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Of a method's accuracy to that of the one it is compared with, on the same seeds.

    Members
    -------
    method, against : names
    mean, error : in points, and the standard error of the mean
    wins, seeds : on how many seeds it was better, of how many
    chance : p of the paired t test
    """

    method: str
    against: str
    mean: float
    error: float
    wins: int
    seeds: int
    chance: float

    @property
    def significant(self) -> bool:
        """Whether it counts."""
        return self.chance < LEVEL


def difference(
    method: str, against: str, own: Sequence[float], other: Sequence[float]
) -> Difference:
    """Of accuracies, from 0 to 1, by seed."""
    pairs = [100 * (a - b) for a, b in zip(own, other, strict=True)]
    spread = statistics.stdev(pairs)
    return Difference(
        method=method, against=against, mean=statistics.mean(pairs),
        error=spread / math.sqrt(len(pairs)), wins=sum(pair > 0 for pair in pairs),
        seeds=len(pairs),
        chance=float(ttest_rel(own, other).pvalue) if spread else float(not any(pairs)),
    )  # fmt: skip


def corrected(found: Mapping[_Key, Difference]) -> dict[_Key, Difference]:
    """Holm: the smallest p times the number of comparisons, the next one times one less."""
    worst, result = 0.0, dict(found)
    ordered = sorted(found.items(), key=lambda item: item[1].chance)
    for place, (key, own) in enumerate(ordered):
        worst = max(worst, min(1.0, own.chance * (len(found) - place)))
        result[key] = replace(own, chance=worst)
    return result
