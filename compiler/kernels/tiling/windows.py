"""Places of the windows of a map: which outputs have which pixel there."""

from dataclasses import dataclass

from compiler.codegen.convolution_walk import input_range
from compiler.tensors.intervals import Interval

__all__ = ["Lines", "Windows"]

#: Rows and columns.
Lines = tuple[slice, slice]


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Windows of pooling, or of a convolution, on a map; all pairs are (vertical, horizontal).

    Members
    -------
    size : (H, W) of the map
    outputs : (HO, WO), one window per output
    kernel, stride, padding, dilation : pairs
    """

    size: tuple[int, int]
    outputs: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def count(self) -> int:
        """Places of a window."""
        return self.kernel[0] * self.kernel[1]

    @property
    def apart(self) -> bool:
        """No two windows share a pixel, wherever they lie."""
        return all(
            stride >= dilation * (size - 1) + 1
            for stride, dilation, size in zip(self.stride, self.dilation, self.kernel, strict=True)
        )

    def places(
        self, outputs: Interval | None = None, lines: Interval | None = None
    ) -> list[tuple[int, Lines, Lines]]:
        """[(place, outputs, pixels)] of the places ``kh * KW + kw`` inside the map, in order.

        ``outputs`` (two slices, rows and columns) are the windows whose place is inside, ``pixels``
        what lies there.

        Parameters
        ----------
        outputs, lines : (begin, end) of the rows of outputs and of the map that count; the slices
            begin there. All by default.
        """
        outputs, lines = outputs or (0, self.outputs[0]), lines or (0, self.size[0])
        result = []
        for kh in range(self.kernel[0]):
            for kw in range(self.kernel[1]):
                rows = self._lines(0, kh, outputs, lines)
                columns = self._lines(1, kw, (0, self.outputs[1]), (0, self.size[1]))
                if rows and columns:
                    place = kh * self.kernel[1] + kw
                    result.append((place, (rows[0], columns[0]), (rows[1], columns[1])))
        return result

    def _lines(
        self, axis: int, offset: int, outputs: Interval, lines: Interval
    ) -> tuple[slice, slice] | None:
        """(outputs, lines of the map) whose window has ``offset`` on a line; None for none."""
        step = self.stride[axis]
        first = offset * self.dilation[axis] - self.padding[axis]  # the line of output 0
        low = max(outputs[0], -((first - lines[0]) // step))
        high = min(outputs[1], (lines[1] - 1 - first) // step + 1)
        if high <= low:
            return None
        begin = first + low * step - lines[0]
        return (
            slice(low - outputs[0], high - outputs[0]),
            slice(begin, begin + (high - 1 - low) * step + 1, step),
        )

    def extents(
        self, outputs: Interval | None = None, *, include_pad: bool
    ) -> list[tuple[Lines, int]]:
        """[(outputs, places)]: rectangles of windows that have as many places: those inside the
        map; with ``include_pad`` also those of its padding, but not those of a last window that
        hang over it. ``outputs`` as in :meth:`places`."""
        groups = []
        for axis, found in enumerate((outputs or (0, self.outputs[0]), (0, self.outputs[1]))):
            edges = [(found[0], self._extent(axis, found[0], include_pad))]
            for output in range(found[0] + 1, found[1]):
                extent = self._extent(axis, output, include_pad)
                if extent != edges[-1][1]:
                    edges.append((output, extent))
            ends = [*(begin for begin, _ in edges[1:]), found[1]]
            groups.append([(slice(begin - found[0], end - found[0]), extent)
                           for (begin, extent), end in zip(edges, ends, strict=True)])  # fmt: skip
        return [((r, c), high * wide) for r, high in groups[0] for c, wide in groups[1]]

    def _extent(self, axis: int, output: int, include_pad: bool) -> int:
        size, padding = self.size[axis], self.padding[axis]
        begin = output * self.stride[axis] - padding
        end = min(begin + self.kernel[axis], size + padding)
        return end - begin if include_pad else min(end, size) - max(begin, 0)

    def lines(self, begin: int, end: int) -> Interval:
        """[begin, end) of the rows of the map that rows of outputs have in their windows; at least
        one row, also where all of them lie in the padding."""
        return input_range(
            (begin, end),
            (0, self.kernel[0]),
            stride=self.stride[0],
            padding=self.padding[0],
            dilation=self.dilation[0],
            size=self.size[0],
        )

    def readers(self, begin: int, end: int) -> Interval:
        """[begin, end) of the rows of outputs whose windows have rows of the map, and perhaps some
        between them that have none; at least one row."""
        found = [part[0] for _, part, _ in self.places(lines=(begin, end))]
        low = min((part.start for part in found), default=0)
        high = max((part.stop for part in found), default=1)
        return low, high

    def first_places(self, outputs: Interval) -> list[tuple[int, Lines]]:
        """[(place, outputs)]: rectangles of windows by the first place inside the map; rows as
        ``outputs`` of :meth:`places`. Every window must have such a place."""
        rows = self._first(0, outputs)
        columns = self._first(1, (0, self.outputs[1]))
        return [(kh * self.kernel[1] + kw, (r, c)) for kh, r in rows for kw, c in columns]

    def _first(self, axis: int, outputs: Interval) -> list[tuple[int, slice]]:
        """[(offset, outputs)] along one axis, by the offset of the first line inside."""
        groups: dict[int, list[int]] = {}
        for output in range(*outputs):
            outside = self.padding[axis] - output * self.stride[axis]
            offset = max(0, -(-outside // self.dilation[axis]))
            groups.setdefault(offset, []).append(output - outputs[0])
        return [(offset, slice(found[0], found[-1] + 1)) for offset, found in groups.items()]
