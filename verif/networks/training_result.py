"""What a network in training is fed with, and what came of it beside golden."""

from dataclasses import dataclass

import numpy as np

from golden.layers.optimizer import SGD, Adam, require_optimizer
from golden.prediction.schedule import Phase

__all__ = ["Batch", "Difference", "TrainingResult", "compare_arrays", "in_phases"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Images (N, H, W, C), labels or targets, of several inputs or outputs a list, and the
    optimizer of one step; ``phase`` is what gradient prediction does with them."""

    images: np.ndarray | list
    targets: np.ndarray | list
    optimizer: SGD | Adam
    phase: Phase = Phase.BP

    def __post_init__(self):
        require_optimizer(self.optimizer)

    @property
    def count(self) -> int:
        """How many images it has."""
        several = isinstance(self.images, list | tuple)
        return len(self.images[0] if several else self.images)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first wrong number of a tensor after a batch: ``codes`` and real ``numbers``, each what
    it is and what it should be."""

    batch: int
    tensor: str
    position: tuple
    codes: tuple[int, int]
    numbers: tuple[float, float]
    count: int
    size: int

    def __str__(self):
        (actual, expected), numbers = self.codes, self.numbers
        return (
            f"batch {self.batch}: {self.tensor}{list(self.position)} is {actual:#x} "
            f"({numbers[0]:.9g}), expected {expected:#x} ({numbers[1]:.9g}); "
            f"{self.count} of {self.size} are wrong"
        )


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What came of a run.

    Members
    -------
    differences : list of :class:`Difference`, in order of computation; empty if everything equals
        golden
    losses, correct : of every batch, as the accelerator left them; None where none is computed
    rejected : of every batch, how many gradients and statistics the guard left out
    cycles : of every batch; counters : of every batch a dictionary with all of them; both empty
        without the RTL
    compared : numbers that were compared
    final : memory after the last batch
    seconds : simulation time
    """

    differences: list
    losses: list
    correct: list
    rejected: list
    cycles: list
    counters: list
    compared: int
    final: bytes
    seconds: float = 0.0

    @property
    def passed(self):
        return not self.differences

    @property
    def busy(self) -> list:
        """Cycles of every batch in which the main array takes a vector; empty without the RTL."""
        return [counters["CORE0_VECTORS"] for counters in self.counters]


def in_phases(batches, phases) -> list[Batch]:
    """``batches`` with a :class:`golden.prediction.schedule.Phase` each."""
    return [
        Batch(images=b.images, targets=b.targets, optimizer=b.optimizer, phase=phase)
        for b, phase in zip(batches, phases, strict=True)
    ]


def compare_arrays(number, actual, expected, decode) -> tuple[list[Difference], int]:
    """Differences of codes ``actual`` from ``expected``, arrays by name, after batch ``number``,
    and how many numbers were compared; ``decode`` makes real numbers of an array of codes."""
    differences, compared = [], 0
    for name, values in actual.items():
        wanted = np.asarray(expected[name]).reshape(values.shape)
        compared += values.size
        wrong = np.argwhere(values != wanted)
        if len(wrong):
            place = tuple(int(index) for index in wrong[0])
            codes = np.array([values[place], wanted[place]], values.dtype)
            differences.append(
                Difference(
                    batch=number,
                    tensor=name,
                    position=place,
                    codes=tuple(map(int, codes)),
                    numbers=tuple(map(float, decode(codes))),
                    count=len(wrong),
                    size=values.size,
                )
            )
    return differences, compared
