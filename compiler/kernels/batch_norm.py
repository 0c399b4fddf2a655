"""Batch normalisation in training, from DRAM to DRAM."""

from functools import partial
from types import SimpleNamespace

from compiler.codegen.core_builder import CoreProgram, Need
from compiler.codegen.view import View
from compiler.errors import CompileError
from hw.isa.vector import Carry, Factor, Term

from .image_tiling import image_parts, state_job
from .in_place import Derived
from .splitting import boxes, within

__all__ = ["batch_norm", "batch_norm_backward"]

_VECTOR = ((0, 1), (0, 1), (0, 1))


def batch_norm(
    program: CoreProgram,
    x,
    y,
    gamma,
    beta,
    running_mean,
    running_variance,
    mean,
    inverse,
    a,
    *,
    epsilon,
    momentum,
    relu=False,
):
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
        for one pixel per channel, and if an image of one word per pixel does not fit into the
        buffer.
    """
    tensors = {
        "x": x, "y": y, "gamma": gamma, "beta": beta, "running_mean": running_mean,
        "running_variance": running_variance, "mean": mean, "inverse": inverse, "a": a,
    }  # fmt: skip
    _Forward(program, tensors, epsilon, momentum, relu).write()


def batch_norm_backward(
    program: CoreProgram, x, dy, dx, mean, inverse, a, dgamma, dbeta, *, y=None
):
    """Commands that write ``dx`` and the parameters' gradients, or some of these.

    Parameters
    ----------
    x, dy, dx : (N, H, W, C) operands
    mean to dbeta : (1, 1, 1, C) float32; gradients that nobody wants are None, but not all of them
    y : stored output of a ReLU behind, of which ``dy`` is the gradient, or None

    Raises
    ------
    CompileError
        if an image of ``x``, ``dy`` and ``y``, one word per pixel, does not fit into the buffer.
    """
    tensors = {"x": x, "dy": dy, "dx": dx, "y": y, "mean": mean, "inverse": inverse, "a": a}
    _Backward(program, tensors | {"dgamma": dgamma, "dbeta": dbeta}).write()


class _Pass:
    """What both directions share: parts of the maps, and float32 vectors that stay in a block."""

    #: Maps that are in the buffer together, vectors, and vectors for each image.
    maps, names, sums = 1, (), ()
    #: Words that a finished pixel takes for each of its words.
    cost = 1

    def __init__(self, program, tensors):
        self.program, self.vector = program, program.vector
        self.tensors = SimpleNamespace(**tensors)
        #: One of the float32 vectors of the channels; all have its pitch.
        self.like = next(tensors[name] for name in ("gamma", "dgamma", "dbeta", "mean")
                         if tensors.get(name) is not None)  # fmt: skip
        self.images, self.height, self.width, _ = self.tensors.x.shape
        self.pixels = self.images * self.height * self.width
        self.chunks = program.core.chunks_per_wide

    def write(self):
        program = self.program
        x, vector = self.tensors.x, self.like
        extra = program.words(vector) - self.chunks * program.words(x)

        def fixed(words):
            vectors = (self.rows + 4) * (self.chunks * words + extra)
            return program.scratch.words // 4 + vectors if self.most(words) else None

        channels, pieces = image_parts(
            program, f"{x.name} (batch normalisation)", self.images, [x, vector],
            size=lambda words: self.maps * self.height * self.width * words, fixed=fixed,
        )  # fmt: skip
        jobs = []
        for part in channels:
            jobs += self.jobs(part, pieces)
        program.run(jobs)
        program.scratch.drop_keys(lambda key: isinstance(key, tuple) and key[0] is self)

    def most(self, words):
        """Pixels of so many words that are finished together. A quarter of the buffer is left for
        results; in four gaps between other blocks, one of them has room for these."""
        return self.program.scratch.words // 16 // (self.cost * words)

    @property
    def rows(self):
        """Vectors in the block that stays."""
        return len(self.names) + len(self.sums) * self.images

    def state(self, channels):
        words = self.program.words(self.like, channels)
        return Need((self, channels), self.rows * words)

    def box(self, images, channels):
        return images, (0, self.height), (0, self.width), channels

    def whole(self, block, name, images, channels):
        """Images of a map."""
        tensor = getattr(self.tensors, name)
        return self.program.view(block, tensor, *self.box(images, channels))

    def vectors(self, block, channels):
        """The state's vectors by name; those for each image as maps of N images."""
        end = self.like.pitch if channels is None else channels[1]
        begin = 0 if channels is None else channels[0]
        words = self.program.words(self.like, channels) // self.chunks
        size = min(end, self.like.shape[3]) - begin
        view = View.dense(block, (self.rows, 1, 1, size), words, chunks=self.chunks)
        count = len(self.names)
        found = {name: view.pixel(row, 0, 0) for row, name in enumerate(self.names)}
        for number, name in enumerate(self.sums):
            first = count + number * self.images
            found[name] = view[first : first + self.images]
        return found

    def total(self, o, sums):
        """The sum of all images' results in ``o``; returns where it is."""
        return sums if self.images == 1 else self.vector.sum(o, sums)

    def need(self, tensor, channels):
        return self.program.need(tensor, *_VECTOR, channels)

    def view(self, block, tensor, channels):
        return self.program.view(block, tensor, *_VECTOR, channels)

    def store(self, view, tensor, channels):
        """Store a vector, if there is a ``tensor`` for it."""
        if tensor is None:
            return
        box = (*_VECTOR, channels or (0, tensor.pitch))
        self.program.store(tensor, box, view.block, view.first)

    def last_jobs(self, pieces, channels, state, maps, more, run, output):
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
                jobs.append(state_job(state, maps(images), needs, do))
        return jobs


