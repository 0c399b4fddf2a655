"""Sums of the images of a product's map, which are added up while the product goes on."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import pairwise
from typing import NamedTuple

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.kernels.tiling.partial_sums import TURNS, MapSums
from compiler.kernels.tiling.pixel_bands import flat
from compiler.tensors.intervals import Channels, Interval, even_parts
from compiler.tensors.tensor import Tensor

__all__ = ["Late", "OutputSums", "behind"]


class Late(NamedTuple):
    """Work on what a job has written, ``run(*blocks)`` of ``needs``, that comes behind the product
    of a job that follows; ``like`` and ``at`` are those of jobs."""

    needs: tuple[Need, ...]
    run: Callable[..., None]
    like: tuple[object, ...]
    at: tuple[int, ...]


def behind(jobs: Iterable[tuple[Job, Sequence[Late]]]) -> list[Job]:
    """Jobs, each with what is to be done late with what it has written: every job that follows does
    one of these, behind its own work, so that the array always has something to do; the last one
    does what is left."""
    found: list[Job] = []
    waiting: deque[Late] = deque()
    for job, late in jobs:
        found.append(_both(job, waiting.popleft()) if waiting else job)
        waiting += late
    return [*found[:-1], *(reduce(_both, waiting, job) for job in found[-1:])]


def _do_nothing(*blocks: Block) -> None:
    """What is needed stays."""


def _both(job: Job, late: Late) -> Job:
    count = len(late.needs)

    def run(*blocks: Block) -> None:
        job.run(*blocks[count:])
        late.run(*blocks[:count])

    like = None if job.like is None else (job.like, late.like)
    return job._replace(needs=(*late.needs, *job.needs), run=run, like=like, at=job.at + late.at)


class OutputSums:
    """Of each image of a map the *sum* (docs/training.md) of its pixels, in every channel.

    A product that writes the map, whole lines at a time and those of an image in order, has its
    blocks added up (:meth:`late`); or the map is read again (:meth:`write`).

    Parameters
    ----------
    program : CoreProgram
    y : the map (N, H, W, C)
    sums : float32 (N, 1, 1, C), which is written
    """

    def __init__(self, program: CoreProgram, y: Tensor, sums: Tensor) -> None:
        self.program, self.vector = program, program.vector
        self.y, self.sums = y, sums
        self.images, self.height, self.width, _ = y.shape
        self.chunks = program.core.chunks_per_wide

    @property
    def state_words(self) -> int:
        """Words for an image that comes in several parts: of its partial sums, and of their sum."""
        state = MapSums.rows(1, 1) * self.chunks * self.program.words(self.y)
        return state + self.program.words(self.sums)

    def room(self, images: Interval, rows: Interval, channels: Channels = None) -> int:
        """Words behind lines of some images in their block, for the sums of whole images."""
        if rows != (0, self.height):
            return 0
        return (images[1] - images[0]) * self.program.words(self.sums, self._channels(channels))

    def late(
        self, images: Interval, rows: Interval, maps: Need, count: int, *,
        channels: Channels = None, follows: bool = False,
    ) -> list[Late]:  # fmt: skip
        """What adds up lines of some images, which are in the block of ``maps`` with :meth:`room`
        behind them, in at most ``count`` pieces; the last one drops that block. Sums that are
        complete are stored. Of an image that comes in parts one ``follows`` the other, with all
        channels: there are ``count`` pieces then, so that what both need is never idle."""
        if rows == (0, self.height):
            return self._whole(images, maps, count, channels)
        return self._lines(images, rows, maps, count, follows)

    # Whole images ----------------------------------------------------------------------------

    def _channels(self, channels: Channels) -> Interval:
        """Those of the sums for channels of the map: where these are the last ones, all that are
        left of the pitch, which may differ."""
        begin, end = channels or (0, self.y.pitch)
        return begin, self.sums.pitch if end == self.y.pitch else end

    def _whole(self, images: Interval, maps: Need, count: int, channels: Channels) -> list[Late]:
        parts = even_parts(*images, -(-(images[1] - images[0]) // count))
        found = []
        for part in parts:
            run = partial(self._add_images, images, part, channels, part == parts[-1])
            like = "images", images[1] - images[0], part[0] - images[0], part[1] - images[0]
            found.append(Late((maps,), run, like, images[:1]))
        return found

    def _add_images(
        self, images: Interval, part: Interval, channels: Channels, last: bool, maps: Block
    ) -> None:
        """Add up some of the images in a block, each by a command; behind the ``last`` one all of
        their sums are stored."""
        box = images, (0, 1), (0, 1), self._channels(channels)
        view = self.program.view(maps, self.y, images, (0, self.height), (0, self.width), channels)
        first = maps.words - self.room(images, (0, self.height), channels)
        room = replace(self.program.view(maps, self.sums, *box), first=first)
        for number in range(part[0] - images[0], part[1] - images[0]):
            image = slice(number, number + 1)
            self.vector.sum(room[image], view[image])
        if last:
            self.program.store(self.sums, box, maps, first)
            self.program.scratch.drop([maps])

    # Lines of an image -----------------------------------------------------------------------

    def _lines(
        self, images: Interval, rows: Interval, maps: Need, count: int, follows: bool
    ) -> list[Late]:
        state, at = Need((self, "parts"), self.state_words), (images[0], rows[0])
        begin, end = (line * self.width for line in rows)
        turns = -(-end // TURNS) - begin // TURNS
        size = -(-turns // count) * TURNS
        edges = [begin, *range(begin // TURNS * TURNS + size, end, size), end]
        found = []
        for first, last in pairwise(edges):
            run = partial(self._add_pixels, images, rows, (first, last), follows)
            ends = first == 0, last == self.height * self.width, follows
            like = "lines", rows[1] - rows[0], first - begin, last - begin, begin % TURNS, *ends
            found.append(Late((state, maps), run, like, at))
        rest = Late((state,), _do_nothing, ("parts",), at)
        return found + [rest] * (count - len(found) if follows else 0)

    def _add_pixels(
        self, images: Interval, rows: Interval, pixels: Interval, follows: bool, room: Block,
        maps: Block,
    ) -> None:  # fmt: skip
        """Add up some pixels of an image, of which ``rows`` are in a block, eight by a command; the
        sum is stored when all have come."""
        words, (first, last) = self.program.words(self.y), pixels
        size = (MapSums.rows(1, 1), 1, 1, self.y.shape[3])
        state = View.dense(room, size, words, chunks=self.chunks)
        sums = MapSums(self.program, state, 1, 1)
        if first == 0:
            sums.begin((0, 1))
        begin, end = (line * self.width for line in rows)
        view = self.program.view(maps, flat(self.y), images, (0, 1), (begin, end))
        sums.add(view[:, :, first - begin : last - begin], first)
        if last == end:
            self.program.scratch.drop([maps])
        if last == self.height * self.width:
            sums.finish((0, 1))
            pitch = self.program.words(self.sums) // self.chunks
            behind = size[0] * words * self.chunks
            result = View.dense(room, (1, *size[1:]), pitch, chunks=self.chunks, first=behind)
            self.vector.copy(result, sums.total(result))
            box = images, (0, 1), (0, 1), (0, self.sums.pitch)
            self.program.store(self.sums, box, room, result.first)
            if not follows:
                self.program.scratch.drop([room])

    # The map read again ----------------------------------------------------------------------

    def write(self) -> None:
        """Commands that read the map, image by image.

        Raises
        ------
        CompileError
            if a line of the map with all its channels does not fit into the buffer.
        """
        words, room = self.width * self.program.words(self.y), self.program.scratch.words
        lines = max(1, min(self.height, (room - self.state_words) // 2 // words))
        starts = range(0, self.height, lines)
        parts = [
            ((image, image + 1), (begin, min(begin + lines, self.height)))
            for image in range(self.images)
            for begin in starts
        ]
        jobs = []
        for part in parts:
            maps = self.program.need(self.y, *part, (0, self.width))
            maps = maps._replace(key=object(), words=maps.words + self.room(*part))
            (late,) = self.late(*part, maps, 1, follows=part != parts[-1])
            jobs.append(Job(late.needs, late.run, like=late.like, at=late.at))
        self.program.run(jobs)
