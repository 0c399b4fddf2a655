"""Normalisation over groups of channels of every image, from DRAM to DRAM.

Each image goes through the passes of a batch normalisation. What belongs to a group is added up by
a product with ones, a convolution of 2 × 1 over the two parts of each channel's number.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.view import View
from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_geometry import Convolution
from compiler.kernels.maps.pointwise import pointwise
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry

from .batch_norm_backward import batch_norm_backward
from .channel_sums import channel_sums
from .scaling import add_numbers, channel_numbers, scale_channels, scaling_factors

__all__ = ["GroupSums", "group_norm", "group_norm_backward"]

#: Fields of a command that takes Z away from what it has computed.
_LEFT: dict[str, Any] = {"carry": Carry.Z, "add": 1, "negate_carry": 1}


@dataclass(frozen=True, kw_only=True)
class GroupSums:
    """How numbers of channels become means of their groups.

    Members
    -------
    ones : (2, 1, C, C) operands, 1 where both channels belong to one group
    parts : (1, 2, 1, C) operands, room for two parts of each number
    total : (1, 1, 1, C) float32, room for sums
    share : one by how many numbers a group has
    """

    ones: Tensor
    parts: Tensor
    total: Tensor
    share: float

    def mean(self, program: CoreProgram, numbers: Tensor, o: Tensor) -> None:
        """``o``, the means of the groups of ``numbers``, both (1, 1, 1, C) float32."""
        parts, total = self.parts, self.total
        high = replace(parts, name=f"{parts.name} high", shape=(1, 1, 1, parts.shape[3]))
        low = replace(
            high, name=f"{parts.name} low",
            offset=parts.offset + parts.distance * parts.dtype.itemsize,
        )  # fmt: skip

        def split(high: View, low: View, value: View) -> None:
            program.vector.copy(high, value)
            program.vector.emit(low, value, z=high, **_LEFT)

        channel_numbers(program, [high, low], [numbers], split)
        names = parts.name, high.name, low.name, total.name
        program.scratch.forget(*names)
        forward(program, Convolution(name=o.name, x=parts, y=total, weights=self.ones, bias=None))
        channel_numbers(
            program, [o], [total], lambda mean, value: program.vector.scale(mean, value, self.share)
        )
        program.scratch.forget(*names, o.name)


def group_norm(
    program: CoreProgram, x: Tensor, y: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor,
    inverse: Tensor, a: Tensor, sums: Tensor, b: Tensor, ones: Tensor, parts: Tensor,
    total: Tensor, *, share: float, epsilon: float,
) -> None:  # fmt: skip
    """Commands that write ``y``, and ``mean``, ``inverse`` and ``a`` for the backward pass.

    Parameters
    ----------
    x, y : (N, H, W, C) operands
    gamma, beta : (1, 1, 1, C) float32
    mean, inverse, a : (N, 1, 1, C) float32
    sums, b : (1, 1, 1, C) float32, room
    ones to share : see :class:`GroupSums`

    Raises
    ------
    CompileError
        if one word of a pixel does not fit into the buffer beside the sums.
    """
    groups = GroupSums(ones=ones, parts=parts, total=total, share=share)
    for x_n, y_n, mean_n, inverse_n, a_n in _images(x, y, mean, inverse, a):
        channel_sums(program, x_n, None, sums)
        groups.mean(program, sums, mean_n)
        program.scratch.forget(sums.name)
        channel_sums(program, x_n, mean_n, sums)
        # The variances, for which there is room where the sums were.
        groups.mean(program, sums, sums)
        scaling_factors(program, mean_n, sums, gamma, beta, inverse_n, a_n, b, epsilon=epsilon)
        scale_channels(program, x_n, y_n, a_n, b)
        program.scratch.forget(
            sums.name, b.name, *(t.name for t in (x_n, y_n, mean_n, inverse_n, a_n))
        )


def group_norm_backward(
    program: CoreProgram, x: Tensor, dy: Tensor, dx: Tensor | None, dgamma: Tensor | None,
    dbeta: Tensor | None, gamma: Tensor, mean: Tensor, inverse: Tensor, a: Tensor, scale: Tensor,
    shift: Tensor, c1: Tensor, negative_c0: Tensor, ones: Tensor, parts: Tensor, total: Tensor,
    *, share: float,
) -> None:  # fmt: skip
    """Commands that write ``dx`` and the parameters' gradients, (1, 1, 1, C) float32, or some of
    them.

    ``scale``, ``shift``, ``c1`` and ``negative_c0`` are room, (1, 1, 1, C) float32; others as those
    of :func:`group_norm`.
    """
    groups, vector = GroupSums(ones=ones, parts=parts, total=total, share=share), program.vector
    room = scale.name, shift.name, c1.name, negative_c0.name

    def factors(c1: View, c0: View, of_scale: View, of_shift: View, m: View, i: View) -> None:
        vector.scale(c1, i, of_scale)
        vector.scale(c1, c1, i, negate_product=1)
        vector.scale(c0, i, of_shift)
        vector.scale_add(c0, m, c1, c0)

    def part(o: View, sums: View, x: View, dy: View, a: View, c1: View, c0: View) -> None:
        vector.scale_add(sums, x, c1, c0, negate_carry=1)
        vector.scale_add(o, dy, a, sums)

    maps = (x, dy, mean, inverse, a) if dx is None else (x, dy, mean, inverse, a, dx)
    for number, (x_n, dy_n, mean_n, inverse_n, a_n, *dx_n) in enumerate(_images(*maps)):
        batch_norm_backward(program, x_n, dy_n, None, mean_n, inverse_n, a_n, scale, shift)
        for own, new in ((dgamma, scale), (dbeta, shift)):
            if own is not None:
                add_numbers(program, own, new, first=number == 0)
        if dx_n:
            for numbers, o in ((scale, c1), (shift, negative_c0)):
                channel_numbers(program, [o], [numbers, gamma], vector.scale)
                program.scratch.forget(numbers.name)
                groups.mean(program, o, numbers)
                program.scratch.forget(o.name)
            channel_numbers(program, [c1, negative_c0], [scale, shift, mean_n, inverse_n], factors)
            pointwise(
                program, [x_n, dy_n], dx_n[0], part, total=True, vectors=[a_n, c1, negative_c0]
            )
        names = [t.name for t in (x_n, dy_n, mean_n, inverse_n, a_n, *dx_n)]
        program.scratch.forget(*room, *names)


def _images(*tensors: Tensor) -> Iterator[list[Tensor]]:
    """The images of the tensors, one after the other."""
    for number in range(tensors[0].shape[0]):
        found = []
        for tensor in tensors:
            _, height, width, channels = tensor.shape
            size = height * width * tensor.distance * tensor.dtype.itemsize
            found.append(
                replace(
                    tensor, name=f"{tensor.name}[{number}]", offset=tensor.offset + number * size,
                    shape=(1, height, width, channels),
                )
            )  # fmt: skip
        yield found
