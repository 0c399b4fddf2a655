"""Gradients of batch normalisation in training, from DRAM to DRAM."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.kernels.tiling.in_place import ChangedBoxes
from compiler.kernels.tiling.splitting import within
from compiler.tensors.intervals import ChannelBox, Channels, Interval
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Factor, Term

from .batch_norm_bands import Band, BatchNormBands
from .batch_norm_pass import BatchNormPass

__all__ = ["batch_norm_backward"]


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
