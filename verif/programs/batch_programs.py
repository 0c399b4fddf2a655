"""A tiny program of parts, one for each phase and parity, that leave a trace in memory."""

from dataclasses import dataclass

from golden.prediction.schedule import Phase
from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode

from .faulty_programs import dma

__all__ = ["PARTS", "BatchProgram", "part_of"]

#: The parts, as BATCH names them.
PARTS = ("bp_even", "bp_odd", "gp_even", "gp_odd")
#: Fields of the BATCH that ends no batch are the same but for this.
_FIRST = {"first": 1}


def part_of(phase: Phase, number: int) -> str:
    """Name of the part that batch ``number`` of a run executes."""
    return f"{'gp' if phase is Phase.GP else 'bp'}_{'odd' if number % 2 else 'even'}"


@dataclass(frozen=True, kw_only=True)
class BatchProgram:
    """Part p copies its word of ``marks`` behind the input of its parity to ``trace`` + p words,
    so memory shows which part ran last, on which input.

    Members
    -------
    program : offset of the program in the window; then come, each of one word per part, the marks,
        two inputs, and the trace: a mark and an input for every part
    """

    config: AdaGPConfig
    program: int = 0x1000

    @property
    def word(self):
        return self.config.cores[0].word_bytes

    @property
    def marks(self):
        return self.program + 0x1000

    def input(self, parity):
        return self.marks + 0x400 * (1 + parity)

    @property
    def trace(self):
        return self.marks + 0xC00

    @property
    def size(self):
        """Bytes of the memory window."""
        return self.trace + 0x400

    def part(self, name, *, extra=()) -> list[bytes]:
        """Commands of a part: its mark and the input of its parity, to its place in the trace."""
        index = PARTS.index(name)
        config, word = self.config, self.word
        return [
            dma(Opcode.LOAD, config, buffer_address=2 * index,
                dram_address=self.marks + index * word, words=1),
            dma(Opcode.LOAD, config, buffer_address=2 * index + 1, signal=1,
                dram_address=self.input(index % 2), words=1),
            *extra,
            dma(Opcode.STORE, config, wait=1, words=2, buffer_address=2 * index,
                dram_address=self.trace + 2 * index * word),
        ]  # fmt: skip

    def commands(self, *, parts=None, **targets) -> bytes:
        """The program: BATCH, then each part and a BATCH. ``parts`` replaces commands of parts by
        name, ``targets`` fields of the BATCH commands."""
        bodies = {name: (parts or {}).get(name, self.part(name)) for name in PARTS}
        fields, place = {"first": 0}, self.program + COMMAND_BYTES
        for name, body in bodies.items():
            fields[name] = place
            place += (len(body) + 1) * COMMAND_BYTES
        fields |= targets
        stream = [encode(Opcode.BATCH, **fields | _FIRST)]
        for body in bodies.values():
            stream += [*body, encode(Opcode.BATCH, **fields)]
        return b"".join(stream)

    def image(self, commands: bytes) -> bytes:
        """The memory window with marks and a program, everything else 0xA5."""
        image = bytearray([0xA5]) * self.size
        image[self.program : self.program + len(commands)] = commands
        for index in range(len(PARTS)):
            mark = bytes([0x10 * (index + 1)]) * self.word
            place = self.marks + index * self.word
            image[place : place + self.word] = mark
        return bytes(image)

    def changes(self, number: int) -> tuple:
        """Input of batch ``number`` of a run, as :class:`verif.system.accelerator.Run` takes it:
        the host writes whole beats."""
        word = (bytes([number & 0xFF, 0x5A]) * self.word)[: self.word]
        return ((self.input(number % 2), word + b"\xa5" * (-self.word % self.config.beat_bytes)),)

    def after(self, memory: bytearray, phase: Phase, number: int) -> None:
        """Do to ``memory``, the window, what batch ``number`` does."""
        index = PARTS.index(part_of(phase, number))
        word = self.word
        mark = memory[self.marks + index * word :][:word]
        place = self.trace + 2 * index * word
        source = self.input(number % 2)
        memory[place : place + 2 * word] = mark + memory[source : source + word]
