"""Programs of layers between products on tensors in DRAM, and what is right."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from compiler.codegen.attempts import write_program
from compiler.codegen.binary.command_bytes import encode_commands
from compiler.codegen.core_builder import CoreProgram
from compiler.tensors.intervals import round_up
from compiler.tensors.parameters import channel_pitch
from compiler.tensors.tensor import Tensor
from emulator.interpreter import interpret
from golden.arithmetic.formats import format_by_name
from hw.config import AdaGPConfig

__all__ = ["LayerProgram"]


@dataclass(kw_only=True, eq=False)
class LayerProgram:
    """Layers on one core, their tensors and expected results; filled step by step.

    Members
    -------
    core : its number
    coefficients : (8,) float32 bits, of the registers
    flags, rejected : what golden raises, and how many tiles its guard, which is on, rejects
    expected : codes by name of tensor
    program_bytes : room for the program; with the data behind it a test takes less than 1 MiB
    loops : jobs that come again are written once
    """

    config: AdaGPConfig
    core: int = 0
    program_bytes: int = 3 << 18
    loops: bool = False
    coefficients: np.ndarray = field(default_factory=lambda: np.zeros(8, np.uint32))
    flags: int = 0
    rejected: int = 0
    tensors: dict[str, Tensor] = field(default_factory=dict)
    contents: dict[str, np.ndarray] = field(default_factory=dict)
    expected: dict[str, np.ndarray] = field(default_factory=dict)
    _layers: list[Callable] = field(default_factory=list)

    @property
    def format(self):
        """Golden's operand format."""
        return format_by_name(self.config.operand_format)

    def check_with_interpreter(self, where, seed):
        """Run it in the functional model, in an order that ``seed`` chooses, with the guard on.

        Raises
        ------
        AssertionError
            for a wrong number, flag or count of rejected tiles, naming the first.
        """
        memory = bytearray(self.image)
        result = interpret(
            self.config, self.program, memory, seed=seed, unwritten=self.unwritten,
            coefficients=self.coefficients, guard=True,
        )  # fmt: skip
        assert not result.semaphores, where
        self.check(bytes(memory), where)
        wrong = f"{where}: flags {result.flags:#06b}, expected {self.flags:#06b}"
        assert result.flags == self.flags, wrong
        assert sum(result.rejected) == self.rejected, where

    def map(self, name, shape, contents=None) -> Tensor:
        """A map of operands; ``contents`` are codes, which are there before the program starts."""
        unit = max(1, self.config.granule_bytes * 8 // self.config.format.width)
        return self._add(name, shape, round_up(shape[3], unit), False, contents)

    def parameter(self, name, shape, contents=None, *, operands=False) -> Tensor:
        """A tensor of a parameter: float32 bits or ``operands``; a number is a vector's length."""
        shape = (1, 1, 1, shape) if isinstance(shape, int) else shape
        return self._add(name, shape, channel_pitch(shape[3], self.config), not operands, contents)

    def _add(self, name, shape, pitch, wide, contents):
        kind = "float32" if wide else self.config.operand_format
        last = list(self.tensors.values())[-1:]
        offset = round_up(last[0].offset + last[0].size, 64) if last else self.program_bytes
        tensor = Tensor.dense(name, shape, kind=kind, pitch=pitch, offset=offset)
        self.tensors[name] = tensor
        if contents is not None:
            self.contents[name] = np.reshape(contents, shape).astype(tensor.dtype)
        return tensor

    def layer(self, function, *arguments, **options):
        """Write commands with ``function(program, ...)``."""
        self._layers.append(lambda program: function(program, *arguments, **options))

    def expect(self, tensor, codes, flags=0):
        """Golden's result, and the flags that it raises."""
        self.expected[tensor.name] = np.reshape(codes, tensor.shape)
        self.flags |= int(flags)

    @cached_property
    def commands(self):
        """The linked commands."""
        return write_program(self.config, self._write, loops=bool(self.loops))

    def _write(self, recorder):
        program = CoreProgram(self.config, self.config.cores[self.core], recorder)
        for layer in self._layers:
            layer(program)
        return recorder.link()

    @cached_property
    def program(self):
        """The encoded commands."""
        result = encode_commands(self.commands)
        if len(result) > self.program_bytes:
            raise ValueError(f"the program has {len(result)} bytes")
        return result

    @property
    def image(self):
        """The memory window."""
        last = list(self.tensors.values())[-1]
        memory = bytearray(b"\xa5" * round_up(last.offset + last.size, 64))
        memory[: len(self.program)] = self.program
        for name, codes in self.contents.items():
            tensor = self.tensors[name]
            memory[tensor.offset : tensor.offset + tensor.size] = tensor.pack(codes)
        return bytes(memory)

    @property
    def registers(self):
        """Values of registers, by name."""
        values = {
            f"COEFFICIENT{number}": int(bits) for number, bits in enumerate(self.coefficients)
        }
        return values | {"GUARD": 1}

    @property
    def unwritten(self):
        """(offset, size) of what the program has to write before it may be read."""
        return [(t.offset, t.size) for n, t in self.tensors.items() if n not in self.contents]

    def check(self, memory, where):
        """Raise AssertionError with the first wrong number of ``memory`` after the program."""
        for name, wanted in self.expected.items():
            actual = self.tensors[name].unpack(memory)
            wrong = np.argwhere(actual != wanted)
            if len(wrong):
                place = tuple(int(index) for index in wrong[0])
                raise AssertionError(
                    f"{where}: {name}{place} is {int(actual[place]):#x}, expected "
                    f"{int(wanted[place]):#x}; {len(wrong)} of {actual.size} are wrong"
                )
