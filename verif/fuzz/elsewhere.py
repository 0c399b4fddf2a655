"""A campaign on the workers of a cluster: each runs stretches of it on a simulator of its own."""

import functools
import time

from cli.workers import Workers
from hw.config import AdaGPConfig

from .campaign import CHUNK, Summary, run_cases
from .generate import Generator
from .good import good_programs
from .harness import build

__all__ = ["run_on_workers"]

#: Cases of a task: some seconds of simulation.
_STRETCH = 16 * CHUNK


def run_on_workers(
    workers: Workers, config: AdaGPConfig, count: int, *, seed: int, adversarial: bool = False,
    first: int = 0, most: int = 1, progress=lambda done: None,
) -> Summary:  # fmt: skip
    """As :func:`verif.fuzz.campaign.run_cases`, with ``workers`` in place of simulators here.

    Cases follow each other without a reset as they do there. The workers build the simulation,
    each of them once.
    """
    begin, summary = time.perf_counter(), Summary()
    tasks = [
        (config, seed, adversarial, start, end, most) for start, end in _stretches(first, count)
    ]
    for _, part in workers.results(_stretch, tasks):
        summary.merge(part)
        progress(summary.cases)
        if len(summary.found) >= most:
            break
    summary.seconds = time.perf_counter() - begin
    return summary


def _stretches(first, count):
    """First case and end of every task; none begins inside a chunk, but perhaps the first."""
    start, last = first, first + count
    while start < last:
        end = min(start - start % CHUNK + _STRETCH, last)
        yield start, end
        start = end


def _stretch(config, seed, adversarial, start, end, most):
    goods, program = _prepared(config, seed)
    generator = Generator(config, goods, seed=seed, adversarial=adversarial)
    return run_cases(program, generator, end - start, first=start, most=most)


@functools.lru_cache(maxsize=1)
def _prepared(config, seed):
    """Good programs and the simulation; a worker takes many stretches of the same campaign."""
    goods = good_programs(config, seed)
    return goods, build(config, goods)
