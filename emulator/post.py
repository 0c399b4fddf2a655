"""POST commands on the memories of the functional model, by :mod:`golden.commands.post`."""

import numpy as np

from golden.commands.post import post
from hw.config import BUFFER_ADDRESS_WIDTH
from hw.isa.encoding import POST_OUTPUT_LOOPS, Pool

from .memory import Access, loop_indices

__all__ = ["PostCommands"]


class PostCommands:
    """POST of one core of a :class:`~emulator.machine.Machine`."""

    def __init__(self, machine, core):
        self._machine, self._core = machine, core

    def access(self, fields):
        entries = self._entries(fields)
        name, index = self._bytes(fields, self._words(fields))
        accumulator = self._machine.accumulator(self._core, fields).name
        return Access([(accumulator, np.unique(entries))], [(name, index)])

    def execute(self, fields):
        words, data, flags = self.outputs(fields)
        name, index = self._bytes(fields, words)
        self._machine.flag(flags)
        self._machine.memories[name].write(index, data[..., None])

    def outputs(self, fields):
        """What a command writes, output by output, wherever that may be.

        Returns
        -------
        addresses of the words (outputs,) in which outputs begin, ``out_group`` groups behind their
        beginning; bytes (outputs, bytes of an output); flags of all of it
        """
        core, machine = self._core, self._machine
        entries = self._entries(fields)
        lanes = fields["group_count"] * core.post_lanes
        valid = min(fields["channels"], lanes, core.columns)
        sums = machine.accumulator(core, fields).read(entries).view("<u4")
        result, flags = post(
            machine.format,
            sums[..., :valid],
            relu=bool(fields["relu"]),
            pool="sum" if fields["pool"] == Pool.SUM else "max",
            scale=fields["scale"],
            wide=bool(fields["wide"]),
        )
        full = np.zeros((len(entries), lanes), "<u4" if fields["wide"] else machine.dtype)
        full[:, :valid] = result
        raised = int(np.bitwise_or.reduce(flags, axis=None, initial=0))
        return self._words(fields), full.view(np.uint8), raised

    def _entries(self, fields):
        """Accumulator entries (outputs, window)."""
        outputs = loop_indices(fields, POST_OUTPUT_LOOPS[::-1])
        window = loop_indices(fields, ("ph", "pw"))
        first = sum(outputs[loop] * fields[f"{loop}_stride"] for loop in outputs)
        inside = sum(window[loop] * fields[f"{loop}_stride"] for loop in window)
        entries = fields["accumulator_address"] + first[:, None] + inside
        self._machine.accumulator(self._core, fields).check(entries)
        return entries

    def _words(self, fields):
        """First word (outputs,) of every output."""
        outputs = loop_indices(fields, POST_OUTPUT_LOOPS[::-1])
        words = sum(outputs[loop] * fields[f"out_{loop}_stride"] for loop in outputs)
        return (fields["out_address"] + words) % (1 << BUFFER_ADDRESS_WIDTH)

    def _bytes(self, fields, words):
        """Memory, and byte indices (outputs, bytes of an output) in it."""
        core = self._core
        item = 4 if fields["wide"] else self._machine.dtype.itemsize
        size = fields["group_count"] * core.post_lanes * item
        skip = fields["out_group"] * core.group_width // 8
        count = -(-(skip + size) // core.word_bytes)
        name, index = self._machine.words(core, words[:, None] + np.arange(count))
        return name, index.reshape(len(words), -1)[:, skip : skip + size]
