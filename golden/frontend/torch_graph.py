"""The layers of a ``torch.nn.Module`` as a list of nodes in order of execution.

The module is traced with torch.fx, so networks with residual additions work. Every node stores one
map; nothing is fused here, since fusing ReLU with what comes before it changes no bit.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import fx, nn
from torch.nn import functional

from .attention import Scores, classify_attention
from .functions import classify
from .global_means import one_mean
from .heads import Heads, classify_heads
from .layers import Found, Refused, module_layer, refuse
from .network_inputs import (
    Constant,
    combined,
    constant_values,
    own_tensor,
    shapes_of,
    token_options,
)
from .slices import Divided, classify_slices
from .tracing import Tracer, require_module, without_data

__all__ = ["Node", "learning", "outputs_of", "trace"]

#: Images of what the layers are tried on, without data, to see the shapes.
_IMAGES = 11
#: Kinds that make vectors of another size.
_OTHER_SIZE = ("linear", "concatenate", "average_pool", "slice")
#: Kinds whose module has parameters.
_LEARNING = (
    "convolution", "depthwise", "linear", "transposed", "batch_norm", "fixed_norm", "layer_norm",
    "group_norm", "embedding",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Node:
    """One layer.

    Members
    -------
    name : unique; torch's path of the module where there is one
    kind : "input", or one of docs/operators.md
    inputs : names of the nodes it reads
    shape : (C, H, W) of the stored map; what torch sees flattened keeps its map
    flat : torch sees vectors
    sequence : torch sees (N, T, C): T vectors in order, which are the rows of a map of one column
    module : the torch module that holds its parameters, or None
    trainable : those of :attr:`parameters` that required a gradient when the network was traced
    options : arguments of the golden function: stride, padding, dilation, groups, kernel, ...
    output : place among what the network returns; None where it is not returned
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    shape: tuple[int, int, int]
    flat: bool = False
    sequence: bool = False
    module: nn.Module | None = None
    trainable: tuple[str, ...] = ()
    options: Mapping = field(default_factory=dict)
    output: int | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters, as in torch's ``state_dict``."""
        if self.module is None:
            return ()
        return tuple(f"{self.name}.{name}" for name, _ in self.module.named_parameters())


def trace(model: nn.Module, input_shape) -> list[Node]:
    """Nodes of ``model``, the input first, the output, or one of several, last.

    Parameters
    ----------
    model : of the layers of docs/operators.md, as modules or as functions in ``forward``; every
        module is in training or evaluation as its ``training`` says
    input_shape : (C, H, W) of one image, (features,) of a vector, (T, C) of a sequence, (T,) of
        tokens for ``nn.Embedding``; a list of these for several inputs

    Raises
    ------
    ValueError
        naming the layer and why it is not supported.
    """
    shapes = shapes_of(input_shape)
    require_module(model)
    try:
        graph = Tracer().trace(model)
    except fx.proxy.TraceError as error:
        raise ValueError(
            f"The model {type(model).__name__} cannot be traced by torch.fx, its forward must not "
            f"depend on data: {error}"
        ) from error
    for step in list(graph.nodes):
        one_mean(graph, step)
    modules = dict(model.named_modules())
    inputs = [step for step in graph.nodes if step.op == "placeholder"]
    if len(inputs) != len(shapes):
        raise ValueError(
            f"The network reads {', '.join(step.name for step in inputs)}; input_shape must have "
            f"the shape of each, not {input_shape!r}"
        )
    kinds = [torch.int64 if token_options(s, modules) else torch.float32 for s in inputs]
    tracing = _Tracing(without_data(model, graph), modules, model)
    with torch.no_grad(), warnings.catch_warnings():
        # Of how torch computes it, which it does not here.
        warnings.filterwarnings("ignore", "Using padding='same' with even kernel lengths")
        tracing.run(
            *(
                torch.empty((_IMAGES, *shape), dtype=kind, device="meta")
                for shape, kind in zip(shapes, kinds, strict=True)
            )
        )
    return list(tracing.nodes.values())


def outputs_of(nodes) -> list[Node]:
    """The nodes that a network returns, in its order."""
    return sorted((node for node in nodes if node.output is not None), key=lambda n: n.output)


def learning(nodes) -> frozenset[str]:
    """Names of the nodes whose output depends on a trainable parameter.

    Raises
    ------
    ValueError
        if an output is not among them.
    """
    found = set()
    for node in nodes:
        if node.trainable or found & set(node.inputs):
            found.add(node.name)
    for output in outputs_of(nodes):
        if output.name in found:
            continue
        names = [name for node in nodes for name in node.parameters]
        raise ValueError(
            f"The network has nothing to train: its output {output.name} must depend on a "
            f"parameter with requires_grad; its parameters are {', '.join(names) or 'none'}"
        )
    return frozenset(found)


