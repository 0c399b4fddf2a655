"""Layers that add up whole images: parts of the channels, and images at a time."""

from collections.abc import Callable, Hashable, Sequence

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.tensors.intervals import Channels, Interval, regular_parts
from compiler.tensors.tensor import Tensor

from .splitting import MOST_WORDS, channel_parts, channel_steps

__all__ = ["image_parts", "state_job"]


def image_parts(
    program: CoreProgram,
    images: int,
    tensors: Sequence[Tensor],
    *,
    size: Callable[[int], int],
    fixed: Callable[[int], int | None],
) -> tuple[list[Channels], list[Interval]] | None:
    """([channels], [images]): (begin, end) each; channels are None if they are all in one part.
    None if an image with one word per pixel does not fit.

    All images at once if a part of the channels leaves room for them, so that they are loaded once;
    else as many images of as many channels as fit twice, or at least once.

    Parameters
    ----------
    tensors : the map, and others whose pitch may be larger
    size : function of a number of words per pixel: those that an image's maps take together
    fixed : the same for what has to be there besides, or None if so many words do not do
    """
    choices = [(step, fixed(step)) for step in channel_steps(program, tensors[0])]
    choices = [(step, rest) for step, rest in choices if rest is not None]
    room = program.scratch.words
    for step, rest in choices:
        if size(step) * images + rest <= room and size(step) * images <= MOST_WORDS:
            return channel_parts(program, tensors, step), [(0, images)]
    for share in (2, 1):
        for step, rest in choices:
            count = min((room - rest) // share, MOST_WORDS) // size(step)
            if count >= 1:
                return channel_parts(program, tensors, step), regular_parts(0, images, count)
    return None


def state_job(
    state: Need,
    maps: Sequence[Need],
    more: Sequence[Need],
    run: Callable[..., None],
    *,
    first: bool = False,
    like: Hashable = None,
    at: tuple[int, ...] = (),
) -> Job:
    """A :class:`Job` that needs ``maps`` and ``more`` and a ``state``, which jobs before have
    written: ``run(state, *maps, *more)``.

    It finds the state before it takes room for anything; the first job takes room for the maps
    before, as they may not fit beside it elsewhere. ``like`` and ``at`` are those of the job.
    """
    if not first:
        return Job((state, *maps, *more), run, like=like, at=at)
    count = len(maps)
    return Job(
        (*maps, state, *more),
        lambda *blocks: run(blocks[count], *blocks[:count], *blocks[count + 1 :]),
    )
