"""The predictor's products and its learning, for one layer after the other, from DRAM to DRAM.

The fully connected layer is a convolution of 1 × 1 whose map are its weights, a pixel for each row
(kh, kw, ci) of the layer's weights, and whose weights are the hidden numbers: so its output lies
like the layer's weights, and its forward pass, weight and input gradient are those of any
convolution. The convolution from cells to hidden numbers is a matrix, whose product with the
standardised cells is a weight gradient.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_geometry import Convolution
from compiler.kernels.convolution.conv_input_gradient import input_gradient
from compiler.kernels.convolution.conv_weight_gradient import weight_gradient
from compiler.kernels.maps.elementwise import relu_backward
from compiler.kernels.tiling.splitting import MOST_WORDS, channel_parts, channel_steps
from compiler.kernels.updates.rules import Rule
from compiler.kernels.updates.scalars import Scalars, repeat
from compiler.kernels.updates.update import update
from compiler.tensors.intervals import Channels, Interval, PixelBox, regular_parts
from compiler.tensors.parameters import StoredParameter
from compiler.tensors.tensor import Shape, Tensor
from hw.isa.vector import Carry, Factor

from .tensors import GRADIENT_STATISTICS, LayerTensors

__all__ = ["error", "learn", "predict"]

#: A tap, the first cells of input and output that it connects, rows and columns of them.
_Diagonal = tuple[int, int, int, int, int]


def predict(
    program: CoreProgram, layer: LayerTensors, toeplitz: Tensor, full: StoredParameter
) -> None:
    """Commands that write ``layer.hidden`` and ``layer.prediction`` from ``layer.inputs``.

    Parameters
    ----------
    toeplitz : the convolution as a matrix
    full : the fully connected layer's parameter with the layer's rows
    """
    features = layer.hidden_gradient.shape
    hidden = _like(layer.hidden, features)
    first = _product(layer.name, toeplitz, layer.inputs, hidden)
    weight_gradient(program, first, layer.inputs, hidden, relu=True)
    forward(program, _fully_connected(layer, full, layer.prediction))


def error(program: CoreProgram, layer: LayerTensors, gradient: Tensor) -> None:
    """Commands that write ``layer.error``, in units of the gradient's scale: what is missing from
    the prediction to ``gradient`` (1, n, 1, O) float32. Where a row does not fit into the buffer,
    they take parts of the channels."""
    chunks, count = program.core.chunks_per_wide, len(GRADIENT_STATISTICS)
    state = program.need(layer.gradient_statistics, (0, 1), (0, 1), (0, count))
    tensors = [layer.error, gradient, layer.prediction]
    for step in channel_steps(program, layer.error):
        size = step * (2 * chunks + 1)
        room = program.scratch.words - step * chunks - state.words
        most = min(room // size, MOST_WORDS // size)
        if most > 0:
            break
    else:
        raise CompileError(
            f"layer {layer.name}: one word of its gradient, of its prediction and of the error do "
            f"not fit into the buffer ({program.scratch.words} words)"
        )

    def work(
        channels: Channels,
        rows: Interval,
        wide: Block,
        state: Block,
        out: Block,
        gradient_block: Block,
        prediction: Block,
    ) -> None:
        box = (0, 1), rows, (0, 1), channels
        result = program.view(out, layer.error, *box)
        shape = (1, 1, 1, result.shape[3])
        scale = View.dense(wide, shape, result.words, chunks=chunks)
        if rows[0] == 0:
            number = GRADIENT_STATISTICS.index("inverse_scale")
            state = Scalars.stored(program, state, layer.gradient_statistics)
            repeat(program, scale, state[number])
        program.vector.emit(
            result,
            program.view(gradient_block, gradient, *box),
            scale,
            program.view(prediction, layer.prediction, *box),
            factor=Factor.Y, carry=Carry.Z, add=1, negate_carry=1,
        )  # fmt: skip
        program.store(layer.error, (*box[:3], channels or (0, layer.error.pitch)), out)
        program.scratch.drop([out])

    jobs = []
    for channels in channel_parts(program, tensors, step):
        wide = Need(object(), program.words(layer.error, channels) * chunks)
        # Three would fit: so the next one's blocks have room whatever lies between them.
        for rows in regular_parts(0, layer.rows, max(1, most // 3)):
            box = (0, 1), rows, (0, 1), channels
            read = program.need(gradient, *box), program.need(layer.prediction, *box)
            needs = (wide, state, program.result(layer.error, *box), *read)
            like = rows[1] - rows[0], rows[0] == 0, channels
            jobs.append(Job(needs, partial(work, channels, rows), like=like, at=(rows[0],)))
    program.run(jobs)


def learn(
    program: CoreProgram,
    layer: LayerTensors,
    toeplitz: Tensor,
    toeplitz_gradient: Tensor,
    full: StoredParameter,
    taps: StoredParameter,
    *,
    rule: Rule,
) -> None:
    """Commands of one step of the predictor towards ``layer.error``: its two layers, and the
    matrix.

    Parameters
    ----------
    toeplitz, toeplitz_gradient : the convolution as a matrix
    full, taps : parameters; of the first the layer's rows only
    rule : the predictor's optimizer
    """
    scale = -2.0 / (layer.rows * layer.outputs)
    product = _fully_connected(layer, full, layer.error)
    input_gradient(program, product, layer.error, full.tensors["gradient"], scale=scale)
    weight_gradient(program, product, layer.error, layer.hidden_sums)
    features = layer.hidden_gradient.shape
    relu_backward(
        program,
        _like(layer.hidden_sums, features),
        _like(layer.hidden, features),
        layer.hidden_gradient,
    )
    first = _product(layer.name, toeplitz, layer.inputs, layer.hidden_gradient)
    input_gradient(program, first, layer.inputs, toeplitz_gradient, scale=scale)
    _tap_gradient(program, toeplitz_gradient, taps)
    for parameter in (full, taps):
        update(program, parameter, rule)
    _write_matrix(program, taps, toeplitz)


def _fully_connected(layer: LayerTensors, full: StoredParameter, y: Tensor) -> Convolution:
    return _product(layer.name, full.tensors["operands"], y, layer.hidden)


def _product(name: str, x: Tensor, y: Tensor, weights: Tensor) -> Convolution:
    """A convolution of 1 × 1."""
    return Convolution(name=f"{name} (prediction)", x=x, y=y, weights=weights, bias=None)


def _like(tensor: Tensor, shape: Shape) -> Tensor:
    """The first pixels of a tensor."""
    return replace(tensor, shape=shape)


# The convolution as a matrix ---------------------------------------------------------------------


def _diagonals(size: int) -> Iterator[_Diagonal]:
    """(tap, first cell of the input, first cell of the output, rows, columns) of the nine taps: the
    cells that they connect lie as far apart everywhere."""
    for di in range(3):
        for dj in range(3):
            # Rows and columns of the output, those of the input begin at the same plus di - 1.
            (i0, i1), (j0, j1) = ((max(0, 1 - d), min(size, size + 1 - d)) for d in (di, dj))
            if i1 > i0 and j1 > j0:
                source = (i0 + di - 1) * size + j0 + dj - 1
                yield 3 * di + dj, source, i0 * size + j0, i1 - i0, j1 - j0


def _pixels(tensor: Tensor, channels: int) -> Tensor:
    """The matrix with a pixel for every pair of cells: (1, S² + 1, pitch / c, c)."""
    shape = (1, tensor.shape[1], tensor.pitch // channels, channels)
    return replace(tensor, name=f"{tensor.name} by cells", shape=shape, pitch=channels)


def _diagonal(block: Block, tensor: Tensor, words: int, place: _Diagonal) -> View:
    """View of the pairs of cells that a tap connects."""
    _, source, target, rows, columns = place
    width, size = tensor.shape[2], int((tensor.shape[1] - 1) ** 0.5)
    return View(
        block=block,
        first=(source * width + target) * words,
        shape=(1, rows, columns, tensor.shape[3]),
        strides=(0, size * (width + 1) * words, (width + 1) * words),
        words=words,
    )


def _bias_row(block: Block, tensor: Tensor, words: int) -> View:
    """View of the matrix's last row, as far as there are cells."""
    cells, width = tensor.shape[1] - 1, tensor.shape[2]
    return View.dense(block, (1, 1, cells, tensor.shape[3]), words, first=cells * width * words)


