"""Places of the windows of a map: which outputs have which pixel there."""

from itertools import groupby

from .conv2d import ends, pair
from .conv_general import output_map

__all__ = ["Windows"]


class Windows:
    """Windows of pooling, or of a convolution, on a map.

    Members
    -------
    map : (N, H, W, C)
    shape : (N, HO, WO, C), one window per output
    kernel, stride, dilation : (vertical, horizontal)
    padding : ((above, below), (left, right))

    With ``ceil_mode`` there is one more window along an axis where lines are left, unless it would
    begin behind the map, in the padding.

    Raises
    ------
    ValueError
        if no window fits the map.
    """

    def __init__(self, shape, kernel, stride=1, padding=0, dilation=1, *, ceil_mode=False):
        self.map, self.kernel, self.stride = tuple(shape), pair(kernel), pair(stride)
        self.padding, self.dilation = ends(padding), pair(dilation)
        outputs = output_map(
            shape[1:3], kernel=kernel, stride=stride, padding=padding, dilation=dilation
        )
        if ceil_mode:
            outputs = tuple(self._with_last(axis, count) for axis, count in enumerate(outputs))
        self.shape = (shape[0], *outputs, shape[3])

    def _with_last(self, axis, outputs):
        """Outputs of an axis, and a last window for the lines that are left."""
        size, (before, behind) = self.map[1 + axis], self.padding[axis]
        step = self.stride[axis]
        reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        rest = size + before + behind - reach - (outputs - 1) * step
        return outputs + int(rest > 0 and outputs * step < size + before)

    def extents(self, *, include_pad):
        """[(outputs, places)]: rectangles of windows (two slices) that have as many places.

        Those inside the map; with ``include_pad`` also those of its padding, but not those of a
        last window that hang over it.
        """
        lines = []
        for axis in (0, 1):
            extents = [self._extent(axis, o, include_pad) for o in range(self.shape[1 + axis])]
            groups = groupby(enumerate(extents), key=lambda pair: pair[1])
            lines.append([([o for o, _ in group], extent) for extent, group in groups])
        rows, columns = lines
        return [
            ((slice(r[0], r[-1] + 1), slice(c[0], c[-1] + 1)), high * wide)
            for r, high in rows
            for c, wide in columns
        ]

    def _extent(self, axis, output, include_pad):
        size, (before, behind) = self.map[1 + axis], self.padding[axis]
        begin = output * self.stride[axis] - before
        end = min(begin + self.kernel[axis], size + behind)
        return end - begin if include_pad else min(end, size) - max(begin, 0)

    def places(self):
        """[(place, outputs, pixels)] of the places ``kh * KW + kw`` inside the map, in order.

        ``outputs`` (two slices, rows and columns) are the windows whose place is inside, ``pixels``
        what lies there.
        """
        result = []
        for kh in range(self.kernel[0]):
            for kw in range(self.kernel[1]):
                lines = [self._lines(axis, offset) for axis, offset in enumerate((kh, kw))]
                if all(lines):
                    outputs, pixels = zip(*lines, strict=True)
                    result.append((kh * self.kernel[1] + kw, outputs, pixels))
        return result

    def _lines(self, axis, offset):
        """(outputs, lines of the map) whose window has ``offset`` on a line; None for none."""
        size, step = self.map[1 + axis], self.stride[axis]
        first = offset * self.dilation[axis] - self.padding[axis][0]  # the line of output 0
        low = max(0, -(first // step))
        high = min(self.shape[1 + axis], (size - 1 - first) // step + 1)
        if high <= low:
            return None
        return slice(low, high), slice(first + low * step, first + (high - 1) * step + 1, step)
