"""Layers that add up whole images: parts of the channels, and images at a time."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.vector_commands import VectorCommands
from compiler.codegen.view import View
from compiler.tensors.intervals import MANY_PARTS, Channels, Interval, regular_parts
from compiler.tensors.tensor import Tensor

from .partial_sums import TURNS
from .splitting import MOST_WORDS, channel_parts, channel_steps

__all__ = ["ImageSums", "image_parts", "state_job"]


class ImageSums:
    """The sum over a feature map from those of its images, per channel.

    Either every image has a vector for its result; or, in ``turns``, the eight partial sums are
    vectors, to which results of eight images at a time are added in order: so what is done for an
    image is done at the same place eight images later.

    Parameters
    ----------
    vector : VectorCommands
    view : float32 map (rows, H, W, C) with a result or a partial sum in each of :meth:`rows` rows
    images : how many
    turns : whether they take turns
    """

    def __init__(self, vector: VectorCommands, view: View, images: int, *, turns: bool) -> None:
        self.vector, self.view, self.images = vector, view, images
        self.turns = turns and images > TURNS

    @staticmethod
    def rows(images: int, *, turns: bool) -> int:
        """Vectors that it needs."""
        return 2 * TURNS if turns and images > TURNS else images

    @staticmethod
    def suits(pieces: Sequence[Interval]) -> bool:
        """Whether turns suit a map that comes in these images: all at once, or many pieces. Else
        passes in turns would load more than those to and fro."""
        return len(pieces) == 1 or len(pieces) >= MANY_PARTS

    @staticmethod
    def pieces(pieces: Sequence[Interval]) -> list[Interval]:
        """Pieces of which some always have eight images together."""
        (begin, first), end = pieces[0], pieces[-1][1]
        size = first - begin
        if len(pieces) > 1:
            size = size // TURNS * TURNS or 1 << size.bit_length() - 1
        return [(n, min(n + size, end)) for n in range(begin, end, size)]

    @staticmethod
    def phase(images: Interval, *, turns: bool) -> Interval:
        """What images have in common whose results are at the same places."""
        first = images[0]
        return (first % TURNS, first < TURNS) if turns else images

    def row(self, number: int) -> int:
        """The row where the result of an image belongs."""
        return TURNS + number % TURNS if self.turns and number >= TURNS else number

    def __getitem__(self, number: int) -> View:
        """That row."""
        row = self.row(number)
        return self.view[row : row + 1]

    def add(self, images: Interval, x: View, **fields: Any) -> None:
        """Images (begin, end) of the map, which ``x`` are; ``fields`` say what of them."""
        for place, number in enumerate(range(*images)):
            self.vector.sum(self[number], x[place : place + 1], **fields)
            self.done(number)

    def done(self, number: int) -> None:
        """The result of an image is there, as those of all before."""
        turn = number % TURNS
        if not self.turns or number < TURNS:
            return
        if turn == TURNS - 1 or number == self.images - 1:
            partial = self.view[: turn + 1]
            self.vector.add(partial, partial, self.view[TURNS : TURNS + turn + 1])

    def total(self, o: View) -> View:
        """The sum of all of them in ``o``; returns where it is."""
        if self.images == 1:
            return self.view
        return self.vector.sum(o, self.view[:TURNS] if self.turns else self.view)


def image_parts(
    program: CoreProgram,
    images: int,
    tensors: Sequence[Tensor],
    *,
    size: Callable[[int], int],
    fixed: Callable[[int], int | None],
) -> tuple[list[Channels], list[Interval]] | None:
    """([channels], [images]): (begin, end) each; channels are None if they are all in one part.
    None if an image with one word per pixel does not fit.

    All images at once if a part of the channels leaves room for them, so that they are loaded once;
    else as many images of as many channels as fit twice, or at least once.

    Parameters
    ----------
    tensors : the map, and others whose pitch may be larger
    size : function of a number of words per pixel: those that an image's maps take together
    fixed : the same for what has to be there besides, or None if so many words do not do
    """
    choices = [(step, fixed(step)) for step in channel_steps(program, tensors[0])]
    choices = [(step, rest) for step, rest in choices if rest is not None]
    room = program.scratch.words
    for step, rest in choices:
        if size(step) * images + rest <= room and size(step) * images <= MOST_WORDS:
            return channel_parts(program, tensors, step), [(0, images)]
    for share in (2, 1):
        for step, rest in choices:
            count = min((room - rest) // share, MOST_WORDS) // size(step)
            if count >= 1:
                return channel_parts(program, tensors, step), regular_parts(0, images, count)
    return None


def state_job(
    state: Need,
    maps: Sequence[Need],
    more: Sequence[Need],
    run: Callable[..., None],
    *,
    first: bool = False,
    like: Hashable = None,
    at: tuple[int, ...] = (),
) -> Job:
    """A :class:`Job` that needs ``maps`` and ``more`` and a ``state``, which jobs before have
    written: ``run(state, *maps, *more)``.

    It finds the state before it takes room for anything; the first job takes room for the maps
    before, as they may not fit beside it elsewhere. ``like`` and ``at`` are those of the job.
    """
    if not first:
        return Job((state, *maps, *more), run, like=like, at=at)
    count = len(maps)
    return Job(
        (*maps, state, *more),
        lambda *blocks: run(blocks[count], *blocks[:count], *blocks[count + 1 :]),
        like=like,
        at=at,
    )
