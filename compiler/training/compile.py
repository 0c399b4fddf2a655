"""A whole training step of a ``torch.nn.Module`` as one program."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, TypeVar

import torch

from cli.collector import collector_paused
from compiler.codegen.attempts import write_program
from compiler.codegen.binary.command_bytes import encode_commands, moved
from compiler.codegen.binary.packing import packed
from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.cost import Command
from compiler.codegen.dependencies import Recorder
from compiler.codegen.program import SemaphoreNames
from compiler.errors import CompileError, require_config
from compiler.frontend.torch_graph import Layer, require_trainable, trace
from compiler.stages import stage
from compiler.tensors.dram_planner import Arena, MemoryPlan
from compiler.tensors.intervals import Interval, round_up
from compiler.tensors.tensor import Tensor
from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES
from hw.isa.loops import LOOP_LEVELS

from .echo_steps import EchoSteps
from .group_writer import Decisions, least_hidden, write_groups
from .groups import Group
from .optimizer import require_parameters
from .program import LayerInfo, StepInfo, TrainingProgram
from .steps import COEFFICIENTS, TrainingSteps

__all__ = [
    "COEFFICIENTS",
    "StepInfo",
    "TrainingProgram",
    "WrittenSteps",
    "assembled",
    "compile_training",
    "plan_memory",
    "training_layers",
    "write_steps",
]

#: Commands, what of them belongs to which step, and the names of their semaphores.
WrittenSteps = tuple[list[Command], list[StepInfo], dict[int, str]]
_Program = TypeVar("_Program", bound=TrainingProgram)


@collector_paused()
def compile_training(
    model: torch.nn.Module,
    config: AdaGPConfig,
    input_shape: Sequence[int] | Sequence[Sequence[int]],
    *,
    images: int,
    loss: object = "cross_entropy",
    optimizer: object = "sgd",
    echo: int = 0,
    reuse: bool = True,
    separate: bool = False,
    loops: bool | None = None,
    beside: bool | None = None,
) -> TrainingProgram:
    """Compile a training step on core 0.

    Parameters
    ----------
    model : see :func:`compiler.frontend.torch_graph.trace`; parameters with
        ``requires_grad_(False)`` stay as they are, without gradient, velocity and update, and
        layers below the lowest that learns have no backward pass. Parameters of layers that no
        output depends on stay as they are, too. Running statistics follow every batch.
    config : with a float format and ``training``
    input_shape : (C, H, W) of one image, (features,), (T, C) of a sequence, or (T,) of tokens; a
        list of these where the model has several inputs
    images : in a batch
    loss : "cross_entropy", "mean_squared_error" or "binary_cross_entropy"; or
        ``nn.CrossEntropyLoss(...)`` with label smoothing and ``ignore_index``, ``nn.MSELoss()`` or
        ``nn.BCEWithLogitsLoss()``. Where the model returns several maps a list with one for each,
        whose sum is minimised; or one for all of them
    optimizer : "sgd" with momentum and weight decay, "nesterov", "braked" for SGD with Adaptive
        Braking (docs/training.md), "adam" or "adamw", or an optimizer of torch that has all
        parameters which require a gradient; rate, momentum and decay are in the registers whatever
        it says
    echo : so many more steps of the head alone behind every batch, on the features that the batch
        brought to it; the network's only output is then a linear layer
    reuse : tensors that are not needed at the same time share memory; False keeps all of them to
        be looked at
    separate : every step is a program of its own, to be run one after the other
    loops : True: commands that come again are written once, with REPEAT behind them; False writes
        all of them out, which is a little faster; None does so up to 65,536 commands, 4 MiB before
        they are packed
    beside : work of the vector engine is written beside products, each in a part of the buffer: a
        batch takes less time, its program and compiling it take more; None does so where products
        forward take more than 4 million cycles

    Raises
    ------
    CompileError
        naming the layer, why it cannot be compiled and what can; or the parameter that the
        optimizer lacks.
    """
    layers = training_layers(model, config, input_shape, images, optimizer)
    options: dict[str, Any] = {"images": images, "loss": loss, "optimizer": optimizer}
    graph = (
        EchoSteps(layers, config, echo=echo, **options)
        if echo
        else TrainingSteps(layers, config, **options)
    )
    graph.together = (graph.is_long if beside is None else beside) and not separate
    plan = plan_memory({"": graph}, reuse=reuse)
    tensors = graph.placed(plan.offsets.get)
    commands: list[Command] = []
    infos, semaphores = [], []
    for groups in [[group] for group in graph.groups] if separate else [graph.groups]:
        written, found, names = write_steps(groups, config, tensors, images=images, loops=loops)
        first = len(commands)
        semaphores.append(SemaphoreNames(first=first, names=names))
        commands += moved(written, first * COMMAND_BYTES)
        infos += [info.moved(first) for info in found]
        if separate:
            infos[-1] = replace(infos[-1], parts=((first, len(commands)),))
    return assembled(
        TrainingProgram, graph, layers, plan, commands, whole=separate, semaphores=semaphores,
        steps=infos, tensors=tensors,
    )  # fmt: skip


def assembled(
    kind: type[_Program], graph: TrainingSteps, layers: Sequence[Layer], plan: MemoryPlan,
    commands: Sequence[Command], *, whole: bool = False, **others: Any,
) -> _Program:  # fmt: skip
    """A program of ``kind`` for the steps of ``graph``, with ``commands`` behind all that ``plan``
    has placed; ``others`` are its other members. ``whole``: commands are not packed."""
    with stage("encode"):
        if whole:
            code = encode_commands(commands, plan.size)
            plan.require_room(len(code))
        else:
            code = packed(encode_commands(commands), plan.size, require_room=plan.require_room)
    return kind(
        config=graph.config,
        layers=[LayerInfo.of(layer) for layer in layers],
        images=graph.images,
        outputs=graph.outputs,
        commands=code,
        maps=graph.maps,
        gradients=graph.gradients,
        parameters={
            name: parameter.placed(plan.offsets) for name, parameter in graph.parameters.items()
        },
        constants=graph.constants,
        plan=plan,
        program=plan.size,
        memory_size=round_up(plan.size + len(code), 4096),
        **others,
    )


def write_steps(
    groups: Sequence[Group],
    config: AdaGPConfig,
    tensors: Mapping[str, Tensor],
    *,
    images: int = 1,
    loops: bool | None,
    early: bool = False,
    levels: int = LOOP_LEVELS,
) -> WrittenSteps:
    """Commands of a program of these steps for so many images, with HALT, what of them belongs to
    which step, and the names of their semaphores; ``early`` and ``levels`` as of
    :class:`~compiler.codegen.linking.linker.Linker`."""

    known = Decisions()
    worth = least_hidden(groups, images)

    def write(recorder: Recorder) -> WrittenSteps:
        programs = [CoreProgram(config, core, recorder) for core in config.cores]
        infos = write_groups(
            groups, recorder, lambda step: programs[step.core], tensors, known, worth=worth
        )
        with stage("semaphores"):
            commands = recorder.link()
        return commands, [info.placed(recorder) for info in infos], recorder.semaphores

    return write_program(config, write, loops=loops, early=early, levels=levels)


def training_layers(
    model: torch.nn.Module,
    config: AdaGPConfig,
    input_shape: Sequence[int] | Sequence[Sequence[int]],
    images: int,
    optimizer: object = None,
) -> list[Layer]:
    """Layers of a network in training, of :func:`compiler.frontend.torch_graph.trace`.

    Raises
    ------
    CompileError
        as :func:`compile_training`.
    """
    require_config(config)
    if not config.training:
        raise CompileError(
            f"this configuration has no engines for training: field training must be True, not "
            f"{config.training}"
        )
    if isinstance(images, bool) or not isinstance(images, Integral) or images < 1:
        raise CompileError(f"images: a batch must have at least 1 image, not {images!r}")
    with stage("trace"):
        layers = trace(model, input_shape)
    require_trainable(layers)
    require_parameters(optimizer, model)
    return layers


def plan_memory(
    graphs: Mapping[str, TrainingSteps], *, reuse: bool = True, twice: Collection[str] = ()
) -> MemoryPlan:
    """Places of all tensors of ``graphs``, :class:`~compiler.training.steps.TrainingSteps` by the
    part of the program they make. Tensors named in ``twice`` have another place, "name (odd)".

    Raises a :class:`~compiler.errors.CompileError` if they are larger than a memory window can be.

    What is kept always exists, and is the same in all parts. Others exist from the step that writes
    them to the last one that reads them, or those that are beside these, and are called
    ``part + name``.
    """
    arena, count = Arena(), 0
    used: dict[str, Interval] = {}
    sizes: dict[str, Tensor] = {}
    for part, graph in graphs.items():
        own = graph.kept
        for group in graph.groups:
            last = count + len(group.steps) - 1
            for step in group.steps:
                for name in map(graph.owner, (*step.reads, *step.writes)):
                    key = name if name in own else part + name
                    used[key] = used.get(key, (count, last))[0], last
            count = last + 1
        for name, tensor in graph.tensors.items():
            if name in graph.slices:
                continue
            sizes.setdefault(name if name in own else part + name, tensor)
    kept = set().union(*(graph.kept for graph in graphs.values()))
    for name, tensor in sizes.items():
        steps = None if name in kept or not reuse else used.get(name)
        if steps is None and name not in kept and name not in used:
            continue
        arena.add(
            name,
            tensor.size,
            steps=steps,
            kind=tensor.kind,
            shape=tensor.shape,
        )
        if name in twice:
            arena.add(f"{name} (odd)", tensor.size, kind=tensor.kind, shape=tensor.shape)
    with stage("memory plan"):
        plan = arena.plan()
        plan.check()
    plan.require_room()
    return plan
