"""Braking of a gradient before its update, filter by filter (Adaptive Braking)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import Coefficient, View
from compiler.kernels.tiling.partial_sums import MapSums
from compiler.kernels.tiling.state import held
from compiler.tensors.intervals import ChannelBox, Channels, PixelBox
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry, Condition, Factor

__all__ = ["Brake"]

#: The least product of norms that is divided by.
_LEAST_NORM = 2.0**-100
#: Vectors of partial sums and their results of each of three products.
_VECTORS = MapSums.rows(1, 1)


class Brake:
    """Factors of the gradient's output channels, from its cosine with the velocity.

    The arithmetic is that of the section "Update" of docs/training.md. All commands are guarded;
    what has to be watched has been watched.

    Parameters
    ----------
    program : CoreProgram
    tensors : of the parameter: ``gradient`` and ``velocity`` (1, lines, rows, CO)
    braking : what the cosine is multiplied by
    """

    def __init__(
        self, program: CoreProgram, tensors: Mapping[str, Tensor], braking: Coefficient | float
    ) -> None:
        self.program, self.braking = program, braking
        self.gradient, self.velocity = tensors["gradient"], tensors["velocity"]
        #: Need of the factors of all parts of the channels.
        self.factors: list[Need] = []
        self._sums: list[Need] = []
        self._first: dict[Channels, int] = {}

    def _sizes(self, parts: Sequence[Channels]) -> tuple[int, int]:
        """Words of the factors of all parts, and of the sums of one."""
        rows = [self.program.words(self.gradient, part) for part in parts]
        return sum(rows), 3 * _VECTORS * max(rows)

    def words(self, parts: Sequence[Channels]) -> int:
        """What :meth:`held` holds."""
        return sum(self._sizes(parts))

    @contextmanager
    def held(self, parts: Sequence[Channels]) -> Iterator[None]:
        """Room for factors and sums; the factors are there as long as this lasts."""
        first = 0
        for part in parts:
            self._first[part] = first
            first += self.program.words(self.gradient, part)
        with held(self.program, *self._sizes(parts)) as (factors, sums):
            self.factors, self._sums = [factors], [sums]
            yield

    def jobs(
        self,
        parts: Sequence[Channels],
        rows: Sequence[PixelBox],
        needs: Callable[[ChannelBox], list[Need]],
        view: Callable[..., View],
    ) -> list[Job]:
        """Jobs that make the factors.

        Parameters
        ----------
        parts : of the channels
        rows : pieces of the rows, in order
        needs : of a piece: what the gradient takes
        view : of a piece and the blocks of these needs: the gradient
        """
        program, found = self.program, []
        for part in parts:
            for number, piece in enumerate(rows):
                box = (*piece, part)
                wanted = [program.need(self.velocity, *box), *needs(box)]
                state = number == 0, number == len(rows) - 1
                run = partial(self._add, box, state, view)
                found.append(Job((*self.factors, *self._sums, *wanted), run))
        return found

    def factor(self, factors: Block, like: View, channels: Channels) -> View:
        """The factors of a part of the channels, whose gradient is ``like``."""
        return _vector(factors, self._first[channels], like)

    def _add(
        self,
        box: ChannelBox,
        state: tuple[bool, bool],
        view: Callable[..., View],
        factors: Block,
        sums: Block,
        velocity: Block,
        *gradient: Block,
    ) -> None:
        """The sums of a piece; with the last one the factors."""
        first, last = state
        g = view(box, *gradient).line
        v = self.program.view(velocity, self.velocity, *box).line
        row = box[1][0] * self.gradient.shape[2] + box[2][0]
        size = g.words * g.chunks
        totals = []
        for what, (x, y) in enumerate(((g, v), (g, None), (v, None))):
            place, factor = what * _VECTORS * size, Factor.Y if y else Factor.U
            if first and last:
                o = _vector(sums, place, g)
                totals.append(self.program.vector.sum(o, x, y=y, factor=factor, guarded=1))
                continue
            shape = (_VECTORS, 1, 1, g.shape[3])
            rows = View.dense(sums, shape, g.words, chunks=g.chunks, first=place)
            total = MapSums(self.program, rows, 1, 1)
            if first:
                total.begin((0, 1))
            total.add(x, row, y, factor=factor, guarded=1)
            if last:
                total.finish((0, 1))
                totals.append(total.total(rows))
        if last:
            self._finish(totals, self.factor(factors, g, box[3]))

    def _finish(self, totals: Sequence[View], o: View) -> None:
        """1 - cosine * braking, of the sums of g * v, g * g and v * v."""
        vector, (product, norm, other) = self.program.vector, totals
        vector.root(norm, norm, guarded=1)
        vector.root(other, other, guarded=1)
        vector.scale(norm, norm, other, guarded=1)
        vector.emit(norm, norm, _LEAST_NORM, condition=Condition.GREATER, carry=Carry.Y, keep=1,
                    guarded=1)  # fmt: skip
        vector.divide(product, product, norm, guarded=1)
        vector.scale_add(o, product, self.braking, 1.0, negate_product=1, guarded=1)


def _vector(block: Block, first: int, like: View) -> View:
    shape = (1, 1, 1, like.shape[3])
    return View.dense(block, shape, like.words, chunks=like.chunks, first=first)
