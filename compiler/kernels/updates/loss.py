"""The loss of a batch: value, gradient, correct answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.tensors.encoding import codes_of
from compiler.tensors.intervals import Interval, PixelBox, even_parts
from compiler.tensors.tensor import Tensor
from hw.formats import FLOAT32
from hw.isa.encoding import Opcode
from hw.isa.loss import Loss
from hw.isa.vector import Carry, Condition, Factor

__all__ = ["LabelTensors", "loss_commands"]


@dataclass(frozen=True, kw_only=True)
class LabelTensors:
    """What goes with labels that have a share of all classes, or that may not count.

    Members
    -------
    factors : float32 like the outputs, where some labels may not count: 1 / (labels that count);
        +0 and then minus infinities where a label does not count
    summary : (1, 1, 2, 2) float32 with ``factors``: what value and correct answers are multiplied
        by, and what is added then
    shift : float32 like the outputs, with label smoothing: what is added to the gradient
    products : float32 like the outputs, with label smoothing: room for outputs times ``shift``
    """

    factors: Tensor | None = None
    summary: Tensor | None = None
    shift: Tensor | None = None
    products: Tensor | None = None

    def pixels(self) -> "LabelTensors":
        """The same with an image for each pixel."""
        maps = {name: getattr(self, name) for name in ("factors", "shift", "products")}
        return replace(self, **{name: part and _pixels(part) for name, part in maps.items()})


def loss_commands(
    program: CoreProgram,
    x: Tensor,
    targets: Tensor,
    gradient: Tensor,
    value: Tensor,
    *,
    kind: str,
    labels: LabelTensors = LabelTensors(),
    beside: Callable[[CoreProgram, Any], None] | None = None,
    tensors: Any = None,
) -> None:
    """Commands that read outputs ``x`` (N, H, W, C) and ``targets`` and write ``gradient`` and
    ``value`` (docs/loss.md), as many images at a time as fit.

    ``kind`` is "cross_entropy" with labels (N, H, W, 1), or "mean_squared_error" with float32
    targets like ``x``; if not even one image fits, it is pixels. ``labels`` are those of
    cross-entropy. ``beside(program, tensors)`` emits commands that have nothing to do with it: they
    are executed while the engine works, since what waits for it comes behind them.
    """
    loss = _Loss(program, x, targets, gradient, value, kind, labels)
    parts = loss.parts()
    if parts is None:
        # Boxes of them are not seen to be parts of the maps.
        names = x.name, targets.name, gradient.name
        maps = _pixels(x), _pixels(targets), _pixels(gradient)
        program.scratch.forget(*names)
        loss_commands(program, *maps, value, kind=kind, labels=labels.pixels(), beside=beside,
                      tensors=tensors)  # fmt: skip
        program.scratch.forget(*names)
        return
    late: list[tuple[Interval, list[Block]]] = []

    def run(part: Interval, *blocks: Block) -> None:
        loss.write(part, *blocks)
        if part[1] < x.shape[0] or beside is None:
            loss.finish(part, *blocks)
            return
        for block in _held(blocks):
            block.users += 1
        late.append((part, list(blocks)))

    program.run([Job(loss.needs(part), partial(run, part)) for part in parts])
    if beside is not None:
        beside(program, tensors)
    for part, blocks in late:
        loss.finish(part, *blocks)
        for block in _held(blocks):
            program.scratch.release(block)


class _Loss:
    """The commands of the parts of a batch."""

    def __init__(
        self, program: CoreProgram, x: Tensor, targets: Tensor, gradient: Tensor, value: Tensor,
        kind: str, labels: LabelTensors,
    ) -> None:  # fmt: skip
        self.program, self.x, self.targets = program, x, targets
        self.gradient, self.value, self.labels = gradient, value, labels
        self.squared = kind == "mean_squared_error"
        count = prod(x.shape)
        self.scales = (2 / count, 1 / count) if self.squared else (x.shape[3] / count,) * 2
        if labels.factors:
            self.scales = (1.0, 1.0)
        self.value_need = Need(object(), program.words(value))
        # Outputs in place of those whose label does not count: as float32.
        self.wide = replace(x, name=f"{x.name} that count", kind="float32",
                            pitch=labels.factors.pitch if labels.factors else x.pitch)  # fmt: skip

    def parts(self) -> list[Interval] | None:
        """Images, so many that everything takes less than half of the memory; None if none do."""
        program, x = self.program, self.x
        pixels = x.shape[1] * x.shape[2]
        each = pixels * sum(map(program.words, self._like_outputs(self.gradient)))
        each += self.targets.shape[1] * self.targets.shape[2] * program.words(self.targets)
        fixed = program.words(self.value)
        if self.labels.summary:
            fixed += 2 * program.words(self.labels.summary)
        most = (program.scratch.words // 2 - fixed) // each
        most = min(most, 0xFFFF // pixels)
        if most > 0:
            return even_parts(0, x.shape[0], most)
        if pixels > 1:
            return None
        raise CompileError(
            f"layer {x.name}: the loss of a pixel takes {each} words, more than half of the buffer "
            f"({program.scratch.words} words)"
        )

    def _like_outputs(self, *more: Tensor) -> list[Tensor]:
        labels = self.labels
        found = [self.x, *more]
        found += [part for part in (labels.factors, labels.shift, labels.products) if part]
        return [*found, self.wide] if labels.factors else found

    def needs(self, part: Interval) -> tuple[Need, ...]:
        """Needs of a part of the images, in the order of :meth:`write`."""
        program, labels = self.program, self.labels
        size = (part[1] - part[0]) * self.x.shape[1] * self.x.shape[2]
        found = [self.value_need, Need(object(), size * program.words(self.gradient))]
        for tensor in (self.x, self.targets):
            found.append(program.need(tensor, *_box(tensor, part)))
        if labels.factors and labels.summary:
            found.append(program.need(labels.factors, *_box(labels.factors, part)))
            found.append(Need(object(), size * program.words(self.wide)))
            found.append(program.need(labels.summary, *labels.summary.pixels))
        if labels.shift and labels.products:
            found.append(program.need(labels.shift, *_box(labels.shift, part)))
            found.append(Need(object(), size * program.words(labels.products)))
        return tuple(found)

    def _label_blocks(self, more: Sequence[Block]) -> tuple[Sequence[Block], Sequence[Block]]:
        """Blocks that belong to labels that may not count, and to label smoothing."""
        return (more[:3], more[3:]) if self.labels.factors else ((), more)

    def write(
        self, part: Interval, out: Block, result: Block, outputs: Block, wanted: Block,
        *more: Block,
    ) -> None:  # fmt: skip
        """LOSS of a part, and what comes before it."""
        program, x, vector = self.program, self.x, self.program.vector
        counted, smoothed = self._label_blocks(more)
        values = program.view(outputs, x, *_box(x, part))
        factors = None
        source, kind = outputs, x
        if counted and self.labels.factors:
            source, kind = counted[1], self.wide
            factors = program.view(counted[0], self.labels.factors, *_box(x, part))
            vector.emit(program.view(source, kind, *_box(x, part)), values, z=factors,
                        condition=Condition.POSITIVE, carry=Carry.Z, keep=1)  # fmt: skip
            if part[0] == 0:
                vector.fill(self._value(out), 0.0)
        if smoothed and self.labels.shift and self.labels.products:
            shift = program.view(smoothed[0], self.labels.shift, *_box(x, part))
            products = program.view(smoothed[1], self.labels.products, *_box(x, part))
            condition = Condition.POSITIVE if factors else Condition.ALWAYS
            vector.scale(products, values, shift, z=factors, condition=condition)
        last = part[1] == x.shape[0]
        fields = {
            "loss": Loss.SQUARED_ERROR if self.squared else Loss.CROSS_ENTROPY,
            "first": int(part[0] == 0),
            "last": int(last),
            "x_wide": int(kind.kind == "float32"),
            "target_wide": 1,
            "row_count": (part[1] - part[0]) * x.shape[1] * x.shape[2],
            "row_length": x.shape[3],
            "x_address": source.address,
            "x_stride": program.words(kind),
            "target_address": wanted.address,
            "gradient_address": result.address,
            "value_address": out.address,
            "gradient_scale": int(codes_of(FLOAT32, self.scales[0])),
            "value_scale": int(codes_of(FLOAT32, self.scales[1])),
        }
        program.recorder.emit(
            Opcode.LOSS,
            fields,
            reads=[source.region(), wanted.region()],
            writes=[result.region()] + ([out.region()] if last else []),
            core=program.core.index,
        )

    def finish(
        self, part: Interval, out: Block, result: Block, outputs: Block, wanted: Block,
        *more: Block,
    ) -> None:  # fmt: skip
        """What comes after LOSS, and the stores."""
        program, gradient, labels = self.program, self.gradient, self.labels
        counted, smoothed = self._label_blocks(more)
        box = _box(gradient, part)
        dz = program.view(result, gradient, *box)
        shift = program.view(smoothed[0], labels.shift, *box) if labels.shift else None
        if counted and labels.factors:
            factors = program.view(counted[0], labels.factors, *box)
            program.vector.emit(dz, dz, shift, factors, factor=Factor.Z, add=int(bool(shift)),
                                condition=Condition.POSITIVE)  # fmt: skip
        elif shift:
            program.vector.add(dz, dz, shift)
        drop = [result]
        program.store(gradient, (*box, (0, gradient.pitch)), result)
        if labels.products:
            products = labels.products
            program.store(products, (*_box(products, part), (0, products.pitch)), smoothed[1])
            drop.append(smoothed[1])
        program.scratch.drop([*drop, *counted[1:2]])
        if part[1] == self.x.shape[0]:
            self._store_value(out, counted)

    def _store_value(self, out: Block, counted: Sequence[Block]) -> None:
        program, value, labels = self.program, self.value, self.labels
        if labels.summary:
            summary = program.view(counted[2], labels.summary, *labels.summary.pixels)
            factor, addend = (summary.pixel(0, 0, column) for column in (0, 1))
            program.vector.scale_add(self._value(out), self._value(out), factor, addend)
        program.store(value, (*value.pixels, (0, value.pitch)), out)
        program.scratch.drop([out])

    def _value(self, out: Block) -> View:
        return self.program.view(out, self.value, *self.value.pixels)


def _held(blocks: Sequence[Block]) -> list[Block]:
    """Those that :meth:`_Loss.finish` needs: all but outputs and targets."""
    return [*blocks[:2], *blocks[4:]]


def _box(tensor: Tensor, part: Interval) -> PixelBox:
    return part, (0, tensor.shape[1]), (0, tensor.shape[2])


def _pixels(tensor: Tensor) -> Tensor:
    """A map as one image for each pixel."""
    return replace(tensor, shape=(prod(tensor.shape[:3]), 1, 1, tensor.shape[3]))
