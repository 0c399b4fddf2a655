"""LOAD and STORE on the memories of the functional model."""

import numpy as np

from .memory import Access, FunctionalError

__all__ = ["LoadCommands", "StoreCommands", "transfer_rows"]


def transfer_rows(fields, word_bytes):
    """What a LOAD or STORE moves, row by row, wherever that may be: offsets of bytes in the DRAM
    window (rows, row_bytes), and addresses of buffer words (rows, words of a row)."""
    start = fields["dram_address"] + np.arange(fields["run_count"]) * fields["run_stride"]
    dram = (start[:, None] + np.arange(fields["run_bytes"])).reshape(-1, fields["row_bytes"])
    row_words = -(-fields["row_bytes"] // word_bytes)
    words = fields["buffer_address"] + np.arange(len(dram) * row_words)
    return dram, words.reshape(len(dram), -1)


class _Transfers:
    """Parameters
    ----------
    machine : :class:`~emulator.machine.Machine`
    core : CoreConfig
    """

    def __init__(self, machine, core):
        self._machine, self._core = machine, core

    def _plan(self, fields):
        """DRAM bytes (rows, row_bytes), and (memory, buffer bytes (rows, words * word_bytes))."""
        machine = self._machine
        unit = machine.config.granule_bytes
        names = ["dram_address", "run_bytes", "row_bytes"]
        for name in names if fields["run_count"] == 1 else [*names, "run_stride"]:
            if fields[name] % unit:
                raise FunctionalError(f"{name} {fields[name]} is no multiple of {unit}")
        if fields["run_bytes"] % fields["row_bytes"]:
            raise FunctionalError("run_bytes is no multiple of row_bytes")
        dram, words = transfer_rows(fields, self._core.word_bytes)
        machine.memories["dram"].check(dram)
        name, index = machine.words(self._core, words)
        return dram, name, index.reshape(len(dram), -1)


class LoadCommands(_Transfers):
    """LOAD of one core; the last word of a row is filled up with zeros."""

    def access(self, fields):
        dram, name, index = self._plan(fields)
        return Access([("dram", dram)], [(name, index)])

    def execute(self, fields):
        dram, name, index = self._plan(fields)
        memories = self._machine.memories
        rows = np.zeros(index.shape, np.uint8)
        rows[:, : dram.shape[1]] = memories["dram"].read(dram)[..., 0]
        memories[name].write(index, rows[..., None])


class StoreCommands(_Transfers):
    """STORE of one core; the last word of a row is cut."""

    def access(self, fields):
        dram, name, index = self._plan(fields)
        return Access([(name, index)], [("dram", dram)])

    def execute(self, fields):
        dram, name, index = self._plan(fields)
        memories = self._machine.memories
        memories["dram"].write(dram, memories[name].read(index[:, : dram.shape[1]]))
