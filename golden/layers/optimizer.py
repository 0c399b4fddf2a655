"""Updates of float32 master weights, bit for bit, and the guard against non-finite gradients.

The executable form of the section "Update" of docs/training.md. Weights, gradients and the
optimizer's own numbers are float32 bits (uint32) of one shape; coefficients are rounded to float32
once. All operations are done whatever the coefficients are, also with zero.
"""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import decode
from golden.arithmetic.float32_unit import VectorUnit, constant
from golden.arithmetic.formats import FLOAT32, FloatFormat

__all__ = ["SGD", "Adam", "UpdateResult", "require_optimizer", "update"]


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Stochastic gradient descent with momentum and weight decay, as ``torch.optim.SGD``.

    g' = g + weight_decay * w;  v' = momentum * v + g';  w' = w - learning_rate * v'
    """

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0

    slots = ("velocity",)

    def step(self, unit: VectorUnit, weights, slots, gradient, count):
        """New weights and slots; ``count`` is not used."""
        gradient = unit.add(gradient, unit.multiply(constant(self.weight_decay), weights))
        velocity = unit.add(unit.multiply(constant(self.momentum), slots[0]), gradient)
        step = unit.multiply(constant(self.learning_rate), velocity)
        return unit.subtract(weights, step), (velocity,)


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam with L2 weight decay, as ``torch.optim.Adam``; b1, b2 are its ``betas``.

        g' = g + weight_decay * w
        m' = b1 * m + (1 - b1) * g'       v' = b2 * v + (1 - b2) * (g' * g')
        w' = w - (learning_rate * (m' * r1)) / (sqrt(v' * r2) + epsilon)

    with r1 = 1 / (1 - b1**count), r2 = 1 / (1 - b2**count), real numbers rounded once.
    """

    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    slots = ("first moment", "second moment")

    def step(self, unit: VectorUnit, weights, slots, gradient, count):
        """New weights and slots of the ``count``-th update, counted from 1."""
        gradient = unit.add(gradient, unit.multiply(constant(self.weight_decay), weights))
        square = unit.multiply(gradient, gradient)
        first, second = (
            unit.add(unit.multiply(constant(beta), old), unit.multiply(constant(1 - beta), new))
            for beta, old, new in zip(self.betas, slots, (gradient, square), strict=True)
        )
        unbiased = [
            unit.multiply(moment, constant(1 / (1 - beta**count)))
            for beta, moment in zip(self.betas, (first, second), strict=True)
        ]
        root = unit.add(unit.square_root(unbiased[1]), constant(self.epsilon))
        step = unit.divide(unit.multiply(constant(self.learning_rate), unbiased[0]), root)
        return unit.subtract(weights, step), (first, second)


def require_optimizer(optimizer, allowed=(SGD, Adam)) -> None:
    """Raise a ValueError that names both unless ``optimizer`` is one of ``allowed``, classes of
    this module."""
    if not isinstance(optimizer, allowed):
        kind = optimizer if isinstance(optimizer, type) else type(optimizer)
        names = " or ".join(f"{one.__module__}.{one.__name__}(...)" for one in allowed)
        raise ValueError(f"optimizer must be {names}, not {kind.__module__}.{kind.__qualname__}")


@dataclass(frozen=True, kw_only=True, eq=False)
class UpdateResult:
    """What an update leaves.

    Members
    -------
    weights, slots : float32 bits; the slots are named by the optimizer's ``slots``
    operands : codes of the weights, rounded once
    skipped : tiles that the guard left as they were
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    """

    weights: np.ndarray
    slots: tuple[np.ndarray, ...]
    operands: np.ndarray
    skipped: int
    flags: int


def update(
    optimizer,
    fmt: FloatFormat,
    weights,
    slots,
    gradient,
    *,
    count: int = 1,
    guard: bool = True,
    tile: int | None = None,
) -> UpdateResult:
    """Update ``weights`` (any shape).

    Parameters
    ----------
    optimizer : :class:`SGD` or :class:`Adam`
    slots : the optimizer's numbers, each of the weights' shape; zeros before the first update
    count : number of this update, from 1
    guard : leave weights and slots of a tile as they are if its gradient holds NaN or infinity
    tile : entries along the first axis that the guard judges together; None for all
    """
    require_optimizer(optimizer)
    weights, gradient = np.asarray(weights, np.uint32), np.asarray(gradient, np.uint32)
    slots = [np.array(slot, np.uint32) for slot in slots]
    if {gradient.shape, *(slot.shape for slot in slots)} != {weights.shape}:
        raise ValueError(
            f"Weights, gradient and slots must have one shape, not {weights.shape}, "
            f"{gradient.shape} and {[slot.shape for slot in slots]}"
        )
    if len(slots) != len(optimizer.slots):
        raise ValueError(f"Slots must be {', '.join(optimizer.slots)}, not {len(slots)} arrays")
    unit, new, skipped = VectorUnit(), weights.copy(), 0
    size = max(1, len(weights)) if tile is None else tile
    for first in range(0, len(weights), size):
        part = slice(first, first + size)
        if guard and not np.isfinite(decode(FLOAT32, gradient[part])).all():
            skipped += 1
            continue
        new[part], changed = optimizer.step(
            unit, weights[part], [slot[part] for slot in slots], gradient[part], count
        )
        for slot, values in zip(slots, changed, strict=True):
            slot[part] = values
    return UpdateResult(
        weights=new,
        slots=tuple(slots),
        operands=unit.round(fmt, new),
        skipped=skipped,
        flags=unit.flags,
    )
