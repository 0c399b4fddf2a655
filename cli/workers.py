"""Where the tasks of a long command run: here, in processes, or on a cluster of dask workers."""

import argparse
import functools
import hashlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from .build_directory import PROJECT_ROOT

__all__ = ["ClusterError", "Workers", "add_workers", "source_digest", "workers_of"]

#: How long a scheduler may take to answer, and the first worker to join it.
_ANSWER_SECONDS, _JOIN_SECONDS = 10, 60


class ClusterError(ValueError):
    """A scheduler or its workers cannot be used; the message says why."""


def add_workers(parser, *, jobs: int | None = None, what: str = "tasks") -> None:
    """Add ``--jobs`` and ``--scheduler`` to a parser; ``jobs`` None: one per processor."""
    shown = "one per processor" if jobs is None else jobs
    parser.add_argument(
        "--jobs",
        type=_number,
        default=jobs,
        metavar="N",
        help=f"{what} at a time (default: {shown})",
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS",
        help=f"{what} on the workers of this dask scheduler, such as tcp://host:8786, instead",
    )  # fmt: skip


def _number(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, not {text!r}")
    return int(text)


def workers_of(options) -> "Workers":
    """The workers that :func:`add_workers`' options ask for."""
    return Workers(jobs=options.jobs, scheduler=options.scheduler)


class Workers:
    """Runs a function on many arguments and hands over each result once.

    Parameters
    ----------
    jobs : processes on this machine; None for one per processor. With 1, no process is started
    scheduler : address of a dask scheduler. Its workers take the tasks, as many at a time as they
        have threads; tasks of a worker that dies go to another one.

    The tasks of a command must not depend on each other or on where they run. Only the process that
    calls :meth:`results` keeps what comes out, so nothing is written twice.

    Raises
    ------
    ValueError
        for ``jobs`` below 1.
    """

    def __init__(self, *, jobs: int | None = None, scheduler: str | None = None) -> None:
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs must be at least 1, not {jobs}")
        self.jobs = jobs or os.cpu_count() or 1
        self.scheduler = scheduler

    def results(self, function: Callable, tasks: Sequence[tuple]) -> Iterator[tuple[int, Any]]:
        """Yield (number of the task, ``function(*task)``) as they are done, in any order.

        ``function`` is one of a module, and arguments and results can be pickled. What a task
        raises is raised here, and tasks that have not begun are dropped.

        Raises
        ------
        ClusterError
            if no scheduler answers, no worker joins it, a worker has another state of the project's
            sources, or a task has ended several workers.
        """
        if not tasks:
            return
        if self.scheduler is not None:
            yield from self._on_cluster(function, tasks)
        elif self.jobs == 1:
            for number, task in enumerate(tasks):
                yield number, function(*task)
        else:
            yield from self._in_processes(function, tasks)

    def _in_processes(self, function, tasks):
        # Not forked: torch's threads do not outlive a fork.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(self.jobs, len(tasks)), mp_context=context) as pool:
            futures = {pool.submit(function, *task): n for n, task in enumerate(tasks)}
            try:
                for future in as_completed(futures):
                    yield futures.pop(future), future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _on_cluster(self, function, tasks):
        import distributed

        try:
            client = distributed.Client(
                self.scheduler, timeout=_ANSWER_SECONDS, set_as_default=False
            )
        except (OSError, ValueError) as error:
            raise ClusterError(f"no dask scheduler answers at {self.scheduler}: {error}") from None
        with client:
            _wait_for_workers(client, self.scheduler)
            digest = source_digest()
            futures = {
                client.submit(_checked, digest, function, task, pure=False): number
                for number, task in enumerate(tasks)
            }
            try:
                for future in distributed.as_completed(list(futures), loop=client.loop):
                    try:
                        result = future.result()
                    except distributed.scheduler.KilledWorker as error:
                        raise ClusterError(
                            f"task {futures[future]} ended {error.allowed_failures + 1} workers "
                            f"of {self.scheduler}, one after the other"
                        ) from None
                    yield futures.pop(future), result
            finally:
                client.cancel(list(futures))


def _wait_for_workers(client, address):
    deadline = time.monotonic() + _JOIN_SECONDS
    while not client.scheduler_info()["workers"]:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"no worker has joined the scheduler at {address} within {_JOIN_SECONDS} s; "
                f"start some with: python -m distributed.cli.dask_worker {address}"
            )
        time.sleep(0.2)


def _checked(digest, function, task):
    """Run a task on a worker, if its sources are those of the command."""
    if source_digest() != digest:
        raise ClusterError(
            "a worker has another state of the project's sources than this command; "
            "update it and start it again"
        )
    return function(*task)


@functools.cache
def source_digest() -> str:
    """Digest of the names and contents of all sources of the project's packages."""
    digest = hashlib.sha256()
    packages = {path.parent for path in PROJECT_ROOT.glob("*/__init__.py")}
    kinds = (".py", ".toml", ".json", ".v", ".h", ".cpp")
    for package in sorted(packages):
        for path in sorted(package.rglob("*")):
            if path.suffix in kinds and path.is_file():
                digest.update(f"{path.relative_to(PROJECT_ROOT)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
