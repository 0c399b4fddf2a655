"""Products of two maps, sentence by sentence and head by head, from DRAM to DRAM.

They are the three products of a convolution of one pixel, with a map in place of the weights: a map
(pixels, channels) lies in DRAM as weights (inputs, outputs) do. What belongs to a head are some
channels of a sequence (N, T, 1, C). A *table* (N * heads, Tk, 1, Tq) has the keys as pixels and the
queries as channels.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from compiler.codegen.core_builder import CoreProgram
from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_geometry import Convolution
from compiler.kernels.convolution.conv_input_gradient import input_gradient
from compiler.kernels.convolution.conv_weight_gradient import weight_gradient
from compiler.tensors.tensor import Tensor

__all__ = ["over_channels", "over_keys", "over_queries"]


def over_channels(
    program: CoreProgram, a: Tensor, b: Tensor, table: Tensor, *, heads: int, scale: float
) -> None:
    """``table``, float32: products of the vectors of ``a`` (pixels) and ``b`` (channels), times
    ``scale``. K tiles are those of the channels of a head."""

    def product(left: Tensor, right: Tensor, o: Tensor) -> None:
        layer = Convolution(name=table.name, x=o, y=left, weights=_weights(right), bias=None)
        input_gradient(program, layer, left, o, scale=scale)

    images = table.shape[0] // heads
    _each(program, [_heads(a, heads, images), _heads(b, heads, images), _heads(table)], product)


def over_keys(
    program: CoreProgram, table: Tensor, values: Tensor, o: Tensor, *, heads: int
) -> None:
    """``o``, a vector for each query: ``table`` times ``values``, which are those of the keys."""

    def product(shares: Tensor, vectors: Tensor, out: Tensor) -> None:
        layer = Convolution(name=o.name, x=shares, y=vectors, weights=_weights(out), bias=None)
        weight_gradient(program, layer, vectors, _weights(out))

    images = table.shape[0] // heads
    _each(program, [_heads(table), _heads(values, heads, images), _heads(o, heads)], product)


def over_queries(
    program: CoreProgram, table: Tensor, values: Tensor, o: Tensor, *, heads: int
) -> None:
    """``o``, a vector for each key: ``table`` times ``values``, which are those of the queries."""

    def product(shares: Tensor, vectors: Tensor, out: Tensor) -> None:
        layer = Convolution(name=o.name, x=shares, y=out, weights=_weights(vectors), bias=None)
        forward(program, layer)

    _each(program, [_heads(table), _heads(values, heads), _heads(o, heads)], product)


def _each(program: CoreProgram, maps: list[Iterator[Tensor]], product: Callable[..., None]) -> None:
    """``product`` of what of each map belongs to a sentence and a head."""
    names = []
    for parts in zip(*maps, strict=True):
        names += [part.name for part in parts]
        product(*parts)
    program.scratch.forget(*names, *(_weights_name(name) for name in names))


def _heads(tensor: Tensor, count: int = 1, images: int | None = None) -> Iterator[Tensor]:
    """(1, T, 1, C / count): the heads of each image, one after the other; T are its pixels. A
    constant is the same for so many ``images``."""
    own_images, height, width, channels = tensor.shape
    own, length = channels // count, height * width
    item, pixel = tensor.dtype.itemsize, tensor.distance
    for image in range(own_images) if own_images > 1 else [0] * (images or 1):
        for head in range(count):
            yield replace(
                tensor,
                name=f"{tensor.name}[{image}, {head}]",
                offset=tensor.offset + (image * length * pixel + head * own) * item,
                shape=(1, length, 1, own),
                pitch=tensor.pitch if count == 1 else own,
                stride=pixel,
            )


def _weights(part: Tensor) -> Tensor:
    """A map (1, T, 1, C) in place of weights (1, 1, inputs, outputs)."""
    shape = (1, 1, part.shape[1], part.shape[3])
    return replace(part, name=_weights_name(part.name), shape=shape)


def _weights_name(name: str) -> str:
    return f"{name} as weights"
