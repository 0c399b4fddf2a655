"""Training by gradient prediction: programs of a batch of backpropagation and of Phase GP."""

from dataclasses import dataclass, replace
from math import prod

import numpy as np
import torch

from hw.config import AdaGPConfig

from .arena import MemoryPlan
from .core_program import CoreProgram
from .errors import CompileError
from .graph import trace
from .memory import round_up
from .prediction_steps import PredictionSteps
from .predictor_tensors import GRADIENT_STATISTICS, PredictorShape, PredictorTensors
from .program import encode_commands
from .recorder import Recorder
from .training import StepInfo, TrainingProgram, plan_memory

__all__ = ["PARTS", "AdaGPProgram", "PredictorShape", "compile_adagp"]

#: Parts of a program: batches with backpropagation, and those of Phase GP.
PARTS = ("bp", "gp")


@dataclass(frozen=True, kw_only=True)
class AdaGPProgram:
    """What a host needs to train a network with ADA-GP.

    Members
    -------
    parts : part -> :class:`~compiler.training.TrainingProgram` of a batch; tensors that are kept
        are the same in all of them
    predictor : :class:`~compiler.predictor_tensors.PredictorTensors`, without places
    head : layer with an exact gradient in Phase GP, or None
    plan : :class:`~compiler.arena.MemoryPlan` of all parts together
    memory_size : bytes of the memory window
    """

    parts: dict[str, TrainingProgram]
    predictor: PredictorTensors
    head: str | None
    plan: MemoryPlan
    memory_size: int

    @property
    def first(self) -> TrainingProgram:
        return self.parts[PARTS[0]]

    def memory(self, state, slots=None, predictor=None) -> bytearray:
        """The memory window with the programs and everything that is learned.

        ``state`` and ``slots`` as :meth:`TrainingProgram.memory` takes them, ``predictor`` as
        :meth:`~compiler.predictor_tensors.PredictorTensors.contents`.
        """
        memory = self.first.memory(state, slots)
        for part in self.parts.values():
            memory[part.program : part.program + len(part.commands)] = part.commands
        for name, values in self.predictor.contents(predictor or {}).items():
            tensor = self.first.tensors[name]
            memory[tensor.offset : tensor.offset + tensor.size] = tensor.pack(values)
        return memory

    def predictor_state(self, memory) -> dict[str, np.ndarray]:
        """Codes of everything that the predictor keeps, by name of tensor."""
        return {
            name: self.first.tensors[name].unpack(memory) for name in sorted(self.predictor.kept)
        }

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
    """Compile a batch of backpropagation and one of Phase GP.

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
    plan = plan_memory({f"{part}: ": graph for part, graph in graphs.items()}, reuse=reuse)
    parts, end = {}, plan.size
    for part, graph in graphs.items():
        program = _part(part, graph, plan, config, images, loss, layers, end)
        parts[part] = program
        end = round_up(program.program + len(program.commands), 64)
    size = round_up(end, 4096)
    parts = {name: replace(part, memory_size=size) for name, part in parts.items()}
    first = graphs[PARTS[0]]
    return AdaGPProgram(
        parts=parts, predictor=first.predictor, head=first.head, plan=plan, memory_size=size
    )


def _part(name, graph, plan, config, images, loss, layers, begin):
    tensors = {}
    for tensor in graph.tensors.values():
        key = tensor.name if tensor.name in graph.kept else f"{name}: {tensor.name}"
        if key in plan.offsets:
            tensors[tensor.name] = replace(tensor, offset=plan.offsets[key])
    main, predictor = programs(config, Recorder(config))
    weights = tensors[graph.predictor.full.tensors["operands"].name]
    if predictor is not main and 2 * _words(predictor, weights) <= predictor.scratch.words:
        predictor.keep(weights)
    infos, recorder = [], main.recorder
    for step in graph.steps:
        first = len(recorder)
        step.write(predictor if step.predictor else main, tensors)
        infos.append(
            StepInfo(layer=step.layer, direction=step.direction, first=first, last=len(recorder))
        )
    commands = encode_commands(recorder.link())
    return TrainingProgram(
        config=config, layers=layers, images=images, loss=loss, commands=commands, steps=infos,
        tensors=tensors, maps=graph.maps, gradients=graph.gradients,
        parameters={
            name: parameter.placed_as(tensors)
            for name, parameter in graph.parameters.items()
        },
        plan=plan, program=begin, memory_size=0,
    )  # fmt: skip


def _words(program, tensor):
    """Buffer words of a whole tensor."""
    return prod(tensor.shape[:3]) * program.words(tensor)


def programs(config, recorder):
    """:class:`CoreProgram` s of the network and of the predictor."""
    main = CoreProgram(config, config.cores[0], recorder)
    if not config.has_predictor_memory:
        return main, main
    return main, CoreProgram(config, config.cores[-1], recorder, memory=1)
