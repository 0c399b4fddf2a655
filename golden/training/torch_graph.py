"""The layers of a ``torch.nn.Module`` as a list of nodes in order of execution.

The module is traced with torch.fx, so networks with residual additions work. Every node stores one
map; nothing is fused here, since fusing ReLU with what comes before it changes no bit.
"""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import fx, nn
from torch.nn import functional

from golden.layers.conv2d import pair
from golden.layers.conv_general import output_map

__all__ = ["Node", "learning", "trace"]


_ALLOWED = (
    "Conv2d, Linear, BatchNorm2d, BatchNorm1d, ReLU, MaxPool2d, AvgPool2d, AdaptiveAvgPool2d, "
    "Flatten, Identity, relu, flatten and +"
)


@dataclass(frozen=True, kw_only=True)
class Node:
    """One layer.

    Members
    -------
    name : unique; torch's path of the module where there is one
    kind : "input", "convolution", "depthwise", "linear", "batch_norm", "relu", "max_pool",
        "average_pool", "flatten" or "add"
    inputs : names of the nodes it reads
    shape : (C, H, W) of the stored map; what torch sees flattened keeps its map
    flat : torch sees vectors
    module : the torch module that holds its parameters, or None
    trainable : those of :attr:`parameters` that required a gradient when the network was traced
    options : arguments of the golden function: stride, padding, dilation, groups, kernel
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    shape: tuple[int, int, int]
    flat: bool = False
    module: nn.Module | None = None
    trainable: tuple[str, ...] = ()
    options: Mapping = field(default_factory=dict)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters, as in torch's ``state_dict``."""
        if self.module is None:
            return ()
        return tuple(f"{self.name}.{name}" for name, _ in self.module.named_parameters())


def trace(model: nn.Module, input_shape) -> list[Node]:
    """Nodes of ``model``, the input first, the output last.

    Parameters
    ----------
    model : of Conv2d, Linear, BatchNorm2d, BatchNorm1d of vectors, ReLU, MaxPool2d, AvgPool2d,
        AdaptiveAvgPool2d(1), Flatten, Identity, and additions of two maps; as modules, or as
        ``relu``, ``flatten`` and ``+`` in ``forward``
    input_shape : (C, H, W) of one image, or (features,)

    Raises
    ------
    ValueError
        naming the layer and why it is not supported.
    """
    shape = tuple(int(size) for size in input_shape)
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise ValueError(f"input_shape must be (C, H, W) or (features,), not {input_shape!r}")
    _require_module(model)
    try:
        graph = fx.Tracer().trace(model)
    except fx.proxy.TraceError as error:
        raise ValueError(
            f"The model {type(model).__name__} cannot be traced by torch.fx, its forward must not "
            f"depend on data: {error}"
        ) from error
    tracing = _Tracing(dict(model.named_modules()))
    for step in graph.nodes:
        tracing.add(step, shape)
    return tracing.result


def learning(nodes) -> frozenset[str]:
    """Names of the nodes whose output depends on a trainable parameter.

    Raises
    ------
    ValueError
        if the last node is not among them.
    """
    found = set()
    for node in nodes:
        if node.trainable or found & set(node.inputs):
            found.add(node.name)
    if nodes[-1].name not in found:
        names = [name for node in nodes for name in node.parameters]
        raise ValueError(
            f"The network has nothing to train: its output {nodes[-1].name} must depend on a "
            f"parameter with requires_grad; its parameters are {', '.join(names) or 'none'}"
        )
    return frozenset(found)


