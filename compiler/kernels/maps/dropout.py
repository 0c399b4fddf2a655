"""Dropout, from DRAM to DRAM: forward, and backward on the gradient."""

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.view import View
from compiler.tensors.intervals import PixelBox
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Factor

from .pointwise import pointwise

__all__ = ["dropout"]

#: Bits of a random number, and of the number of a pixel; the largest stride.
_NUMBER_BITS, _FURTHEST = 24, 0x7FFF


def dropout(
    program: CoreProgram, x: Tensor, y: Tensor, *, p: float, whole: bool, stream: int
) -> None:
    """``y``: ``x / (1 - p)`` where it is kept, else +0; with ``whole`` all pixels of a channel of
    an image are kept or not. ``stream`` tells layers from each other."""
    images, height, width = y.shape[:3]
    strides = (1, 0, 0) if whole else (height * width, width, 1)
    limit = images * height * width
    if strides[0] > _FURTHEST:
        # A command for every image.
        strides, limit = (0, *strides[1:]), height * width

    def part(out: View, _: View | None, values: View, *, box: PixelBox) -> None:
        image, row, column = (begin for begin, _ in box)
        first = image if whole else (image * height + row) * width + column
        program.vector.emit(
            out, values, 1.0 / (1.0 - p), factor=Factor.Y, sample=1,
            y_address=round((1.0 - p) * 2**_NUMBER_BITS), y_i0_stride=stream,
            z_address=first % 2**_NUMBER_BITS, z_i0_stride=strides[2], z_i1_stride=strides[1],
            z_i2_stride=strides[0],
        )  # fmt: skip

    pointwise(program, [x], y, part, placed=limit)
