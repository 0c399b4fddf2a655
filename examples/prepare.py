"""What the examples run: a small network as a program, and what it must store."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from hw.bus.axi_mux import axi_id_width
from hw.config import AdaGPConfig
from hw.registers.map import register_map
from rtl_gen.generate import top_name
from verif.networks.workload import prepare
from verif.system.record import BASE

__all__ = ["Example", "make_example"]

#: Cycles per estimated cycle that the example may take, and the least: its memory is a slow one.
_PATIENCE, _LEAST_CYCLES = 40, 20_000


@dataclass(frozen=True, kw_only=True)
class Example:
    """A program with its memory.

    Members
    -------
    config : what it is for
    base : start of the memory window in DRAM, in bytes
    memory, expected : bytes of the window before and after, multiples of a beat
    program_bytes : the program lies at the start of the window
    timeout_cycles : after which it has failed
    """

    config: AdaGPConfig
    base: int
    memory: bytes
    expected: bytes
    program_bytes: int
    timeout_cycles: int

    def files(self) -> dict[str, bytes]:
        """What the examples read, by name: memory images, and their sizes for Verilog and C."""
        beat = self.config.beat_bytes
        return {
            "memory.bin": self.memory,
            "expected.bin": self.expected,
            "memory.hex": _words(self.memory, beat),
            "expected.hex": _words(self.expected, beat),
            "adagp_example.vh": self._verilog_header().encode(),
            "adagp_example.h": self._c_header().encode(),
        }

    def _sizes(self) -> dict[str, int]:
        return {
            "MEMORY_BASE": self.base,
            "MEMORY_BYTES": len(self.memory),
            "PROGRAM_OFFSET": 0,
            "PROGRAM_BYTES": self.program_bytes,
            "TIMEOUT_CYCLES": self.timeout_cycles,
        }

    def _verilog_header(self) -> str:
        config = self.config
        beat = config.beat_bytes
        names: dict[str, str | int] = {
            "ADAGP_TOP": top_name(config),
            "ADAGP_DATA_WIDTH": config.axi_data_width,
            "ADAGP_ADDRESS_WIDTH": config.axi_address_width,
            "ADAGP_ID_WIDTH": axi_id_width(1 + len(config.cores)),
            "ADAGP_WORD_SHIFT": beat.bit_length() - 1,
            "EXAMPLE_FIRST_WORD": self.base // beat,
            "EXAMPLE_WORDS": len(self.memory) // beat,
        }
        names |= {f"EXAMPLE_{name}": f"32'd{value}" for name, value in self._sizes().items()}
        for register in register_map(config):
            names[f"ADAGP_{register.name}_OFFSET"] = f"12'h{register.offset:03x}"
            if register.constant:
                names[f"ADAGP_{register.name}_CONSTANT"] = f"32'h{register.reset:08x}"
            for field in register.fields:
                names[f"ADAGP_{register.name}_{field.name}_MASK"] = f"32'h{field.mask:08x}"
        lines = [f"`define {name} {value}\n" for name, value in names.items()]
        return "// Generated for the examples; do not edit.\n" + "".join(lines)

    def _c_header(self) -> str:
        lines = [f"#define EXAMPLE_{name} {value}u\n" for name, value in self._sizes().items()]
        return (
            "/* Generated for the examples; do not edit. */\n"
            "#ifndef ADAGP_EXAMPLE_H\n#define ADAGP_EXAMPLE_H\n\n" + "".join(lines) + "\n#endif\n"
        )


def make_example(config: AdaGPConfig) -> Example:
    """Compile one convolution with ReLU, and compute with the golden model what it must store.

    Raises
    ------
    CompileError
        The configuration is too small for it.
    """
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.arange(54).reshape(3, 2, 3, 3) % 7 / 4 - 0.75)
        model[0].bias.copy_(torch.tensor([1.0, 0.0, -0.5]))
    images = np.arange(32).reshape(1, 4, 4, 2) % 5 / 2 - 1
    workload = prepare("example", model, config, images)
    padding = bytes(-len(workload.image) % config.beat_bytes)
    memory = workload.image + padding
    expected = bytearray(memory)
    for tensor, codes in zip(workload.program.outputs, workload.expected, strict=True):
        data = tensor.pack(codes)
        expected[tensor.offset : tensor.offset + len(data)] = data
    if expected == memory:
        raise AssertionError("the example stores nothing, so that running it would show nothing")
    return Example(
        config=config,
        base=BASE,
        memory=memory,
        expected=bytes(expected),
        program_bytes=len(workload.program.commands),
        timeout_cycles=_LEAST_CYCLES + _PATIENCE * workload.program.estimated_cycles,
    )


def _words(data: bytes, size: int) -> bytes:
    """Words of ``size`` bytes, little endian, for ``$readmemh``: one per line."""
    words = (data[i : i + size] for i in range(0, len(data), size))
    return b"".join(word[::-1].hex().encode() + b"\n" for word in words)
