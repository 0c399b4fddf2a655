"""Inference of every network that can be trained: the forward part of its graph."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from torch import nn

from compiler.codegen.cost import estimate
from compiler.codegen.program import CompiledProgram, SemaphoreNames, StageInfo, encode_commands
from compiler.errors import CompileError
from compiler.frontend.layer import Layer
from compiler.frontend.torch_graph import trace
from compiler.tensors.intervals import round_up
from compiler.tensors.parameters import pack_state
from compiler.training.compile import plan_memory, write_steps
from compiler.training.program import StepInfo
from compiler.training.steps import TrainingSteps
from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES

from .folding import fold

__all__ = ["GraphSteps", "compile_graph"]

#: Every tensor starts at a multiple of this many bytes: the widest AXI beat, and a command.
_ALIGNMENT = 64


class GraphSteps(TrainingSteps):
    """The forward steps of traced and folded ``layers``; nothing is kept for a backward pass."""

    def __init__(self, layers: Sequence[Layer], config: AdaGPConfig, *, images: int) -> None:
        super().__init__(layers, config, images=images, loss="mean_squared_error", optimizer="sgd")

    def _build(self, layers: Sequence[Layer]) -> None:
        # Products read operands only.
        for name, parameter in self.parameters.items():
            if "operands" in parameter.tensors:
                tensors = {"operands": parameter.tensors["operands"]}
                self.parameters[name] = replace(parameter, tensors=tensors)
                del self.tensors[parameter.tensors["master"].name]
        self._needs_gradient = frozenset()
        for layer in layers:
            self._forward(layer)

    @property
    def kept(self) -> set[str]:
        """Names of the tensors that always exist: parameters, the input, the outputs."""
        found = {*self.inputs, *self.constants}
        found |= {self.owner(self.maps[output.layer]) for output in self.outputs}
        for parameter in self.parameters.values():
            found |= {tensor.name for tensor in parameter.tensors.values()}
        return found


def compile_graph(
    model: nn.Module,
    config: AdaGPConfig,
    input_shape: Sequence[int],
    *,
    reuse: bool = True,
    loops: bool | None = None,
) -> CompiledProgram:
    """A program of ``model`` in evaluation mode on core 0, see :func:`compiler.compile`.

    Parameters
    ----------
    input_shape : (N, C, H, W), (N, features), or (N, T, C) for sequences
    reuse : maps that are not needed at the same time share memory
    loops : see :func:`compiler.training.compile_training`

    Raises
    ------
    CompileError
        naming the layer, why it cannot be compiled and what can.
    """
    try:
        images, *shape = (int(size) for size in input_shape)
    except (TypeError, ValueError):
        images, shape = 0, []
    if len(shape) not in (1, 2, 3) or min(images, *shape) < 1:
        raise CompileError(
            "input_shape must be (N, C, H, W), (N, F) or (N, T, C) with positive sizes, not "
            f"{input_shape!r}"
        )
    if not config.training or not config.format.is_float:
        raise CompileError(
            "this network needs the vector engine: the configuration must have training=True and a "
            f"float format, not training={config.training} and {config.operand_format}"
        )
    layers = fold(trace(copy.deepcopy(model).eval(), shape))
    if any(layer.name == "input" for layer in layers[1:]):
        raise CompileError("layer input: the images of a program have this name; call it otherwise")
    graph = GraphSteps(layers, config, images=images)
    plan = plan_memory({"": graph}, reuse=reuse)
    placed = graph.placed(plan.offsets.get)
    commands, infos, names = write_steps(graph.steps, config, placed, loops=loops)
    # The length of the program is known only now: everything else lies behind it.
    shift = round_up(len(commands) * COMMAND_BYTES, _ALIGNMENT)
    for command in commands:
        if "dram_address" in command.fields:
            command.fields["dram_address"] += shift
    plan.require_room(shift)
    tensors = {
        name: replace(tensor, offset=tensor.offset + shift) for name, tensor in placed.items()
    }
    state = {
        f"{layer.name}.{name}": values
        for layer in layers
        if layer.module is not None
        for name, values in layer.module.state_dict().items()
    }
    input_name = graph.maps[layers[0].name]
    tensors["input"] = replace(tensors.pop(input_name), name="input")
    return CompiledProgram(
        config=config,
        commands=encode_commands(commands),
        tensors=tensors,
        contents=pack_state(graph.parameters, state)
        | {name: bytes.fromhex(data) for name, data in graph.constants.items()},
        memory_size=round_up(plan.size + shift, _ALIGNMENT),
        stages=_stages(graph, infos, images),
        estimated_cycles=estimate(commands, config),
        semaphores=[SemaphoreNames(first=0, names=names)],
    )


def _stages(graph: GraphSteps, infos: Sequence[StepInfo], images: int) -> list[StageInfo]:
    """One for each step; the last one of each output writes it."""
    core, found = graph.core, []
    run = {"core": core.index, "rows": core.rows, "columns": core.columns, "images": (0, images)}
    for index, info in enumerate(infos):
        layer, macs = graph.layers[info.layer], 0
        if layer.kind in ("convolution", "depthwise", "linear") and layer.module is not None:
            macs = images * prod(layer.shape[1:]) * int(layer.module.weight.numel())
        cycles = info.vectors
        found.append(
            StageInfo(
                index=index,
                name=f"stage{index}",
                layers=[f"{layer.name} {layer.kind}"],
                output=info.writes[0],
                macs=macs,
                vector_cycles=cycles,
                efficiency=macs / (core.rows * core.columns * cycles) if cycles else 0.0,
                runs=[run],
            )
        )
    return found
