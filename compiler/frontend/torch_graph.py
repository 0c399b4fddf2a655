"""The layers of a ``torch.nn.Module``, in order of execution, and who reads what.

The module is traced with torch.fx, so networks with residual additions work. Shapes are torch's
own: every layer is run once, in order, on tensors without data. Nothing is fused here.
"""

import copy
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from compiler.errors import CompileError

from .supported_layers import (
    ALLOWED,
    CHECKS,
    LayerKind,
    called,
    flatten,
    label_of,
    refuse,
    require_module,
)

__all__ = ["Layer", "backward_order", "learning", "readers", "require_trainable", "trace"]

_ADD = (operator.add, operator.iadd, torch.add, "add", "add_")
_RELU = (functional.relu, torch.relu, "relu", "relu_")
_FLATTEN = (torch.flatten, "flatten")
#: Kinds with parameters.
_LEARNING = ("convolution", "depthwise", "linear", "batch_norm")
#: Images of the tensors without data; batch normalisation refuses a single one.
_IMAGES = 2


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer, which stores one map.

    Members
    -------
    name : unique; torch's path of the module where there is one
    kind : "input", "convolution", "depthwise", "linear", "batch_norm", "relu", "max_pool",
        "average_pool", "flatten" or "add"
    inputs : names of the layers it reads
    shape : (C, H, W) of the stored map; what torch sees flattened keeps its map
    flat : torch sees vectors
    module : the torch module that holds its parameters, or None
    trainable : those of :attr:`parameters` that required a gradient when the network was traced
    options : pairs (vertical, horizontal) of what the kind has: stride, padding, dilation, kernel;
        and groups, a number
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    shape: tuple[int, int, int]
    flat: bool = False
    module: nn.Module | None = None
    trainable: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters, as in torch's ``state_dict``."""
        if self.module is None:
            return ()
        return tuple(f"{self.name}.{name}" for name, _ in self.module.named_parameters())


def trace(model: nn.Module, input_shape: Sequence[int]) -> list[Layer]:
    """Layers of ``model``, the input first, the output last. The model is not changed.

    Parameters
    ----------
    model : of Conv2d, Linear, BatchNorm2d, BatchNorm1d of vectors, ReLU, MaxPool2d, AvgPool2d,
        AdaptiveAvgPool2d(1), Flatten, Identity, and additions of two maps; as modules, or as
        ``relu``, ``flatten`` and ``+`` in ``forward``
    input_shape : (C, H, W) of one image, or (features,)

    Raises
    ------
    CompileError
        naming the layer, why it cannot be compiled and what can.
    """
    try:
        shape = tuple(int(size) for size in input_shape)
    except (TypeError, ValueError):
        shape = ()
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise CompileError(f"input_shape must be (C, H, W) or (features,), not {input_shape!r}")
    require_module(model)
    try:
        graph = fx.Tracer().trace(model)
    except fx.proxy.TraceError as error:
        raise CompileError(
            f"the model {type(model).__name__} cannot be traced by torch.fx, its forward must not "
            f"depend on data: {error}"
        ) from error
    without_data = {
        id(tensor): tensor.detach().to("meta") for tensor in [*model.parameters(), *model.buffers()]
    }
    for parameter in model.parameters():
        without_data[id(parameter)] = nn.Parameter(without_data[id(parameter)])
    shapes = fx.GraphModule(copy.deepcopy(model, without_data), graph)
    tracing = _Tracing(shapes, dict(model.named_modules()))
    with torch.no_grad():
        tracing.run(torch.empty((_IMAGES, *shape), device="meta"))
    return list(tracing.layers.values())


def learning(layers: Iterable[Layer]) -> frozenset[str]:
    """Names of the layers whose output depends on a trainable parameter."""
    found: set[str] = set()
    for layer in layers:
        if layer.trainable or found & set(layer.inputs):
            found.add(layer.name)
    return frozenset(found)


def require_trainable(layers: Sequence[Layer]) -> None:
    """Raise a :class:`CompileError` unless the output depends on a trainable parameter."""
    if layers[-1].name not in learning(layers):
        names = [name for layer in layers for name in layer.parameters]
        raise CompileError(
            f"the network has nothing to train: its output {layers[-1].name} must depend on a "
            f"parameter with requires_grad; its parameters are {', '.join(names) or 'none'}"
        )


def readers(layers: Iterable[Layer]) -> dict[str, tuple[str, ...]]:
    """For every layer the names of the layers that read its map, in order of execution.

    A layer that reads a map twice (``x + x``) is there twice. Backward, the gradients of a map
    arrive in the opposite order.
    """
    found: dict[str, list[str]] = {layer.name: [] for layer in layers}
    for layer in layers:
        for name in layer.inputs:
            found[name].append(layer.name)
    return {name: tuple(names) for name, names in found.items()}


def backward_order(layers: Sequence[Layer]) -> tuple[str, ...]:
    """Names of the layers whose output needs a gradient, the output of the network first.

    These are the layers that depend on a trainable parameter and that the output depends on, and
    always the output itself.
    """
    depends, wanted, order = learning(layers), {layers[-1].name}, []
    for layer in reversed(layers):
        if layer.name in wanted:
            order.append(layer.name)
            wanted |= depends & set(layer.inputs)
    return tuple(order)


