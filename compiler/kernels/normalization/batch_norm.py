"""Batch normalisation in training, from DRAM to DRAM."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.tiling.in_place import ChangedBoxes
from compiler.kernels.tiling.splitting import within
from compiler.tensors.intervals import ChannelBox, Channels, Interval
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry, Factor, Term

from .batch_norm_bands import Band, BatchNormBands
from .batch_norm_pass import BatchNormPass

__all__ = ["batch_norm", "batch_norm_backward"]


def batch_norm(
    program: CoreProgram, x: Tensor, y: Tensor, gamma: Tensor, beta: Tensor, running_mean: Tensor,
    running_variance: Tensor, mean: Tensor | None, inverse: Tensor | None,
    a: Tensor | None, *, epsilon: float, momentum: float, relu: bool = False,
) -> None:  # fmt: skip
    """Commands that write ``y``, perhaps with a ReLU behind it, change the running statistics, and
    leave ``mean``, ``inverse`` and ``a`` for the backward pass.

    Parameters
    ----------
    x, y : (N, H, W, C) operands
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
    }  # fmt: skip
    _Forward(program, tensors, epsilon, momentum, relu).write()


def batch_norm_backward(
    program: CoreProgram,
    x: Tensor,
    dy: Tensor,
    dx: Tensor | None,
    mean: Tensor,
    inverse: Tensor,
    a: Tensor,
    dgamma: Tensor,
    dbeta: Tensor,
    *,
    y: Tensor | None = None,
) -> None:
    """Commands that write ``dx`` and the parameters' gradients, or some of these.

    Parameters
    ----------
    x, dy, dx : (N, H, W, C) operands
    mean to dbeta : (1, 1, 1, C) float32; gradients that nobody wants are None, but not all of them
    y : stored output of a ReLU behind, of which ``dy`` is the gradient, or None

    Raises
    ------
    CompileError
        if one word of a pixel of ``x``, ``dy`` and ``y`` does not fit into the buffer beside the
        sums.
    """
    tensors = {"x": x, "dy": dy, "dx": dx, "y": y, "mean": mean, "inverse": inverse, "a": a}
    _Backward(program, tensors | {"dgamma": dgamma, "dbeta": dbeta}).write()


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
        for images in pieces:
            run = partial(self._mean, channels, images, images == pieces[-1])
            place = images, pieces, channels
            jobs.append(self.sum_job("mean", place, state, maps(images), (), run, first=not jobs))
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

    def _mean(
        self, channels: Channels, images: Interval, last: bool, state: Block, x: Block
    ) -> None:
        v, x = self.vectors(state, channels), self.whole(x, "x", images, channels)
        v["sums"].add(images, x)
        if last:
            total = self.total(v["mean"], v["sums"])
            self.vector.scale(v["mean"], total, 1.0 / self.pixels)

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
            mean = partial(self._band_sums, bands, {})
            deviation = {"term": Term.SUBTRACT, "factor": Factor.U}
            variance = partial(self._band_sums, bands, deviation)
            write = partial(self._apply_band, bands)
            self.program.run(
                [
                    *bands.pass_jobs(channels, mean, self._band_mean, first=True),
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

    def _band_mean(self, channels: Channels, v: Mapping[str, Any]) -> None:
        self.vector.scale(v["mean"], self.total(v["mean"], v["sums"]), 1.0 / self.pixels)

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


class _Backward(BatchNormPass):
    names = ("dbeta", "dgamma", "c1", "negative_c0", "share")
    sums = ("sums of dy", "sums of products")

    def __init__(self, program: CoreProgram, tensors: Mapping[str, Tensor | None]) -> None:
        super().__init__(program, tensors)
        t = self.tensors
        #: Whether the sums of dy, and those of products with x, are needed.
        self.plain = t.dx is not None or t.dbeta is not None
        self.products = t.dx is not None or t.dgamma is not None
        self.maps = 1 + self.products + (t.y is not None)
        self.cost = 1 + self.chunks
        self.masked = ChangedBoxes(program)

    def write(self) -> None:
        super().write()
        self.masked.drop()

    def jobs(self, channels: Channels, pieces: Sequence[Interval]) -> list[Job]:
        program, state = self.program, self.state(channels)
        # Of mean, inverse and a what is read; the mean by all sums of products.
        factors = (self.tensors.mean, self.tensors.inverse) if self.products else ()
        factors = [self.need(tensor, channels) for tensor in factors]
        a = [] if self.tensors.dx is None else [self.need(self.tensors.a, channels)]

        def maps(images: Interval, *, again: bool = False) -> list[Need]:
            box, t = self.box(images, channels), self.tensors
            needs = [program.need(t.x, *box)] if self.products else []
            if t.y is None:
                return [*needs, program.need(t.dy, *box)]
            stays = again and len(pieces) == 1
            needs.append(self.masked.need(t.dy, *box)._replace(changed=stays))
            # The mask is needed once if its result stays.
            return needs if stays else [*needs, program.need(t.y, *box)]

        jobs: list[Job] = []
        for images in pieces:
            last, needs = images == pieces[-1], maps(images)
            run = partial(self._sums, channels, images, last, len(needs))
            more = (*factors, *a) if last else factors[:1]
            place = images, pieces, channels
            jobs.append(self.sum_job("sums", place, state, needs, more, run, first=not jobs))
        if self.tensors.dx is None:
            return jobs
        again = partial(maps, again=True)
        run = partial(self._apply, channels)
        return jobs + self.last_jobs(pieces[::-1], channels, state, again, a, run, self.tensors.dx)

    def _views(
        self, channels: Channels, images: Interval, *blocks: Block
    ) -> tuple[View | None, View]:
        """x, if it is there, and dy, the latter with +0 where a ReLU lets nothing through."""
        x = self.whole(blocks[0], "x", images, channels) if self.products else None
        dy, *others = blocks[self.products :]
        gradient = self.whole(dy, "dy", images, channels)
        if self.tensors.y is not None:

            def mask() -> None:
                # The mask is left out only where its result is still there.
                where = self.whole(others[0], "y", images, channels)
                self.vector.mask(gradient, gradient, where)

            self.masked.make(dy, mask)
        return x, gradient

    def _sums(
        self, channels: Channels, images: Interval, last: bool, count: int, state: Block,
        *blocks: Block,
    ) -> None:  # fmt: skip
        maps, t = blocks[:count], self.tensors
        v = self.vectors(state, channels)
        factors = [
            self.view(block, tensor, channels)
            for block, tensor in zip(blocks[count:], (t.mean, t.inverse, t.a), strict=False)
        ]
        x, dy = self._views(channels, images, *maps)
        for number, n in enumerate(range(*images)):
            image = slice(number, number + 1)
            if self.plain:
                self.vector.sum(v["sums of dy"][n], dy[image])
                v["sums of dy"].done(n)
            if x is not None:
                self.vector.sum(
                    v["sums of products"][n], x[image], y=factors[0], z=dy[image],
                    term=Term.SUBTRACT, factor=Factor.Z,
                )  # fmt: skip
                v["sums of products"].done(n)
        if last:
            self._gradients(channels, v, *factors)

    def write_bands(self) -> None:
        t = self.tensors
        maps = [*(["x"] if self.products else []), "dy", *(["y"] if t.y is not None else [])]
        bands = BatchNormBands(self, maps, "dx", self.masked)
        for channels in bands.bands.channels:
            factors = [self.need(part, channels) for part in (t.mean, t.inverse) if self.products]
            a = [] if t.dx is None else [self.need(t.a, channels)]
            jobs = bands.pass_jobs(
                channels, partial(self._band_sums, bands), self._band_gradients, more=factors[:1],
                late=[*factors[1:], *a], wide=self.products, first=True,
            )  # fmt: skip
            if t.dx is not None:
                jobs += bands.last_jobs(channels, partial(self._apply_band, bands), a)
            self.program.run(jobs)
        bands.forget()

    def _band_views(
        self, bands: BatchNormBands, channels: Channels, band: Band, maps: Sequence[Block]
    ) -> tuple[View | None, View]:
        views = dict(zip(bands.maps, bands.views(band, channels, maps), strict=True))
        dy, where = views["dy"], views.get("y")
        if where is not None:
            self.masked.make(dy.block, lambda: self.vector.mask(dy, dy, where))
        return views.get("x"), dy

    def _band_sums(
        self, bands: BatchNormBands, channels: Channels, band: Band, v: Mapping[str, Any],
        blocks: Sequence[Block], others: Sequence[Block],
    ) -> None:  # fmt: skip
        maps, first = blocks[: len(bands.maps)], band[1][0]
        x, dy = self._band_views(bands, channels, band, maps)
        if self.plain:
            v["sums of dy"].add(dy, first)
        if x is not None:
            mean = self.view(others[0], self.tensors.mean, channels)
            products = bands.wide_view(blocks[-1], band, channels)
            self.vector.emit(products, x, mean, dy, term=Term.SUBTRACT, factor=Factor.Z)
            v["sums of products"].add(products, first)
            self.program.scratch.drop([blocks[-1]])

    def _band_gradients(self, channels: Channels, v: Mapping[str, Any], *blocks: Block) -> None:
        t = self.tensors
        factors = zip(blocks, (t.mean, t.inverse, t.a), strict=False)
        self._gradients(channels, v, *(self.view(b, tensor, channels) for b, tensor in factors))

    def _apply_band(
        self, bands: BatchNormBands, channels: Channels, band: Band, v: Mapping[str, Any],
        maps: Sequence[Block], views: Sequence[View], others: Sequence[Block],
    ) -> None:  # fmt: skip
        x, dy = self._band_views(bands, channels, band, maps)
        assert x is not None
        dx, sums = views
        a = self.view(others[0], self.tensors.a, channels)
        self.vector.scale_add(sums, x, v["c1"], v["negative_c0"], negate_carry=1)
        self.vector.scale_add(dx, dy, a, sums)

    def _gradients(self, channels: Channels, v: Mapping[str, Any], *factors: View) -> None:
        """What all sums together make; of the factors those that are needed are there."""
        vector, tensors = self.vector, self.tensors
        if self.plain:
            dbeta = self.total(v["dbeta"], v["sums of dy"])
        if self.products:
            total = self.total(v["dgamma"], v["sums of products"])
            vector.scale(v["dgamma"], total, factors[1])
        if tensors.dx is not None:
            mean, inverse, a = factors
            reciprocal = 1.0 / self.pixels
            vector.scale(v["share"], v["dgamma"], reciprocal)
            vector.scale(v["c1"], a, inverse)
            vector.scale(v["c1"], v["c1"], v["share"], negate_product=1)
            vector.scale(v["share"], dbeta, reciprocal)
            vector.scale(v["share"], v["share"], a)
            vector.scale_add(v["negative_c0"], mean, v["c1"], v["share"])
        if tensors.dbeta is not None:
            self.store(dbeta, tensors.dbeta, channels)
        self.store(v["dgamma"], tensors.dgamma, channels)

    def _apply(
        self, channels: Channels, box: ChannelBox, images: Interval, state: Block, *blocks: Block
    ) -> None:
        *maps, a, out, between = blocks
        v, a = self.vectors(state, channels), self.view(a, self.tensors.a, channels)
        part = within(box[:3], self.box(images, channels)[:3])
        x, dy = self._views(channels, images, *maps)
        assert x is not None
        dx = self.program.view(out, self.tensors.dx, *box)
        sums = self.program.view(between, self.tensors.dx, *box, wide=True)
        self.vector.scale_add(sums, x[part], v["c1"], v["negative_c0"], negate_carry=1)
        self.vector.scale_add(dx, dy[part], a, sums)
        self.program.store(self.tensors.dx, (*box[:3], channels or (0, self.tensors.dx.pitch)), out)
        self.program.scratch.drop([out, between])
