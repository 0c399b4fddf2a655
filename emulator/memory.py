"""Memories of the functional model, and what a command does to them."""

from dataclasses import dataclass, field

import numpy as np

__all__ = ["Access", "FunctionalError", "Memory", "loop_indices"]


def loop_indices(fields, loops):
    """Index arrays of a command's nested ``loops``, named outermost first, step by step."""
    counts = [fields[f"{loop}_count"] for loop in loops]
    return dict(zip(loops, np.indices(counts).reshape(len(loops), -1), strict=True))


class FunctionalError(Exception):
    """A program did what it must not; the text says which command, what and where."""


@dataclass(frozen=True)
class Access:
    """Elements that a command reads and writes: (memory name, index array) each."""

    reads: list = field(default_factory=list)
    writes: list = field(default_factory=list)


class Memory:
    """Named array of ``uint8 (entries, bytes of an entry)`` and which of its bytes are written."""

    def __init__(self, name, entries, entry_bytes, data=None):
        self.name = name
        shape = (entries, entry_bytes)
        self.data = np.zeros(shape, np.uint8) if data is None else data.reshape(shape)
        self.written = np.full(shape, data is not None)
        self.entries = entries

    def check(self, index):
        """Raise unless all of ``index`` is inside."""
        index = np.asarray(index)
        if index.size and (index.min() < 0 or index.max() >= self.entries):
            wrong = index[(index < 0) | (index >= self.entries)].flat[0]
            raise FunctionalError(f"{self.name} has {self.entries} entries, none at {wrong:#x}")

    def read(self, index):
        written = self.written[index]
        if not written.all():
            place = tuple(np.argwhere(~written)[0])
            entry = np.asarray(index)[place[:-1]]
            raise FunctionalError(
                f"{self.name} entry {int(entry):#x} byte {place[-1]} is read but was never written"
            )
        return self.data[index]

    def write(self, index, values):
        self.data[index] = values
        self.written[index] = True
