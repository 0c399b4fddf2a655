"""Sums of docs/training.md of numbers that come in several commands, bit for bit the same."""

from typing import Any

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.view import View
from hw.isa.vector import Carry

__all__ = ["TURNS", "MapSums"]

#: Partial sums that take turns, element by element.
TURNS = 8


class MapSums:
    """A *sum over a feature map* per channel, of some images at a time and pieces of their pixels.

    A VECTOR command that reduces adds up all that it is given, and leaves one number. Here the
    eight partial sums are float32 vectors in the buffer, to which every command adds eight numbers
    of each image; so it takes a command for eight pixels.

    Parameters
    ----------
    program : CoreProgram
    state : float32 view (rows, 1, 1, C) of :meth:`rows` vectors, dense
    images : of the map
    group : images at a time, at most
    """

    def __init__(self, program: CoreProgram, state: View, images: int, group: int) -> None:
        self.vector, self.state, self.images, self.group = program.vector, state, images, group

    @staticmethod
    def rows(images: int, group: int) -> int:
        """Vectors that it needs: partial sums and results of a group, partial sums of the images'
        results."""
        return group * (TURNS + 1) + (TURNS if images > 1 else 0)

    def _vectors(self, first: int, shape: tuple[int, int]) -> View:
        """Rows from ``first`` on as a map of (images, pixels)."""
        view = self.state
        return View.dense(
            view.block, (shape[0], 1, shape[1], view.shape[3]), view.words, chunks=view.chunks,
            first=view.first + first * view.strides[0],
        )  # fmt: skip

    def _partial(self, images: int) -> View:
        """Partial sums (images, 1, 8, C) of a group."""
        return self._vectors(0, (images, TURNS))

    @property
    def _results(self) -> View:
        """Partial sums (1, 1, 8, C) of the images' results."""
        return self._vectors(self.group * (TURNS + 1), (1, TURNS))

    def begin(self, images: tuple[int, int]) -> None:
        """Images (begin, end), a group, follow."""
        self.vector.fill(self._partial(images[1] - images[0]), 0.0)
        if self.images > 1 and images[0] == 0:
            self.vector.fill(self._results, 0.0)

    def add(self, numbers: View, first: int, y: View | None = None, **fields: Any) -> None:
        """Numbers (images, 1, P, C), or what ``fields`` make of them and ``y``, as many numbers or
        a vector; of each image the first is number ``first`` of its sum."""
        self._add(self._partial(numbers.shape[0]), numbers, first, y, **fields)

    def _add(
        self, partial: View, numbers: View, first: int, y: View | None = None, **fields: Any
    ) -> None:
        done, count = 0, numbers.shape[2]
        while done < count:
            turn = (first + done) % TURNS
            size = min(TURNS - turn, count - done)
            sums = partial[:, :, turn : turn + size]
            part = numbers[:, :, done : done + size]
            own = y[:, :, done : done + size] if y is not None and y.shape[2] > 1 else y
            self.vector.emit(sums, part, own, sums, carry=Carry.Z, add=1, **fields)
            done += size

    def finish(self, images: tuple[int, int]) -> None:
        """All pixels of images (begin, end), a group, have come."""
        count = images[1] - images[0]
        self._fold(self.results(images), self._partial(count))
        if self.images > 1:
            row = self._vectors(self.group * TURNS, (1, count))
            self._add(self._results, row, images[0])

    def results(self, images: tuple[int, int]) -> View:
        """Sums (images, 1, 1, C) of a group that is finished."""
        return self._vectors(self.group * TURNS, (images[1] - images[0], 1))

    def total(self, o: View) -> View:
        """The sum in ``o``, when all images are finished; returns where it is."""
        if self.images == 1:
            return self._vectors(self.group * TURNS, (1, 1))
        self._fold(o, self._results)
        return o

    def _fold(self, o: View, partial: View) -> None:
        """``((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7))``."""
        add = self.vector.add
        pairs, fours = partial[:, :, 0::2], partial[:, :, 0::4]
        add(pairs, pairs, partial[:, :, 1::2])
        add(fours, fours, partial[:, :, 2::4])
        add(o, partial[:, :, 0:1], partial[:, :, 4:5])
