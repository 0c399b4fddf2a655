"""What the C program needs to train a small network on digits, and what it must find afterwards."""

import copy
from dataclasses import dataclass, replace

import torch
from torch import nn

from boards.sim.networks import kept_parts, parameters
from hw.config import AdaGPConfig
from hw.registers.map import register_map
from rtl_gen.board_header import board_header
from rtl_gen.c_header import c_header
from verif.networks.train_digits import digit_batches
from verif.networks.training_run import TrainingRun
from verif.system.record import BASE

__all__ = ["BoardTraining"]

#: Learning rate, momentum and decay of all batches are those of the first; this replaces its rate.
_LEARNING_RATE = 0.1
_HIDDEN = 24


@dataclass(frozen=True, kw_only=True)
class BoardTraining:
    """A perceptron learns digits of 8 x 8 pixels, batch after batch.

    Members
    -------
    config : of the accelerator, with ``training``
    batches, images : how many, and of how many images each
    """

    config: AdaGPConfig
    batches: int
    images: int

    def files(self) -> dict[str, bytes]:
        """Name -> contents: both headers, memory images, batches. Raises CompileError where the
        configuration is too small."""
        run = self._run()
        changes = [run.changes(batch) for batch in run.batches]
        # What golden has learned, where the program keeps it.
        after = copy.copy(run)
        after.start = run.golden.state()
        return {
            "adagp_regs.h": c_header(self.config).encode(),
            "adagp_board.h": board_header().encode(),
            "adagp_training.h": self._header(run, changes[0]).encode(),
            "memory.bin": bytes(run.memory()),
            "expected.bin": bytes(after.memory()),
            "batches.bin": b"".join(data for batch in changes for _, data in batch),
        }

    def _run(self) -> TrainingRun:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            model = nn.Sequential(
                nn.Flatten(), nn.Linear(64, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 10)
            )
        batches = digit_batches(1, batches=self.batches, images=self.images)
        optimizer = replace(batches[0].optimizer, learning_rate=_LEARNING_RATE)
        same = [replace(batch, optimizer=optimizer) for batch in batches]
        return TrainingRun(model, self.config, (1, 8, 8), same)

    def _header(self, run: TrainingRun, inputs: list[tuple[int, bytes]]) -> str:
        program = run.program
        (output,) = program.outputs
        sizes = {
            "MEMORY_BASE": BASE,
            "MEMORY_BYTES": program.memory_size,
            "PROGRAM_OFFSET": program.program,
            "PROGRAM_BYTES": len(program.commands),
            "BATCHES": len(run.batches),
            "BATCH_BYTES": sum(len(data) for _, data in inputs),
            "LOSS_OFFSET": program.tensors[output.value].offset,
        }
        offsets = {register.name: register.offset for register in register_map(self.config)}
        registers = {n: v for n, v in run.registers(run.batches[0]).items() if n in offsets}
        parts = kept_parts(parameters(program), gap=0)
        losses = [int(expected[output.value][0]) for expected in run.expected]
        lines = [
            "/* Generated for the example; do not edit. */",
            "#ifndef ADAGP_TRAINING_H",
            "#define ADAGP_TRAINING_H",
            "",
            "#include <stdint.h>",
            "",
            "/* The memory window, the program in it, the loss that a batch leaves there. */",
            *(f"#define TRAINING_{name} {value}u" for name, value in sizes.items()),
            "",
            "struct training_part { uint32_t offset, bytes; };",
            "struct training_register { uint32_t offset, value; };",
            "",
            "/* What the host writes before a batch, in the order of batches.bin. */",
            "static const struct training_part training_inputs[] = {",
            *(f"    {{{offset}u, {len(data)}u}}," for offset, data in inputs),
            "};",
            "/* What a training leaves. */",
            "static const struct training_part training_learned[] = {",
            *(f"    {{{offset}u, {size}u}}," for offset, size in parts),
            "};",
            "/* Registers, for all batches. */",
            "static const struct training_register training_registers[] = {",
            *(f"    {{ADAGP_{name}_OFFSET, {value:#010x}u}}," for name, value in registers.items()),
            "};",
            "/* Bits of the loss of every batch, by the golden model. */",
            "static const uint32_t training_losses[] = {",
            *(f"    {bits:#010x}u," for bits in losses),
            "};",
            "",
            "#endif",
            "",
        ]
        return "\n".join(lines)
