"""Updates of float32 master weights, bit for bit, and the guard against non-finite gradients.

The executable form of the section "Update" of docs/training.md. Weights, gradients and the
optimizer's own numbers are float32 bits (uint32); coefficients are rounded to float32
once. All operations are done whatever the coefficients are, also with zero.
"""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import decode
from golden.arithmetic.float32 import max_f32
from golden.arithmetic.float32_unit import VectorUnit, constant
from golden.arithmetic.formats import FLOAT32, FloatFormat

__all__ = ["SGD", "Adam", "AdamW", "BrakedSGD", "UpdateResult", "require_optimizer", "update"]

#: The least product of norms that a gradient's braking divides by.
_LEAST_NORM = constant(2.0**-100)


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Stochastic gradient descent with momentum and weight decay, as ``torch.optim.SGD``.

        g' = g + weight_decay * w;  v' = momentum * v + g';  w' = w - learning_rate * v'

    With ``nesterov`` it is w' = w - learning_rate * (momentum * v' + g').
    """

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    slots, shared = ("velocity",), ()

    def start(self, weights) -> tuple[np.ndarray, ...]:
        """The slots before the first update."""
        return (np.zeros_like(weights),)

    def step(self, unit: VectorUnit, weights, slots, gradient):
        """New weights and slots."""
        gradient = unit.add(gradient, unit.multiply(constant(self.weight_decay), weights))
        velocity = unit.add(unit.multiply(constant(self.momentum), slots[0]), gradient)
        change = velocity
        if self.nesterov:
            change = unit.add(unit.multiply(constant(self.momentum), velocity), gradient)
        step = unit.multiply(constant(self.learning_rate), change)
        return unit.subtract(weights, step), (velocity,)


@dataclass(frozen=True, kw_only=True)
class BrakedSGD(SGD):
    """:class:`SGD` whose gradient is braked before all else, filter by filter (Adaptive Braking,
    arXiv:2007.01397).

        n = sqrt(sum g * g) * sqrt(sum v * v)      c = (sum g * v) / max(n, 2**-100)
        g = g * (1 - c * braking)

    Sums go over the weights of an output channel, in order of (kernel row, kernel column, input
    channel), in eight partial sums. Weights (O, I) or (O, I, KH, KW) only; what has one axis is not
    braked.
    """

    braking: float = 1.0

    def step(self, unit: VectorUnit, weights, slots, gradient):
        """New weights and slots."""
        if gradient.ndim > 1:
            gradient = self._brake(unit, gradient, slots[0])
        return super().step(unit, weights, slots, gradient)

    def _brake(self, unit, gradient, velocity):
        g, v = (
            values.transpose(*range(2, values.ndim), 1, 0).reshape(-1, len(values))
            for values in (gradient, velocity)
        )
        product, g_norm, v_norm = (
            unit.sum(unit.multiply(*pair)) for pair in ((g, v), (g, g), (v, v))
        )
        norm = unit.multiply(unit.square_root(g_norm), unit.square_root(v_norm))
        cosine = unit.divide(product, max_f32(_LEAST_NORM, norm))
        factor = unit.subtract(constant(1.0), unit.multiply(cosine, constant(self.braking)))
        return unit.multiply(gradient, factor.reshape(-1, *[1] * (gradient.ndim - 1)))


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam with L2 weight decay, as ``torch.optim.Adam``; b1, b2 are its ``betas``.

        q1 = b1 * q1 + (1 - b1)           q2 = b2 * q2 + (1 - b2)
        s = sqrt(q2)      c = (learning_rate * s) / q1      e = epsilon * s
        g' = g + weight_decay * w
        m' = m + (g' - m) * (1 - b1)      v' = v + (g' * g' - v) * (1 - b2)
        w' = w - (m' / (sqrt(v') + e)) * c

    1 - b1 and 1 - b2 are real numbers that are rounded once. q1 and q2, which correct the bias of
    the moments, are 1 - b1**t and 1 - b2**t after the parameter's t-th update.
    """

    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    slots, shared = ("first_moment", "second_moment", "corrections"), ("corrections",)
    _decoupled = False

    def start(self, weights) -> tuple[np.ndarray, ...]:
        """The slots before the first update; the corrections are q1 and q2."""
        return np.zeros_like(weights), np.zeros_like(weights), np.zeros(2, np.uint32)

    def step(self, unit: VectorUnit, weights, slots, gradient):
        """New weights and slots."""
        first, second, corrections = slots
        (b1, b2), (r1, r2) = (
            [constant(value) for value in values]
            for values in (self.betas, [1 - beta for beta in self.betas])
        )
        q1, q2 = (
            unit.add(unit.multiply(old, beta), rest)
            for old, beta, rest in zip(corrections, (b1, b2), (r1, r2), strict=True)
        )
        root, rate = unit.square_root(q2), constant(self.learning_rate)
        factor = unit.divide(unit.multiply(root, rate), q1)
        epsilon = unit.multiply(root, constant(self.epsilon))
        decay = constant(self.weight_decay)
        if self._decoupled:
            weights = unit.subtract(weights, unit.multiply(weights, unit.multiply(rate, decay)))
        else:
            gradient = unit.add(gradient, unit.multiply(decay, weights))
        first = unit.add(first, unit.multiply(unit.subtract(gradient, first), r1))
        square = unit.multiply(gradient, gradient)
        second = unit.add(second, unit.multiply(unit.subtract(square, second), r2))
        share = unit.divide(first, unit.add(unit.square_root(second), epsilon))
        weights = unit.subtract(weights, unit.multiply(share, factor))
        return weights, (first, second, np.array([q1, q2], np.uint32))


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam whose weight decay does not go through the moments, as ``torch.optim.AdamW``.

    In place of g' it is w = w - w * (learning_rate * weight_decay), before all else.
    """

    weight_decay: float = 0.01

    _decoupled = True


def require_optimizer(optimizer, allowed=(SGD, Adam, AdamW)) -> None:
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
    guard: bool = True,
    tile: int | None = None,
) -> UpdateResult:
    """Update ``weights`` (any shape).

    Parameters
    ----------
    optimizer : :class:`SGD`, :class:`BrakedSGD`, :class:`Adam` or :class:`AdamW`
    slots : the optimizer's numbers, shaped as those of its ``start(weights)``
    guard : leave weights and slots of a tile as they are if its gradient holds NaN or infinity
    tile : entries along the first axis that the guard judges together; None for all
    """
    require_optimizer(optimizer)
    weights, gradient = np.asarray(weights, np.uint32), np.asarray(gradient, np.uint32)
    slots = [np.array(slot, np.uint32) for slot in slots]
    own = optimizer.start(weights)
    if len(slots) != len(own):
        raise ValueError(f"Slots must be {', '.join(optimizer.slots)}, not {len(slots)} arrays")
    shapes, wanted = [slot.shape for slot in slots], [slot.shape for slot in own]
    if (gradient.shape, shapes) != (weights.shape, wanted):
        raise ValueError(
            f"Weights {weights.shape} must have a gradient of one shape and slots {wanted}, not "
            f"{gradient.shape} and {shapes}"
        )
    unit, new, skipped = VectorUnit(), weights.copy(), 0
    before = [slot.copy() for slot in slots]
    size = max(1, len(weights)) if tile is None else tile
    for first in range(0, len(weights), size):
        part = slice(first, first + size)
        if guard and not np.isfinite(decode(FLOAT32, gradient[part])).all():
            skipped += 1
            continue
        parts = [slice(None) if name in optimizer.shared else part for name in optimizer.slots]
        new[part], changed = optimizer.step(
            unit,
            weights[part],
            [slot[place] for slot, place in zip(before, parts, strict=True)],
            gradient[part],
        )
        for slot, place, values in zip(slots, parts, changed, strict=True):
            slot[place] = values
    return UpdateResult(
        weights=new,
        slots=tuple(slots),
        operands=unit.round(fmt, new),
        skipped=skipped,
        flags=unit.flags,
    )
