"""Layers with windows, piece by piece: images, and rows with the rows of windows around them."""

import enum
from dataclasses import dataclass
from functools import partial

from .core_program import CoreProgram, Job, Need
from .errors import CompileError
from .memory import Tensor
from .pieces import MOST_WORDS
from .tiling import even_parts
from .windows import Windows

__all__ = ["Part", "Role", "Slab", "run_slabs", "whole"]


class Role(enum.Enum):
    """What a layer does with a map: reads it, writes it, or uses room of its shape in float32."""

    READ = 0
    WRITE = 1
    SUMS = 2


@dataclass(frozen=True)
class Part:
    """A tensor that has the rows of the map, or those of the outputs."""

    tensor: Tensor
    on_map: bool
    role: Role = Role.READ


@dataclass(frozen=True, kw_only=True)
class Slab:
    """Images, and rows of outputs and of the map that belong to each other; (begin, end) each."""

    images: tuple[int, int]
    outputs: tuple[int, int]
    lines: tuple[int, int]

    def box(self, part: Part):
        """Images, rows and columns of a part."""
        return self.images, self.lines if part.on_map else self.outputs, (0, part.tensor.shape[2])


def whole(program: CoreProgram, tensor):
    """(need, function of a block that gives the view) of all of a tensor."""
    box = [(0, size) for size in tensor.shape[:3]]
    return program.need(tensor, *box), lambda block: program.view(block, tensor, *box)


def run_slabs(program, windows: Windows, parts, work, *, cut_map=False, constants=()):
    """Call ``work(slab, *views of parts, *views of constants)`` for every slab.

    Slabs cut the outputs and have what their windows need of the map; with ``cut_map`` they cut the
    map and have the outputs whose windows reach them. What is written is stored.

    Parameters
    ----------
    parts : list of :class:`Part`
    constants : list of (need, function of its block that gives a view)

    Raises
    ------
    CompileError
        if a slab of a single row does not fit into the buffer.
    """

    def do(slab, *blocks):
        views = [
            program.view(block, part.tensor, *slab.box(part), wide=part.role is Role.SUMS)
            for part, block in zip(parts, blocks, strict=False)
        ]
        fixed = zip(blocks[len(parts) :], constants, strict=True)
        work(slab, *views, *(view(block) for block, (_, view) in fixed))
        for part, block in zip(parts, blocks, strict=False):
            if part.role is Role.WRITE:
                box = (*slab.box(part), (0, part.tensor.pitch))
                program.store(part.tensor, box, block)
            if part.role is not Role.READ:
                program.scratch.drop([block])

    fixed = [need for need, _ in constants]
    jobs = []
    for slab in _cut(program, windows, parts, cut_map, sum(need.words for need in fixed)):
        needs = [_need(program, slab, part) for part in parts]
        jobs.append(Job((*needs, *fixed), partial(do, slab)))
    program.run(jobs)


def _need(program, slab, part) -> Need:
    box = slab.box(part)
    if part.role is Role.READ:
        return program.need(part.tensor, *box)
    return program.result(part.tensor, *box, wide=part.role is Role.SUMS)


def _cut(program, windows, parts, cut_map, fixed):
    """Slabs of as many images, or else rows, as leave room for the next one."""
    images = parts[0].tensor.shape[0]
    height = windows.size[0] if cut_map else windows.outputs[0]

    def slab(group, rows):
        if cut_map:
            return Slab(images=group, outputs=windows.readers(*rows), lines=rows)
        return Slab(images=group, outputs=rows, lines=windows.lines(*rows))

    def fits(slab, share):
        sizes = [_need(program, slab, part).words for part in parts]
        room = program.scratch.words - fixed
        return sum(sizes) * share <= room and max(sizes) <= MOST_WORDS

    for share in (2, 1):
        image = slab((0, 1), (0, height))
        if fits(image, share):
            size = sum(_need(program, image, part).words for part in parts)
            count = (program.scratch.words - fixed) // (share * size)
            while not fits(slab((0, min(count, images)), (0, height)), share):
                count -= 1
            return [slab(group, (0, height)) for group in even_parts(0, images, count)]
        for most in range(height - 1, 0, -1):
            cuts = even_parts(0, height, most)
            if all(fits(slab((0, 1), rows), share) for rows in cuts):
                return [slab((n, n + 1), rows) for n in range(images) for rows in cuts]
    words = max(
        sum(_need(program, slab((0, 1), (row, row + 1)), part).words for part in parts)
        for row in range(height)
    )
    written = next(part.tensor.name for part in parts if part.role is Role.WRITE)
    raise CompileError(
        f"layer of {written}: a row of it and what belongs to it take {words} words, which do not "
        f"fit into the buffer ({program.scratch.words} words, {fixed} of them for parameters)"
    )
