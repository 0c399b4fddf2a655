"""Sigmoid, tanh, SiLU, GELU and softplus, from DRAM to DRAM, and their derivatives.

All of them are polynomials and powers of two in float32, chains of VECTOR at one group per cycle;
docs/training.md has the arithmetic.
"""

from collections.abc import Callable, Sequence

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.vector_commands import VectorCommands
from compiler.codegen.view import View
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry, Condition, Factor, Term

from .pointwise import pointwise

__all__ = [
    "exponential",
    "gelu",
    "logistic",
    "logistic_loss",
    "reciprocal",
    "sigmoid",
    "silu",
    "softplus",
    "tanh",
]

_LOG2_E = 1.4426950408889634
#: Added to a number: the nearest integer, less 7, in its lowest bits.
_TO_INTEGER = 1.5 * 2**23 - 7
_LEAST = -120.0

# Polynomials of the form (((x + a) x + b) x + ...) x, see docs/training.md.
_POWER = (5.805431842803955, 24.977100372314453, 72.06580352783203)
_ONE_SCALED, _SCALE = 103.97052001953125, 0.8122696876525879
_RECIPROCAL = (
    -3.6188995838165283, 6.019465446472168, -6.5520100593566895, 5.775731563568115,
    -4.748381614685059, 3.859344720840454,
)  # fmt: skip
_LEAD = 0.25911134481430054
_SHIFTED = (
    1.254625916481018, 1.218377709388733, -0.15287870168685913, 0.7741393446922302,
    -1.1855556964874268, 1.929685115814209,
)  # fmt: skip
_SHIFTED_LEAD = 0.2591122090816498
_LOGARITHM = (
    -3.444607973098755, 5.806097030639648, -7.3017048835754395, 9.107099533081055,
    -14.813639640808105,
)  # fmt: skip
_LOG_LEAD = -0.0831063762307167
#: The sigmoid's argument in GELU: a factor, and the terms of a polynomial of x * x.
_GELU_ERF = (-7.03185062e-04, (-105.25251251, -2268.27229643))
_GELU_TANH = (0.07135481627362, (22.3638600022364,))
_SQUARE = 36.0

#: What a layer does to a part: the views of the result, of the derivative or None, of float32 maps,
#: of the operand, of number vectors.
_Work = Callable[..., None]


def sigmoid(program: CoreProgram, x: Tensor, y: Tensor, slope: Tensor | None = None) -> None:
    """``y``: the sigmoid s of ``x``; ``slope``, if it is wanted, its derivative s - s * s."""

    def work(out: View, slopes: View | None, maps: Sequence[View], values: View) -> None:
        vector = program.vector
        if slopes is None:
            logistic(vector, out, maps, values)
            return
        s = logistic(vector, maps[2], maps, values)
        vector.copy(out, s)
        _bump(vector, slopes, s)

    _smooth(program, x, y, slope, work)


def silu(program: CoreProgram, x: Tensor, y: Tensor, slope: Tensor | None = None) -> None:
    """``y``: ``s * x``; ``slope``: ``((1 - s) * x) * s + s``, s the sigmoid of ``x``."""

    def work(out: View, slopes: View | None, maps: Sequence[View], values: View) -> None:
        vector = program.vector
        s = logistic(vector, maps[2], maps, values)
        vector.scale(out, s, values)
        if slopes is not None:
            vector.emit(maps[0], 1.0, s, values, term=Term.SUBTRACT, factor=Factor.Z)
            vector.scale_add(slopes, maps[0], s, s)

    _smooth(program, x, y, slope, work)


def gelu(
    program: CoreProgram, x: Tensor, y: Tensor, slope: Tensor | None = None, *, tanh: bool
) -> None:
    """``y``: ``s * x``, s the sigmoid of a polynomial g; ``slope``: its derivative."""
    factor, terms = _GELU_TANH if tanh else _GELU_ERF
    odd = 2 * len(terms) + 1
    slopes_terms = [term * (odd - 2 * number) / odd for number, term in enumerate(terms, 1)]

    def work(out: View, slopes: View | None, maps: Sequence[View], values: View) -> None:
        vector, square = program.vector, maps[3]
        vector.emit(square, values, factor=Factor.U)
        vector.emit(square, square, _SQUARE, square, term=Term.IMMEDIATE, immediate=_SQUARE,
                    condition=Condition.GREATER, carry=Carry.Z, keep=1)  # fmt: skip
        argument = _steps(vector, maps[0], square, terms, last=values)
        s = logistic(vector, maps[2], maps, argument, factor * _LOG2_E, sign=values)
        vector.scale(out, s, values)
        if slopes is not None:
            bump = _bump(vector, maps[0], s)
            slope = _steps(vector, maps[1], square, slopes_terms, last=bump)
            vector.scale(slope, slope, values)
            vector.scale_add(slopes, slope, factor * odd, s)

    _smooth(program, x, y, slope, work, maps=4)


