"""Optimizers: what becomes of some rows of a parameter, as VECTOR commands on views.

The arithmetic is that of the section "Update" of docs/training.md. All commands are guarded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from compiler.codegen.vector_commands import VectorCommands
from compiler.codegen.view import Coefficient, View
from hw.isa.vector import Carry, Factor, Term

__all__ = ["OPTIMIZERS", "AdamRule", "MomentumRule", "Rule"]

#: By name: SGD with momentum, with Nesterov's, with braked gradients; Adam, and with its own decay.
OPTIMIZERS = ("sgd", "nesterov", "braked", "adam", "adamw")


class Rule(Protocol):
    """How an optimizer changes a parameter.

    Members
    -------
    slots : roles of the optimizer's tensors that are like the parameter
    numbers : how many single numbers a step has besides
    corrections : whether it keeps two numbers for each parameter
    braking : how much the gradients of weights are braked before a step, filter by filter; None for
        not at all
    """

    @property
    def slots(self) -> tuple[str, ...]: ...
    @property
    def numbers(self) -> int: ...
    @property
    def corrections(self) -> bool: ...
    @property
    def braking(self) -> Coefficient | float | None: ...

    def correct(self, vector: VectorCommands, corrections: Sequence[View]) -> None:
        """Bring the numbers that are kept up to date, before the first row."""

    def prepare(
        self, vector: VectorCommands, corrections: Sequence[View], numbers: Sequence[View]
    ) -> None:
        """Compute the step's numbers."""

    def step(
        self, vector: VectorCommands, w: View, slots: Sequence[View], g: View,
        numbers: Sequence[View],
    ) -> None:  # fmt: skip
        """Change weights and slots; the gradient is not what it was afterwards. Each of ``numbers``
        is a vector that holds the number in all channels."""


@dataclass(frozen=True, kw_only=True)
class MomentumRule:
    """Gradient descent with momentum and weight decay, perhaps Nesterov's."""

    rate: Coefficient | float
    momentum: Coefficient | float
    decay: Coefficient | float
    nesterov: bool = False
    braking: Coefficient | float | None = None

    slots: ClassVar[tuple[str, ...]] = ("velocity",)
    numbers: ClassVar[int] = 0
    corrections: ClassVar[bool] = False

    def correct(self, vector: VectorCommands, corrections: Sequence[View]) -> None:
        """There is nothing to be done."""

    def prepare(
        self, vector: VectorCommands, corrections: Sequence[View], numbers: Sequence[View]
    ) -> None:
        """There are none."""

    def step(
        self, vector: VectorCommands, w: View, slots: Sequence[View], g: View,
        numbers: Sequence[View],
    ) -> None:  # fmt: skip
        """3 commands, 4 with ``nesterov``."""
        v = change = slots[0]
        vector.scale_add(g, w, self.decay, g, guarded=1)
        vector.scale_add(v, v, self.momentum, g, guarded=1)
        if self.nesterov:
            change = vector.scale_add(g, v, self.momentum, g, guarded=1)
        vector.scale_add(w, change, self.rate, w, negate_product=1, guarded=1)


@dataclass(frozen=True, kw_only=True)
class AdamRule:
    """Adam, with ``decoupled`` AdamW; ``betas`` and ``epsilon`` are constants."""

    rate: Coefficient | float
    decay: Coefficient | float
    betas: tuple[float, float]
    epsilon: float
    decoupled: bool = False

    slots: ClassVar[tuple[str, ...]] = ("first_moment", "second_moment")
    corrections: ClassVar[bool] = True
    braking: ClassVar[None] = None

    @property
    def numbers(self) -> int:
        """The factor of the step, epsilon, and the factor of the decay."""
        return 3 if self.decoupled else 2

    def correct(self, vector: VectorCommands, corrections: Sequence[View]) -> None:
        """2 commands for each number."""
        for view, beta in zip(corrections, self.betas, strict=True):
            vector.scale(view, view, beta, guarded=1)
            vector.add(view, view, 1.0 - beta, guarded=1)

    def prepare(
        self, vector: VectorCommands, corrections: Sequence[View], numbers: Sequence[View]
    ) -> None:
        """4 commands, of them one root and one division; 6 with ``decoupled``."""
        (q1, q2), (factor, epsilon) = corrections, numbers[:2]
        vector.root(epsilon, q2, guarded=1)
        vector.scale(factor, epsilon, self.rate, guarded=1)
        vector.divide(factor, factor, q1, guarded=1)
        vector.scale(epsilon, epsilon, self.epsilon, guarded=1)
        if self.decoupled:
            vector.fill(numbers[2], self.rate)
            vector.scale(numbers[2], numbers[2], self.decay, guarded=1)

    def step(
        self, vector: VectorCommands, w: View, slots: Sequence[View], g: View,
        numbers: Sequence[View],
    ) -> None:  # fmt: skip
        """8 commands, of them one root and one division."""
        (m, v), (factor, epsilon) = slots, numbers[:2]
        if self.decoupled:
            vector.scale_add(w, w, numbers[2], w, negate_product=1, guarded=1)
        else:
            vector.scale_add(g, w, self.decay, g, guarded=1)
        self._approach(vector, m, g, 1.0 - self.betas[0])
        vector.emit(g, g, factor=Factor.U, guarded=1)
        self._approach(vector, v, g, 1.0 - self.betas[1])
        vector.root(g, v, guarded=1)
        vector.add(g, g, epsilon, guarded=1)
        vector.divide(g, m, g, guarded=1)
        vector.scale_add(w, g, factor, w, negate_product=1, guarded=1)

    @staticmethod
    def _approach(vector: VectorCommands, old: View, new: View, share: float) -> None:
        """``old + (new - old) * share``."""
        vector.emit(old, new, old, share, term=Term.SUBTRACT, factor=Factor.Z, carry=Carry.Y,
                    add=1, guarded=1)  # fmt: skip
