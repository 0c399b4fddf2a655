"""How the windows of a convolution, or of pooling, lie on its input.

The one place for the rows and columns that outputs need, and for the loops of a MATMUL over
outputs, taps and channels; inference and training, forward and backward, use both.
"""

from compiler.tensors.intervals import Interval, Pair

from .cost import Fields

__all__ = ["clip", "input_range", "matmul_walk", "outputs_of", "window_range"]


def outputs_of(size: int, window: int, stride: int) -> int:
    """How many whole windows lie on ``size`` lines."""
    return (size - window) // stride + 1


def window_range(
    outputs: Interval, taps: Interval, *, stride: int = 1, padding: int = 0, dilation: int = 1
) -> Interval:
    """[begin, end) of the lines that ``outputs`` [begin, end) have in their windows.

    Lines are rows or columns of the input; they may lie outside of it.

    Parameters
    ----------
    taps : (first, last + 1) of the window's lines that count
    """
    begin = outputs[0] * stride - padding + taps[0] * dilation
    return begin, (outputs[1] - 1) * stride - padding + (taps[1] - 1) * dilation + 1


def input_range(
    outputs: Interval, taps: Interval, *, stride: int, padding: int, dilation: int, size: int
) -> Interval:
    """The part of :func:`window_range` that is inside an input of ``size`` lines; at least one
    line, also where all of them lie in the padding."""
    lines = window_range(outputs, taps, stride=stride, padding=padding, dilation=dilation)
    return clip(*lines, size)


def clip(begin: int, end: int, size: int) -> Interval:
    """[begin, end) inside [0, size); at least one line."""
    # Without min() and max(): it is asked a million times.
    begin = 0 if begin < 0 else begin if begin < size else size - 1
    end = end if end < size else size
    return begin, end if end > begin else begin + 1


def matmul_walk(
    x_address: int,
    pixel: int,
    *,
    images: int,
    outputs: tuple[Interval, Interval],
    taps: tuple[Interval, Interval],
    lines: tuple[Interval, Interval],
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> Fields:
    """Fields of a MATMUL: loops wo, ho, n over outputs inside kw, kh over taps, one word from one
    step of cb to the next. Missing: ``cb_count``, and what has nothing to do with the loops.

    All pairs are (vertical, horizontal), all ranges (begin, end).

    Parameters
    ----------
    x_address : word of the first image's first line, column and channels that are read
    pixel : words from one pixel to the next
    images : how many
    outputs, taps : pairs of ranges
    lines : pair of ranges of the input that lie in the buffer
    stride, padding, dilation : pairs
    """
    (h0, h1), (w0, w1) = lines
    row = (w1 - w0) * pixel
    top, left = (
        window_range(
            outputs[axis],
            taps[axis],
            stride=stride[axis],
            padding=padding[axis],
            dilation=dilation[axis],
        )[0]
        - lines[axis][0]
        for axis in (0, 1)
    )
    return {
        "x_address": x_address + top * row + left * pixel,
        "wo_count": outputs[1][1] - outputs[1][0],
        "ho_count": outputs[0][1] - outputs[0][0],
        "n_count": images,
        "kw_count": taps[1][1] - taps[1][0],
        "kh_count": taps[0][1] - taps[0][0],
        "wo_stride": stride[1] * pixel,
        "ho_stride": stride[0] * row,
        "n_stride": (h1 - h0) * row,
        "kw_stride": dilation[1] * pixel,
        "kh_stride": dilation[0] * row,
        "cb_stride": 1,
        "h_origin": top,
        "w_origin": left,
        "h_limit": h1 - h0,
        "w_limit": w1 - w0,
        "ho_step": stride[0],
        "wo_step": stride[1],
        "kh_step": dilation[0],
        "kw_step": dilation[1],
    }
