"""Many table look-ups at once."""

import numpy as np

from synth.asic.liberty.model import Table

__all__ = ["TableSet"]


class TableSet:
    """Tables stacked into arrays, looked up together.

    Tables are added with :meth:`add`, which gives a number; :meth:`look_up` then interpolates
    bilinearly, and extrapolates with the outermost segment, as
    :class:`~synth.asic.liberty.model.Table` does.
    """

    def __init__(self):
        self._tables, self._numbers, self._stacked = [], {}, None

    def add(self, table: Table) -> int:
        if id(table) not in self._numbers:
            self._numbers[id(table)] = len(self._tables)
            self._tables.append(table)
            self._stacked = None
        return self._numbers[id(table)]

    def look_up(self, number, row, column) -> np.ndarray:
        """Values of the tables ``number`` at ``row`` and ``column``, arrays of one shape."""
        if self._stacked is None:
            self._stack()
        rows, columns, last_row, last_column, values = self._stacked
        number = np.asarray(number)
        i, a = _segments(rows, last_row, number, row)
        j, b = _segments(columns, last_column, number, column)
        low, high = values[number, i, j], values[number, i + 1, j]
        low = low + (values[number, i, j + 1] - low) * b
        high = high + (values[number, i + 1, j + 1] - high) * b
        return low + (high - low) * a

    def _stack(self):
        size = max((max(t.values.shape) for t in self._tables), default=1)
        size = max(size, 2)
        count = len(self._tables)
        rows, columns = (np.full((count, size), np.inf) for _ in range(2))
        last = np.zeros((2, count), np.int64)
        values = np.zeros((count, size, size))
        for number, table in enumerate(self._tables):
            block = table.values
            axes = []
            for axis, index in ((0, table.rows), (1, table.columns)):
                if len(index) == 1:  # constant along this axis
                    index = np.array([index[0], index[0] + 1.0])
                    block = np.repeat(block, 2, axis=axis)
                axes.append(index)
            rows[number, : len(axes[0])], columns[number, : len(axes[1])] = axes
            last[:, number] = len(axes[0]) - 2, len(axes[1]) - 2
            values[number, : block.shape[0], : block.shape[1]] = block
        self._stacked = rows, columns, last[0], last[1], values


def _segments(index, last, number, x):
    """Number of the segment each ``x`` is in, and how far into it."""
    points = index[number]
    i = (points <= np.asarray(x)[:, None]).sum(axis=1) - 1
    i = np.clip(i, 0, last[number])
    each = np.arange(len(i))
    low, high = points[each, i], points[each, i + 1]
    return i, (x - low) / (high - low)
