"""VECTOR commands on the memories of the functional model, by :mod:`golden.commands.vector`."""

import numpy as np

from golden.commands.vector import Source, VectorMachine
from hw.config import BUFFER_ADDRESS_WIDTH
from hw.isa.vector import VECTOR_LOOPS, VECTOR_STREAMS

from .memory import Access, FunctionalError, loop_indices

__all__ = ["VectorCommands"]

_STORED = (Source.NARROW, Source.WIDE)


class VectorCommands:
    """The vector engine of one core of a :class:`~emulator.machine.Machine`.

    Parameters
    ----------
    machine : Machine
    core : CoreConfig
    """

    def __init__(self, machine, core):
        self._machine = machine
        self._core = core
        self._golden = VectorMachine(
            fmt=machine.format,
            memory=np.zeros((0, core.rows), machine.dtype),
            coefficients=machine.coefficients,
            guard=bool(machine.guard),
        )

    @property
    def noted(self):
        """Golden's machine: what is left from one command to the next."""
        return self._golden

    @property
    def rejected(self):
        """Tiles that the guard rejected."""
        return self._golden.rejected

    def access(self, fields):
        """Words that the command reads and writes, whatever the guard makes of it.

        Raises
        ------
        FunctionalError
            for an address out of range, or a word that one step reads and another one writes.
        """
        name, index, steps = self._results(fields)
        # The step that writes a word: -1 for none, -2 for several.
        owner = np.full(self._machine.memories[name].entries, -1)
        places = index[..., 0]
        owner[places] = steps[:, np.newaxis]
        owner[places[owner[places] != steps[:, np.newaxis]]] = -2
        reads = []
        for _stream, where, read, _active in self._operands(fields):
            if where == name:
                writer = owner[read[..., 0]]
                wrong = (writer != -1) & (writer != np.arange(len(read))[:, np.newaxis])
                if wrong.any():
                    word = int(read[..., 0][wrong][0]) // self._core.word_bytes
                    raise FunctionalError(
                        f"one of its steps reads word {word:#x} of {name}, another one writes it"
                    )
            reads.append((where, np.unique(read)))
        return Access(reads, [(name, np.unique(index))])

    def execute(self, fields):
        """Do what the command does."""
        golden, memories = self._golden, self._machine.memories
        if fields["guarded"] and golden.guard and golden.noted:
            return
        for _stream, name, index, active in self._operands(fields):
            memories[name].read(index.reshape(len(index), -1)[active])
        # The core's memories in one piece, as golden knows them.
        first, parts, words = {}, [], 0
        for number in self._core.memories:
            first[number] = words
            data = memories[f"memory {number}"].data.reshape(-1, self._core.word_bytes)
            parts.append(data)
            words += len(data)
        golden.sample_seed = self._machine.sample_seed
        golden.memory = np.concatenate(parts).view(self._machine.dtype)
        local = dict(fields)
        for stream in VECTOR_STREAMS:
            if stream == "o" or fields[f"{stream}_source"] in _STORED:
                number, word = divmod(fields[f"{stream}_address"], 1 << (BUFFER_ADDRESS_WIDTH - 1))
                local[f"{stream}_address"] = first[number] + word
        try:
            golden.run(local)
        except ValueError as error:
            raise FunctionalError(str(error)) from error
        name, index, _steps = self._results(fields)
        offset = first[int(name.split()[1])]
        words = golden.memory[offset + index[..., 0] // self._core.word_bytes]
        memories[name].write(index, words.view(np.uint8)[..., np.newaxis])
        self._machine.flag(golden.flags)

    def kept(self, fields):
        """Of every result that the command has stored whether its first lane is positive or NaN."""
        fmt = self._machine.format
        name, index, _steps = self._results(fields)
        first = np.ascontiguousarray(index[:, 0, : fmt.width // 8])
        codes = self._machine.memories[name].data.reshape(-1)[first].view(self._machine.dtype)
        positive = (codes & fmt.infinity != 0) & (codes & fmt.sign_bit == 0)
        return positive[:, 0].tolist()

    def _words(self, fields, stream, wide):
        """Memory, byte indices (steps, words of a step, word), loop indices."""
        core = self._core
        block = core.chunks_per_wide if wide else 1
        loops = loop_indices(fields, VECTOR_LOOPS[::-1])
        address = fields[f"{stream}_address"] + loops["cb"] * block
        for loop in VECTOR_LOOPS[:-1]:
            address = address + loops[loop] * fields[f"{stream}_{loop}_stride"]
        return *self._machine.words(core, address[:, np.newaxis] + np.arange(block)), loops

    def _operands(self, fields):
        """Stream, memory, byte indices (steps, words, word), mask of the bytes of active lanes."""
        rows = self._core.rows
        for stream in VECTOR_STREAMS[:-1]:
            source = fields[f"{stream}_source"]
            if source in _STORED:
                name, index, loops = self._words(fields, stream, source == Source.WIDE)
                lanes = loops["cb"][:, np.newaxis] * rows + np.arange(rows)
                size = index[0].size // rows
                yield stream, name, index, np.repeat(lanes < fields["channels"], size, axis=1)

    def _results(self, fields):
        """Memory, byte indices (results, words, word), the step of each."""
        name, index, _loops = self._words(fields, "o", fields["wide"])
        steps = np.arange(len(index))
        if fields["reduce"]:
            count = len(index) // fields["cb_count"]
            index, steps = index[count - 1 :: count], steps[count - 1 :: count]
        return name, index, steps
