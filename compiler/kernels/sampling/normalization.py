"""Backward passes of batch normalisation whose gradient is one of a sample of the images.

Sums of the sample make numbers of the channels, by which all images have a gradient; those of the
sample have a term more.
"""

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.view import View
from compiler.kernels.maps.pointwise import pointwise
from compiler.kernels.normalization.scaling import channel_numbers
from compiler.tensors.tensor import Tensor

__all__ = ["norm_numbers", "norm_of_all", "norm_of_some"]


def norm_numbers(
    program: CoreProgram, scale: Tensor, shift: Tensor, mean: Tensor, inverse: Tensor, a: Tensor,
    c1: Tensor, negative_c0: Tensor, *, pixels: int,
) -> None:  # fmt: skip
    """Commands that write c1 and -c0 of docs/training.md, all (1, 1, 1, C) float32, for so many
    ``pixels`` of all images; ``scale`` and ``shift`` are dgamma and dbeta."""
    vector, reciprocal = program.vector, 1.0 / pixels

    def work(o1: View, o0: View, dgamma: View, dbeta: View, m: View, i: View, factor: View) -> None:
        vector.scale(o0, dgamma, reciprocal)
        vector.scale(o1, factor, i)
        vector.scale(o1, o1, o0, negate_product=1)
        vector.scale(o0, dbeta, reciprocal)
        vector.scale(o0, o0, factor)
        vector.scale_add(o0, m, o1, o0)

    channel_numbers(program, [c1, negative_c0], [scale, shift, mean, inverse, a], work)


def norm_of_all(
    program: CoreProgram, x: Tensor, c1: Tensor, negative_c0: Tensor, dx: Tensor
) -> None:
    """``dx`` = x * c1 + c0, rounded once to operands."""

    def part(out: View, _: View | None, values: View, factor: View, addend: View) -> None:
        program.vector.scale_add(out, values, factor, addend, negate_carry=1)

    pointwise(program, [x], dx, part, vectors=[c1, negative_c0])


def norm_of_some(
    program: CoreProgram, x: Tensor, dy: Tensor, a: Tensor, c1: Tensor, negative_c0: Tensor,
    dx: Tensor,
) -> None:  # fmt: skip
    """``dx`` = dy * a + (x * c1 + c0), rounded once to operands."""
    vector = program.vector

    def part(
        out: View, total: View | None, values: View, gradient: View, scale: View, factor: View,
        addend: View,
    ) -> None:  # fmt: skip
        assert total is not None
        vector.scale_add(total, values, factor, addend, negate_carry=1)
        vector.scale_add(out, gradient, scale, total)

    pointwise(program, [x, dy], dx, part, total=True, vectors=[a, c1, negative_c0])
