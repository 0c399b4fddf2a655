"""A training step in which gradients of convolutions are sampled: which steps there are, and where
the program branches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from compiler.errors import CompileError
from compiler.frontend.torch_graph import Layer
from compiler.kernels.convolution.conv_input_gradient import input_gradient
from compiler.kernels.convolution.conv_weight_gradient import weight_gradient
from compiler.kernels.sampling.copies import gather, gather_scaled, scatter
from compiler.kernels.sampling.draw import draw_images, keep_images
from compiler.tensors.parameters import lanes
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

    Members
    -------
    branches : list of :class:`Branch`, in the order of the steps
    shares : layer -> name of the tensor (1, 1, 1, lanes) with the number of images that are to be
        kept on the average, in every lane; the host writes it

    Raises
    ------
    CompileError
        naming a layer that cannot be sampled.
    """

    def __init__(
        self, layers: Sequence[Layer], config: AdaGPConfig, *, sampled: Sequence[str],
        counts: Sequence[int], **options: Any,
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
        super().__init__(layers, config, **options)

    def _build(self, layers: Sequence[Layer]) -> None:
        for name in self.shares.values():
            self._tensor(name, (1, 1, 1, lanes(self.config)), kind="float32")
        super()._build(layers)

    @property
    def kept(self) -> set[str]:
        """Those of any batch, and what is to be kept."""
        return super().kept | set(self.shares.values())

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
        share, kept = self.shares[name], self._number(f"{name}.kept")
        self._add(name, "sample", draw_images, dy, share, *numbers, reads=[dy, share],
                  writes=numbers, number=self.numbers[name])  # fmt: skip
        first = len(self.steps)
        self._add(name, "sample", keep_images, *numbers, kept, reads=numbers, writes=[kept])
        steps = {}
        for count in self.counts:
            begin = len(self.steps)
            self._sampled(layer, count, product, (dy, kept), goal, gradients)
            steps[count] = begin, len(self.steps)
        self.branches.append(Branch(layer=name, first=first, steps=steps))
        self._updates(layer)

    def _sampled(
        self, layer: Layer, count: int, product: NamedConvolution, given: tuple[str, str],
        goal: str | None, gradients: list[str | None],
    ) -> None:  # fmt: skip
        """Gradients from ``count`` images of the gradient and its factors that are ``given``."""
        name, (dy, kept) = layer.name, given
        some = partial(self._some, count)
        part = some(dy)
        self._add(name, "sample", gather_scaled, dy, kept, part, reads=[dy, kept], writes=[part])
        own = replace(product, y=part)
        if goal:
            below = some(goal)
            self._add(name, "input gradient", input_gradient, replace(own, x=below), part, below,
                      reads=[part, own.weights], writes=[below])  # fmt: skip
            self._add(name, "sample", scatter, below, goal, reads=[below], writes=[goal])
        if any(gradients):
            x = some(product.x)
            if gradients[0]:
                self._add(name, "sample", gather, product.x, x, reads=[product.x], writes=[x])
            self._add_weight_gradient(
                layer, weight_gradient, replace(own, x=x), part, gradients
            )  # fmt: skip

    def _number(self, name: str) -> str:
        """A tensor of a number for each image."""
        return self._tensor(name, (1, 1, self.images, lanes(self.config)), kind="float32")

    def _some(self, count: int, name: str) -> str:
        """A tensor like ``name``, of ``count`` images."""
        whole = self.tensors[name]
        return self._tensor(f"{name}.{count}", (count, *whole.shape[1:]), pitch=whole.pitch)

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
