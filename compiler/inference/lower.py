"""From a network to a program: stages, DRAM layout, runs, one command stream."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import lcm
from typing import Any

from torch import nn

from compiler.codegen.cost import Command, Timeline, matmul_shape
from compiler.codegen.program import (
    CompiledProgram,
    SemaphoreNames,
    StageInfo,
    encode_commands,
)
from compiler.errors import CompileError, require_config
from compiler.frontend.sequential import Stage, stages_of
from compiler.tensors.encoding import dense_weights, tiled_biases
from compiler.tensors.intervals import round_up
from compiler.tensors.tensor import Shape, Tensor
from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode

from .autotune import plan_run
from .graph import compile_graph
from .placement import Placement, place
from .run import Run, Semaphore
from .schedule import RunScheduler

__all__ = ["compile_network"]

#: Every tensor starts at a multiple of this many bytes: the widest AXI beat, and a command.
_ALIGNMENT = 64
#: Bytes that commands can address.
_WINDOW = 1 << 32


def compile_network(
    model: nn.Module,
    config: AdaGPConfig,
    input_shape: Sequence[int],
    *,
    placement: str | Sequence[int] | None = None,
    parameters: Sequence[Any] | None = None,
    predictor_memory: Iterable[int] | None = None,
) -> CompiledProgram:
    """See :func:`compiler.compile`."""
    require_config(config)
    try:
        stages = stages_of(model, input_shape, config, parameters)
    except CompileError:
        chosen = any(option is not None for option in (placement, parameters, predictor_memory))
        if chosen or not (config.training and config.format.is_float):
            raise
        return compile_graph(model, config, input_shape)
    placed = place(stages, config, placement)
    in_predictor = _predictor_stages(stages, config, predictor_memory)
    sizes, offsets = _layout(stages, config, placed)
    tensors = {
        name: Tensor(name=name, offset=offset, **sizes[name]) for name, offset in offsets.items()
    }
    runs = _runs(stages, config, placed, in_predictor, tensors)
    schedulers = _plan_all(config, runs, default=predictor_memory is None)
    streams: dict[int, list[list[Command]]] = {core.index: [] for core in config.cores}
    for scheduler in schedulers:
        streams[scheduler.core.index].append(scheduler.commands())
    commands, cycles = _merge(config, streams)
    # The length of the program is known only now: everything behind it moves up.
    shift = round_up(len(commands) * 64, _ALIGNMENT)
    for command in commands:
        if "dram_address" in command.fields:
            command.fields["dram_address"] += shift
    tensors = {
        name: Tensor(name=name, offset=offset + shift, **sizes[name])
        for name, offset in offsets.items()
    }
    size = max(tensor.offset + tensor.size for tensor in tensors.values())
    if size > _WINDOW:
        raise CompileError(f"the program and its data need {size} bytes, more than {_WINDOW}")
    contents: dict[str, bytes] = {}
    for scheduler in schedulers:
        run = scheduler.run
        if run.weights.name not in contents:
            contents[run.weights.name] = run.weights.pack(dense_weights(run.stage))
        if run.bias is not None:
            contents[run.bias.name] = run.bias.pack(tiled_biases(run.stage, run.core))
    return CompiledProgram(
        config=config,
        commands=encode_commands(commands),
        tensors=tensors,
        contents=contents,
        memory_size=round_up(size, _ALIGNMENT),
        stages=[_info(stage, schedulers) for stage in stages],
        estimated_cycles=cycles,
        semaphores=[SemaphoreNames(first=0, names=_semaphore_names(config))],
    )


def _semaphore_names(config: AdaGPConfig) -> dict[int, str]:
    """Names of all semaphores: every core has those of ``Semaphore``."""
    return {
        core.index * config.semaphores + semaphore: f"c{core.index}.{semaphore.name.lower()}"
        for core in config.cores
        for semaphore in Semaphore
    }


def _predictor_stages(
    stages: Sequence[Stage], config: AdaGPConfig, choice: Iterable[int] | None
) -> set[int]:
    """Indices of stages whose weights core 0 keeps in the predictor memory."""
    reachable = 1 in config.cores[0].memories
    if choice is None:
        return {stages[-1].index} if reachable else set()
    if choice and not reachable:
        raise CompileError(f"core 0 of {config.variant} does not reach a predictor memory")
    if not set(choice) <= {stage.index for stage in stages}:
        raise CompileError(f"predictor_memory must list stages, not {list(choice)}")
    return set(choice)


def _plan_all(config: AdaGPConfig, runs: Iterable[Run], *, default: bool) -> list[RunScheduler]:
    """Schedulers of all runs; runs that differ only in their images get the same plan."""
    known, result = {}, []
    for run in runs:
        key = (run.stage.index, run.core.index, run.images[1] - run.images[0])
        if key not in known:
            known[key] = _plan(config, run, default=default)
        model = known[key]
        shift = run.images[0] - model.run.images[0]
        tiles = tuple(
            replace(tile, n0=tile.n0 + shift, n1=tile.n1 + shift) for tile in model.plan.tiles
        )
        run = replace(run, weights_memory=model.run.weights_memory)
        result.append(RunScheduler(config, run, replace(model.plan, tiles=tiles)))
    return result


def _plan(config: AdaGPConfig, run: Run, *, default: bool) -> RunScheduler:
    try:
        return plan_run(config, run)
    except CompileError:
        own = run.core.memories[0]
        if run.weights_memory == own or not default:
            raise
    return plan_run(config, replace(run, weights_memory=own))


def _layout(
    stages: Sequence[Stage], config: AdaGPConfig, placed: Placement
) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """Fields and offsets of all tensors: parameters first, then what the run writes."""
    width = config.format.width
    narrow = lcm(config.granule_bytes * 8, width) // width
    # A wide output is written in whole groups of 32-bit lanes, by whichever core.
    lanes = [core.post_lanes for core in config.cores]
    wide = lcm(config.granule_bytes, *(4 * lane for lane in lanes)) // 4
    sums = "float32" if config.format.is_float else "int32"
    sizes: dict[str, dict[str, Any]] = {}

    def add(name: str, shape: Shape, pitch: int, kind: str, index: int | None) -> None:
        item = 4 if kind == sums else width // 8
        size = shape[0] * shape[1] * shape[2] * pitch * item
        sizes[name] = {"size": size, "shape": shape, "pitch": pitch, "kind": kind, "stage": index}

    for stage in stages:
        outputs, inputs, *kernel = stage.weight.shape
        shape = (*kernel, inputs, outputs)
        add(
            f"{stage.name}.weights", shape, round_up(outputs, narrow), config.operand_format,
            stage.index,
        )  # fmt: skip
        for core in sorted({cores[stage.index] for cores in placed.cores}):
            if stage.bias is not None:
                columns = config.cores[core].columns
                shape = (1, 1, -(-outputs // columns), columns)
                pitch = round_up(columns, lcm(config.granule_bytes, 4) // 4)
                add(f"{stage.name}.bias.core{core}", shape, pitch, sums, stage.index)
    shapes: list[tuple[str, Shape, bool, int | None]] = [
        ("input", stages[0].input_shape, False, None)
    ]
    shapes += [(f"{s.name}.output", s.output_shape, s.wide, s.index) for s in stages]
    for name, shape, is_wide, index in shapes:
        pitch = round_up(shape[3], wide if is_wide else narrow)
        add(name, shape, pitch, sums if is_wide else config.operand_format, index)
    offsets: dict[str, int] = {}
    position = 0
    for name, fields in sizes.items():
        offsets[name] = position
        position = round_up(position + fields["size"], _ALIGNMENT)
    return sizes, offsets


def _runs(
    stages: Sequence[Stage],
    config: AdaGPConfig,
    placed: Placement,
    in_predictor: set[int],
    tensors: Mapping[str, Tensor],
) -> list[Run]:
    """All runs; those of one core in the order in which it executes them."""
    plan = [
        (cores[stage.index], group, stage)
        for group, cores in zip(placed.groups, placed.cores, strict=True)
        for stage in stages
    ]
    per_core = {core.index: [p for p in plan if p[0] == core.index] for core in config.cores}
    runs = []
    for index, (core, group, stage) in enumerate(plan):
        own = per_core[core]
        before = plan[index - 1] if stage.index else None
        after = plan[index + 1] if stage.index < len(stages) - 1 else None
        in_other = core == 0 and stage.index in in_predictor
        source = "input" if stage.index == 0 else f"{stages[stage.index - 1].name}.output"
        runs.append(
            Run(
                stage=stage,
                core=config.cores[core],
                images=group,
                source=tensors[source],
                target=tensors[f"{stage.name}.output"],
                weights=tensors[f"{stage.name}.weights"],
                bias=tensors.get(f"{stage.name}.bias.core{core}"),
                weights_memory=1 if in_other else config.cores[core].memories[0],
                first=own[0] == plan[index],
                last=own[-1] == plan[index],
                waits_input=before is not None and before[0] != core,
                signals_input=after is not None and after[0] != core,
            )
        )
    return runs


def _merge(
    config: AdaGPConfig, streams: Mapping[int, Sequence[Sequence[Command]]]
) -> tuple[list[Command], int]:
    """One stream of the cores' own: always the command that can enter its queue first.

    In the order of the result each command's tokens come from commands before it, so a queue that
    is full never blocks what would empty it.
    """
    lists = [[c for commands in runs for c in commands] for runs in streams.values()]
    positions = [0] * len(lists)
    timeline, result = Timeline(config, shared=False), []
    while True:
        heads = [
            (timeline.dispatch(commands[position]), index)
            for index, (commands, position) in enumerate(zip(lists, positions, strict=True))
            if position < len(commands) and timeline.ready(commands[position])
        ]
        if not heads:
            break
        index = min(heads)[1]
        timeline.push(lists[index][positions[index]])
        result.append(lists[index][positions[index]])
        positions[index] += 1
    if positions != [len(commands) for commands in lists]:
        raise RuntimeError("the cores wait for each other: a placement has been lowered wrongly")
    result.append(Command(Opcode.HALT))
    shared = Timeline(config)
    for command in result:
        shared.push(command)
    return result, shared.end


def _info(stage: Stage, schedulers: Iterable[RunScheduler]) -> StageInfo:
    runs, vectors = [], 0
    pes_cycles = 0
    for scheduler in schedulers:
        run = scheduler.run
        if run.stage is not stage:
            continue
        cycles = 0
        for command in scheduler.commands():
            if command.opcode is Opcode.MATMUL:
                tiles, count = matmul_shape(command.fields)
                cycles += tiles * count
        vectors += cycles
        pes_cycles += cycles * run.core.pes
        plan = scheduler.plan
        runs.append(
            {
                "core": run.core.index,
                "rows": run.core.rows,
                "columns": run.core.columns,
                "images": list(run.images),
                "vector_cycles": cycles,
                "tiles": len(plan.tiles),
                "largest_tile": max(scheduler.geometry.vectors(tile) for tile in plan.tiles),
                "column_tiles": scheduler.geometry.column_tiles,
                "k_tiles": scheduler.geometry.k_tiles,
                "k_boxes": len(plan.boxes),
                "weights_resident": plan.resident,
                "weights_memory": run.weights_memory,
            }
        )
    return StageInfo(
        index=stage.index,
        name=stage.name,
        layers=list(stage.layers),
        output=f"{stage.name}.output",
        macs=stage.macs,
        vector_cycles=vectors,
        efficiency=stage.macs / pes_cycles,
        runs=runs,
    )
