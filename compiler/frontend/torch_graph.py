"""The layers of a ``torch.nn.Module``, in order of execution, and who reads what.

The module is traced with torch.fx, so networks with residual additions work. Shapes are torch's
own: every layer is run once, in order, on tensors without data. Nothing is fused here.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import fx, nn

from compiler.tensors.intervals import Interval

from .attention import ATTENTION, Scores, attention_operation
from .functions import SHAPE_ATTRIBUTES, SHAPES, Call, Operation, operation
from .global_means import join_means
from .heads import Heads, heads_operation
from .layer import (
    LEARNING,
    Layer,
    backward_order,
    learning,
    outputs,
    readers,
    require_trainable,
)
from .network_inputs import (
    Constant,
    combine,
    embedding_of,
    empty_inputs,
    input_operation,
    own_tensor,
    shapes_of,
    with_constants,
)
from .slices import Parts, slice_operation
from .supported_layers import (
    ALLOWED,
    CHECKS,
    HINTS,
    TOKENS,
    Norm,
    called,
    complete_norm,
    label_of,
    refuse,
)
from .torch_errors import refusing
from .tracing import graph_of, require_module, without_data

__all__ = [
    "Layer",
    "backward_order",
    "learning",
    "outputs",
    "readers",
    "require_trainable",
    "trace",
]

#: Images of the tensors without data: a number that nobody writes into a model.
_IMAGES = 7


def trace(model: nn.Module, input_shape: Sequence[int] | Sequence[Sequence[int]]) -> list[Layer]:
    """Layers of ``model`` in order of execution, the input first. The model is not changed.

    Its ``forward`` returns one map, or a tuple or list of them: see :func:`outputs`. The last layer
    is one of them.

    Parameters
    ----------
    model : of the layers in docs/operators.md, as modules or as functions in ``forward``; a module
        is in training or in evaluation as its ``training`` says
    input_shape : (C, H, W) of one image, (features,), (T, C) of a sequence of T vectors, (T,) of
        tokens, which ``nn.Embedding`` reads; a list of these where ``forward`` has several inputs

    Raises
    ------
    CompileError
        naming the layer, why it cannot be compiled and what can.
    """
    given = shapes_of(input_shape)
    require_module(model)
    graph = graph_of(model)
    join_means(graph)
    shapes, modules = without_data(model, graph), dict(model.named_modules())
    maps = empty_inputs(graph, given, modules, _IMAGES)
    tracing = _Tracing(shapes, modules, model)
    with torch.no_grad(), warnings.catch_warnings():
        # Of how torch computes it, which it does not here.
        warnings.filterwarnings("ignore", "Using padding='same' with even kernel lengths")
        tracing.run(*maps)
    return list(tracing.layers.values())


class _Tracing(fx.Interpreter):
    """Runs the steps of torch.fx on tensors without data and notes a layer for each."""

    def __init__(
        self, shapes: fx.GraphModule, modules: dict[str, nn.Module], model: nn.Module
    ) -> None:
        super().__init__(shapes)
        self.model = model
        self.constants: dict[fx.Node, Constant] = {}
        self.extra_traceback = False  # messages stay as they are
        self.modules = modules  # with their numbers
        self.layers: dict[str, Layer] = {}  # by name
        self.names: dict[fx.Node, str] = {}  # torch.fx's steps to names of layers
        self.heads: dict[fx.Node, tuple[int, str]] = {}  # count and axes of those that have heads
        self.scores: dict[fx.Node, Scores] = {}  # what others make in place of maps
        self.places: dict[fx.Node, tuple[Interval, ...]] = {}  # of maps in several parts
        # Ids of parameters and buffers to the steps that use them.
        self.users: dict[int, fx.Node] = {}
        # Steps whose maps are the same numbers in torch's memory, by the first of them; and what
        # became of those that something changed in place.
        self.storage: dict[fx.Node, fx.Node] = {}
        self.stale: dict[fx.Node, str] = {}

    def run_node(self, step: fx.Node) -> Any:
        if step.op == "output":
            self._finish(step.args[0])
            return super().run_node(step)
        if step.op == "get_attr":
            values = own_tensor(label_of(step), self.model, str(step.target))
            self.constants[step] = Constant(step.name, values.detach())
            return super().run_node(step)
        module = self.modules[step.target] if step.op == "call_module" else None
        label = label_of(step, module) if step.op != "placeholder" else step.name
        args, kwargs = self._operands(step, label)
        if isinstance(module, nn.Embedding) and not _holds_map(args):
            refuse(label, TOKENS)
        # A constant is no map there.
        masked = step.target in ATTENTION or any(isinstance(part, Scores) for part in args)
        if any(isinstance(part, Constant) for part in args) and not masked:
            if not _holds_map([*args, *kwargs.values()]):
                combine(step, label, args, kwargs, self.constants)
                return self._result(step, label)
            args = with_constants(label, args, self.layers)
            for node in set(step.all_input_nodes) & set(self.constants):
                self.names[node], self.storage[node] = node.name, node
        if _asks_for_shape(step, args, kwargs):
            return self._result(step, label)
        if module is not None:
            found = self._module(step, label, module, args)
        result = self._result(step, label)
        if step.op == "placeholder":
            found = input_operation(step, embedding_of(step, self.modules), result)
        elif module is None:
            shape = tuple(getattr(result, "shape", ()))
            call = Call(label=label, target=step.target, args=args, kwargs=kwargs, shape=shape)
            found = (
                attention_operation(call) or heads_operation(call) or slice_operation(call)
                or operation(call)
            )  # fmt: skip
        if found.places is not None:
            (source,) = found.sources
            self.places[step], self.names[step] = found.places, source.name
            self.storage[step] = self.storage[self._step_of(step, source)]
            return result
        if not isinstance(result, torch.Tensor) or result.shape[:1] != (_IMAGES,):
            refuse(label, f"its output is no batch of maps or vectors: {_described(result)}")
        self._note(step, label, found, module, result)
        return result

    def _result(self, step: fx.Node, label: str) -> Any:
        """What torch makes of a step."""
        with refusing(label):
            return super().run_node(step)

    def _operands(self, step: fx.Node, label: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a step: layers in place of maps, and numbers."""

        def value(argument: fx.Node) -> Any:
            if argument in self.stale:
                refuse(
                    label,
                    f"it reads {argument.name}, a view of a map that {self.stale[argument]} has "
                    "changed in place",
                )
            if argument in self.constants:
                return self.constants[argument]
            if argument in self.scores:
                return self.scores[argument]
            if argument in self.names:
                layer = self.layers[self.names[argument]]
                if argument in self.places:
                    return Parts(layer, self.places[argument])
                return Heads(layer, *self.heads[argument]) if argument in self.heads else layer
            return self.env[argument]

        return fx.node.map_arg(step.args, value), dict(fx.node.map_arg(step.kwargs, value))

    def _note(
        self, step: fx.Node, label: str, found: Operation, module: nn.Module | None,
        result: torch.Tensor,
    ) -> None:  # fmt: skip
        """The layer of a step, and whose numbers it has."""
        if found.scores is not None:
            self._note_scores(step, found)
            return
        for source in found.sources:  # an upsampling that only this step needs
            self.layers.setdefault(source.name, source)
        same = found.in_place or found.kind in _VIEWS
        reads = [self._step_of(step, layer) for layer in found.sources[:1] if same]
        if found.in_place and found.sources[0].kind == "constant":
            refuse(label, "a constant cannot be changed")
        self.storage[step] = step
        if found.heads:
            self.heads[step] = found.heads
        if found.kind in _VIEWS and step.target not in _COPYING:
            self.storage[step] = self.storage[reads[0]]
        if found.kind == "identity":
            self.names[step] = found.sources[0].name
            return
        name = step.target if step.op == "call_module" else step.name
        if name in self.layers:
            name = step.name  # a module without parameters may be used many times
        self._append(step, name, found, module, result)
        if found.in_place:
            self._replace(step, label, found.sources[0], self.storage[reads[0]])

    def _note_scores(self, step: fx.Node, found: Operation) -> None:
        if found.in_place:
            (old,) = {self.scores[node] for node in step.all_input_nodes if node in self.scores}
            for node, own in self.scores.items():
                if own is old:
                    self.scores[node] = found.scores
        self.scores[step] = found.scores
        self.names[step], self.storage[step] = found.sources[0].name, step

    def _step_of(self, step: fx.Node, layer: Layer) -> fx.Node:
        """The step among the operands whose map is ``layer``'s."""
        return next(node for node in step.all_input_nodes if self.names.get(node) == layer.name)

    def _replace(self, step: fx.Node, label: str, source: Layer, storage: fx.Node) -> None:
        """What ``step`` has changed in place is from now on what it made of it."""
        for node, own in self.storage.items():
            if own is storage and node is not step:
                if self.names[node] == source.name:
                    self.names[node] = self.names[step]
                elif self.names[node] != self.names[step]:
                    self.stale[node] = label
        self.storage[step] = storage

    def _append(
        self, step: fx.Node, name: str, found: Operation, module: nn.Module | None,
        result: torch.Tensor,
    ) -> None:  # fmt: skip
        if name in self.layers:
            refuse(name, "another layer has this name")
        sources, kind = found.sources, found.kind
        size, flat = tuple(result.shape[1:]), result.dim() == 2
        if flat and not found.shape:
            keeps = sources and kind != "linear" and prod(sources[0].shape) == size[0]
            size = sources[0].shape if keeps else (*size, 1, 1)
        sequence = result.dim() == 3
        if sequence:
            size = size[1], size[0], 1
        if found.shape:
            size, sequence, flat = found.shape, True, False
        if len(size) != 3 or min(size) < 1:
            shape = tuple(result.shape)
            refuse(name, f"its output {shape} is no batch of maps, sequences or vectors")
        self.names[step] = name
        options = found.options
        if "p" in options:
            dropping = ["p" in layer.options for layer in self.layers.values()]
            options = {**options, "stream": sum(dropping)}
        module = module if kind in LEARNING else None
        constants: dict[str, float] = {}
        if isinstance(module, Norm):
            module, constants = complete_norm(module)
        parameters = () if module is None else module.named_parameters()
        self.layers[name] = Layer(
            name=name,
            kind=kind,
            inputs=tuple(source.name for source in sources),
            shape=size,
            flat=flat,
            sequence=sequence,
            module=module,
            trainable=tuple(f"{name}.{short}" for short, p in parameters if p.requires_grad),
            constants=constants,
            options=options,
        )

    def _finish(self, output: Any) -> None:
        returned = output if isinstance(output, list | tuple) else [output]
        for value in returned:
            known = isinstance(value, fx.Node) and value in self.names
            if not known or any(value in kind for kind in (self.heads, self.scores, self.places)):
                refuse("output", f"a network returns a map, or a tuple of maps, not {output!r}")
        names = [self.names[value] for value in returned]
        last, read = list(self.layers)[-1], readers(self.layers.values())
        for number, name in enumerate(names):
            if self.layers[name].kind == "input":
                refuse(
                    name,
                    "the network has no layer"
                    if len(names) == 1
                    else "an output must be what a layer has computed, not the input",
                )
            if name in names[:number]:
                refuse(name, "it is two outputs; each must be a layer of its own")
            if read[name] or last not in names:
                refuse(
                    name,
                    "the output must be the last layer and nothing else may read it"
                    if len(names) == 1
                    else "one output must be the last layer and nothing else may read an output",
                )
            self.layers[name] = replace(self.layers[name], output=number)
        if not names:
            refuse("output", "a network returns a map, or a tuple of maps, not an empty one")

    def _module(
        self, step: fx.Node, label: str, module: nn.Module, args: Sequence[Any]
    ) -> Operation:
        call = Call(label=label, target=module, args=args, kwargs=step.kwargs)
        if (found := attention_operation(call)) is not None:
            return found
        source = call.source()
        self._claim(step, label, "parameters", module.parameters())
        buffers = dict(module.named_buffers())
        self._claim(step, label, f"buffers, {', '.join(buffers)},", buffers.values())
        check = CHECKS.get(type(module))
        if type(module) in HINTS:
            refuse(label, f"it is not supported: {HINTS[type(module)]}")
        if check is None:
            refuse(label, f"{type(module).__name__} is not supported; allowed are {ALLOWED}")
        kind, options = check(label, module, source)
        in_place = bool(getattr(module, "inplace", False)) and kind != "identity"
        return Operation(kind=kind, options=options, sources=(source,), in_place=in_place)

    def _claim(self, step: fx.Node, label: str, what: str, tensors: Iterable[torch.Tensor]) -> None:
        """Refuse a module if another step has used its parameters or buffers."""
        for tensor in tensors:
            other = self.users.setdefault(id(tensor), step)
            if other is not step:
                who = (
                    "because the module is called twice"
                    if other.target == step.target
                    else f"by {other.target} as well"
                )
                refuse(label, f"its {what} are used twice, {who}; each layer must have its own")


#: What has the numbers of the map that it reads.
_VIEWS = ("identity", "flatten", "slice")
#: What gives its map another place.
_COPYING = ("clone", torch.clone)


def _asks_for_shape(step: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a step only computes with shapes."""
    if step.op not in ("call_function", "call_method"):
        return False
    if step.target is getattr and args[1] != "mT":
        if args[1] not in SHAPE_ATTRIBUTES:
            refuse(label_of(step), f"{called(step)} is not supported; allowed are {ALLOWED}")
        return True
    return step.target in SHAPES or not _holds_map([*args, *kwargs.values()])


def _holds_map(values: Iterable[Any]) -> bool:
    return any(
        _holds_map(value)
        if isinstance(value, list | tuple)
        else isinstance(value, Layer | Heads | Scores | Parts)
        for value in values
    )


def _described(result: Any) -> str:
    if isinstance(result, torch.Tensor):
        return f"{tuple(result.shape)} for {_IMAGES} images"
    return f"a {type(result).__name__}"