class _Tracing(fx.Interpreter):
    """Executes the graph on tensors without data; makes a node of every step."""

    def __init__(self, graph, modules, model):
        super().__init__(graph)
        self.model = model
        self.constants = {}  # torch.fx's nodes that depend on no input
        self.extra_traceback = False
        self.modules = modules
        self.owners = {}  # ids of parameters and buffers -> the module's call that has them
        self.nodes = {}  # of golden, by name
        self.names = {}  # torch.fx's nodes to golden's names
        self.heads = {}  # torch.fx's nodes that have heads -> how many, the order of axes
        self.scores = {}  # torch.fx's nodes that are products of queries and keys
        self.divided = {}  # torch.fx's nodes that are several parts of a map -> their channels
        self.memory = {}  # torch.fx's nodes to the first one that had the same memory
        self.changed = {}  # torch.fx's nodes of which a view was changed in place -> by what

    def run_node(self, step):
        try:
            return self._run(step)
        except Refused as error:
            name, reason = error.args
            raise ValueError(f"Layer {name}{self._kind(step)} is not supported: {reason}") from None

    def _kind(self, step):
        """What a step calls, in brackets."""
        if step.op == "call_module":
            return f" ({type(self.modules[step.target]).__name__})"
        called = getattr(step.target, "__name__", step.target)
        return f" ({called})" if step.op in ("call_function", "call_method") else ""

    def _run(self, step):
        if step.op == "output":
            self._finish(step.args[0])
            return super().run_node(step)
        if step.op == "get_attr":
            self.constants[step] = own_tensor(step, self.model)
            return super().run_node(step)
        name = step.target if step.op == "call_module" else step.name
        args, kwargs = (
            fx.node.map_arg(part, lambda node: self._value(name, node))
            for part in (step.args, step.kwargs)
        )
        if step.target is getattr and args[1] not in ("shape", "ndim", "mT"):
            refuse(name, f"reading .{args[1]} is unknown")
        function = step.op in ("call_function", "call_method")
        held = _maps((args, kwargs))
        attends = step.target is functional.scaled_dot_product_attention
        attends |= any(isinstance(part, Scores) for part in args)
        if any(isinstance(part, Constant) for part in args) and not attends:
            if not held:
                self.constants[step] = combined(step, name, args, kwargs)
                return super().run_node(step)
            args = self._with_maps(name, args)
            for other in set(step.all_input_nodes) & set(self.constants):
                self.names[other], self.memory[other] = other.name, other
        asks = step.target in ("size", "dim") or (step.target is getattr and args[1] != "mT")
        if function and (asks or not held):
            return super().run_node(step)
        found = Found(kind="input")
        if step.op == "placeholder":
            found = Found(kind="input", options=token_options(step, self.modules) or {})
        if step.op == "call_module":
            found = self._module(step, args)
        try:
            result = super().run_node(step)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            refuse(name, str(error).strip().splitlines()[0])
        shape = tuple(getattr(result, "shape", ()))
        if function:
            call = name, step.target, args, dict(kwargs), shape[1:], Node
            found = classify_attention(name, step.target, args, dict(kwargs), Node)
            shapes = (each.shape[1:] for each in result) if isinstance(result, tuple) else ()
            parts = classify_slices(name, step.target, args, dict(kwargs), shapes, Node)
            found = found or classify_heads(*call) or parts or classify(*call)
        if found.divided is not None:
            self.divided[step], self.names[step] = found.divided, found.sources[0].name
            self.memory[step] = self.memory[self._operand(step, found)]
            return result
        if shape[:1] != (_IMAGES,) or len(shape) not in (2, 3, 4):
            refuse(name, f"its output is no batch of maps, sequences or vectors: {shape}")
        self._add(step, name, found, shape[1:])
        return result

    def _value(self, name, node):
        if node in self.changed:
            refuse(name, f"it reads {node.name}, of which {self.changed[node]} changed a view")
        if node in self.constants or node in self.scores:
            return self.constants.get(node) or self.scores[node]
        if node not in self.names:
            return self.env[node]
        found = self.nodes[self.names[node]]
        if node in self.divided:
            return Divided(found, self.divided[node])
        return Heads(found, *self.heads[node]) if node in self.heads else found

    def _operand(self, step, found):
        """The first of torch.fx's nodes whose map ``found`` reads first."""
        wanted = found.sources[0].name
        return next((n for n in step.all_input_nodes if self.names.get(n) == wanted), None)

    def _with_maps(self, name, args):
        """Arguments with nodes in place of constants."""
        other = next((part for part in args if isinstance(part, Node)), None)
        if other is None:
            refuse(name, "a constant goes with a map, not with heads")
        found = []
        for part in args:
            if isinstance(part, Constant):
                values = constant_values(name, part, other)
                part = Node(
                    name=part.name, kind="constant", inputs=(), shape=other.shape, flat=other.flat,
                    sequence=other.sequence, options={"values": values},
                )  # fmt: skip
                part = self.nodes.setdefault(part.name, part)
            found.append(part)
        return found

    def _module(self, step, args):
        name = step.target
        if found := classify_attention(name, self.modules[name], args, {}, Node):
            return found
        if not args or not isinstance(args[0], Node):
            refuse(name, f"its operand must be a map, given by position, not {args}")
        module = self.modules[name]
        for what in ("parameters", "buffers"):
            for tensor in getattr(module, what)():
                if self.owners.setdefault(id(tensor), step) is not step:
                    other = self.owners[id(tensor)].target
                    refuse(name, f"its {what} are used twice, by {other} as well")
        return module_layer(name, module, args[0])

    def _add(self, step, name, found, size):
        """The node of a step, unless it changes nothing."""
        if found.scores is not None:
            old = [self.scores.get(node) for node in step.all_input_nodes if found.in_place]
            changed = {node: found.scores for node, own in self.scores.items() if own in old}
            self.scores |= changed | {step: found.scores}
            self.names[step], self.memory[step] = found.sources[0].name, step
            return
        self.memory[step] = step
        operand = None
        if found.heads:
            self.heads[step] = found.heads
        if found.sources:
            wanted = found.sources[0].name
            for source in found.sources:
                self.nodes.setdefault(source.name, source)
            operand = self._operand(step, found)
            if found.in_place and found.sources[0].kind == "constant":
                refuse(name, "a constant cannot be changed")
            copied = step.target in ("clone", torch.clone)
            if found.kind in ("identity", "flatten", "slice") and not copied:
                self.memory[step] = self.memory[operand]
        if found.kind == "identity":
            self.names[step] = wanted
            return
        name = step.name if name in self.nodes else name
        flat, sequence = len(size) == 1, len(size) == 2
        shape = (size[-1], *size[:-1], *(1, 1)[: 3 - len(size)])
        shape = shape if flat or sequence else size
        if "tokens" in found.options:
            shape, flat, sequence = (found.options["tokens"], size[0], 1), False, True
        if found.kind == "attention":
            query, _, value = found.sources
            shape, sequence = (value.shape[0], query.shape[1], 1), True
        elif found.heads:
            shape, sequence = found.sources[0].shape, True
        if found.kind == "flatten":
            shape = found.sources[0].shape
        elif flat and found.sources and found.kind not in _OTHER_SIZE:
            shape = found.sources[0].shape
        options = found.options
        if "p" in options:
            dropping = ["p" in node.options for node in self.nodes.values()]
            options = {**options, "stream": sum(dropping)}
        module = self.modules[step.target] if found.kind in _LEARNING else None
        self.nodes[name] = Node(
            name=name,
            kind=found.kind,
            inputs=tuple(node.name for node in found.sources),
            shape=tuple(shape),
            flat=flat,
            sequence=sequence,
            module=module,
            trainable=() if module is None else _trainable(name, module),
            options=options,
        )
        self.names[step] = name
        if found.in_place:
            self._change(step, name, wanted, self.memory[operand])

    def _change(self, step, name, old, memory):
        """All steps with this memory have what ``name`` made of the map ``old``."""
        for other, own in self.memory.items():
            if own is memory and other is not step:
                if self.names[other] == old:
                    self.names[other] = name
                elif self.names[other] != name:
                    self.changed[other] = name
        self.memory[step] = memory

    def _finish(self, output):
        several = isinstance(output, tuple | list)
        results = list(output) if several else [output]
        known = [isinstance(r, fx.Node) and r in self.names for r in results]
        if (
            not results
            or not all(known)
            or any(r in kind for r in results for kind in (self.heads, self.scores, self.divided))
        ):
            refuse("output", f"a network returns one map or a tuple of maps, not {output!r}")
        places = [self.names[result] for result in results]
        inner = {name for node in self.nodes.values() for name in node.inputs}
        for place, name in enumerate(places):
            if self.nodes[name].kind == "input":
                only = len(places) == 1
                refuse(name, "the network has no layer" if only else "an output must be computed, "
                       "it is the input")  # fmt: skip
            if places.index(name) < place:
                refuse(name, "it is returned twice; each output must be a layer of its own")
            if name in inner or list(self.nodes)[-1] not in places:
                refuse(name, "the output must be the last layer and nothing else may read it")
            self.nodes[name] = replace(self.nodes[name], output=place)


def _maps(values):
    """Whether there is a node among nested arguments."""
    if isinstance(values, Mapping):
        values = values.values()
    return any(
        isinstance(value, Node | Heads | Scores | Divided)
        or (isinstance(value, Mapping | list | tuple) and _maps(value))
        for value in values
    )


def _trainable(name, module):
    parameters = module.named_parameters()
    return tuple(f"{name}.{short}" for short, values in parameters if values.requires_grad)
