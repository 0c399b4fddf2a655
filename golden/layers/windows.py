"""Places of the windows of a map: which outputs have which pixel there."""

from .conv2d import pair
from .conv_general import output_map

__all__ = ["Windows"]


class Windows:
    """Windows of pooling, or of a convolution, on a map.

    Members
    -------
    map : (N, H, W, C)
    shape : (N, HO, WO, C), one window per output
    kernel, stride, padding, dilation : (vertical, horizontal)

    Raises
    ------
    ValueError
        if no window fits the map.
    """

    def __init__(self, shape, kernel, stride=1, padding=0, dilation=1):
        self.map, self.kernel, self.stride = tuple(shape), pair(kernel), pair(stride)
        self.padding, self.dilation = pair(padding), pair(dilation)
        outputs = output_map(
            shape[1:3], kernel=kernel, stride=stride, padding=padding, dilation=dilation
        )
        self.shape = (shape[0], *outputs, shape[3])

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
        first = offset * self.dilation[axis] - self.padding[axis]  # the line of output 0
        low = max(0, -(first // step))
        high = min(self.shape[1 + axis], (size - 1 - first) // step + 1)
        if high <= low:
            return None
        return slice(low, high), slice(first + low * step, first + (high - 1) * step + 1, step)
