"""A training step in which gradients of convolutions are sampled: which steps there are, and where
the program branches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

from compiler.errors import CompileError
from compiler.frontend.torch_graph import Layer
from compiler.kernels.convolution.conv_input_gradient import input_gradient
from compiler.kernels.convolution.conv_weight_gradient import weight_gradient
from compiler.kernels.maps.elementwise import relu_backward
from compiler.kernels.maps.pooling import max_pool_backward
from compiler.kernels.normalization.batch_norm_backward import batch_norm_backward
from compiler.kernels.sampling.copies import gather, gather_scaled, scatter
from compiler.kernels.sampling.draw import draw_images, keep_images
from compiler.kernels.sampling.normalization import norm_numbers, norm_of_all, norm_of_some
from compiler.tensors.parameters import channel_pitch, lanes
from compiler.training.map_steps import window_options
from compiler.training.named_tensors import NamedConvolution
from compiler.training.step import Step
from compiler.training.steps import TrainingSteps
from hw.config import AdaGPConfig

__all__ = ["Branch", "SampledSteps", "image_counts"]


@dataclass(frozen=True, kw_only=True)
class Branch:
    """Where the backward pass of a layer goes on by the number of images that are kept.

    Members
    -------
    layer : name
    first : number of the step that says which are kept
    steps : numbers (begin, end) of the steps for each count of images, by count
    """

    layer: str
    first: int
    steps: Mapping[int, tuple[int, int]]

    @property
    def end(self) -> int:
        """The step behind all of them."""
        return max(end for _, end in self.steps.values())

    def count_of(self, kept: int) -> int:
        """Of the counts the one for so many images."""
        return min(count for count in self.steps if count >= kept)


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """A branch while steps are added: number of the step, among those of all batches, that says
    which images are kept, and the steps for each count of images."""

    layer: str
    first: int
    steps: dict[int, list[Step]]


def image_counts(images: int, counts: Sequence[int] | None) -> tuple[int, ...]:
    """Numbers of images of which backward passes are made; eighths of the batch if none are given.

    Raises
    ------
    CompileError
        if they do not ascend to ``images``.
    """
    if counts is None:
        return tuple(sorted({-(-images * part // 8) for part in range(1, 9)}))
    found = tuple(counts)
    ascending = all(a < b for a, b in pairwise((0, *found)))
    if not found or not ascending or found[-1] != images:
        raise CompileError(
            f"counts must be ascending, from at least 1 up to the batch of {images}, not {found}"
        )
    return found


class SampledSteps(TrainingSteps):
    """The steps of a batch, and of each sampled layer those for every count of images.

    Parameters
    ----------
    layers, options : see :class:`~compiler.training.steps.TrainingSteps`
    sampled : names of the layers
    counts : of :func:`image_counts`
    norms : whether the host gets the norms

    Members
    -------
    branches : list of :class:`Branch`, in the order of the steps
    shares : layer -> name of the tensor (1, 1, 1, lanes) with the number of images that are to be
        kept on the average, in every lane; the host writes it
    norms : layer -> name of the tensor (1, 1, N, lanes) with the norms of its gradient's images in
        lane 0, which the host reads; empty where it does not

    Raises
    ------
    CompileError
        naming a layer that cannot be sampled.
    """

    def __init__(
        self, layers: Sequence[Layer], config: AdaGPConfig, *, sampled: Sequence[str],
        counts: Sequence[int], norms: bool, **options: Any,
    ) -> None:  # fmt: skip
        known = {layer.name: layer for layer in layers}
        able = [name for name, layer in known.items() if _can_be_sampled(layer)]
        for name in sampled:
            if name not in able:
                raise CompileError(
                    f"layer {name} cannot be sampled; convolutions that can: "
                    + (", ".join(able) or "none")
                )
        self.numbers = {name: n for n, name in enumerate(n for n in known if n in sampled)}
        self.counts, self.branches = tuple(counts), list[Branch]()
        self.shares = {name: f"{name}.share" for name in self.numbers}
        self.norms = {name: f"{name}.norm" for name in self.numbers if norms}
        self._parts_of: list[_Parts] = []
        #: Gradients of which there is no map, but those of the samples.
        self._sampled: dict[str, _Parts] = {}
        super().__init__(layers, config, **options)

    def _build(self, layers: Sequence[Layer]) -> None:
        for name in self.shares.values():
            self._tensor(name, (1, 1, 1, lanes(self.config)), kind="float32")
        super()._build(layers)
        self.gradients = {
            name: map_ for name, map_ in self.gradients.items() if map_ not in self._sampled
        }
        steps: list[Step] = []
        done = 0
        for parts in self._parts_of:
            steps += self.steps[done : parts.first + 1]
            done, first, places = parts.first + 1, len(steps) - 1, {}
            for count, some in parts.steps.items():
                places[count] = len(steps), len(steps) + len(some)
                steps += some
            self.branches.append(Branch(layer=parts.layer, first=first, steps=places))
        self.steps = steps + self.steps[done:]

    @property
    def kept(self) -> set[str]:
        """Those of any batch, what is to be kept, and norms."""
        return super().kept | {*self.shares.values(), *self.norms.values()}

    # Backward passes of samples ---------------------------------------------------------------

    def _backward_convolution(
        self, layer: Layer, dy: str, goals: list[str | None],
        to_input: Callable[..., object] = input_gradient,
        to_weights: Callable[..., object] = weight_gradient,
    ) -> None:  # fmt: skip
        if layer.name not in self.numbers:
            super()._backward_convolution(layer, dy, goals, to_input, to_weights)
            return
        name, product, gradients = layer.name, self._product(layer), self._gradients(layer)
        goal = self._gradient_map(layer, goals[0])
        numbers = [self._number(f"{name}.{what}") for what in ("chance", "uniform", "factor")]
        norm = [self._number(self.norms[name])] if self.norms else []
        share, kept = self.shares[name], self._number(f"{name}.kept")
        self._add(name, "sample", draw_images, dy, share, *numbers, *norm, reads=[dy, share],
                  writes=[*numbers, *norm], number=self.numbers[name])  # fmt: skip
        self._add(name, "sample", keep_images, *numbers, kept, reads=numbers, writes=[kept])
        parts = _Parts(layer=name, first=len(self.steps) - 1,
                       steps={count: [] for count in self.counts})  # fmt: skip
        self._parts_of.append(parts)
        if goal and self._reaches_norm(layer.inputs[0]):
            self._sampled[goal] = parts
        for some in self._each(parts):
            part = some(dy)
            self._add(name, "sample", gather_scaled, dy, kept, part, reads=[dy, kept],
                      writes=[part])  # fmt: skip
            own = replace(product, y=part)
            if goal:
                below = some(goal)
                self._add(name, "input gradient", input_gradient, replace(own, x=below), part,
                          below, reads=[part, own.weights], writes=[below])  # fmt: skip
                if goal not in self._sampled:
                    self._add(name, "sample", scatter, below, goal, reads=[below], writes=[goal])
            self._gradients_of_some(layer, own, part, gradients, some)
        self._updates(layer)

    def _gradients_of_some(
        self, layer: Layer, product: NamedConvolution, dy: str, gradients: list[str | None],
        some: Callable[[str], str],
    ) -> None:  # fmt: skip
        if gradients[0]:
            product = replace(product, x=self._gathered(layer.name, product.x, some))
        if any(gradients):
            self._add_weight_gradient(layer, weight_gradient, product, dy, gradients)

    def _backward_max_pool(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        if dy not in self._sampled:
            super()._backward_max_pool(layer, dy, goals)
            return
        goal = self._gradient_map(layer, goals[0])
        assert goal, "a normalisation below learns"
        parts = self._sampled[goal] = self._sampled[dy]
        for some in self._each(parts):
            places = self._gathered(layer.name, f"{layer.name}.places", some)
            reads, below = (some(dy), places), some(goal)
            self._add(layer.name, "backward", max_pool_backward, *reads, below, reads=reads,
                      writes=[below], **window_options(layer))  # fmt: skip

    def _backward_batch_norm(self, layer: Layer, dy: str, goals: list[str | None]) -> None:
        if dy not in self._sampled:
            super()._backward_batch_norm(layer, dy, goals)
            return
        name, x, channels = layer.name, self.maps[layer.inputs[0]], layer.shape[0]
        mean, inverse, a = (f"{name}.{what}" for what in ("mean", "inverse", "a"))
        y = self.maps[name] if name in self._fused.values() else None
        goal, pitch = self._gradient_map(layer, goals[0]), channel_pitch(channels, self.config)
        vectors = [f"{name}.{what}" for what in ("scale", "shift", "c1", "c0")]
        for vector in vectors:
            self._tensor(vector, (1, 1, 1, channels), kind="float32", pitch=pitch)
        own = self._gradients(layer)
        scale, shift = (g or v for g, v in zip(own, vectors, strict=False))
        c1, c0 = vectors[2:]
        for some in self._each(self._sampled[dy]):
            part, xs = some(dy), self._gathered(name, x, some)
            if y:
                ys, arriving = self._gathered(name, y, some), part
                part = self._tensor(f"{part}.masked", self.tensors[arriving].shape,
                                    pitch=self.tensors[arriving].pitch)  # fmt: skip
                self._add(name, "backward", relu_backward, arriving, ys, part,
                          reads=[arriving, ys], writes=[part])  # fmt: skip
            self._add(
                name, "backward", batch_norm_backward, xs, part, None, mean, inverse, a, scale,
                shift, reads=[xs, part, mean, inverse], writes=[scale, shift],
            )  # fmt: skip
            if not goal:
                continue
            numbers = scale, shift, mean, inverse, a
            self._add(name, "backward", norm_numbers, *numbers, c1, c0, reads=numbers,
                      writes=[c1, c0], pixels=self.images * prod(layer.shape[1:]))  # fmt: skip
            self._add(name, "backward", norm_of_all, x, c1, c0, goal, reads=[x, c1, c0],
                      writes=[goal])  # fmt: skip
            below = some(goal)
            self._add(name, "backward", norm_of_some, xs, part, a, c1, c0, below,
                      reads=[xs, part, a, c1, c0], writes=[below])  # fmt: skip
            self._add(name, "sample", scatter, below, goal, reads=[below], writes=[goal],
                      clear=False)  # fmt: skip
        self._updates(layer)

    def _reaches_norm(self, name: str) -> bool:
        """Whether a gradient of this layer's map goes to a batch normalisation and nowhere else,
        through a ReLU that this computes and then max pooling: nothing there mixes images."""
        while True:
            layer = self.layers[name]
            if layer.output is not None or len(self._readers[name]) != 1:
                return False
            if name not in self._needs_gradient:
                return False
            if layer.kind == "batch_norm" or self._masks(layer):
                norm = self.layers[self._fused.get(name, name)]
                return norm.kind == "batch_norm" and len(self._readers[norm.name]) == 1
            if layer.kind != "max_pool":
                return False
            name = layer.inputs[0]

    def _each(self, parts: "_Parts") -> Iterator[Callable[[str], str]]:
        """For each count of images what makes of a tensor's name that of one of so many images;
        steps that are added meanwhile are of this backward pass."""
        for count, steps in parts.steps.items():
            with self._into(steps):
                yield partial(self._some, parts.layer, count)

    @contextmanager
    def _into(self, steps: list[Step]) -> Iterator[None]:
        main, self.steps = self.steps, steps
        try:
            yield
        finally:
            self.steps = main

    def _number(self, name: str) -> str:
        """A tensor of a number for each image."""
        return self._tensor(name, (1, 1, self.images, lanes(self.config)), kind="float32")

    def _some(self, layer: str, count: int, name: str) -> str:
        """A tensor like ``name``, of ``count`` images, in the backward pass from ``layer`` on."""
        whole, own = self.tensors[name], f"{name}.{layer}.{count}"
        return self._tensor(own, (count, *whole.shape[1:]), pitch=whole.pitch)

    def _gathered(self, layer: str, name: str, some: Callable[[str], str]) -> str:
        """The images of ``name`` that are in the sample."""
        own = some(name)
        if not any(own in step.writes for step in self.steps):
            self._add(layer, "sample", gather, name, own, reads=[name], writes=[own])
        return own

    # What of them a batch takes ---------------------------------------------------------------

    def segments(self) -> list[tuple[int, int]]:
        """Numbers (begin, end) of the steps that a program has between places where it branches,
        without those of the branches."""
        begins = [0, *(branch.end for branch in self.branches)]
        ends = [*(branch.first for branch in self.branches), len(self.steps)]
        return list(zip(begins, ends, strict=True))

    def taken(self, counts: Mapping[str, int]) -> list[Step]:
        """The steps of a batch in which each layer, by name, has so many images kept."""
        found: list[Step] = []
        for (begin, end), branch in zip(self.segments(), [*self.branches, None], strict=True):
            found += self.steps[begin:end]
            if branch is not None:
                first, last = branch.steps[branch.count_of(counts[branch.layer])]
                found += [self.steps[branch.first], *self.steps[first:last]]
        return found


def _can_be_sampled(layer: Layer) -> bool:
    dense = layer.kind == "convolution" and layer.options.get("groups", 1) == 1
    return dense and layer.output is None and bool(layer.trainable)
