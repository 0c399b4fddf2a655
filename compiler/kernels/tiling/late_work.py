"""Work that comes between the jobs of a product: on results of a job behind jobs that follow, and
what has nothing to do with it in its middle."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from compiler.codegen.core_builder import CoreProgram, Job, Need
from compiler.codegen.scratchpad import Block

__all__ = ["Late", "behind", "run_around"]


class Late(NamedTuple):
    """Work on what a job has written, ``run(*blocks)`` of ``needs``, that comes behind the product
    of a job that follows; ``like`` and ``at`` are those of jobs."""

    needs: tuple[Need, ...]
    run: Callable[..., None]
    like: tuple[object, ...]
    at: tuple[int, ...]


def behind(jobs: Iterable[tuple[Job, Sequence[Late]]]) -> list[Job]:
    """Jobs, each with what is to be done late with what it has written: every job that follows does
    one of these, behind its own work, so that the array always has something to do. A job that
    leaves such work itself does all that is left before, and so does the last one: what late work
    needs is never idle."""
    found: list[Job] = []
    waiting: deque[Late] = deque()
    for job, late in jobs:
        count = len(waiting) if late else min(1, len(waiting))
        found.append(reduce(_both, [waiting.popleft() for _ in range(count)], job))
        waiting += late
    return [*found[:-1], *(reduce(_both, waiting, job) for job in found[-1:])]


def _both(job: Job, late: Late) -> Job:
    count = len(late.needs)

    def run(*blocks: Block) -> None:
        job.run(*blocks[count:])
        late.run(*blocks[:count])

    like = None if job.like is None else (job.like, late.like)
    return job._replace(needs=(*late.needs, *job.needs), run=run, like=like, at=job.at + late.at)


def run_around(program: CoreProgram, jobs: Sequence[Job], beside: Callable[[], None]) -> None:
    """Do the first half of the jobs, what is ``beside`` them, and the rest.

    Results that both halves write stay in the memory meanwhile; they may take a quarter of it.
    """

    def shared(number: int) -> list[Need]:
        if not 0 < number < len(jobs):
            return []
        before = {need.key for need in jobs[number - 1].needs}
        return [need for need in jobs[number].needs if need.load is None and need.key in before]

    def fits(number: int) -> bool:
        return 4 * sum(need.words for need in shared(number)) <= program.scratch.words

    half = len(jobs) // 2
    places = sorted(range(len(jobs) + 1), key=lambda number: abs(number - half))
    half = next(number for number in places if fits(number))
    program.run(jobs[:half])
    found = [program.scratch.find(need.key) for need in shared(half) if need.key is not None]
    beside()
    for block in found:
        if block is not None:
            program.scratch.release(block)
    program.run(jobs[half:])
