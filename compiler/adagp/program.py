"""Training by gradient prediction: batches of backpropagation and of Phase GP."""

from dataclasses import dataclass, replace
from math import prod

import numpy as np
import torch

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.cost import Command
from compiler.codegen.dependencies import Recorder
from compiler.codegen.program import encode_commands
from compiler.errors import CompileError
from compiler.frontend.torch_graph import trace
from compiler.tensors.dram_planner import MemoryPlan
from compiler.tensors.intervals import round_up
from compiler.tensors.tensor import Tensor
from compiler.training.program import StepInfo, TrainingProgram, plan_memory
from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, Opcode

from .steps import PredictionSteps
from .tensors import GRADIENT_STATISTICS, PredictorShape, PredictorTensors

__all__ = ["PARTS", "AdaGPProgram", "PredictorShape", "compile_adagp"]

#: Parts of a program: batches with backpropagation, and those of Phase GP.
PARTS = ("bp", "gp")


@dataclass(frozen=True, kw_only=True)
class AdaGPProgram:
    """What a host needs to train a network with ADA-GP.

    A run of :attr:`loop` goes through many batches, as the schedule in the registers says; the host
    refills images and targets (:meth:`batch`), which have two places in turn. A part alone is one
    batch; its images and targets are those of even batches.

    Members
    -------
    parts : part -> :class:`~compiler.training.TrainingProgram` of a batch; tensors that are
        kept are the same in all of them
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

    def memory(self, state, slots=None, predictor=None) -> bytearray:
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

    def batch(self, images, targets, number=0) -> list[tuple[int, bytes]]:
        """The inputs of batch ``number`` of a run, as :meth:`TrainingProgram.batch`."""
        program = self.loop
        if number % 2:
            program = replace(program, tensors=program.tensors | self.odd)
        return program.batch(images, targets)

    def predictor_state(self, memory) -> dict[str, np.ndarray]:
        """Codes of everything that the predictor keeps, by name of tensor."""
        tensors = self.loop.tensors
        return {name: tensors[name].unpack(memory) for name in sorted(self.predictor.kept)}

    def gates(self, memory) -> dict[str, float]:
        """How far the prediction of each layer is trusted, from 0 to 1."""
        row, found = GRADIENT_STATISTICS.index("gate"), {}
        for name, layer in self.predictor.layers.items():
            codes = self.first.tensors[layer.gradient_statistics.name].unpack(memory)
            found[name] = float(codes.view(np.float32)[0, 0, row, 0])
        return found


def compile_adagp(
    model: torch.nn.Module,
    config: AdaGPConfig,
    input_shape,
    *,
    images: int,
    loss: str = "cross_entropy",
    shape: PredictorShape = PredictorShape(),  # noqa: B008 (immutable)
    predict=None,
    reuse: bool = True,
) -> AdaGPProgram:
    """Compile batches of backpropagation and of Phase GP.

    The variant says where the predictor works: ``baseline`` and ``low`` on the main core, with the
    global buffer; ``efficient`` on the main core with the predictor memory; ``max`` on a core of
    its own.

    Parameters
    ----------
    model, config, input_shape, images, loss, reuse : see
        :func:`compiler.training.compile_training`
    shape : of the predictor
    predict : names of the layers to predict, None for all that can be

    Raises
    ------
    CompileError
        naming the layer, why it cannot be compiled and what can.
    """
    if not config.training:
        raise CompileError("this configuration has no engines for training (field training)")
    if images < 1:
        raise CompileError(f"a batch must have at least 1 image, not {images}")
    layers = trace(model, input_shape)
    graphs = {
        part: PredictionSteps(
            layers, config, images=images, loss=loss, core=config.cores[-1], shape=shape,
            predict=predict, backpropagate=part == "bp",
        )
        for part in PARTS
    }  # fmt: skip
    return _Compiler(config, graphs, images, loss, layers, reuse).compile()


class _Compiler:
    def __init__(self, config, graphs, images, loss, layers, reuse):
        self.config, self.graphs = config, graphs
        self.common = {"config": config, "layers": layers, "images": images, "loss": loss}
        first = graphs[PARTS[0]]
        self.inputs = (first.maps[layers[0].name], "targets")
        prefixed = {f"{part}: ": graph for part, graph in graphs.items()}
        self.plan = plan_memory(prefixed, reuse=reuse, twice=self.inputs)
        self.odd = {
            name: replace(first.tensors[name], offset=self.plan.offsets[f"{name} (odd)"])
            for name in self.inputs
        }
        self.tensors = {part: self._tensors(part) for part in PARTS}

    def _tensors(self, part):
        graph, found = self.graphs[part], {}
        for tensor in graph.tensors.values():
            key = tensor.name if tensor.name in graph.kept else f"{part}: {tensor.name}"
            if key in self.plan.offsets:
                found[tensor.name] = replace(tensor, offset=self.plan.offsets[key])
        return found

    def compile(self):
        parts, end = {}, self.plan.size
        for part in PARTS:
            commands, infos = self._write(part, self.tensors[part], load=True)
            code = encode_commands([*commands, Command(Opcode.HALT)])
            parts[part] = self._program(part, code, infos, end)
            end += len(code)
        loop = self._program(PARTS[0], self._loop(end), [], end)
        size = round_up(end + len(loop.commands), 4096)
        first = self.graphs[PARTS[0]]
        return AdaGPProgram(
            parts={name: replace(part, memory_size=size) for name, part in parts.items()},
            loop=replace(loop, memory_size=size),
            odd=self.odd,
            predictor=first.predictor,
            head=first.head,
            plan=self.plan,
            memory_size=size,
        )

    def _loop(self, begin):
        """A prologue, and a batch for each phase and parity, with BATCH behind each of them."""
        prologue = Recorder(self.config)
        predictor = self._programs(prologue)[1]
        predictor.fetch(self._keep(PARTS[0], predictor, load=True))
        batches = {
            (part, parity): self._write(part, self.tensors[part] | odd, load=False)[0]
            for parity, odd in (("even", {}), ("odd", self.odd))
            for part in PARTS
        }
        start = prologue.link()[:-1]
        targets, place = {}, begin + (len(start) + 1) * COMMAND_BYTES
        for (part, parity), commands in batches.items():
            targets[f"{part}_{parity}"] = place
            place += (len(commands) + 1) * COMMAND_BYTES
        stream = [*start, Command(Opcode.BATCH, fields={"first": 1, **targets})]
        for commands in batches.values():
            stream += [*commands, Command(Opcode.BATCH, fields={"first": 0, **targets})]
        return encode_commands(stream)

    def _write(self, part, tensors, *, load):
        """Commands of a batch without its end, and what of them belongs to which step."""
        recorder, infos = Recorder(self.config), []
        main, predictor = self._programs(recorder)
        self._keep(part, predictor, load=load)
        for step in self.graphs[part].steps:
            first, program = len(recorder), predictor if step.predictor else main
            step.write(program, tensors)
            infos.append(StepInfo.of(step, program, first))
        return recorder.link()[:-1], infos

    def _programs(self, recorder):
        """:class:`CoreProgram` s of the network and of the predictor."""
        config = self.config
        main = CoreProgram(config, config.cores[0], recorder)
        if not config.has_predictor_memory:
            return main, main
        return main, CoreProgram(config, config.cores[-1], recorder, memory=1)

    def _keep(self, part, program, *, load):
        """Keep the predictor's weights in its memory if half of that is enough; their name."""
        predictor = self.graphs[part].predictor
        weights = self.tensors[part][predictor.full.tensors["operands"].name]
        words = prod(weights.shape[:3]) * program.words(weights)
        if self.config.has_predictor_memory and 2 * words <= program.scratch.words:
            program.keep(weights, load=load)
        return weights.name

    def _program(self, part, commands, infos, begin):
        graph, tensors = self.graphs[part], self.tensors[part]
        return TrainingProgram(
            **self.common, commands=commands, steps=infos, tensors=tensors, maps=graph.maps,
            gradients=graph.gradients,
            parameters={
                name: parameter.placed_as(tensors) for name, parameter in graph.parameters.items()
            },
            plan=self.plan, program=begin, memory_size=0,
        )  # fmt: skip