class _Tracing(fx.Interpreter):
    """Runs the steps of torch.fx on tensors without data and notes a layer for each."""

    def __init__(self, shapes: fx.GraphModule, modules: Mapping[str, nn.Module]) -> None:
        super().__init__(shapes)
        self.extra_traceback = False  # messages stay as they are
        self.modules = modules  # with their numbers
        self.layers: dict[str, Layer] = {}  # by name
        self.names: dict[fx.Node, str] = {}  # torch.fx's steps to names of layers
        self.users: dict[int, fx.Node] = {}  # ids of parameters to the steps that use them

    def run_node(self, step: fx.Node) -> Any:
        options: dict[str, Any]
        if step.op == "output":
            self._finish(step.args[0])
            return super().run_node(step)
        if step.op == "placeholder":
            if self.layers:
                refuse(step.name, f"a network has one input, not {step.name} besides")
            name, kind, options, module, label = step.name, "input", {}, None, step.name
        elif step.op == "call_module":
            module = self.modules[step.target]
            name, label = step.target, label_of(step, module)
            kind, options = self._module(step, module)
        elif step.op in ("call_function", "call_method"):
            name, module, label = step.name, None, label_of(step)
            kind, options = self._function(step)
        else:
            refuse(
                label_of(step),
                f"a module's own tensor or constant, {step.target}, cannot be used; allowed are "
                f"the parameters of {ALLOWED}",
            )
        try:
            result = super().run_node(step)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            refuse(label, str(error).strip().splitlines()[0])
        if kind == "identity":
            self.names[step] = self._sources(step)[0].name
        else:
            if name in self.layers:
                name = step.name  # a module without parameters may be used many times
            self._append(step, name, kind, options, module, result)
        return result

    def _append(
        self,
        step: fx.Node,
        name: str,
        kind: str,
        options: Mapping[str, Any],
        module: nn.Module | None,
        result: torch.Tensor,
    ) -> None:
        if name in self.layers:
            refuse(name, "another layer has this name")
        sources = [] if kind == "input" else self._sources(step)
        size, flat = tuple(result.shape[1:]), result.dim() == 2
        if flat:
            keeps = sources and kind != "linear" and prod(sources[0].shape) == size[0]
            size = sources[0].shape if keeps else (*size, 1, 1)
        if len(size) != 3 or min(size) < 1:
            refuse(name, f"its output {tuple(result.shape)} is no batch of maps or vectors")
        self.names[step] = name
        module = module if kind in _LEARNING else None
        parameters = () if module is None else module.named_parameters()
        self.layers[name] = Layer(
            name=name,
            kind=kind,
            inputs=tuple(source.name for source in sources),
            shape=size,
            flat=flat,
            module=module,
            trainable=tuple(f"{name}.{short}" for short, p in parameters if p.requires_grad),
            options=options,
        )

    def _sources(self, step: fx.Node) -> list[Layer]:
        """Layers of the maps that a step reads."""
        count = 2 if step.target in _ADD else 1
        wanted = step.args[:count]
        if len(wanted) < count or not all(isinstance(value, fx.Node) for value in wanted):
            given = ", ".join(map(str, [*step.args, *step.kwargs.items()])) or "nothing"
            refuse(
                label_of(step),
                f"its operands must be {'two maps' if count == 2 else 'one map'}, given by "
                f"position, not {given}",
            )
        return [self.layers[self.names[argument]] for argument in wanted]

    def _finish(self, output: Any) -> None:
        if not isinstance(output, fx.Node):
            refuse("output", f"a network has one output, one map, not {output!r}")
        last = self.names[output]
        if last != list(self.layers)[-1] or readers(self.layers.values())[last]:
            refuse(last, "the output must be the last layer and nothing else may read it")
        if self.layers[last].kind == "input":
            refuse(last, "the network has no layer")

    def _module(self, step: fx.Node, module: nn.Module) -> LayerKind:
        name, source = label_of(step, module), self._sources(step)[0]
        for parameter in module.parameters():
            if self.users.setdefault(id(parameter), step) is not step:
                other = self.users[id(parameter)].target
                refuse(
                    name,
                    f"its parameters are used twice, by {other} as well; each layer must have its "
                    "own",
                )
        check = CHECKS.get(type(module))
        if check is None:
            refuse(name, f"{type(module).__name__} is not supported; allowed are {ALLOWED}")
        return check(name, module, source)

    def _function(self, step: fx.Node) -> LayerKind:
        name, target = label_of(step), step.target
        if target not in (*_ADD, *_RELU, *_FLATTEN):
            refuse(name, f"{called(step)} is not supported; allowed are {ALLOWED}")
        if target in _ADD:
            if step.kwargs or len(step.args) > 2:
                more = [*map(str, step.args[2:]), *(f"{k}={v}" for k, v in step.kwargs.items())]
                refuse(name, f"an addition takes two maps and nothing else, not {', '.join(more)}")
            first, second = self._sources(step)
            if (first.shape, first.flat) != (second.shape, second.flat):
                refuse(
                    name,
                    f"it adds maps of {first.shape} and {second.shape}; they must have one shape",
                )
            return "add", {}
        self._sources(step)
        if target in _RELU:
            return "relu", {}
        limits: dict[str, Any] = dict(zip(("start_dim", "end_dim"), step.args[1:]), **step.kwargs)
        return flatten(name, limits.get("start_dim", 0), limits.get("end_dim", -1))
