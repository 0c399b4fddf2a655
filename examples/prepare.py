"""What the examples run: a small network as a program, and what it must store."""

import numpy as np
import torch
from torch import nn

from hw.config import AdaGPConfig
from rtl_gen.testbench import TestRun
from verif.networks.workload import prepare
from verif.system.record import BASE

__all__ = ["example_files", "make_example"]

#: Cycles per estimated cycle that the example may take, and the least: its memory is a slow one.
_PATIENCE, _LEAST_CYCLES = 40, 20_000


def example_files(run: TestRun) -> dict[str, bytes]:
    """What the C example reads, by name: memory before and after, and their sizes."""
    lines = [f"#define EXAMPLE_{name} {value}u\n" for name, value in run.sizes().items()]
    header = (
        "/* Generated for the examples; do not edit. */\n"
        "#ifndef ADAGP_EXAMPLE_H\n#define ADAGP_EXAMPLE_H\n\n" + "".join(lines) + "\n#endif\n"
    )
    return {
        "memory.bin": run.memory, "expected.bin": run.expected, "adagp_example.h": header.encode(),
    }  # fmt: skip


def make_example(config: AdaGPConfig) -> TestRun:
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
    return TestRun(
        base=BASE,
        memory=memory,
        expected=bytes(expected),
        program_bytes=len(workload.program.commands),
        timeout_cycles=_LEAST_CYCLES + _PATIENCE * workload.program.estimated_cycles,
    )
