"""Counts in a file, a line each: what is there is not counted again."""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from cli.build_directory import PROJECT_ROOT, build_root
from cli.workers import Workers

from .cells import Cell
from .count import MODELS, Count, count, model_state

__all__ = ["PUBLISHED", "Store"]

#: What comes with the project.
PUBLISHED = PROJECT_ROOT / "docs" / "results_cycles.jsonl"


class Store:
    """Counts by cell, from a file, and from one that is only read.

    Every count is written as soon as it is there, so a command that is ended loses at most what it
    was counting. A line that was cut off is left out and cut away. Several commands may add to the
    same file.

    Parameters
    ----------
    path : of the file to which counts are added; None for ``cycles.jsonl`` under the build
        directory
    published : of the one that is only read, None for none; of a cell that both have, the count of
        ``path`` is taken

    A count of a machine that its preset and settings no longer say is left out, as if nobody had
    counted.

    Raises
    ------
    ValueError
        for a line that is no count.
    """

    def __init__(self, path: Path | None = None, *, published: Path | None = PUBLISHED) -> None:
        self.path = build_root() / "cycles.jsonl" if path is None else Path(path)
        self._counts: dict[Cell, Count] = {}
        for each in (published, self.path):
            if each is not None and each.exists():
                for found in _read(each):
                    if found.configuration in ("", found.cell.config.hash):
                        self._keep(found)

    def get(self, cell: Cell) -> Count | None:
        """The count of a cell, or None if it has not been counted."""
        return self._counts.get(cell)

    def __iter__(self) -> Iterator[Count]:
        return iter(self._counts.values())

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, found: Count) -> None:
        """Keep a count; it is in the file whatever comes next."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                file.truncate(whole)
            file.write(found.to_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._keep(found)

    def _keep(self, found: Count) -> None:
        """The last count of a cell stands, but not one of events for one of cycles that is of the
        same state of the project."""
        known = self._counts.get(found.cell)
        better = known is not None and (known.model, found.model) == MODELS
        if known is None or not (better and known.state == found.state):
            self._counts[found.cell] = found

    def missing(
        self, cells: Iterable[Cell], *, model: str | None = None, outdated: bool = False
    ) -> list[Cell]:
        """Those of ``cells`` that have not been counted; ``outdated``: and those that have been
        with another state of the project; ``model`` "cycles": and those that only events have
        counted."""
        state = model_state()

        def lacks(cell: Cell) -> bool:
            found = self.get(cell)
            if found is None or (outdated and found.state != state):
                return True
            return model == MODELS[0] and found.model != model

        return [cell for cell in dict.fromkeys(cells) if lacks(cell)]

    def fill(
        self, cells: Iterable[Cell], workers: Workers, *, model: str = MODELS[0],
        plain: bool = False, outdated: bool = False,
        report: Callable[[Count], object] = lambda found: None,
    ) -> None:  # fmt: skip
        """Count what is missing of ``cells``; ``report`` sees each count when it has been kept.

        Cells that differ in the memory's latency only are one task: they share a program.
        """
        programs: dict[Cell, list[int]] = {}
        for cell in self.missing(cells, model=model, outdated=outdated):
            programs.setdefault(cell.program, []).append(cell.latency)
        tasks = [(cell, tuple(latencies), model, plain) for cell, latencies in programs.items()]
        for _, counts in workers.results(_task, tasks):
            for found in counts:
                self.add(found)
                report(found)


def _task(cell: Cell, latencies: tuple[int, ...], model: str, plain: bool) -> list[Count]:
    return count(cell, latencies, model=model, plain=plain)


def _read(path: Path) -> Iterator[Count]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):  # behind the last line end: what was cut off
        try:
            yield Count.from_json(line.decode())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path}: line {number} is no count: {error}") from error
