"""A compiled training step: what a host runs, reads, writes and keeps in a file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import fsum, isfinite
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from compiler.codegen.binary import program_file
from compiler.codegen.binary.command_bytes import Decoded
from compiler.codegen.binary.program_file import SavedProgram
from compiler.codegen.cost import matmul_vectors
from compiler.codegen.program import LayerInfo, SemaphoreNames
from compiler.tensors.dram_planner import MemoryPlan
from compiler.tensors.host_input import each_input
from compiler.tensors.parameters import StoredParameter, pack_state, unpack_state
from compiler.tensors.tensor import Tensor
from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode

from .batch_input import (
    LossFunction,
    each_target,
    image_codes,
    label_values,
    target_codes,
)

if TYPE_CHECKING:
    from compiler.codegen.core_builder import CoreProgram
    from compiler.codegen.dependencies import Recorder

    from .step import Step

__all__ = ["ECHO_LOSS", "LayerInfo", "OutputInfo", "StepInfo", "TrainingProgram"]

#: The tensor with the loss of the last step of the head alone.
ECHO_LOSS = "loss.echo"


@dataclass(frozen=True, kw_only=True)
class OutputInfo:
    """An output of the network, and its loss.

    Members
    -------
    layer : its name
    loss : :class:`~compiler.training.batch_input.LossFunction`
    targets, value : names of the tensors with its targets, with the loss and how many images are
        classified correctly
    """

    layer: str
    loss: LossFunction
    targets: str
    value: str

    @property
    def labels(self) -> dict[str, str]:
        """What of :class:`~compiler.kernels.updates.loss.LabelTensors` the loss has -> name of the
        tensor."""
        found: dict[str, str] = {}
        if self.loss.ignore is not None:
            found |= {role: f"{self.targets}.{role}" for role in ("factors", "summary")}
        if self.loss.smoothing:
            found |= {"shift": f"{self.targets}.shift", "products": f"{self.value}.products"}
        return found

    @property
    def inputs(self) -> list[str]:
        """Names of the tensors that the host writes of a batch: the targets, and what goes with
        labels."""
        more = [name for role, name in self.labels.items() if role != "products"]
        return [self.targets, *more]


@dataclass(frozen=True, kw_only=True)
class StepInfo:
    """What is known of a step when its commands are written.

    Members
    -------
    layer, direction, writes, predictor, background : as in
        :class:`~compiler.training.step.Step`
    parts : [begin, end) of each stretch of its commands, with a HALT of its own in a program of
        separate steps; several where commands of other threads are between them
    vectors : that enter a PE array
    beside : names of the steps whose commands are among these, and which have none of their own
    """

    layer: str
    direction: str
    writes: tuple[str, ...]
    predictor: bool
    background: bool
    parts: tuple[tuple[int, int], ...]
    vectors: int
    beside: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, step: "Step", program: "CoreProgram", first: int, beside: Sequence[str] = ()
    ) -> "StepInfo":
        """``step``, written by ``program`` from its recorder's command ``first`` on; see
        :meth:`placed`."""
        last = len(program.recorder)
        vectors = sum(
            times * matmul_vectors(command.fields, program.core)
            for command, times in program.recorder.times(first, last)
            if command.opcode is Opcode.MATMUL
        )
        return cls(
            layer=step.layer, direction=step.direction, writes=step.writes,
            predictor=step.predictor, background=step.background,
            parts=((first, last),), vectors=vectors, beside=tuple(beside),
        )  # fmt: skip

    def placed(self, recorder: "Recorder") -> "StepInfo":
        """The same when ``recorder`` has linked its commands, some of which are loops then."""
        return replace(self, parts=recorder.parts(*self.parts[0]))

    def moved(self, commands: int) -> "StepInfo":
        """The same behind so many commands."""
        parts = tuple((begin + commands, end + commands) for begin, end in self.parts)
        return replace(self, parts=parts)

    @property
    def places(self) -> Iterator[int]:
        """Of its commands in the program, in order."""
        return chain.from_iterable(range(begin, end) for begin, end in self.parts)

    @property
    def command_count(self) -> int:
        return sum(end - begin for begin, end in self.parts)

    @property
    def first(self) -> int:
        """The place of its first command."""
        return self.parts[0][0]

    @property
    def last(self) -> int:
        """The place behind its last command."""
        return self.parts[-1][1]

    @property
    def name(self) -> str:
        return f"{self.layer} {self.direction}"


@dataclass(frozen=True, kw_only=True)
class TrainingProgram:
    """What a host needs to train a network, batch after batch.

    A run of the program is one batch: forward, loss, backward, update. Before it the host writes
    images and targets (:meth:`batch`) and, where they change, the coefficient registers in the
    order of :data:`compiler.training.compile.COEFFICIENTS`. Weights, velocities and running
    statistics stay in memory.

    Members
    -------
    config : AdaGPConfig
    layers : list of :class:`LayerInfo`, the input first
    outputs : list of :class:`OutputInfo`, in the order in which the model returns them
    images : as given to :func:`compiler.training.compile_training`
    commands : the command stream, at offset :attr:`program`
    semaphores : list of :class:`~compiler.codegen.program.SemaphoreNames`
    steps : list of :class:`StepInfo`, in order
    tensors : name -> Tensor: maps by the name of their layer, "<layer>.gradient", targets and
        losses, which are "targets" and "loss" of the first output, and parameters; those that are
        not permanent share memory
    maps, gradients : layer -> name of the tensor that holds its map, the map's gradient
    parameters : torch's name -> :class:`~compiler.tensors.parameters.StoredParameter`
    constants : name of a tensor that never changes -> its bytes, as hexadecimal digits
    plan : :class:`~compiler.tensors.dram_planner.MemoryPlan`
    program, memory_size : offset of the command stream, bytes of the memory window
    """

    config: AdaGPConfig
    layers: list[LayerInfo]
    images: int
    outputs: list[OutputInfo]
    commands: bytes
    semaphores: list[SemaphoreNames]
    steps: list[StepInfo]
    tensors: dict[str, Tensor]
    maps: dict[str, str]
    gradients: dict[str, str]
    parameters: dict[str, StoredParameter]
    constants: dict[str, str]
    plan: MemoryPlan
    program: int
    memory_size: int

    def memory(
        self, state: Mapping[str, Any], slots: Mapping[str, Mapping[str, Any]] | None = None
    ) -> bytearray:
        """The memory window with the program and everything that is learned.

        ``state`` maps torch's names to numbers, as ``state_dict()`` does, ``slots`` role and
        torch's name to the optimizer's; zero where missing.
        """
        memory = bytearray(self.memory_size)
        memory[self.program : self.program + len(self.commands)] = self.commands
        contents = pack_state(self.parameters, state, slots)
        contents |= {name: bytes.fromhex(data) for name, data in self.constants.items()}
        for name, data in contents.items():
            offset = self.tensors[name].offset
            memory[offset : offset + len(data)] = data
        return memory

    def batch(
        self, images: ArrayLike | Sequence[ArrayLike], targets: ArrayLike | Sequence[ArrayLike]
    ) -> list[tuple[int, bytes]]:
        """(offset, bytes) of the images and the targets of a batch, which the host writes.

        Parameters
        ----------
        images : (N, H, W, C), or (N, features) where the network takes vectors, (N, T, C) where it
            takes sequences; real numbers, which must be finite, or operand codes, which are taken
            as they are; (N, T) integers where it takes tokens. Of a network with several inputs a
            list or tuple of them
        targets : of cross-entropy labels, integers from 0 on: (N,) of vectors, (N, T) of sequences,
            (N, H, W) of maps; else real numbers (N, H, W, C) for a network whose output is a map,
            (N, T, C) for a sequence, (N, features) for a vector, in torch's order where it has been
            flattened. Of a network with several outputs a list or tuple of them, in the order of
            :attr:`outputs`

        Raises
        ------
        ValueError
            naming what is wrong, and what is expected: another number of images, shape or type, a
            number that is not finite or too large, a label that is no class.
        """
        layers = {layer.name: layer for layer in self.layers}
        inputs = [layer for layer in self.layers if layer.kind == "input"]
        found = []
        for layer, part in zip(inputs, each_input(images, inputs), strict=True):
            tensor = self.tensors[self.maps[layer.name]]
            found.append((tensor.offset, tensor.pack(image_codes(tensor, part, layer))))
        each = each_target(targets, [output.layer for output in self.outputs])
        for output, own in zip(self.outputs, each, strict=True):
            wanted = self.tensors[output.targets]
            try:
                codes = target_codes(wanted, own, loss=output.loss, output=layers[output.layer])
            except ValueError as error:
                where = f"output {output.layer}: " if len(self.outputs) > 1 else ""
                raise ValueError(f"{where}{error}") from None
            found.append((wanted.offset, wanted.pack(codes)))
            beside = {role: self.tensors[name] for role, name in output.labels.items()}
            more = label_values(beside, own, output.loss)
            found += [(beside[role].offset, beside[role].pack(v)) for role, v in more.items()]
        return found

    def loss_of(self, memory: bytes | bytearray | memoryview) -> tuple[float, int]:
        """Value of the last batch, and how many of its images were classified correctly. With
        several outputs they are sums, of the value in float32, in the order of the outputs."""
        (total, count), *others = self.losses_of(memory)
        for value, correct in others:
            total, count = total + value, count + correct
        return float(total), count

    def losses_of(self, memory: bytes | bytearray | memoryview) -> list[tuple[np.float32, int]]:
        """The same of each output."""
        return [self._loss(output, memory) for output in self.outputs]

    def echo_loss_of(self, memory: bytes | bytearray | memoryview) -> tuple[np.float32, int] | None:
        """The same of the last step of the head alone; None without an echo."""
        if ECHO_LOSS not in self.tensors:
            return None
        return self._loss(replace(self.outputs[0], value=ECHO_LOSS), memory)

    def _loss(
        self, output: OutputInfo, memory: bytes | bytearray | memoryview
    ) -> tuple[np.float32, int]:
        value, correct = self.tensors[output.value].unpack(memory).view(np.float32).ravel()
        if products := output.labels.get("products"):
            numbers = self.tensors[products].unpack(memory).view(np.float32)
            value = _total([*numbers.ravel().tolist(), float(value)])
        return value, int(correct)

    def state(
        self, memory: bytes | bytearray | memoryview, role: str = "master"
    ) -> dict[str, np.ndarray]:
        """Float32 arrays in torch's shapes by torch's names: weights and running statistics, or
        the optimizer's numbers called ``role``, of parameters that are trainable."""
        return unpack_state(self.parameters, memory, role)

    @property
    def command_list(self) -> Decoded:
        """Decoded commands, (opcode, fields) each; some thousand of them are in memory."""
        return Decoded(self.commands, self.program)

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one file."""
        program_file.write(
            path,
            SavedProgram(
                kind="training",
                config=self.config,
                fields=program_file.plain(self, leave_out=("config", "commands")),
                arrays={"commands": self.commands},
            ),
        )

    @classmethod
    def load(
        cls, path: str | PathLike[str], config: AdaGPConfig | None = None
    ) -> "TrainingProgram":
        """Read what ``save`` wrote; see ``read``. Neither the model
        nor torch is needed."""
        saved = program_file.read(path, "training", config)
        with program_file.reading(path):
            return cls(
                config=saved.config,
                commands=saved.arrays["commands"],
                **program_file.rebuild_fields(cls, saved.fields),
            )


def _total(numbers: Sequence[float]) -> np.float32:
    """Their exact sum, rounded to float32 once."""
    finite = all(isfinite(number) for number in numbers)
    return np.float32(fsum(numbers) if finite else sum(numbers))
