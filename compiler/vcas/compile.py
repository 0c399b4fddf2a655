"""A training step with sampled backward passes as one program that branches by lists of rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cli.collector import collector_paused
from compiler.codegen.binary.command_bytes import moved
from compiler.codegen.cost import Command
from compiler.codegen.program import SemaphoreNames
from compiler.errors import CompileError
from compiler.frontend.torch_graph import Layer
from compiler.kernels.sampling.copies import LIST_LEVEL
from compiler.tensors.tensor import Tensor
from compiler.training.compile import assembled, plan_memory, training_layers, write_steps
from compiler.training.program import StepInfo, TrainingProgram
from hw.config import AdaGPConfig
from hw.formats import IntFormat
from hw.isa.encoding import COMMAND_BYTES, Opcode
from hw.isa.rows import RowAction

from .steps import Branch, SampledSteps, image_counts

__all__ = ["SampledProgram", "compile_vcas", "sampled_steps"]


@dataclass(frozen=True, kw_only=True)
class SampledProgram(TrainingProgram):
    """A training step with samples of images.

    Members
    -------
    shares : by sampled layer, the one nearest the input first, the name of the tensor that says how
        many images it is to keep
    norms : by sampled layer the name of the tensor with the norms of its gradient's images; empty
        if they were not asked for
    counts : numbers of images of which there are backward passes
    """

    shares: dict[str, str]
    norms: dict[str, str]
    counts: tuple[int, ...]

    def shares_of(self, ratios: Mapping[str, float]) -> list[tuple[int, bytes]]:
        """(offset, bytes) that the host writes so that each layer named keeps this share of the
        images, on the average, and from 1 on all of them. It must do so before the first batch;
        layers that are not named go on as they are.

        Raises
        ------
        ValueError
            naming a layer that is not sampled, or whose ratio is not above 0.
        """
        found = []
        for name, ratio in ratios.items():
            if name not in self.shares:
                raise ValueError(
                    f"layer {name} is not sampled; layers are {', '.join(self.shares)}"
                )
            if not ratio > 0:
                raise ValueError(f"layer {name}: the ratio must be above 0, not {ratio!r}")
            tensor = self.tensors[self.shares[name]]
            kept = ratio * self.images if ratio < 1 else np.inf
            images = np.full(tensor.shape, kept, np.float32)
            found.append((tensor.offset, tensor.pack(images)))
        return found

    def norms_of(self, memory: bytes | bytearray | memoryview) -> dict[str, np.ndarray]:
        """By sampled layer the norms of the images of its gradient in the last batch, float32
        (N,); those of a layer that other samples lie behind are of what these have left."""
        return {
            layer: self.tensors[name].unpack(memory).view(np.float32)[0, 0, :, 0]
            for layer, name in self.norms.items()
        }


@collector_paused()
def compile_vcas(
    model: torch.nn.Module,
    config: AdaGPConfig,
    input_shape: Sequence[int] | Sequence[Sequence[int]],
    *,
    images: int,
    sampled: Sequence[str],
    counts: Sequence[int] | None = None,
    norms: bool = False,
    loss: object = "cross_entropy",
    optimizer: object = "sgd",
    reuse: bool = True,
    loops: bool | None = None,
) -> SampledProgram:
    """Compile a training step on core 0, in which gradients of convolutions are sampled.

    Parameters
    ----------
    model, config, input_shape, images, loss, optimizer, reuse, loops : see
        :func:`compiler.training.compile_training`; the configuration has lists of ``images`` rows
    sampled : names of the convolutions
    counts : numbers of images of which backward passes are made, ascending, the last one
        ``images``; by default eighths of it
    norms : also store what :meth:`SampledProgram.norms_of` reads, for a controller

    Raises
    ------
    CompileError
        naming the layer, why it cannot be compiled and what can; or what is wrong.
    """
    graph, layers = sampled_steps(
        model, config, input_shape, images=images, sampled=sampled, counts=counts, norms=norms,
        loss=loss, optimizer=optimizer,
    )  # fmt: skip
    plan = plan_memory({"": graph}, reuse=reuse)
    tensors = graph.placed(plan.offsets.get)
    stream = _Stream(config, graph, tensors, loops)
    stream.write()
    return assembled(
        SampledProgram, graph, layers, plan, stream.commands, whole=True,
        semaphores=stream.semaphores, steps=stream.infos, tensors=tensors, shares=graph.shares,
        norms=graph.norms, counts=graph.counts,
    )  # fmt: skip


def sampled_steps(
    model: torch.nn.Module, config: AdaGPConfig,
    input_shape: Sequence[int] | Sequence[Sequence[int]], *, images: int, sampled: Sequence[str],
    counts: Sequence[int] | None = None, norms: bool = False, **options: Any,
) -> tuple[SampledSteps, list[Layer]]:  # fmt: skip
    """The :class:`~compiler.vcas.steps.SampledSteps` of :func:`compile_vcas`, and the layers."""
    layers = training_layers(model, config, input_shape, images, options.get("optimizer"))
    if isinstance(config.format, IntFormat) or config.format.exponent_bits < 8:
        raise CompileError(
            f"samples of images need an operand format with 8 bits of exponent, not "
            f"{config.operand_format}"
        )
    if not 2 <= images <= config.row_list_depth:
        raise CompileError(
            f"images: a batch to be sampled must have from 2 to row_list_depth "
            f"({config.row_list_depth}) images, not {images}"
        )
    if isinstance(sampled, str):
        raise CompileError(f"sampled must be a list of names of layers, not {sampled!r}")
    graph = SampledSteps(
        layers, config, images=images, sampled=sampled, counts=image_counts(images, counts),
        norms=norms, **options,
    )  # fmt: skip
    return graph, layers


class _Stream:
    """The commands of a program, segment by segment. Behind each of them all queues are empty."""

    def __init__(
        self, config: AdaGPConfig, graph: SampledSteps, tensors: Mapping[str, Tensor],
        loops: bool | None,
    ) -> None:  # fmt: skip
        self.config, self.graph, self.tensors, self.loops = config, graph, tensors, loops
        self.commands: list[Command] = []
        self.infos: list[StepInfo] = []
        self.semaphores: list[SemaphoreNames] = []

    def write(self) -> None:
        """All of it, HALT included."""
        for (begin, end), branch in zip(self.graph.segments(), [*self.graph.branches, None],
                                        strict=True):  # fmt: skip
            self._segment(begin, end)
            if branch is not None:
                self._branch(branch)
        self.commands.append(Command(Opcode.HALT))

    def _segment(self, begin: int, end: int) -> None:
        groups, first = self.graph.groups[begin:end], len(self.commands)
        written, infos, names = write_steps(
            groups, self.config, self.tensors, loops=self.loops, levels=LIST_LEVEL
        )
        self.semaphores.append(SemaphoreNames(first=first, names=names))
        self.commands += moved(written[:-1], first * COMMAND_BYTES)
        self.infos += [info.moved(first) for info in infos]

    def _branch(self, branch: Branch) -> None:
        """A list, and a table of where it goes on for every length that the list may have."""
        commands, places = self.commands, range(self.graph.images + 1)
        commands.append(_rows(RowAction.BEGIN))
        begin = len(commands)
        self._segment(branch.first, branch.first + 1)
        _require_flags(commands[begin:], self.graph.images)
        table = len(commands) + 1
        commands.append(_rows(RowAction.BRANCH, table))
        commands += [_rows(RowAction.JOIN)] * len(places)
        starts, ends = {}, []
        for count, (first, last) in branch.steps.items():
            starts[count] = len(commands)
            self._segment(first, last)
            ends.append(len(commands))
            commands.append(_rows(RowAction.JOIN))
        for end in ends:
            commands[end] = _rows(RowAction.JOIN, len(commands))
        for kept in places:
            commands[table + kept] = _rows(RowAction.JOIN, starts[branch.count_of(kept)])


def _rows(action: RowAction, first: int = 0) -> Command:
    fields = {"level": LIST_LEVEL, "action": int(action), "first": first * COMMAND_BYTES}
    return Command(Opcode.ROWS, fields=fields)


def _require_flags(commands: Iterable[Command], images: int) -> None:
    """The first VECTOR behind BEGIN writes a word for each image."""
    first = next(command for command in commands if command.opcode is Opcode.VECTOR)
    steps = [first.fields.get(f"{loop}_count", 1) for loop in ("i0", "i1", "i2", "cb")]
    assert sorted(steps) == sorted([images, 1, 1, 1]) and not first.fields["wide"], steps
