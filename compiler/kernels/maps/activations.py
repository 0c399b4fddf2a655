"""Activations that are clamped or bent, from DRAM to DRAM, and their gradients."""

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.view import Operand, View
from compiler.tensors.encoding import codes_of
from compiler.tensors.tensor import Tensor
from hw.formats import format_by_name
from hw.isa.vector import Carry, Condition, Factor, Term

from .pointwise import pointwise

__all__ = [
    "clamp",
    "clamp_backward",
    "hardsigmoid",
    "hardsigmoid_backward",
    "hardswish",
    "hardswish_backward",
    "leaky_relu",
    "leaky_relu_backward",
]

_SIXTH, _THIRD = 1 / 6, 1 / 3


def clamp(program: CoreProgram, x: Tensor, y: Tensor, *, low: float, high: float) -> None:
    """``y``: ``x`` within the limits, which are rounded to operands; NaN stays."""
    low, high = (_operand(x, limit) for limit in (low, high))

    def part(out: View, _: View | None, values: View, minus_low: View, most: View) -> None:
        _between(program, out, values, low, minus_low, high, most)

    pointwise(program, [x], y, part, numbers=[-low, high])


def clamp_backward(
    program: CoreProgram, dy: Tensor, y: Tensor, dx: Tensor, *, low: float, high: float
) -> None:
    """``dx``: ``dy`` where the stored output ``y`` is between the limits or NaN, +0 elsewhere."""
    low, high = (_operand(y, limit) for limit in (low, high))

    def part(out: View, _: View | None, gradient: View, output: View, zero: View) -> None:
        """Zeros of an output are +0 where a limit is, so that bits may be compared."""
        for limit in (low, high):
            program.vector.emit(
                out, zero, gradient, output, immediate=abs(limit) if limit == 0 else limit,
                condition=Condition.EQUAL, keep=1,
            )  # fmt: skip
            gradient = out

    pointwise(program, [dy, y], dx, part, numbers=[0.0])


def leaky_relu(program: CoreProgram, x: Tensor, y: Tensor, *, slope: float) -> None:
    """``y``: ``x``, or ``x * slope`` where it is negative."""

    def part(out: View, _: View | None, values: View, factor: View) -> None:
        # (0 + x) * slope where 0 > x.
        program.vector.emit(
            out, 0.0, values, factor, term=Term.ADD, factor=Factor.Z,
            condition=Condition.GREATER, carry=Carry.Y, keep=1,
        )  # fmt: skip

    pointwise(program, [x], y, part, numbers=[slope])


def leaky_relu_backward(
    program: CoreProgram, dy: Tensor, y: Tensor, dx: Tensor, *, slope: float
) -> None:
    """``dx``: ``dy`` where the stored output ``y`` is positive or NaN, else ``dy * slope``."""

    def part(out: View, _: View | None, gradient: View, output: View) -> None:
        program.vector.scale(out, gradient, slope)
        _choose(program, out, gradient, out, output)

    pointwise(program, [dy, y], dx, part)


def hardsigmoid(program: CoreProgram, x: Tensor, y: Tensor) -> None:
    """``y``: ``x + 3`` between 0 and 6, times 1/6."""

    def part(out: View, sums: View, values: View, *limits: View) -> None:
        _gate(program, sums, values, *limits)
        program.vector.scale(out, sums, _SIXTH)

    pointwise(program, [x], y, part, total=True, numbers=[-0.0, 6.0])


def hardsigmoid_backward(program: CoreProgram, dy: Tensor, x: Tensor, dx: Tensor) -> None:
    """``dx``: ``dy * 1/6`` where ``x`` is between -3 and 3 or NaN, else +0."""

    def part(out: View, sums: View, gradient: View, values: View) -> None:
        program.vector.scale(sums, gradient, _SIXTH)
        program.vector.emit(out, 3.0, values, term=Term.SUBTRACT)
        program.vector.mask(sums, sums, out)
        program.vector.add(out, values, 3.0)
        program.vector.mask(out, sums, out)

    pointwise(program, [dy, x], dx, part, total=True)


def hardswish(program: CoreProgram, x: Tensor, y: Tensor) -> None:
    """``y``: ``x`` times what :func:`hardsigmoid` clamps, times 1/6."""

    def part(out: View, sums: View, values: View, *limits: View) -> None:
        _gate(program, sums, values, *limits)
        program.vector.scale(sums, values, sums)
        program.vector.scale(out, sums, _SIXTH)

    pointwise(program, [x], y, part, total=True, numbers=[-0.0, 6.0])


def hardswish_backward(program: CoreProgram, dy: Tensor, x: Tensor, dx: Tensor) -> None:
    """``dx``: +0 up to ``x`` = -3, ``dy * (x * 1/3 + 0.5)`` up to 3, then ``dy``."""

    def part(out: View, sums: View, gradient: View, values: View, half: View) -> None:
        vector = program.vector
        vector.emit(sums, values, _THIRD, half, factor=Factor.Y, carry=Carry.Z, add=1)
        vector.scale(sums, gradient, sums)
        vector.emit(out, 3.0, values, term=Term.SUBTRACT)
        _choose(program, sums, sums, gradient, out)
        vector.add(out, values, 3.0)
        vector.mask(out, sums, out)

    pointwise(program, [dy, x], dx, part, total=True, numbers=[0.5])


def _gate(program: CoreProgram, out: View, values: View, minus_zero: View, six: View) -> None:
    """``values + 3`` between 0 and 6."""
    program.vector.add(out, values, 3.0)
    _between(program, out, out, 0.0, minus_zero, 6.0, six)


def _between(
    program: CoreProgram, out: View, values: View, low: float, minus_low: View, high: float,
    most: View,
) -> None:  # fmt: skip
    """``values`` within the limits: twice minus the larger of a value and a limit, which is NaN
    for NaN."""
    for source, limit, other in ((values, low, minus_low), (out, -high, most)):
        program.vector.emit(
            out, source, limit, other, condition=Condition.GREATER, negate_product=1,
            carry=Carry.Z, keep=1,
        )  # fmt: skip


def _choose(program: CoreProgram, out: View, x: Operand, other: Operand, where: View) -> None:
    """``x`` where ``where`` is positive or NaN, else ``other``."""
    program.vector.emit(out, x, other, where, condition=Condition.POSITIVE, carry=Carry.Y, keep=1)


def _operand(like: Tensor, number: float) -> float:
    """A number rounded to operands of the kind of ``like``."""
    return float(like.values(codes_of(format_by_name(like.kind), number)))