def tanh(program: CoreProgram, x: Tensor, y: Tensor, slope: Tensor | None = None) -> None:
    """``y``: the hyperbolic tangent t of ``x``; ``slope``: 1 - t * t."""

    def work(
        out: View, slopes: View | None, maps: Sequence[View], values: View, minus_scale: View
    ) -> None:
        vector, (first, second, third) = program.vector, maps
        _reduced(vector, maps, values, 2 * _LOG2_E)
        vector.scale_add(first, _ONE_SCALED, second, minus_scale, power=1)
        vector.scale_add(first, third, second, first, power=1)
        vector.scale(second, first, _SHIFTED_LEAD / _SCALE)
        _steps(vector, third, first, _SHIFTED[:-1])
        _product(vector, third, third, _SHIFTED[-1], second)
        vector.emit(out, third, third, values, negate_product=1, condition=Condition.POSITIVE,
                    carry=Carry.Y, keep=1)  # fmt: skip
        if slopes is not None:
            vector.emit(slopes, third, 1.0, factor=Factor.U, negate_product=1, carry=Carry.Y,
                        add=1)  # fmt: skip

    _smooth(program, x, y, slope, work, numbers=[-_SCALE])


def softplus(program: CoreProgram, x: Tensor, y: Tensor, slope: Tensor | None = None) -> None:
    """``y``: ln(1 + e**-|x|) and the larger of ``x`` and 0; ``slope``: the sigmoid."""

    def work(out: View, slopes: View | None, maps: Sequence[View], values: View) -> None:
        logistic_loss(program.vector, out, maps, values)
        if slopes is not None:
            reciprocal(program.vector, slopes, maps, values)

    _smooth(program, x, y, slope, work)


def logistic(
    vector: VectorCommands, out: View, maps: Sequence[View], x: View, factor: float = _LOG2_E,
    *, sign: View | None = None,
) -> View:  # fmt: skip
    """``out``: 1 / (1 + 2**-(x * factor)), with three float32 maps, of which ``out`` may be the
    last and ``x`` the first; ``sign`` has the sign of ``x``."""
    exponential(vector, maps, x, factor)
    return reciprocal(vector, out, maps, x if sign is None else sign)


def logistic_loss(vector: VectorCommands, out: View, maps: Sequence[View], x: View) -> View:
    """``out``: ln(1 + e**-|x|) and the larger of ``x`` and 0, with three float32 maps; the first
    keeps what :func:`reciprocal` needs."""
    w = exponential(vector, maps, x, _LOG2_E)
    logarithm = _steps(vector, maps[2], w, _LOGARITHM)
    larger = vector.positive(maps[1], x)
    return vector.scale_add(out, logarithm, _LOG_LEAD, larger)


def _smooth(
    program: CoreProgram, x: Tensor, y: Tensor, slope: Tensor | None, work: _Work, *,
    maps: int = 3, numbers: Sequence[float] = (),
) -> None:  # fmt: skip
    """``work`` on all parts, with so many float32 ``maps``."""
    also = [] if slope is None else [slope]

    def part(out: View, _: View | None, *views: View) -> None:
        slopes, views = (None, views) if slope is None else (views[0], views[1:])
        work(out, slopes, views[:maps], *views[maps:])

    pointwise(program, [x], y, part, also=also, more=maps, numbers=numbers)


def _reduced(vector: VectorCommands, maps: Sequence[View], x: View, factor: float) -> None:
    """Of ``n + f = -|x * factor|``: f in the first map, n in the lowest bits of the second, and
    2**f - 1, scaled, in the third."""
    y, t, h = maps[:3]
    vector.scale(y, x, factor)
    vector.emit(y, y, z=y, negate_product=1, condition=Condition.POSITIVE, carry=Carry.Z, keep=1)
    vector.emit(y, y, _LEAST, condition=Condition.GREATER, carry=Carry.Y, keep=1)
    vector.add(t, y, _TO_INTEGER)
    vector.emit(y, t, _TO_INTEGER, y, term=Term.SUBTRACT, negate_product=1, carry=Carry.Z, add=1)
    _steps(vector, h, y, _POWER)


def exponential(
    vector: VectorCommands, maps: Sequence[View], x: View, factor: float = _LOG2_E
) -> View:
    """The first map: 2 to the power of minus ``|x * factor|``, by default of ``e**-|x|``, scaled;
    with three float32 maps, of which ``x`` may be the first."""
    _reduced(vector, maps, x, factor)
    return _product(vector, maps[0], maps[2], _ONE_SCALED, maps[1], power=1)


def reciprocal(vector: VectorCommands, out: View, maps: Sequence[View], sign: View) -> View:
    """1 / (1 + z), times z where ``sign`` is not positive; of z, scaled, in the first map."""
    w, m, h = maps[:3]
    vector.scale(m, w, _LEAD / _SCALE)
    vector.emit(m, _LEAD, m, sign, condition=Condition.POSITIVE, carry=Carry.Y, keep=1)
    _steps(vector, h, w, _RECIPROCAL[:-1])
    return _product(vector, out, h, _RECIPROCAL[-1], m)


def _steps(
    vector: VectorCommands, out: View, x: View, terms: Sequence[float], *, last: View | None = None
) -> View:
    """``out``: ``((x + a) * x + b) * x ...``; the ``last`` factor may be another one."""
    source = x
    for number, term in enumerate(terms, 1):
        factor = x if last is None or number < len(terms) else last
        source = _product(vector, out, source, term, factor)
    return out


def _product(
    vector: VectorCommands, out: View, x: View, term: float, factor: View, *, power: int = 0
) -> View:
    """``out``: ``(x + term) * factor``, or times 2 to the power of it."""
    return vector.emit(out, x, term, factor, term=Term.ADD, factor=Factor.Z, power=power)


def _bump(vector: VectorCommands, out: View, s: View) -> View:
    """``out``: ``s - s * s``."""
    return vector.emit(out, s, s, factor=Factor.U, negate_product=1, carry=Carry.Y, add=1)
