"""Update of a parameter in DRAM."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.tiling.in_place import ChangedBoxes
from compiler.kernels.tiling.splitting import (
    MOST_WORDS,
    begin_of,
    boxes,
    channel_parts,
    channel_steps,
    like_box,
)
from compiler.tensors.intervals import ChannelBox, Channels, PixelBox, regular_parts
from compiler.tensors.parameters import CORRECTIONS, StoredParameter
from compiler.tensors.tensor import IN_ORDER, Tensor
from hw.isa.vector import Watch

from .braking import Brake
from .rules import Rule
from .scalars import Scalars, repeat

__all__ = ["update"]


def update(
    program: CoreProgram,
    parameter: StoredParameter,
    rule: Rule,
    *,
    factor: tuple[Tensor, int] | None = None,
) -> None:
    """Change a parameter and the optimizer's numbers in place, and the operand copy.

    With the guard on, an infinity or NaN anywhere in the gradient leaves all of the parameter as it
    was. Between the groups of a grouped convolution the gradient counts as +0.

    Parameters
    ----------
    parameter : :class:`~compiler.tensors.parameters.StoredParameter` with ``master``, ``gradient``
        and the slots of ``rule``, of any one shape, perhaps ``operands`` and ``mask``
    rule : the optimizer
    factor : (tensor, row) of a number, see :mod:`compiler.kernels.updates.scalars`, that the
        gradient is multiplied by first; None for none

    Raises
    ------
    CompileError
        if a word of each of its tensors does not fit into the buffer, or if the gradient of an
        embedding or a grouped convolution is to be braked.
    """
    tensors, brake = parameter.tensors, None
    if "mask" not in tensors:
        # Pieces of any number of rows, as long as no row has a mask of its own.
        tensors = _in_lines(tensors)
    if rule.braking is not None and "operands" in tensors:
        if parameter.transposed or "mask" in tensors:
            raise CompileError(
                f"parameter {parameter.name}: the gradient of an embedding or a grouped "
                "convolution is not braked"
            )
        brake = Brake(program, tensors, rule.braking)
    _Update(program, tensors, rule, factor, brake).write()


class _Update:
    def __init__(
        self,
        program: CoreProgram,
        tensors: Mapping[str, Tensor],
        rule: Rule,
        factor: tuple[Tensor, int] | None,
        brake: Brake | None,
    ) -> None:
        self.brake = brake
        self.program, self.tensors = program, tensors
        self.rule, self.factor = rule, factor
        self.master, self.gradient = tensors["master"], tensors["gradient"]
        self.changing = [self.master, *(tensors[role] for role in rule.slots)]
        self.operands, self.mask = tensors.get("operands"), tensors.get("mask")
        self.corrections = tensors[CORRECTIONS] if rule.corrections else None
        self.changed = ChangedBoxes(program)

    def write(self) -> None:
        program = self.program
        parts, most = self._cut()
        lines = self._pieces(max(1, most // program.pieces))
        pieces = [(*box, channels) for box in lines for channels in parts]
        jobs = []
        for number, box in enumerate(pieces):
            needs = (Need(object(), program.words(self.master, box[3])), *self._gradient(box))
            run = partial(self._watch, box, number == 0)
            like = "watch", number == 0, *like_box(box[:3]), box[3]
            jobs.append(Job(needs, run, like=like, at=begin_of(box[:3])))
        if self.brake is not None:
            program.run(jobs)
            jobs = []
            with self.brake.held(parts):
                program.run(self.brake.jobs(parts, lines, self._gradient, self._gradient_view))
                program.run([self._step_job(box) for box in reversed(pieces)])
            pieces = []
        if self.corrections is not None:
            # The numbers of the step would be loaded before this, if it were all one list.
            program.run([*jobs, self._correct_job(self.corrections)])
            # A vector of them belongs to some channels.
            jobs, pieces = [], sorted(pieces, key=lambda box: box[3] or ())
        # What was loaded last is still there.
        jobs += [self._step_job(box) for box in reversed(pieces)]
        program.run(jobs)
        self.changed.drop()
        program.scratch.forget(self._numbers_of)
        if self.mask is None:
            # Boxes of lines are not seen to be parts of a tensor of another shape.
            program.scratch.forget(*(tensor.name for tensor in self.tensors.values()))

    def _pieces(self, most: int) -> list[PixelBox]:
        """At most so many rows each, all but the last the same."""
        if self.mask is not None:
            return boxes(self.master.shape, most)
        _, lines, rows, _ = self.master.shape
        if most >= rows:
            parts = regular_parts(0, lines, most // rows, many=0)
            return [((0, 1), part, (0, rows)) for part in parts]
        parts = regular_parts(0, rows, most, many=0)
        return [((0, 1), (line, line + 1), part) for line in range(lines) for part in parts]

    def _cut(self) -> tuple[list[Channels], int]:
        """Parts of the channels, all of them if a row fits, and rows that fit."""
        program, tensors = self.program, [*self.changing, self.gradient]
        extra = [part for part in (self.operands, self.mask) if part]
        for step in channel_steps(program, self.master):
            parts = channel_parts(program, [*tensors, *extra], step)
            row = max(program.words(self.master, part) for part in parts)
            # Float32 rows, and with operands also a copy and a mask.
            words = len(tensors) * row
            words += sum(max(program.words(t, part) for part in parts) for t in extra)
            # Behind the gradient: what the watching command writes, and a factor.
            fixed = row * (2 if self.factor else 1)
            fixed += sum(need.words for need in self._factor_needs(parts[0])[:1])
            fixed += sum(need.words for need in self._number_needs(parts[0]))
            fixed += self.brake.words(parts) if self.brake else 0
            most = min((program.scratch.words - fixed) // words, MOST_WORDS // row)
            if most >= 1:
                return parts, most
        raise CompileError(
            f"parameter {self.master.name}: a word of its numbers takes {words} words, which do "
            f"not fit into the buffer ({program.scratch.words} words)"
        )

    def _correct_job(self, tensor: Tensor) -> Job:
        """What the optimizer keeps for the whole parameter."""
        program = self.program

        def run(block: Block) -> None:
            kept = Scalars.stored(program, block, tensor)
            self.rule.correct(program.vector, [kept[row] for row in range(tensor.shape[2])])
            program.store(tensor, (*tensor.pixels, (0, tensor.pitch)), block)

        return Job((program.need(tensor, *tensor.pixels),), run)

    @property
    def _numbers_of(self) -> str:
        """Owner of the blocks with the step's numbers."""
        return f"{self.master.name}: numbers of the step"

    def _number_needs(self, channels: Channels) -> list[Need]:
        """Need of the step's numbers: what the optimizer keeps for the whole parameter, the numbers
        and vectors of them."""
        if self.corrections is None:
            return []
        kept, program, count = self.corrections, self.program, self.rule.numbers
        first = kept.shape[2] * program.words(kept)
        single = first + Scalars.words(program, count)

        def load(block: Block) -> None:
            program.load(kept, (*kept.pixels, (0, kept.pitch)), block)
            corrections = Scalars.stored(program, block, kept)
            numbers = Scalars(program, block, count, first=first)
            # The guard may leave them so.
            program.vector.fill(numbers.all, 0.0)
            self.rule.prepare(
                program.vector,
                [corrections[row] for row in range(kept.shape[2])],
                [numbers[number] for number in range(count)],
            )
            for number, vector in enumerate(self._numbers(channels, block)):
                repeat(program, vector, numbers[number])

        words = single + count * program.words(self.master, channels)
        return [Need((self._numbers_of, channels), words, load)]

    def _numbers(self, channels: Channels, block: Block) -> list[View]:
        """Vectors of the step's numbers, the last words of their block."""
        program, count = self.program, self.rule.numbers
        like = program.view(block, self.master, (0, 1), (0, 1), (0, count), channels)
        like = replace(like, first=block.words - like.size)
        return [like.pixel(0, 0, number) for number in range(count)]

    def _factor_needs(self, channels: Channels) -> list[Need]:
        """Needs of the number that the gradient is multiplied by, and of a vector of it."""
        if self.factor is None:
            return []
        tensor = self.factor[0]
        whole = (0, tensor.shape[2])
        return [
            self.program.need(tensor, (0, 1), (0, 1), whole),
            Need(object(), self.program.words(self.gradient, channels)),
        ]

    def _gradient(self, box: ChannelBox) -> list[Need]:
        """Needs of the gradient, and of its mask or factor."""
        if self.factor is not None:
            return [self.changed.need(self.gradient, *box), *self._factor_needs(box[3])]
        if self.mask is None:
            return [self.program.need(self.gradient, *box)]
        mask = self.program.need(self.mask, (0, 1), (0, 1), box[2], box[3])
        return [self.changed.need(self.gradient, *box), mask]

    def _gradient_view(self, box: ChannelBox, block: Block, *more: Block) -> View:
        """The gradient times the factor, or with +0 between the groups."""
        program = self.program
        view = program.view(block, self.gradient, *box)
        if self.factor is not None:
            self.changed.make(block, partial(self._scale, view, *more))
            program.scratch.drop(more[1:])
        elif self.mask is not None:
            where = program.view(more[0], self.mask, (0, 1), (0, 1), box[2], box[3])
            self.changed.make(block, lambda: program.vector.mask(view, view, where))
        return view

    def _scale(self, view: View, state: Block, room: Block) -> None:
        assert self.factor is not None
        program, (tensor, row) = self.program, self.factor
        shape = (1, 1, 1, view.shape[3])
        factor = View.dense(room, shape, view.words, chunks=view.chunks)
        repeat(program, factor, Scalars.stored(program, state, tensor)[row])
        program.vector.scale(view, view, factor)

    def _watch(
        self, box: ChannelBox, first: bool, sink: Block, gradient: Block, *more: Block
    ) -> None:
        view = self._gradient_view(box, gradient, *more)
        # Reads only: all steps write the same zeros.
        nothing = View.dense(sink, (1, 1, 1, view.shape[3]), view.words)
        watch = Watch.FIRST if first else Watch.MORE
        self.program.vector.emit(nothing, 0.0, view, watch=watch, over=view)
        self.program.scratch.drop([sink])

    def _step_job(self, box: ChannelBox) -> Job:
        program = self.program
        needs = [program.need(part, *box) for part in self.changing]
        needs += self._number_needs(box[3])
        needs += self.brake.factors if self.brake else []
        if self.operands is not None:
            needs.append(program.result(self.operands, *box))
        run = partial(self._step, box)
        like = "step", *like_box(box[:3]), box[3]
        return Job((*needs, *self._gradient(box)), run, like=like, at=begin_of(box[:3]))

    def _step(self, box: ChannelBox, *blocks: Block) -> None:
        program, vector = self.program, self.program.vector
        changing, blocks = blocks[: len(self.changing)], blocks[len(self.changing) :]
        numbers: list[View] = []
        if self.corrections is not None:
            numbers, blocks = self._numbers(box[3], blocks[0]), blocks[1:]
        factors = blocks[: int(self.brake is not None)]
        blocks = blocks[len(factors) :]
        gradient = blocks if self.operands is None else blocks[1:]
        g = self._gradient_view(box, *gradient)
        w, *slots = (
            program.view(block, tensor, *box)
            for block, tensor in zip(changing, self.changing, strict=True)
        )
        # In place, so that the gradient is not what it was.
        program.scratch.drop([gradient[0]])
        if self.brake is not None:
            vector.scale(g, g, self.brake.factor(factors[0], g, box[3]), guarded=1)
        self.rule.step(vector, w, slots, g, numbers)
        for block, tensor in zip(changing, self.changing, strict=True):
            program.store(tensor, (*box[:3], box[3] or (0, tensor.pitch)), block)
        if self.operands is not None:
            out = blocks[0]
            vector.copy(program.view(out, self.operands, *box), w)
            program.store(self.operands, (*box[:3], box[3] or (0, self.operands.pitch)), out)
            program.scratch.drop([out])


def _in_lines(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of a parameter as one line of all rows; as a line for each tap where those of the
    operand copy lie in another order."""
    copy, master = tensors.get("operands"), tensors["master"]
    taps = prod(master.shape[:2])
    rows = taps * master.shape[2]
    lines = 1 if copy is None or copy.order == IN_ORDER else taps
    shape = (1, lines, rows // lines, master.shape[3])
    return {
        role: tensor if role == CORRECTIONS else replace(tensor, shape=shape)
        for role, tensor in tensors.items()
    }
