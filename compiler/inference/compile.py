"""From a network to a program that runs it forward."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from torch import nn

from cli.collector import collector_paused
from compiler.codegen.binary.command_bytes import encode_commands
from compiler.codegen.binary.packing import packed
from compiler.codegen.cost import estimate
from compiler.codegen.program import CompiledProgram, LayerInfo, SemaphoreNames, StageInfo
from compiler.errors import CompileError, require_config
from compiler.frontend.layer import Layer
from compiler.frontend.torch_graph import trace
from compiler.stages import stage as watched
from compiler.tensors.intervals import round_up
from compiler.tensors.parameters import pack_state
from compiler.training.compile import plan_memory, write_steps
from compiler.training.program import StepInfo
from hw.config import AdaGPConfig

from .folding import fold
from .fused_product import FusedProduct
from .fusion import FUSED, fuse
from .graph import GraphSteps
from .numbers import with_numbers
from .placement import place
from .run import Plan
from .tiling import Geometry

__all__ = ["compile_network"]

#: Every tensor starts at a multiple of this many bytes: the widest AXI beat, and a command.
_ALIGNMENT = 64
#: Semaphores of a core that order products, VECTOR and another core, and WEIGHTS before LOAD.
_FOR_EARLY_WEIGHTS = 14


@collector_paused()
def compile_network(
    model: nn.Module,
    config: AdaGPConfig,
    input_shape: Sequence[int] | Sequence[Sequence[int]],
    *,
    placement: str | Sequence[int] | None = None,
    parameters: Sequence[Any] | None = None,
    predictor_memory: Iterable[int] | None = None,
    reuse: bool = True,
    loops: bool | None = None,
) -> CompiledProgram:
    """See :func:`compiler.compile`; ``loops`` as of
    :func:`compiler.training.compile.compile_training`."""
    require_config(config)
    images, shape = _sizes(input_shape)
    with watched("trace"):
        traced = fold(trace(copy.deepcopy(model).eval(), shape))
        inputs = [layer for layer in traced if layer.kind == "input"]
        if len(inputs) == 1 and any(layer.name == "input" for layer in traced[1:]):
            raise CompileError(
                "layer input: the images of a program have this name; call it otherwise"
            )
        layers, numbers = with_numbers(fuse(traced, config), config, parameters)
    fused = [layer for layer in layers if layer.kind == FUSED]
    products: list[FusedProduct] = [layer.options["product"] for layer in fused]
    alone = all(layer.kind in (FUSED, "flatten", "input") for layer in layers)
    graph = GraphSteps(
        layers,
        config,
        images=images,
        numbers=numbers,
        placement=place(products, config, images=images, alone=alone, choice=placement),
        memories=_memories(fused, config, predictor_memory),
    )
    plan = plan_memory({"": graph}, reuse=reuse)
    placed = graph.placed(plan.offsets.get)
    early = alone or config.semaphores >= _FOR_EARLY_WEIGHTS
    commands, infos, names = write_steps(graph.groups, config, placed, loops=loops, early=early)
    # The length of the program is known only now: everything else lies behind it. It may be another
    # one when these places are in it.
    code, shift = packed(encode_commands(commands)), 0
    while len(code) > shift:
        more = round_up(len(code), _ALIGNMENT) - shift
        for command in commands:
            if "dram_address" in command.fields:
                command.fields["dram_address"] += more
        code, shift = packed(encode_commands(commands)), shift + more
    plan.require_room(shift)
    tensors = {
        name: replace(tensor, offset=tensor.offset + shift)
        for name, tensor in placed.items()
        if not name.endswith("]")
    }
    state = {
        f"{layer.name}.{name}": values
        for layer in layers
        if layer.module is not None and layer.kind != FUSED
        for name, values in layer.module.state_dict().items()
    }
    contents = {name: placed[name].pack(codes) for name, codes in graph.contents.items()}
    if len(inputs) == 1:
        name, inputs = graph.maps[inputs[0].name], [replace(inputs[0], name="input")]
        tensors["input"] = replace(tensors.pop(name), name="input")
    return CompiledProgram(
        config=config,
        commands=code,
        tensors=tensors,
        contents=contents
        | pack_state(graph.parameters, state)
        | {name: bytes.fromhex(data) for name, data in graph.constants.items()},
        memory_size=round_up(plan.size + shift, _ALIGNMENT),
        stages=_stages(graph, infos),
        estimated_cycles=estimate(commands, config),
        semaphores=[SemaphoreNames(first=0, names=names)],
        inputs=[LayerInfo.of(layer) for layer in inputs],
        results=[
            replace(LayerInfo.of(graph.layers[output.layer]), name=graph.maps[output.layer])
            for output in graph.outputs
        ],
    )


def _sizes(input_shape: Any) -> tuple[int, Any]:
    """Images of a batch, and the shape of each; a list of shapes of a network with several
    inputs."""
    several = isinstance(input_shape, list | tuple) and len(input_shape) > 0
    if several and all(isinstance(shape, list | tuple) for shape in input_shape):
        sizes = [_sizes_of(shape) for shape in input_shape]
        if len({images for images, _ in sizes}) != 1:
            raise CompileError(
                "input_shape: all inputs must have as many images, not "
                f"{', '.join(str(images) for images, _ in sizes)}"
            )
        return sizes[0][0], [shape for _, shape in sizes]
    return _sizes_of(input_shape)


def _sizes_of(input_shape: Any) -> tuple[int, list[int]]:
    try:
        images, *shape = (int(size) for size in input_shape)
    except (TypeError, ValueError):
        images, shape = 0, []
    if len(shape) not in (1, 2, 3) or min(images, *shape) < 1:
        raise CompileError(
            "input_shape must be (N, C, H, W), (N, F), (N, T, C) or (N, T) for tokens, with "
            f"positive sizes, or a list of these, not {input_shape!r}"
        )
    return images, shape


def _memories(
    fused: Sequence[Layer], config: AdaGPConfig, choice: Iterable[int] | None
) -> dict[str, tuple[int, ...]]:
    """Memories that the weights of products go through on core 0, if not its own: those of the
    products in ``choice``, by default of the last one if they fit there."""
    reachable = 1 in config.cores[0].memories
    if choice is None:
        return {layer.name: (1, 0) for layer in fused[-1:] if reachable}
    if choice and not reachable:
        raise CompileError(f"core 0 of {config.variant} does not reach a predictor memory")
    if not set(choice) <= set(range(len(fused))):
        raise CompileError(
            f"predictor_memory must list products from 0 to {len(fused) - 1}, not {list(choice)}"
        )
    return {fused[index].name: (1,) for index in choice}


def _stages(graph: GraphSteps, infos: Sequence[StepInfo]) -> list[StageInfo]:
    """One for each fused product, and for each step of other layers."""
    found: dict[object, StageInfo] = {}
    for number, info in enumerate(infos):
        layer = graph.layers[info.layer]
        core, images = graph.places.get(number, (graph.core, (0, graph.images)))
        run: dict[str, Any] = {
            "core": core.index, "rows": core.rows, "columns": core.columns, "images": list(images),
            "vector_cycles": info.vectors,
        }  # fmt: skip
        key: object = number
        names, output, macs = [f"{layer.name} {layer.kind}"], info.writes[0], 0
        if layer.kind == FUSED:
            key, output, product = layer.name, graph.maps[layer.name], layer.options["product"]
            names, macs = list(product.layers), (images[1] - images[0]) * product.macs
            run |= _cut(graph.plans[layer.name, core.index, images], Geometry(product, core))
        elif layer.kind in ("convolution", "depthwise") and layer.module is not None:
            macs = graph.images * prod(layer.shape[1:]) * int(layer.module.weight.numel())
        index = len(found)
        stage = StageInfo(index=index, name=f"stage{index}", layers=names, output=output, macs=0,
                          vector_cycles=0, efficiency=0.0, runs=[])  # fmt: skip
        stage = found.get(key, stage)
        runs = [*stage.runs, run]
        pes = sum(run["rows"] * run["columns"] * run["vector_cycles"] for run in runs)
        found[key] = replace(
            stage,
            macs=stage.macs + macs,
            vector_cycles=stage.vector_cycles + info.vectors,
            efficiency=(stage.macs + macs) / pes if pes else 0.0,
            runs=runs,
        )
    return list(found.values())


def _cut(plan: Plan, geometry: Geometry) -> dict[str, Any]:
    """How a product is cut."""
    return {
        "tiles": len(plan.tiles),
        "largest_tile": max(geometry.vectors(tile) for tile in plan.tiles),
        "column_tiles": geometry.column_tiles,
        "k_tiles": geometry.k_tiles,
        "k_boxes": len(plan.boxes),
        "weights_resident": plan.resident,
        "weights_memory": plan.weights_memory,
    }
