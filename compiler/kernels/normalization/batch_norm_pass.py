"""What batch normalisation backward and sums of channels have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.kernels.tiling.image_tiling import ImageSums, image_parts, state_job
from compiler.kernels.tiling.partial_sums import MapSums
from compiler.kernels.tiling.splitting import boxes
from compiler.tensors.intervals import ChannelBox, Channels, Interval
from compiler.tensors.tensor import Shape, Tensor

__all__ = ["VECTOR_BOX", "BatchNormPass"]

#: Of a float32 vector of the channels.
VECTOR_BOX = ((0, 1), (0, 1), (0, 1))


class BatchNormPass(ABC):
    """What these share: parts of the maps, and float32 vectors that stay in a block.

    Where images take turns at the vectors of sums, passes go through the images in order.

    Parameters
    ----------
    program : CoreProgram
    tensors : by name; the map is ``x``
    """

    #: Maps that are in the buffer together.
    maps: int = 1
    #: Vectors, and vectors for each image.
    names: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    #: Words that a finished pixel takes for each of its words.
    cost: int = 1
    #: Vectors that may be in the buffer besides those of the state.
    vectors_beside: int = 4

    def __init__(self, program: CoreProgram, tensors: Mapping[str, Tensor | None]) -> None:
        self.program, self.vector = program, program.vector
        self.tensors = SimpleNamespace(**tensors)
        #: One of the float32 vectors of the channels; all have its pitch.
        self.like = next(
            tensor
            for name in ("gamma", "dgamma", "dbeta", "mean")
            if (tensor := tensors.get(name)) is not None
        )
        shape: Shape = self.tensors.x.shape
        self.images, self.height, self.width, _ = shape
        self.pixels = self.images * self.height * self.width
        self.chunks = program.core.chunks_per_wide
        #: A quarter of what is left of the buffer for results.
        self._gap = program.scratch.words // (4 * program.pieces)
        #: Whether images take turns at few vectors of sums.
        self.turns = True

    def write(self) -> None:
        program = self.program
        x, vector = self.tensors.x, self.like
        extra = program.words(vector) - self.chunks * program.words(x)

        def fixed(words: int) -> int | None:
            vectors = (self.rows + self.vectors_beside) * (self.chunks * words + extra)
            return 4 * self._gap + vectors if self.most(words) else None

        def cut() -> tuple[list[Channels], list[Interval]] | None:
            return image_parts(
                program, self.images, [x, vector],
                size=lambda words: self.maps * self.height * self.width * words, fixed=fixed,
            )  # fmt: skip

        found = cut()
        if found is not None and len(found[1]) > 1:
            # More channels of an image make longer runs in DRAM.
            self._gap, before = 3 * self._gap // 4, self._gap
            more = cut()
            if more is not None and len(more[0]) < len(found[0]):
                found = more
            else:
                self._gap = before
        if found is not None and not ImageSums.suits(found[1]):
            # Sums in turns would need all images in order again and again.
            self.turns = False
            found = cut()
        if found is None:
            self.write_bands()
        else:
            channels, pieces = found
            pieces = ImageSums.pieces(pieces) if self.turns else pieces
            program.run([job for part in channels for job in self.jobs(part, pieces)])
        program.scratch.forget(self)

    @abstractmethod
    def jobs(self, channels: Channels, pieces: Sequence[Interval]) -> list[Job]:
        """Jobs of a part of the channels, with so many images at a time."""

    @abstractmethod
    def write_bands(self) -> None:
        """Do it band by band."""

    def most(self, words: int) -> int:
        """Pixels of so many words that are finished together. What is left of the buffer for
        results may lie in four gaps between other blocks, of which one has room for these."""
        return self._gap // (self.cost * words)

    @property
    def rows(self) -> int:
        """Vectors in the block that stays."""
        return len(self.names) + len(self.sums) * self._image_rows

    @property
    def _image_rows(self) -> int:
        return ImageSums.rows(self.images, turns=self.turns)

    def state(self, channels: Channels) -> Need:
        words = self.program.words(self.like, channels)
        return Need((self, channels), self.rows * words)

    def box(self, images: Interval, channels: Channels) -> ChannelBox:
        return images, (0, self.height), (0, self.width), channels

    def whole(self, block: Block, name: str, images: Interval, channels: Channels) -> View:
        """Images of a map."""
        tensor = getattr(self.tensors, name)
        return self.program.view(block, tensor, *self.box(images, channels))

    def vectors(self, block: Block, channels: Channels) -> dict[str, Any]:
        """The state's vectors and sums (:class:`ImageSums`), by name."""
        end = self.like.pitch if channels is None else channels[1]
        begin = 0 if channels is None else channels[0]
        words = self.program.words(self.like, channels) // self.chunks
        size = min(end, self.like.shape[3]) - begin
        view = View.dense(block, (self.rows, 1, 1, size), words, chunks=self.chunks)
        count = len(self.names)
        found: dict[str, Any] = {name: view.pixel(row, 0, 0) for row, name in enumerate(self.names)}
        for number, name in enumerate(self.sums):
            first = count + number * self._image_rows
            rows = view[first : first + self._image_rows]
            found[name] = ImageSums(self.vector, rows, self.images, turns=self.turns)
        return found

    def likeness(
        self, images: Interval, pieces: Sequence[Interval], channels: Channels
    ) -> tuple[tuple[object, ...], tuple[int, int]]:
        """What passes over some images have in common that differ in where these lie in DRAM alone,
        and where that is; ``pieces`` in their order."""
        begin, end = channels or (0, self.like.pitch)
        ends = images == pieces[0], images == pieces[-1]
        like = *ends, images[1] - images[0], end - begin, min(end, self.like.shape[3]) - begin
        return like, (images[0], begin)

    def sum_job(
        self, name: str, place: tuple[Interval, Sequence[Interval], Channels], *needs: Any,
        first: bool = False,
    ) -> Job:  # fmt: skip
        """A job that adds up images: ``place`` as for :meth:`likeness`, ``needs`` as for
        :func:`~compiler.kernels.tiling.image_tiling.state_job`."""
        like, at = self.likeness(*place)
        phase = ImageSums.phase(place[0], turns=self.turns)
        return state_job(*needs, first=first, like=(name, like, phase), at=at)

    @staticmethod
    def total(o: View, sums: ImageSums | MapSums) -> View:
        """The sum of all images' results in ``o``; returns where it is."""
        return sums.total(o)

    def need(self, tensor: Tensor, channels: Channels) -> Need:
        return self.program.need(tensor, *VECTOR_BOX, channels)

    def view(self, block: Block, tensor: Tensor, channels: Channels) -> View:
        return self.program.view(block, tensor, *VECTOR_BOX, channels)

    def store(self, view: View, tensor: Tensor | None, channels: Channels) -> None:
        """Store a vector, if there is a ``tensor`` for it."""
        if tensor is None:
            return
        box = (*VECTOR_BOX, channels or (0, tensor.pitch))
        self.program.store(tensor, box, view.block, view.first)

    def last_jobs(
        self,
        pieces: Sequence[Interval],
        channels: Channels,
        state: Need,
        maps: Callable[[Interval], list[Need]],
        more: Sequence[Need],
        run: Callable[..., None],
        output: Tensor,
    ) -> list[Job]:
        """Jobs that write ``output`` box by box: ``run(box, images, *blocks)``."""
        jobs = []
        most = self.most(self.program.words(self.tensors.x, channels))
        for images in pieces:
            shape = (images[1] - images[0], self.height, self.width)
            for (a, b), rows, columns in boxes(shape, most):
                box = ((images[0] + a, images[0] + b), rows, columns, channels)
                room = [self.program.result(output, *box)]
                if self.cost > 1:
                    room.append(self.program.result(output, *box, wide=True))
                needs = (*more, *room)
                do = partial(run, box, images)
                like, at = self.likeness(images, pieces, channels)
                like = "last", like, a, b, rows, columns
                jobs.append(state_job(state, maps(images), needs, do, like=like, at=at))
        return jobs
