"""Sums of every channel over the pixels of a map, from DRAM to DRAM."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.kernels.convolution.part_statistics import SQUARES
from compiler.tensors.intervals import Channels, Interval
from compiler.tensors.tensor import Tensor

from .batch_norm_bands import Band, BatchNormBands
from .batch_norm_pass import BatchNormPass

__all__ = ["channel_sums"]


def channel_sums(program: CoreProgram, x: Tensor, mean: Tensor | None, output: Tensor) -> None:
    """Commands that write ``output``, (1, 1, 1, C) float32: the sums of ``x`` (N, H, W, C), or with
    a ``mean`` (1, 1, 1, C) those of ``(x - mean)**2``."""
    _Sums(program, {"x": x, "y": None, "mean": mean, "dgamma": output}).write()


class _Sums(BatchNormPass):
    names = ("total",)
    sums = ("sums",)

    def jobs(self, channels: Channels, pieces: Sequence[Interval]) -> list[Job]:
        state, mean = self.state(channels), self._needs(channels)
        jobs: list[Job] = []
        for images in pieces:
            run = partial(self._add, channels, images, images == pieces[-1])
            place = images, pieces, channels
            maps = [self.program.need(self.tensors.x, *self.box(images, channels))]
            jobs.append(self.sum_job("sums", place, state, maps, mean, run, first=not jobs))
        return jobs

    def _needs(self, channels: Channels) -> list[Need]:
        mean = self.tensors.mean
        return [] if mean is None else [self.need(mean, channels)]

    def _fields(self, channels: Channels, mean: Sequence[Block]) -> dict[str, Any]:
        """What makes squares of deviations of what is added up."""
        if not mean:
            return {}
        y = self.view(mean[0], self.tensors.mean, channels)
        return {"y": y} | SQUARES

    def _add(
        self, channels: Channels, images: Interval, last: bool, state: Block, x: Block,
        *mean: Block,
    ) -> None:  # fmt: skip
        v, view = self.vectors(state, channels), self.whole(x, "x", images, channels)
        v["sums"].add(images, view, **self._fields(channels, mean))
        if last:
            self._finish(channels, v)

    def _finish(self, channels: Channels, v: Mapping[str, Any], *mean: Block) -> None:
        self.store(self.total(v["total"], v["sums"]), self.tensors.dgamma, channels)

    def write_bands(self) -> None:
        bands = BatchNormBands(self, ["x"], "y")
        for channels in bands.bands.channels:
            run, mean = partial(self._band, bands), self._needs(channels)
            self.program.run(bands.pass_jobs(channels, run, self._finish, more=mean, first=True))
        bands.forget()

    def _band(
        self, bands: BatchNormBands, channels: Channels, band: Band, v: Mapping[str, Any],
        maps: Sequence[Block], others: Sequence[Block],
    ) -> None:  # fmt: skip
        (x,), fields = bands.views(band, channels, maps), self._fields(channels, others)
        v["sums"].add(x, band[1][0], fields.pop("y", None), **fields)
