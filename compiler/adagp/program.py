"""Compiled training by gradient prediction: what a host runs, reads, writes and keeps in a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from compiler.codegen.binary import program_file
from compiler.codegen.binary.program_file import SavedProgram
from compiler.tensors.dram_planner import MemoryPlan
from compiler.tensors.parameters import StoredParameter
from compiler.tensors.tensor import Tensor
from compiler.training.program import OutputInfo, TrainingProgram
from hw.config import AdaGPConfig

from .tensors import GRADIENT_STATISTICS, PredictorShape, PredictorTensors

__all__ = ["PARTS", "AdaGPProgram"]

#: Parts of a program: batches with backpropagation, and those of Phase GP.
PARTS = ("bp", "gp")
#: What the programs in a file have in common, or have in arrays of their own.
_SHARED = ("config", "commands", "plan")


@dataclass(frozen=True, kw_only=True)
class AdaGPProgram:
    """What a host needs to train a network with ADA-GP.

    A run of :attr:`loop` goes through many batches, as the schedule in the registers says; the host
    refills images and targets (:meth:`batch`), which have two places in turn. A part alone is one
    batch; its images and targets are those of even batches.

    Members
    -------
    parts : part -> :class:`~compiler.training.TrainingProgram` of a batch; tensors that are kept
        are the same in all of them
    loop : TrainingProgram of the whole run, with tensors and parameters as in the parts
    odd : name -> Tensor of what has another place in odd batches
    predictor : :class:`~compiler.adagp.tensors.PredictorTensors`, without places
    head : layer with an exact gradient in Phase GP, or None
    plan : :class:`~compiler.tensors.dram_planner.MemoryPlan` of all parts together
    memory_size : bytes of the memory window
    """

    parts: dict[str, TrainingProgram]
    loop: TrainingProgram
    odd: dict[str, Tensor]
    predictor: PredictorTensors
    head: str | None
    plan: MemoryPlan
    memory_size: int

    @property
    def first(self) -> TrainingProgram:
        """The part with backpropagation."""
        return self.parts[PARTS[0]]

    @property
    def outputs(self) -> list[OutputInfo]:
        """As those of :class:`~compiler.training.TrainingProgram`."""
        return self.loop.outputs

    def memory(
        self,
        state: Mapping[str, Any],
        slots: Mapping[str, Mapping[str, Any]] | None = None,
        predictor: Mapping[str, ArrayLike] | None = None,
    ) -> bytearray:
        """The memory window with all programs and everything that is learned.

        ``state`` and ``slots`` as :meth:`TrainingProgram.memory` takes them, ``predictor`` as
        :meth:`~compiler.adagp.tensors.PredictorTensors.contents`.
        """
        memory = self.loop.memory(state, slots)
        for part in self.parts.values():
            memory[part.program : part.program + len(part.commands)] = part.commands
        for name, values in self.predictor.contents(predictor or {}).items():
            tensor = self.loop.tensors[name]
            memory[tensor.offset : tensor.offset + tensor.size] = tensor.pack(values)
        return memory

    def batch(
        self, images: ArrayLike, targets: ArrayLike | Sequence[ArrayLike], number: int = 0
    ) -> list[tuple[int, bytes]]:
        """The inputs of batch ``number`` of a run, checked and laid out as by
        :meth:`TrainingProgram.batch`."""
        program = self.loop
        if number % 2:
            program = replace(program, tensors=program.tensors | self.odd)
        return program.batch(images, targets)

    def loss_of(self, memory: bytes | bytearray | memoryview) -> tuple[float, int]:
        """Value of the last batch that computed a loss, and how many of its images were classified
        correctly. All do but those of Phase GP in a network without a :attr:`head`."""
        return self.loop.loss_of(memory)

    def state(
        self, memory: bytes | bytearray | memoryview, role: str = "master"
    ) -> dict[str, np.ndarray]:
        """What the network has learned, as :meth:`TrainingProgram.state`."""
        return self.loop.state(memory, role)

    def predictor_state(self, memory: bytes | bytearray | memoryview) -> dict[str, np.ndarray]:
        """Codes of everything that the predictor keeps, by name of tensor."""
        tensors = self.loop.tensors
        return {name: tensors[name].unpack(memory) for name in sorted(self.predictor.kept)}

    def gates(self, memory: bytes | bytearray | memoryview) -> dict[str, float]:
        """How far the prediction of each layer is trusted, from 0 to 1."""
        row, found = GRADIENT_STATISTICS.index("gate"), {}
        for name, layer in self.predictor.layers.items():
            codes = self.first.tensors[layer.gradient_statistics.name].unpack(memory)
            found[name] = float(codes.view(np.float32)[0, 0, row, 0])
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one file."""
        programs = self.parts | {"loop": self.loop}
        program_file.write(
            path,
            SavedProgram(
                kind="adagp",
                config=self.loop.config,
                fields={
                    "programs": {
                        name: program_file.plain(part, leave_out=_SHARED)
                        for name, part in programs.items()
                    },
                    "shape": program_file.plain(self.predictor.shape),
                    "predicted": {
                        name: program_file.plain(layer.weights)
                        for name, layer in self.predictor.layers.items()
                    },
                    **program_file.plain(self, leave_out=("parts", "loop", "predictor")),
                },
                arrays={f"commands/{name}": part.commands for name, part in programs.items()},
            ),
        )

    @classmethod
    def load(cls, path: str | PathLike[str], config: AdaGPConfig | None = None) -> "AdaGPProgram":
        """Read what ``save`` wrote; see ``read``. Neither the model
        nor torch is needed."""
        saved = program_file.read(path, "adagp", config)
        with program_file.reading(path):
            fields = dict(saved.fields)
            programs, shape, predicted = (
                fields.pop(name) for name in ("programs", "shape", "predicted")
            )
            own = program_file.rebuild_fields(cls, fields)
            programs = {
                name: TrainingProgram(
                    config=saved.config,
                    commands=saved.arrays[f"commands/{name}"],
                    plan=own["plan"],
                    **program_file.rebuild_fields(TrainingProgram, values),
                )
                for name, values in programs.items()
            }
            weights = program_file.rebuild(dict[str, StoredParameter], predicted)
            return cls(
                parts={name: programs[name] for name in PARTS},
                loop=programs["loop"],
                predictor=PredictorTensors(
                    saved.config, saved.config.cores[-1],
                    program_file.rebuild(PredictorShape, shape), list(weights.items()),
                ),
                **own,
            )  # fmt: skip
