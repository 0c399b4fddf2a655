"""What a plain Verilog testbench runs: a program in memory, and the memory that it must leave."""

from dataclasses import dataclass
from pathlib import Path

from hw.bus.axi_mux import axi_id_width
from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig, CoreConfig
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode
from hw.registers.map import register_map

__all__ = [
    "TESTBENCH_SOURCES",
    "TestRun",
    "copy_run",
    "has_testbench",
    "testbench_files",
]

_SOURCES = Path(__file__).parent / "verilog"
#: Verilog that is the same for all accelerators; the first is the top module.
TESTBENCH_SOURCES = ("testbench.v", "axi_memory.v")

#: Where the window of the generated run begins, in bytes.
_BASE = 0x1000
#: Buffer words that each core copies.
_WORDS = 16
#: Cycles in which each of them must be copied, with some for the start: a generous bound.
_CYCLES, _CYCLES_PER_WORD = 5_000, 500
#: Bytes of memory that nobody has written.
_FILL = 0xA5


@dataclass(frozen=True, kw_only=True)
class TestRun:
    """A program with its memory.

    Members
    -------
    base : start of the memory window in DRAM, in bytes
    memory, expected : bytes of the window before and after, multiples of a beat
    program_bytes : the program lies at the start of the window
    timeout_cycles : after which it has failed
    """

    #: It is no class of tests, whatever its name begins with.
    __test__ = False

    base: int
    memory: bytes
    expected: bytes
    program_bytes: int
    timeout_cycles: int

    def sizes(self) -> dict[str, int]:
        """Name -> value, in bytes and cycles, for headers."""
        return {
            "MEMORY_BASE": self.base,
            "MEMORY_BYTES": len(self.memory),
            "PROGRAM_OFFSET": 0,
            "PROGRAM_BYTES": self.program_bytes,
            "TIMEOUT_CYCLES": self.timeout_cycles,
        }


def has_testbench(config: AdaGPConfig) -> bool:
    """Whether the Verilog is complete: blocks of a vendor need the vendor's models."""
    return config.technology == "generic"


def testbench_files(config: AdaGPConfig, run: TestRun, *, top: str) -> dict[str, str]:
    """File name -> text of a testbench for the accelerator ``config`` with top module ``top``: the
    sources, their header, and memory before and after."""
    beat = config.beat_bytes
    return {
        **{name: (_SOURCES / name).read_text() for name in TESTBENCH_SOURCES},
        "adagp_testbench.vh": _header(config, run, top),
        "memory.hex": _hex_words(run.memory, beat),
        "expected.hex": _hex_words(run.expected, beat),
    }


def copy_run(config: AdaGPConfig) -> TestRun:
    """Every core copies a few words through its first memory, from one place of the window to
    another: registers, commands, semaphores, both bus directions and the interrupt are in it, no
    arithmetic."""
    program, copies = [], []
    size = _round_up(COMMAND_BYTES * (2 * len(config.cores) + 1), config.beat_bytes)
    for core in config.cores:
        words = min(_WORDS, config.memory_depth[core.memories[0]])
        length = _round_up(words * core.word_bytes, config.beat_bytes)
        source, target, size = size, size + length, size + 2 * length
        program += [
            _dma(Opcode.LOAD, core, words, source, signal=1),
            _dma(Opcode.STORE, core, words, target, wait=1),
        ]
        copies.append((source, target, words * core.word_bytes))
    program.append(encode(Opcode.HALT))
    commands = b"".join(program)
    memory = bytearray([_FILL]) * size
    memory[: len(commands)] = commands
    for number, (source, _, length) in enumerate(copies):
        # Neighbouring bytes, words and cores differ; 251 is a prime.
        data = bytes((7 * i + 31 * number) % 251 for i in range(length))
        memory[source : source + length] = data
    expected = bytearray(memory)
    for source, target, length in copies:
        expected[target : target + length] = memory[source : source + length]
    words = sum(length for _, _, length in copies) // config.granule_bytes
    return TestRun(
        base=_BASE,
        memory=bytes(memory),
        expected=bytes(expected),
        program_bytes=len(commands),
        timeout_cycles=_CYCLES + _CYCLES_PER_WORD * words,
    )


def _hex_words(data: bytes, size: int) -> str:
    """Words of ``size`` bytes, little endian, for ``$readmemh``: one per line."""
    words = (data[i : i + size] for i in range(0, len(data), size))
    return "".join(f"{word[::-1].hex()}\n" for word in words)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step


def _dma(opcode: Opcode, core: CoreConfig, words: int, offset: int, **tokens: int) -> bytes:
    return encode(
        opcode, core=core.index, buffer_address=core.memories[0] << (BUFFER_ADDRESS_WIDTH - 1),
        dram_address=offset, run_bytes=words * core.word_bytes, row_bytes=core.word_bytes, **tokens,
    )  # fmt: skip


def _header(config: AdaGPConfig, run: TestRun, top: str) -> str:
    beat = config.beat_bytes
    names: dict[str, str | int] = {
        "ADAGP_TOP": top,
        "ADAGP_DATA_WIDTH": config.axi_data_width,
        "ADAGP_ADDRESS_WIDTH": config.axi_address_width,
        "ADAGP_ID_WIDTH": axi_id_width(1 + len(config.cores)),
        "ADAGP_WORD_SHIFT": beat.bit_length() - 1,
        "RUN_FIRST_WORD": run.base // beat,
        "RUN_WORDS": len(run.memory) // beat,
    }
    names |= {f"RUN_{name}": f"32'd{value}" for name, value in run.sizes().items()}
    for register in register_map(config):
        names[f"ADAGP_{register.name}_OFFSET"] = f"12'h{register.offset:03x}"
        if register.constant:
            names[f"ADAGP_{register.name}_CONSTANT"] = f"32'h{register.reset:08x}"
        for field in register.fields:
            names[f"ADAGP_{register.name}_{field.name}_MASK"] = f"32'h{field.mask:08x}"
    lines = [f"`define {name} {value}\n" for name, value in names.items()]
    return "// Generated with the accelerator; do not edit.\n" + "".join(lines)