class _Forward(_Pass):
    names, sums = ("mean", "variance", "inverse", "a", "b"), ("sums",)

    def __init__(self, program, tensors, epsilon, momentum, relu):
        super().__init__(program, tensors)
        self.epsilon, self.momentum, self.relu = epsilon, momentum, relu
        t = self.tensors
        self.parameters = t.gamma, t.beta, t.running_mean, t.running_variance
        if self.pixels == 1:
            raise CompileError(
                f"layer of {self.tensors.y.name}: batch normalisation needs more than one pixel "
                f"per channel, but the batch is {self.images} image of {self.height} x {self.width}"
            )

    def jobs(self, channels, pieces):
        state = self.state(channels)
        parameters = [self.need(tensor, channels) for tensor in self.parameters]

        def maps(images):
            return [self.program.need(self.tensors.x, *self.box(images, channels))]

        jobs = []
        for images in pieces:
            last = images == pieces[-1]
            run = partial(self._mean, channels, images, last)
            jobs.append(state_job(state, maps(images), (), run, first=not jobs))
        # What was loaded last is still there.
        for images in reversed(pieces):
            last = images == pieces[0]
            run = partial(self._variance, channels, images, last)
            more = parameters if last else ()
            jobs.append(state_job(state, maps(images), more, run))
        run = partial(self._apply, channels)
        return jobs + self.last_jobs(pieces, channels, state, maps, (), run, self.tensors.y)

    def _mean(self, channels, images, last, state, x):
        v, x = self.vectors(state, channels), self.whole(x, "x", images, channels)
        for number, n in enumerate(range(*images)):
            self.vector.sum(v["sums"][n : n + 1], x[number : number + 1])
        if last:
            total = self.total(v["mean"], v["sums"])
            self.vector.scale(v["mean"], total, 1.0 / self.pixels)

    def _variance(self, channels, images, last, state, x, *parameters):
        v, x = self.vectors(state, channels), self.whole(x, "x", images, channels)
        for number, n in enumerate(range(*images)):
            self.vector.sum(
                v["sums"][n : n + 1], x[number : number + 1], y=v["mean"], term=Term.SUBTRACT,
                factor=Factor.U,
            )  # fmt: skip
        if last:
            self._factors(channels, v, *parameters)

    def _factors(self, channels, v, *parameters):
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

    def _apply(self, channels, box, images, state, x, out):
        v = self.vectors(state, channels)
        x = self.whole(x, "x", images, channels)[within(box[:3], self.box(images, channels)[:3])]
        y = self.program.view(out, self.tensors.y, *box)
        self.vector.scale_add(y, x, v["a"], v["b"])
        if self.relu:
            self.vector.positive(y, y)
        self.program.store(self.tensors.y, (*box[:3], channels or (0, self.tensors.y.pitch)), out)
        self.program.scratch.drop([out])


