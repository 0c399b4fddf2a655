"""Batch normalisation forward in training, from DRAM to DRAM."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.tiling.image_tiling import ImageSums
from compiler.kernels.tiling.splitting import within
from compiler.tensors.intervals import ChannelBox, Channels, Interval
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry, Factor, Term

from .batch_norm_bands import Band, BatchNormBands
from .batch_norm_pass import BatchNormPass

__all__ = ["batch_norm"]


def batch_norm(
    program: CoreProgram, x: Tensor, y: Tensor, gamma: Tensor, beta: Tensor, running_mean: Tensor,
    running_variance: Tensor, mean: Tensor | None, inverse: Tensor | None,
    a: Tensor | None, *, epsilon: float, momentum: float, relu: bool = False,
    sums: Tensor | None = None,
) -> None:  # fmt: skip
    """Commands that write ``y``, perhaps with a ReLU behind it, change the running statistics, and
    leave ``mean``, ``inverse`` and ``a`` for the backward pass.

    Parameters
    ----------
    x, y : (N, H, W, C) operands
    sums : (N, 1, 1, C) float32, the sums of the images of ``x``, if they are known
        (:class:`~compiler.kernels.convolution.output_sums.OutputSums`): one pass less
    gamma to a : (1, 1, 1, C) float32; ``mean``, ``inverse`` and ``a`` are None without a backward
        pass

    Raises
    ------
    CompileError
        for one pixel per channel, and if one word of a pixel does not fit into the buffer beside
        the sums.
    """
    tensors = {
        "x": x, "y": y, "gamma": gamma, "beta": beta, "running_mean": running_mean,
        "running_variance": running_variance, "mean": mean, "inverse": inverse, "a": a,
        "sums": sums,
    }  # fmt: skip
    _Forward(program, tensors, epsilon, momentum, relu).write()


class _Forward(BatchNormPass):
    names = ("mean", "variance", "inverse", "a", "b")
    sums = ("sums",)

    def __init__(
        self, program: CoreProgram, tensors: Mapping[str, Tensor | None], epsilon: float,
        momentum: float, relu: bool,
    ) -> None:  # fmt: skip
        super().__init__(program, tensors)
        self.epsilon, self.momentum, self.relu = epsilon, momentum, relu
        t = self.tensors
        if t.sums is not None:
            self.vectors_beside += self.images
        self.parameters = t.gamma, t.beta, t.running_mean, t.running_variance
        if self.pixels == 1:
            raise CompileError(
                f"layer of {self.tensors.y.name}: batch normalisation needs more than one pixel "
                f"per channel, but the batch is {self.images} image of {self.height} x {self.width}"
            )

    def jobs(self, channels: Channels, pieces: Sequence[Interval]) -> list[Job]:
        state = self.state(channels)
        parameters = [self.need(tensor, channels) for tensor in self.parameters]

        def maps(images: Interval) -> list[Need]:
            return [self.program.need(self.tensors.x, *self.box(images, channels))]

        jobs: list[Job] = []
        if self.tensors.sums is not None:
            jobs.append(self._known_mean(channels, state))
        else:
            for images in pieces:
                run = partial(self._mean, channels, images, images == pieces[-1])
                needs, place = (state, maps(images), ()), (images, pieces, channels)
                jobs.append(self.sum_job("mean", place, *needs, run, first=not jobs))
        # What was loaded last is still there; but in turns images come in order.
        order = pieces if self.turns else pieces[::-1]
        for images in order:
            last = images == order[-1]
            run = partial(self._variance, channels, images, last)
            needs = state, maps(images), parameters if last else ()
            jobs.append(self.sum_job("variance", (images, order, channels), *needs, run))
        run = partial(self._apply, channels)
        order = order[::-1]
        return jobs + self.last_jobs(order, channels, state, maps, (), run, self.tensors.y)

    def _known_mean(self, channels: Channels, state: Need) -> Job:
        """A job that has the mean from the known sums of all images."""
        sums, box = self.tensors.sums, ((0, self.images), (0, 1), (0, 1), channels)

        def run(block: Block, state: Block) -> None:
            view = self.program.view(block, sums, *box)
            images = ImageSums(self.vector, view, self.images, turns=False)
            self._finish_mean(channels, self.vectors(state, channels) | {"sums": images})

        return Job((self.program.need(sums, *box), state), run)

    def _finish_mean(self, channels: Channels, v: Mapping[str, Any]) -> None:
        self.vector.scale(v["mean"], self.total(v["mean"], v["sums"]), 1.0 / self.pixels)

    def _mean(
        self, channels: Channels, images: Interval, last: bool, state: Block, x: Block
    ) -> None:
        v, x = self.vectors(state, channels), self.whole(x, "x", images, channels)
        v["sums"].add(images, x)
        if last:
            self._finish_mean(channels, v)

    def _variance(
        self, channels: Channels, images: Interval, last: bool, state: Block, x: Block,
        *parameters: Block,
    ) -> None:  # fmt: skip
        v, x = self.vectors(state, channels), self.whole(x, "x", images, channels)
        v["sums"].add(images, x, y=v["mean"], term=Term.SUBTRACT, factor=Factor.U)
        if last:
            self._factors(channels, v, *parameters)

    def write_bands(self) -> None:
        bands = BatchNormBands(self, ["x"], "y")
        for channels in bands.bands.channels:
            parameters = [self.need(tensor, channels) for tensor in self.parameters]
            if self.tensors.sums is not None:
                means = [self._known_mean(channels, bands.state(channels))]
            else:
                mean = partial(self._band_sums, bands, {})
                means = bands.pass_jobs(channels, mean, self._finish_mean, first=True)
            deviation = {"term": Term.SUBTRACT, "factor": Factor.U}
            variance = partial(self._band_sums, bands, deviation)
            write = partial(self._apply_band, bands)
            self.program.run(
                [
                    *means,
                    *bands.pass_jobs(channels, variance, self._factors, late=parameters),
                    *bands.last_jobs(channels, write),
                ]
            )
        bands.forget()

    def _band_sums(
        self, bands: BatchNormBands, fields: dict[str, Any], channels: Channels, band: Band,
        v: Mapping[str, Any], maps: Sequence[Block], others: Sequence[Block],
    ) -> None:  # fmt: skip
        (x,) = bands.views(band, channels, maps)
        v["sums"].add(x, band[1][0], v["mean"] if fields else None, **fields)

    def _apply_band(
        self, bands: BatchNormBands, channels: Channels, band: Band, v: Mapping[str, Any],
        maps: Sequence[Block], views: Sequence[View], others: Sequence[Block],
    ) -> None:  # fmt: skip
        (x,), (y,) = bands.views(band, channels, maps), views
        self.vector.scale_add(y, x, v["a"], v["b"], relu=self.relu)

    def _factors(self, channels: Channels, v: Mapping[str, Any], *parameters: Block) -> None:
        vector, count = self.vector, self.pixels
        gamma, beta, *running = (
            self.view(block, tensor, channels)
            for block, tensor in zip(parameters, self.parameters, strict=True)
        )
        total = self.total(v["variance"], v["sums"])
        vector.scale(v["variance"], total, 1.0 / count)
        vector.add(v["inverse"], v["variance"], self.epsilon)
        vector.root(v["inverse"], v["inverse"])
        vector.divide(v["inverse"], 1.0, v["inverse"])
        vector.scale(v["a"], gamma, v["inverse"])
        vector.scale_add(v["b"], v["mean"], v["a"], beta, negate_product=1)
        vector.scale(v["variance"], v["variance"], count / (count - 1))
        moments = v["mean"], v["variance"]
        for old, tensor, new in zip(running, self.parameters[2:], moments, strict=True):
            vector.emit(
                old, new, old, self.momentum, term=Term.SUBTRACT, factor=Factor.Z,
                carry=Carry.Y, add=1,
            )  # fmt: skip
            self.store(old, tensor, channels)
        for name in ("mean", "inverse", "a"):
            self.store(v[name], getattr(self.tensors, name), channels)

    def _apply(
        self, channels: Channels, box: ChannelBox, images: Interval, state: Block, x: Block,
        out: Block,
    ) -> None:  # fmt: skip
        v = self.vectors(state, channels)
        x = self.whole(x, "x", images, channels)[within(box[:3], self.box(images, channels)[:3])]
        y = self.program.view(out, self.tensors.y, *box)
        self.vector.scale_add(y, x, v["a"], v["b"], relu=self.relu)
        self.program.store(self.tensors.y, (*box[:3], channels or (0, self.tensors.y.pitch)), out)
        self.program.scratch.drop([out])
