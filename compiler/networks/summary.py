"""What became of a network: commands, bytes, estimated cycles, layer by layer."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from math import prod

from compiler.adagp.program import AdaGPProgram
from compiler.codegen.cost import executed_count
from compiler.training.program import LayerInfo, StepInfo, TrainingProgram
from hw.isa.encoding import Opcode

from .array_use import PRODUCTS, ArrayUse, cause_of
from .estimate import command_times

__all__ = [
    "PHASES",
    "LayerSummary",
    "ProgramSummary",
    "in_order",
    "layer_of",
    "phase_of",
    "summarize",
]

#: Phases of a batch, in order.
PHASES = ("forward", "loss", "backward", "update", "predictor")
_BACKWARD = ("input gradient", "weight gradient", "backward", "sample")
#: Kinds of layers whose work are products with weights.
_PRODUCTS = ("convolution", "depthwise", "linear")


def phase_of(step: StepInfo) -> str:
    """That of :data:`PHASES` to which a step belongs; updates with a prediction are updates."""
    if step.direction in _BACKWARD:
        return "backward"
    if step.direction.endswith("update"):
        return "update"
    return step.direction if step.direction in PHASES else "predictor"


@dataclass(kw_only=True)
class LayerSummary:
    """A layer, or the loss of an output.

    Members
    -------
    name, kind, shape : as in :class:`~compiler.training.program.LayerInfo`
    macs : multiply-accumulates forward, of the whole batch
    commands : in DRAM, by program
    vectors : that enter a PE array, by program
    array : program -> direction of products -> :class:`~.array_use.ArrayUse`; empty where
        ``cycles`` are
    cycles : program -> phase -> estimated cycles by which the layer's steps put off the end of what
        has come before. Where steps of a second thread overlap with these, they are "predictor",
        with a clock of their own
    """

    name: str
    kind: str
    shape: tuple[int, int, int]
    macs: int = 0
    commands: dict[str, int] = field(default_factory=dict)
    vectors: dict[str, int] = field(default_factory=dict)
    array: dict[str, dict[str, ArrayUse]] = field(default_factory=dict)
    cycles: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ProgramSummary:
    """A batch.

    Members
    -------
    commands, executed : in DRAM; with those in loops as often as they are executed
    cycles : from start to interrupt, estimated
    vectors : that enter the main core's PE array
    idle : cause (:func:`~.array_use.cause_of`) -> cycles in which no vector enters; empty where the
        steps of two threads overlap
    """

    commands: int
    executed: int
    cycles: int
    vectors: int
    idle: dict[str, int]


def in_order(program: TrainingProgram | AdaGPProgram) -> bool:
    """Whether steps come one after the other: all of them work in the same memory."""
    if isinstance(program, AdaGPProgram):
        return all(in_order(part) for part in program.parts.values())
    if not program.config.has_predictor_memory:
        return True
    return not any(step.background or step.predictor for step in program.steps)


def summarize(
    program: TrainingProgram | AdaGPProgram,
) -> tuple[list[LayerSummary], dict[str, ProgramSummary]]:
    """The layers of a program, and its batches by name: "bp" and, with predictions, "gp"."""
    batches = program.parts if isinstance(program, AdaGPProgram) else {"bp": program}
    first = batches["bp"]
    layers = {layer.name: _layer(first, layer) for layer in first.layers}
    for output in first.outputs:
        shape, kind = layers[output.layer].shape, output.loss.kind
        layers[output.value] = LayerSummary(name=output.value, kind=kind, shape=shape)
    programs = {name: _batch(name, batch, layers) for name, batch in batches.items()}
    return [layer for layer in layers.values() if layer.commands], programs


def _layer(program: TrainingProgram, layer: LayerInfo) -> LayerSummary:
    macs = 0
    if layer.kind in _PRODUCTS:
        weights = program.parameters[f"{layer.name}.weight"].torch_shape
        macs = program.images * prod(layer.shape) * prod(weights[1:])
    return LayerSummary(name=layer.name, kind=layer.kind, shape=layer.shape, macs=macs)


def _batch(
    name: str, program: TrainingProgram, layers: Mapping[str, LayerSummary]
) -> ProgramSummary:
    commands = program.command_list
    times = command_times(commands, program.program, program.config)
    timed, vectors, ends = in_order(program), 0, times.ends
    clocks = {False: 0, True: 0}  # of the network's steps, and of those of another thread
    idle: dict[str, int] = {}
    for step in program.steps:
        layer = layers[layer_of(step, layers)]
        layer.commands[name] = layer.commands.get(name, 0) + step.command_count
        layer.vectors[name] = layer.vectors.get(name, 0) + step.vectors
        if not (step.predictor and program.config.has_predictor_core):
            vectors += step.vectors
        if not step.command_count:
            continue
        other = not timed and (step.predictor or step.background)
        end = ends[step.last - 1] if timed else times.end_of(step.places)
        cycles = max(end - clocks[other], 0)
        clocks[other] += cycles
        phases, phase = layer.cycles.setdefault(name, {}), "predictor" if other else phase_of(step)
        phases[phase] = phases.get(phase, 0) + cycles
        if timed:
            cause = cause_of(step)
            idle[cause] = idle.get(cause, 0) + cycles - step.vectors
            if step.vectors and step.direction in PRODUCTS:
                use = ArrayUse(cycles=cycles, vectors=step.vectors, macs=layer.macs)
                uses = layer.array.setdefault(name, {})
                uses[step.direction] = uses.get(step.direction, ArrayUse()) + use
    return ProgramSummary(
        commands=len(ends),
        executed=executed_count(len(ends), commands.of(Opcode.REPEAT), program.program),
        cycles=ends[-1],
        vectors=vectors,
        idle=idle,
    )


def layer_of(step: StepInfo, layers: Container[str]) -> str:
    """That of ``layers`` to which a step belongs: updates of backpropagation are of parameters,
    named after their layer."""
    name = step.layer
    while name not in layers:
        name = name.rpartition(".")[0]
    return name