class _Backward(_Pass):
    names = ("dbeta", "dgamma", "c1", "negative_c0", "share")
    sums = ("sums of dy", "sums of products")

    def __init__(self, program, tensors):
        super().__init__(program, tensors)
        t = self.tensors
        #: Whether the sums of dy, and those of products with x, are needed.
        self.plain = t.dx is not None or t.dbeta is not None
        self.products = t.dx is not None or t.dgamma is not None
        self.maps = 1 + self.products + (t.y is not None)
        self.cost = 1 + self.chunks
        self.masked = Derived(program)

    def write(self):
        super().write()
        self.masked.drop()

    def jobs(self, channels, pieces):
        program, state = self.program, self.state(channels)
        # Of mean, inverse and a what is read; the mean by all sums of products.
        factors = (self.tensors.mean, self.tensors.inverse) if self.products else ()
        factors = [self.need(tensor, channels) for tensor in factors]
        a = [] if self.tensors.dx is None else [self.need(self.tensors.a, channels)]

        def maps(images, *, again=False):
            box, t = self.box(images, channels), self.tensors
            needs = [program.need(t.x, *box)] if self.products else []
            if t.y is None:
                return [*needs, program.need(t.dy, *box)]
            needs.append(self.masked.need(t.dy, *box))
            # The mask is needed once if its result stays.
            return needs if again and len(pieces) == 1 else [*needs, program.need(t.y, *box)]

        jobs = []
        for images in pieces:
            last, needs = images == pieces[-1], maps(images)
            run = partial(self._sums, channels, images, last, len(needs))
            more = (*factors, *a) if last else factors[:1]
            jobs.append(state_job(state, needs, more, run, first=not jobs))
        if self.tensors.dx is None:
            return jobs
        again = partial(maps, again=True)
        run = partial(self._apply, channels)
        return jobs + self.last_jobs(pieces[::-1], channels, state, again, a, run, self.tensors.dx)

    def _views(self, channels, images, *blocks):
        """x, if it is there, and dy, the latter with +0 where a ReLU lets nothing through."""
        blocks = iter(blocks)
        x = self.whole(next(blocks), "x", images, channels) if self.products else None
        dy, y = next(blocks), next(blocks, None)
        gradient = self.whole(dy, "dy", images, channels)
        if self.tensors.y is not None:
            self.masked.make(
                dy,
                lambda: self.vector.mask(gradient, gradient, self.whole(y, "y", images, channels)),
            )
        return x, gradient

    def _sums(self, channels, images, last, count, state, *blocks):
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
                self.vector.sum(v["sums of dy"][n : n + 1], dy[image])
            if self.products:
                self.vector.sum(
                    v["sums of products"][n : n + 1], x[image], y=factors[0], z=dy[image],
                    term=Term.SUBTRACT, factor=Factor.Z,
                )  # fmt: skip
        if last:
            self._gradients(channels, v, *factors)

    def _gradients(self, channels, v, mean=None, inverse=None, a=None):
        """What all sums together make; of the factors those that are needed are there."""
        vector, tensors = self.vector, self.tensors
        if self.plain:
            dbeta = self.total(v["dbeta"], v["sums of dy"])
        if self.products:
            total = self.total(v["dgamma"], v["sums of products"])
            vector.scale(v["dgamma"], total, inverse)
        if tensors.dx is not None:
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

    def _apply(self, channels, box, images, state, *blocks):
        *maps, a, out, between = blocks
        v, a = self.vectors(state, channels), self.view(a, self.tensors.a, channels)
        part = within(box[:3], self.box(images, channels)[:3])
        x, dy = (view[part] for view in self._views(channels, images, *maps))
        dx = self.program.view(out, self.tensors.dx, *box)
        sums = self.program.view(between, self.tensors.dx, *box, wide=True)
        self.vector.scale_add(sums, x, v["c1"], v["negative_c0"], negate_carry=1)
        self.vector.scale_add(dx, dy, a, sums)
        self.program.store(self.tensors.dx, (*box[:3], channels or (0, self.tensors.dx.pitch)), out)
        self.program.scratch.drop([out, between])