def _tap_gradient(program: CoreProgram, toeplitz_gradient: Tensor, taps: StoredParameter) -> None:
    gradient = taps.tensors["gradient"]
    pixels = _pixels(toeplitz_gradient, gradient.shape[3])
    whole, box = _all(pixels), _all(gradient)
    size, words = int((pixels.shape[1] - 1) ** 0.5), program.words(pixels)

    def run(out: Block, block: Block) -> None:
        result = program.view(out, gradient, *box)
        for place in _diagonals(size):
            program.vector.sum(result.pixel(0, 0, place[0]), _diagonal(block, pixels, words, place))
        program.vector.sum(result.pixel(0, 0, 9), _bias_row(block, pixels, words))
        for tap in set(range(9)) - {place[0] for place in _diagonals(size)}:
            program.vector.fill(result.pixel(0, 0, tap), 0.0)
        program.store(gradient, (*box, (0, gradient.pitch)), out)
        program.scratch.drop([out])

    needs = (program.result(gradient, *box), program.need(pixels, *whole))
    program.run([Job(needs, run)])
    program.scratch.forget(pixels.name)


def _write_matrix(program: CoreProgram, taps: StoredParameter, toeplitz: Tensor) -> None:
    master = taps.tensors["master"]
    pixels = _pixels(toeplitz, master.shape[3])
    whole, words = _all(pixels), program.words(pixels)
    size = int((pixels.shape[1] - 1) ** 0.5)

    def run(out: Block, block: Block) -> None:
        values = program.view(block, master, *_all(master))
        program.vector.fill(program.view(out, pixels, *whole), 0.0)
        for place in _diagonals(size):
            tap = values.pixel(0, 0, place[0])
            program.vector.fill(_diagonal(out, pixels, words, place), tap)
        program.vector.fill(_bias_row(out, pixels, words), values.pixel(0, 0, 9))
        program.store(pixels, (*whole, (0, pixels.pitch)), out)
        program.scratch.drop([out])

    needs = (program.result(pixels, *whole), program.need(master, *_all(master)))
    program.run([Job(needs, run)])
    program.scratch.forget(toeplitz.name)


def _all(tensor: Tensor) -> PixelBox:
    images, height, width, _ = tensor.shape
    return (0, images), (0, height), (0, width)
