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
    graph = fx.Tracer().trace(model)
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
        if step.op == "placeholder":
            if self.nodes:
                _refuse(step.name, "a network has one input")
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
            _refuse(step.name, f"torch.fx calls it {step.op}")

    def _finish(self, output):
        if not isinstance(output, fx.Node):
            _refuse("output", "a network has one output")
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
            _refuse(step.name, "its operands must be maps")
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
        if any(node.module is layer for node in self.nodes.values()):
            _refuse(name, "its parameters are used twice")
        if add is not None:
            add(step, name, layer)
        elif type(layer) is nn.ReLU:
            self._simple(step, step.name if name in self.nodes else name, "relu")
        elif type(layer) is nn.Flatten:
            self._flatten(step, name, (layer.start_dim, layer.end_dim))
        elif type(layer) is nn.Identity:
            self.names[step] = self._source(step).name
        else:
            _refuse(name, f"{type(layer).__name__} is unknown")

    def _function(self, step):
        target = step.target
        if target in (operator.add, operator.iadd, torch.add, "add", "add_"):
            if step.kwargs:
                _refuse(step.name, "an addition takes two maps and nothing else")
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
            _refuse(step.name, f"{getattr(target, '__name__', target)} is unknown")

    def _convolution(self, step, name, layer):
        source = self._source(step)
        if source.flat:
            _refuse(name, "its input has been flattened to vectors")
        if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
            _refuse(name, "padding must be zeros, given in numbers")
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
            _refuse(name, "BatchNorm2d takes maps, BatchNorm1d vectors of a linear layer")
        if not layer.affine or not layer.track_running_stats or layer.momentum is None:
            _refuse(name, "it needs affine, track_running_stats and a momentum")
        if layer.num_features != source.shape[0]:
            _refuse(name, f"it takes {layer.num_features} channels but gets {source.shape[0]}")
        self._simple(step, name, "batch_norm", module=layer)

    def _pool(self, step, name, layer):
        maximum = isinstance(layer, nn.MaxPool2d)
        if layer.ceil_mode:
            _refuse(name, "ceil_mode must be False")
        if maximum and (pair(layer.dilation) != (1, 1) or layer.return_indices):
            _refuse(name, "dilation must be 1 and return_indices False")
        if not maximum and (pair(layer.padding) != (0, 0) or layer.divisor_override is not None):
            _refuse(name, "padding must be 0 and divisor_override None")
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
            _refuse(name, f"it must flatten everything but the batch, not dimensions {limits}")
        self._simple(step, name, "flatten", flat=True)


def _trainable(name, module):
    parameters = module.named_parameters()
    return tuple(f"{name}.{short}" for short, values in parameters if values.requires_grad)


def _refuse(name, reason):
    raise ValueError(f"Layer {name} is not supported: {reason}")
