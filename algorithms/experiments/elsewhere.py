"""Several training runs at a time, in processes or on a cluster."""

from collections.abc import Iterator
from pathlib import Path

from cli.workers import Workers

from .experiment import RESULTS, Experiment, keep, run

__all__ = ["run_all"]


def run_all(experiments: list[Experiment], workers: Workers, directory) -> Iterator[tuple]:
    """Yield (path, record) of each run when it is done, in any order; records are in ``directory``.

    Processes of this machine keep their checkpoints there, too, and go on from them; workers of a
    cluster keep theirs in the default directory of their own machine.
    """
    place = directory if workers.scheduler is None else RESULTS
    for number, record in workers.results(_run, [(each, Path(place)) for each in experiments]):
        yield keep(experiments[number], record, directory), record


def _run(experiment, directory):
    return run(experiment, directory=directory)
