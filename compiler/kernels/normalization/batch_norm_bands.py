"""Batch normalisation of maps of which not even a word of all pixels of an image fits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from compiler.codegen.core_builder import Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.kernels.tiling.image_tiling import state_job
from compiler.kernels.tiling.in_place import ChangedBoxes
from compiler.kernels.tiling.partial_sums import MapSums
from compiler.kernels.tiling.pixel_bands import flat, pixel_bands
from compiler.tensors.intervals import Channels, Interval

if TYPE_CHECKING:
    from .batch_norm_pass import BatchNormPass

__all__ = ["Band", "BatchNormBands"]

#: Images and pixels.
Band = tuple[Interval, Interval]


class BatchNormBands:
    """What these passes share where the map is loaded again for each, band by band.

    Parameters
    ----------
    layer : the pass, which knows what its sums make
    maps : names of the maps that it reads, of its tensors
    output : name of the one that it writes, of which there may be none
    masked : boxes of dY that a ReLU's mask has changed, if there are some
    """

    def __init__(
        self,
        layer: BatchNormPass,
        maps: Sequence[str],
        output: str,
        masked: ChangedBoxes | None = None,
    ) -> None:
        self.layer, self.program, self.vector = layer, layer.program, layer.vector
        self.maps = {name: getattr(layer.tensors, name) for name in maps}
        self.output = getattr(layer.tensors, output)
        self.masked = masked
        self.bands = pixel_bands(
            self.program, f"{layer.tensors.x.name} (batch normalisation)", layer.tensors.x,
            [layer.like], pixel=layer.maps + layer.cost, fixed=self._fixed,
        )  # fmt: skip

    def _sums_rows(self, group: int) -> int:
        return MapSums.rows(self.layer.images, group)

    def _fixed(self, words: int, group: int) -> int:
        """Words of the state and of the vectors beside it."""
        layer = self.layer
        extra = self.program.words(layer.like) - layer.chunks * self.program.words(layer.tensors.x)
        vectors = (len(layer.names) + layer.vectors_beside) * (layer.chunks * words + max(0, extra))
        return vectors + len(layer.sums) * self._sums_rows(group) * layer.chunks * words

    def _words(self, channels: Channels) -> int:
        """Words of operands of a part of the channels."""
        return self.program.words(self.layer.tensors.x, channels)

    def state(self, channels: Channels) -> Need:
        layer = self.layer
        words = len(layer.names) * self.program.words(layer.like, channels)
        rows = len(layer.sums) * self._sums_rows(self.bands.group)
        return Need((layer, channels), words + rows * layer.chunks * self._words(channels))

    def vectors(self, block: Block, channels: Channels) -> dict[str, Any]:
        """The state's vectors and sums (:class:`MapSums`), by name."""
        layer, chunks = self.layer, self.layer.chunks
        wide, words = self.program.words(layer.like, channels), self._words(channels)
        begin, end = channels or (0, layer.like.pitch)
        size = max(0, min(end, layer.like.shape[3]) - begin)
        names = View.dense(block, (len(layer.names), 1, 1, size), wide // chunks, chunks=chunks)
        found: dict[str, Any] = {n: names.pixel(row, 0, 0) for row, n in enumerate(layer.names)}
        rows, first = self._sums_rows(self.bands.group), len(layer.names) * wide
        for number, name in enumerate(layer.sums):
            view = View.dense(
                block, (rows, 1, 1, size), words, chunks=chunks,
                first=first + number * rows * words * chunks,
            )  # fmt: skip
            found[name] = MapSums(self.program, view, layer.images, self.bands.group)
        return found

    def views(self, band: Band, channels: Channels, blocks: Sequence[Block]) -> list[View]:
        """The maps that it reads."""
        return [
            self.bands.view(self.program, block, tensor, band, channels)
            for block, tensor in zip(blocks, self.maps.values(), strict=True)
        ]

    def needs(self, band: Band, channels: Channels) -> list[Need]:
        """What it reads of the maps."""
        found = []
        for name, tensor in self.maps.items():
            changed = self.masked if name == "dy" and "y" in self.maps else None
            need = self.program.need if changed is None else changed.need
            found.append(need(flat(tensor), band[0], (0, 1), band[1], channels))
        return found

    def pass_jobs(
        self, channels: Channels, run: Any, end: Any, *, more: Sequence[Need] = (),
        late: Sequence[Need] = (), wide: bool = False, first: bool = False,
    ) -> list[Job]:  # fmt: skip
        """A pass that adds up: ``run(channels, band, vectors, maps, others)`` for every band,
        whose sums are finished behind it; ``late`` are needs of the last one. With ``wide`` there
        is a float32 map of the band behind the maps. ``end(channels, vectors, others)`` comes when
        all has been added up."""
        jobs: list[Job] = []
        bands = self.bands.all
        for band in bands:
            last, maps = band == bands[-1], self.needs(band, channels)
            if wide:
                maps.append(self._room(band, channels, wide=True))
            needs = (*more, *(late if last else ()))
            do = partial(self._sum, run, end if last else None, channels, band, len(maps))
            state = self.state(channels)
            jobs.append(state_job(state, maps, needs, do, first=first and not jobs))
        return jobs

    def _sum(
        self, run: Any, end: Any, channels: Channels, band: Band, count: int, state: Block,
        *blocks: Block,
    ) -> None:  # fmt: skip
        vectors = self.vectors(state, channels)
        sums = [vectors[name] for name in self.layer.sums]
        images, (first, last) = band
        if first == 0:
            for part in sums:
                part.begin(images)
        run(channels, band, vectors, blocks[:count], blocks[count:])
        if last == self.layer.height * self.layer.width:
            for part in sums:
                part.finish(images)
        if end is not None:
            end(channels, vectors, *blocks[count:])

    def _room(self, band: Band, channels: Channels, *, wide: bool = False) -> Need:
        """Room for a band of the output, or of a float32 map like X."""
        tensor = self.layer.tensors.x if wide else self.output
        return self.program.result(flat(tensor), band[0], (0, 1), band[1], channels, wide=wide)

    def wide_view(self, block: Block, band: Band, channels: Channels) -> View:
        """A float32 map like X."""
        x = self.layer.tensors.x
        return self.bands.view(self.program, block, x, band, channels, wide=True)

    def last_jobs(self, channels: Channels, run: Any, more: Sequence[Need] = ()) -> list[Job]:
        """The pass that writes: ``run(channels, band, vectors, maps, views, others)``; views are
        that of the output, and of a float32 map if the layer has a use for it."""
        jobs = []
        for band in self.bands.all:
            room = [self._room(band, channels)]
            if self.layer.cost > 1:
                room.append(self._room(band, channels, wide=True))
            do = partial(self._write, run, channels, band)
            maps = self.needs(band, channels)
            jobs.append(state_job(self.state(channels), maps, (*room, *more), do))
        return jobs

    def _write(
        self, run: Any, channels: Channels, band: Band, state: Block, *blocks: Block
    ) -> None:
        program, count = self.program, len(self.maps)
        maps, out, more = blocks[:count], blocks[count], blocks[count + 1 :]
        views = [self.bands.view(program, out, self.output, band, channels)]
        dropped = [out]
        if self.layer.cost > 1:
            between, *more = more
            views.append(self.wide_view(between, band, channels))
            dropped.append(between)
        run(channels, band, self.vectors(state, channels), maps, views, more)
        box = band[0], (0, 1), band[1], channels or (0, self.output.pitch)
        program.store(flat(self.output), box, out)
        program.scratch.drop(dropped)

    def forget(self) -> None:
        """Boxes of flat maps are not seen to be parts of the maps."""
        tensors = (*self.maps.values(), self.output)
        self.program.scratch.forget(*(tensor.name for tensor in tensors if tensor))
