"""What each command does, without time: memories, and the effects of the commands on them.

Built on :mod:`golden.arithmetic.dot_product` and :mod:`golden.commands`, one file for each kind of
command: :mod:`~emulator.transfers`, :mod:`~emulator.matmul`, :mod:`~emulator.post`,
:mod:`~emulator.vector`, :mod:`~emulator.loss`. Memories know which bytes have been written; reading
others is an error, as is any address out of range. Most commands are executed by compiled kernels
(:mod:`~emulator.compiled`), which compute the same.
"""

from collections import deque
from functools import cached_property
from typing import Any

import numpy as np

from golden.arithmetic.formats import format_by_name
from hw.config import BUFFER_ADDRESS_WIDTH
from hw.isa.encoding import Opcode, queue_opcodes
from hw.isa.rows import RowList

from .loss import LossCommands
from .matmul import MatmulCommands, WeightsCommands
from .memory import Access, FunctionalError, Memory
from .post import PostCommands
from .transfers import LoadCommands, StoreCommands
from .vector import VectorCommands

__all__ = ["Access", "FunctionalError", "Machine"]

_ADDRESSES = 1 << BUFFER_ADDRESS_WIDTH
_COMMANDS = {
    Opcode.LOAD: LoadCommands,
    Opcode.STORE: StoreCommands,
    Opcode.WEIGHTS: WeightsCommands,
    Opcode.MATMUL: MatmulCommands,
    Opcode.POST: PostCommands,
    Opcode.VECTOR: VectorCommands,
    Opcode.LOSS: LossCommands,
}


class Machine:
    """The memories of one accelerator, and the weight tiles on their way to its arrays.

    Parameters
    ----------
    config : AdaGPConfig
    memory : bytearray
        the DRAM window; changed in place
    unwritten : iterable of (offset, size)
        bytes of it that must not be read before they are written
    coefficients, sample_seed, guard : registers for VECTOR
    kernels : use compiled kernels, not golden's functions; results and errors are the same

    Members
    -------
    sample_seed : that of the batch
    rows : :class:`~hw.isa.rows.RowList`, which VECTOR fills
    """

    def __init__(
        self,
        config,
        memory,
        unwritten=(),
        *,
        coefficients=(0,) * 8,
        sample_seed=0,
        guard=False,
        kernels=True,
    ):
        self.config = config
        self.format = format_by_name(config.operand_format)
        self.dtype = np.dtype(f"<u{self.format.width // 8}")
        self.flags = 0
        data = np.frombuffer(memory, np.uint8)
        self.memories = {"dram": Memory("DRAM", len(memory), 1, data)}
        for offset, size in unwritten:
            self.memories["dram"].written[offset : offset + size] = False
        sizes = {
            number: depth * config.memory_core[number].word_bytes
            for number, depth in config.memory_depth.items()
        }
        #: All on-chip memories, one behind the other; where each begins; what is written there.
        self.data = np.zeros(sum(sizes.values()), np.uint8)
        self.written = np.zeros(len(self.data), bool)
        self.first: dict[int, int] = {}
        start = 0
        for number, size in sizes.items():
            name, end = f"memory {number}", start + size
            # Bytes are the unit: a group of lanes is written by itself.
            self.memories[name] = Memory(name, size, 1, self.data[start:end])
            self.memories[name].written = self.written[start:end].reshape(size, 1)
            self.first[number], start = start, end
        #: (8,) float32 bits, which may change between two batches.
        self.coefficients, self.guard = np.array(coefficients, np.uint32), guard
        self.sample_seed, self.rows = sample_seed, RowList()
        #: What each core executes: (index, opcode) -> an object with ``access`` and ``execute``.
        self.commands: dict[tuple[int, Opcode], Any] = {
            (core.index, opcode): _COMMANDS[opcode](self, core)
            for core in config.cores
            for opcode in queue_opcodes(core)
        }
        #: For each core (weights (rows, columns), biases (columns,) or None), in order.
        self.tiles: list[deque] = [deque() for _ in config.cores]
        for core in config.cores:
            for bank in range(2):
                name = f"core {core.index} accumulator bank {bank}"
                self.memories[name] = Memory(name, core.accumulator_depth, 4 * core.columns)

        self._kernels = kernels

    @cached_property
    def _compiled(self) -> dict[int, Any]:
        """By core: its :class:`~emulator.compiled.CompiledCommands`."""
        # Imports numba: only where commands are executed.
        from .compiled import CompiledCommands

        return {
            core.index: CompiledCommands(
                self,
                core,
                self.commands[core.index, Opcode.VECTOR].noted if core.has_vector else None,
            )
            for core in self.config.cores
        }

    def access(self, opcode, fields):
        """What the command reads and writes; raises :class:`FunctionalError`."""
        return self.commands[fields["core"], opcode].access(fields)

    def execute(self, opcode, fields):
        """Do what the command does; raises :class:`FunctionalError`."""
        core = fields["core"]
        if not self._kernels or not self._compiled[core].execute(opcode, fields):
            self.commands[core, opcode].execute(fields)
        if self.rows.listening and opcode is Opcode.VECTOR and not core:
            self.rows.fill(self.commands[core, opcode].kept(fields))

    @property
    def rejected(self):
        """For each core with a vector engine the tiles that its guard rejected."""
        return tuple(
            commands.rejected
            for (_, opcode), commands in self.commands.items()
            if opcode is Opcode.VECTOR
        )

    def accumulator(self, core, fields):
        """The bank of ``core`` that a command uses."""
        return self.memories[f"core {core.index} accumulator bank {fields['accumulator_bank']}"]

    def words(self, core, address):
        """(memory name, byte indices (..., word_bytes)) of buffer words at ``address``."""
        address = np.asarray(address, np.int64) % _ADDRESSES
        numbers = address >> (BUFFER_ADDRESS_WIDTH - 1)
        if not numbers.size or numbers.min() != numbers.max():
            raise FunctionalError("one access reaches both memories")
        number = int(numbers.flat[0])
        if number not in core.memories:
            raise FunctionalError(
                f"core {core.index} does not reach memory {number} (address "
                f"{int(address.flat[0]):#x})"
            )
        word = address % (_ADDRESSES // 2)
        depth = self.config.memory_depth[number]
        if word.max() >= depth:
            raise FunctionalError(
                f"memory {number} has {depth} words, none at {int(word.max()):#x}"
            )
        return f"memory {number}", word[..., None] * core.word_bytes + np.arange(core.word_bytes)

    def flag(self, flags):
        """Raise flags."""
        self.flags |= int(np.bitwise_or.reduce(flags, axis=None)) if np.size(flags) else 0