class _Tracing:
    def __init__(self, modules):
        self.modules = modules
        self.nodes = {}  # of golden, by name
        self.names = {}  # torch.fx's nodes to golden's names
        self.result = None

    def add(self, step, input_shape):
        try:
            self._add(step, input_shape)
        except _Refused as error:
            name, reason = error.args
            raise ValueError(f"Layer {name}{self._kind(step)} is not supported: {reason}") from None

    def _kind(self, step):
        """What a step calls, in brackets."""
        if step.op == "call_module":
            return f" ({type(self.modules[step.target]).__name__})"
        called = getattr(step.target, "__name__", step.target)
        return f" ({called})" if step.op in ("call_function", "call_method") else ""

    def _add(self, step, input_shape):
        if step.op == "placeholder":
            if self.nodes:
                _refuse(step.name, f"a network has one input, not {step.name} besides")
            flat = len(input_shape) == 1
            shape = (*input_shape, 1, 1) if flat else input_shape
            self._append(
                step, Node(name=step.name, kind="input", inputs=(), shape=shape, flat=flat)
            )
        elif step.op == "output":
            self._finish(step.args[0])
        elif step.op == "call_module":
            self._module(step, step.target, self.modules[step.target])
        elif step.op in ("call_function", "call_method"):
            self._function(step)
        else:
            _refuse(step.name, f"a module's own tensor or constant, {step.target}, is not allowed")

    def _finish(self, output):
        if not isinstance(output, fx.Node):
            _refuse("output", f"a network has one output, not {output!r}")
        last = self.names[output]
        if last != list(self.nodes)[-1] or any(last in node.inputs for node in self.nodes.values()):
            _refuse(last, "the output must be the last layer and nothing else may read it")
        if self.nodes[last].kind == "input":
            _refuse(last, "the network has no layer")
        self.result = list(self.nodes.values())

    def _append(self, step, node):
        self.nodes[node.name] = node
        self.names[step] = node.name

    def _source(self, step, position=0):
        argument = step.args[position] if position < len(step.args) else None
        if not isinstance(argument, fx.Node):
            given = ", ".join(map(str, [*step.args, *step.kwargs.items()])) or "nothing"
            _refuse(step.name, f"its operands must be maps, given by position, not {given}")
        return self.nodes[self.names[argument]]

    def _simple(self, step, name, kind, shape=None, *, flat=None, options=None, module=None):
        source = self._source(step)
        node = Node(
            name=name,
            kind=kind,
            inputs=(source.name,),
            shape=source.shape if shape is None else shape,
            flat=source.flat if flat is None else flat,
            options=options or {},
            module=module,
            trainable=() if module is None else _trainable(name, module),
        )
        self._append(step, node)

    def _module(self, step, name, layer):
        add = {
            nn.Conv2d: self._convolution,
            nn.Linear: self._linear,
            nn.BatchNorm2d: self._batch_norm,
            nn.BatchNorm1d: self._batch_norm,
            nn.MaxPool2d: self._pool,
            nn.AvgPool2d: self._pool,
            nn.AdaptiveAvgPool2d: self._adaptive,
        }.get(type(layer))
        mine = {id(parameter) for parameter in layer.parameters()}
        for node in self.nodes.values():
            if node.module and mine & {id(other) for other in node.module.parameters()}:
                _refuse(name, f"its parameters are used twice, by {node.name} as well")
        if add is not None:
            add(step, name, layer)
        elif type(layer) is nn.ReLU:
            self._simple(step, step.name if name in self.nodes else name, "relu")
        elif type(layer) is nn.Flatten:
            self._flatten(step, name, (layer.start_dim, layer.end_dim))
        elif type(layer) is nn.Identity:
            self.names[step] = self._source(step).name
        else:
            _refuse(name, f"{type(layer).__name__} is unknown; supported are {_ALLOWED}")

    def _function(self, step):
        target = step.target
        if target in (operator.add, operator.iadd, torch.add, "add", "add_"):
            if step.kwargs:
                _refuse(step.name, f"an addition takes two maps and nothing else: {step.kwargs}")
            first, second = self._source(step), self._source(step, 1)
            if (first.shape, first.flat) != (second.shape, second.flat):
                _refuse(step.name, f"it adds maps of {first.shape} and {second.shape}")
            self._append(
                step,
                Node(
                    name=step.name,
                    kind="add",
                    inputs=(first.name, second.name),
                    shape=first.shape,
                    flat=first.flat,
                ),
            )
        elif target in (functional.relu, torch.relu, "relu", "relu_"):
            self._simple(step, step.name, "relu")
        elif target in (torch.flatten, "flatten"):
            arguments = dict(zip(("start_dim", "end_dim"), step.args[1:]), **step.kwargs)
            limits = arguments.get("start_dim", 0), arguments.get("end_dim", -1)
            self._flatten(step, step.name, limits)
        else:
            unknown = getattr(target, "__name__", target)
            _refuse(step.name, f"{unknown} is unknown; supported are {_ALLOWED}")

    def _convolution(self, step, name, layer):
        source = self._source(step)
        if source.flat:
            _refuse(name, "its input has been flattened to vectors")
        if layer.padding_mode != "zeros":
            _refuse(name, f"padding_mode must be 'zeros', not {layer.padding_mode!r}")
        if isinstance(layer.padding, str):
            _refuse(name, f"padding must be given in numbers, not as {layer.padding!r}")
        if layer.in_channels != source.shape[0]:
            _refuse(name, f"it takes {layer.in_channels} channels but gets {source.shape[0]}")
        options = {key: pair(getattr(layer, key)) for key in ("stride", "padding", "dilation")}
        try:
            size = output_map(source.shape[1:], kernel=layer.kernel_size, **options)
        except ValueError as error:
            _refuse(name, str(error))
        shape, kind = (layer.out_channels, *size), "convolution"
        if layer.groups == layer.in_channels == layer.out_channels != 1:
            kind = "depthwise"
        else:
            options["groups"] = layer.groups
        self._simple(step, name, kind, shape, options=options, module=layer)

    def _linear(self, step, name, layer):
        source = self._source(step)
        features = source.shape[0] * source.shape[1] * source.shape[2]
        if not source.flat:
            _refuse(name, "a Flatten layer must come before it")
        if layer.in_features != features:
            _refuse(name, f"it takes {layer.in_features} features but gets {features}")
        self._simple(step, name, "linear", (layer.out_features, 1, 1), module=layer)

    def _batch_norm(self, step, name, layer):
        source = self._source(step)
        if source.flat != isinstance(layer, nn.BatchNorm1d) or (
            source.flat and source.shape[1:] != (1, 1)
        ):
            given = f"{'vectors of a map' if source.flat else 'a map'} {source.shape}"
            _refuse(name, f"BatchNorm2d takes maps, BatchNorm1d vectors of a linear layer: {given}")
        for key in ("affine", "track_running_stats"):
            if not getattr(layer, key):
                _refuse(name, f"{key} must be True, not {getattr(layer, key)}")
        if layer.momentum is None:
            _refuse(name, "momentum must be a number, not None")
        if layer.num_features != source.shape[0]:
            _refuse(name, f"it takes {layer.num_features} channels but gets {source.shape[0]}")
        self._simple(step, name, "batch_norm", module=layer)

    def _pool(self, step, name, layer):
        maximum = isinstance(layer, nn.MaxPool2d)
        if layer.ceil_mode:
            _refuse(name, f"ceil_mode must be False, not {layer.ceil_mode}")
        if maximum and pair(layer.dilation) != (1, 1):
            _refuse(name, f"dilation must be 1, not {layer.dilation}")
        if maximum and layer.return_indices:
            _refuse(name, f"return_indices must be False, not {layer.return_indices}")
        if not maximum and pair(layer.padding) != (0, 0):
            _refuse(name, f"padding must be 0, not {layer.padding}")
        if not maximum and layer.divisor_override is not None:
            _refuse(name, f"divisor_override must be None, not {layer.divisor_override}")
        kernel, padding = pair(layer.kernel_size), pair(layer.padding)
        options = {"kernel": kernel, "stride": pair(layer.stride)}
        if maximum:
            options["padding"] = padding
        self._window(step, name, "max_pool" if maximum else "average_pool", options)

    def _adaptive(self, step, name, layer):
        if pair(layer.output_size) != (1, 1):
            _refuse(name, f"output_size must be 1, not {layer.output_size}")
        size = self._source(step).shape[1:]
        self._window(step, name, "average_pool", {"kernel": size, "stride": size})

    def _window(self, step, name, kind, options):
        source = self._source(step)
        if source.flat:
            _refuse(name, "its input has been flattened to vectors")
        try:
            size = output_map(source.shape[1:], **options)
        except ValueError as error:
            _refuse(name, str(error))
        self._simple(step, name, kind, (source.shape[0], *size), options=options)

    def _flatten(self, step, name, limits):
        if limits[0] != 1 or limits[1] not in (-1, 3):
            _refuse(
                name,
                "it must flatten everything but the batch, start_dim=1 and end_dim=-1 or 3, not "
                f"start_dim={limits[0]} and end_dim={limits[1]}",
            )
        self._simple(step, name, "flatten", flat=True)


def _trainable(name, module):
    parameters = module.named_parameters()
    return tuple(f"{name}.{short}" for short, values in parameters if values.requires_grad)


def _require_module(model):
    """A module that torch.fx can look into."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"The model must be a torch.nn.Module, not {type(model).__name__}")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{f'Layer {name}' if name else 'The model'} is scripted or traced "
                f"({type(module).__name__}); torch.fx needs the torch.nn.Module it was made of"
            )


class _Refused(ValueError):
    """Name of a layer, and why it is not supported."""


def _refuse(name, reason):
    raise _Refused(name, reason)
