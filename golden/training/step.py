"""A whole training step as the accelerator computes it: every stored map, gradient and weight.

The executable form of docs/training.md, put together: a network is traced to nodes
(:func:`golden.frontend.torch_graph.trace`), run forward, its loss differentiated, the nodes run
backward, and the weights updated.
"""

import numpy as np
from torch import nn

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.float32_unit import widen
from golden.arithmetic.formats import FLOAT32, format_by_name
from golden.frontend.network_inputs import encode_inputs
from golden.frontend.torch_graph import Node, learning, outputs_of, trace
from golden.layers import elementwise_pool
from golden.layers.optimizer import BrakedSGD, require_optimizer, update
from golden.layers.product import PRODUCTS, Product

from . import map_layers, norm_layers, sequence_layers
from .arguments import require_names
from .batch_loss import batch_loss, total_loss
from .divided_maps import divided_maps, joined_gradients, part_of
from .head_echo import echo_step, head_of
from .loss_function import LossFunction
from .sampled_backward import sampled_backward, sampled_layers, sampled_rows
from .sequence_layers import SEQUENCE_KINDS
from .step_result import ForwardPass, StepResult

__all__ = ["ForwardPass", "StepResult", "Training", "trace"]


class Training:
    """A network in training.

    A parameter that requires no gradient (``requires_grad_(False)``) keeps its value: it has no
    gradient, no slots, no update, no weight decay. Running statistics follow every forward pass.

    Parameters
    ----------
    model : the initial state; see :func:`golden.frontend.torch_graph.trace`. It is not changed.
    input_shape : (C, H, W) of one image, or (features,)
    optimizer : :class:`golden.layers.optimizer.SGD`, ``BrakedSGD``, ``Adam`` or ``AdamW``; may be
        replaced between steps by one that keeps the same numbers
    rows, columns : of the array; columns matter to non-finite values in grouped layers only
    granule : of memory, in operands: see :func:`golden.layers.concatenation.concatenate`
    operand_format : name of a float format
    loss : "cross_entropy" with labels (N,), or "mean_squared_error" with real targets: (N, H, W, C)
        where the output is a map, (N, features) in torch's order where it is a vector; or
        ``nn.CrossEntropyLoss(...)`` with its label smoothing and ``ignore_index``,
        ``nn.MSELoss()``. A network that returns several maps has a loss for each, in a list, or one
        for all of them, and its targets are a list; what is minimised is the sum
    sample_seed : of dropout in the first step; each further one has the next
    echo : steps of the head alone behind every batch, see :mod:`golden.training.head_echo`
    sampling : :class:`golden.layers.row_sampling.RowSampling`, or None; its ratios may change
    guard, guard_tile : see :func:`golden.layers.optimizer.update`

    Members
    -------
    nodes : list of :class:`golden.frontend.torch_graph.Node`
    outputs : those that the network returns
    losses : :class:`~golden.training.loss_function.LossFunction` of each of them
    weights : float32 bits by parameter, in torch's names and shapes: the master copy
    operands : operand codes of the weights of products
    slots : the optimizer's numbers by trainable parameter
    running : float32 bits by torch's buffer name
    count : steps done

    Raises
    ------
    ValueError
        for an unsupported layer, naming it, for a format that is no float format, for another
        optimizer, and if the output depends on no trainable parameter.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        input_shape,
        optimizer,
        rows: int,
        columns: int | None,
        granule: int | None = None,
        operand_format: str = "bf16",
        loss="cross_entropy",
        sample_seed: int = 0,
        echo: int = 0,
        sampling=None,
        guard: bool = True,
        guard_tile: int | None = None,
    ):
        self.format = format_by_name(operand_format)
        self._require_format(self.format)
        self.nodes: list[Node] = self._trace(model, input_shape)
        self.outputs = outputs_of(self.nodes)
        self.optimizer, self.rows, self.columns = optimizer, rows, columns
        self._array = {"rows": rows, "granule": granule}
        self._divided = divided_maps(self.nodes, granule)
        several = loss if isinstance(loss, list | tuple) else [loss] * len(self.outputs)
        self.losses = [LossFunction.of(own) for own in several]
        if len(self.losses) != len(self.outputs):
            raise ValueError(f"{len(self.losses)} losses for {len(self.outputs)} outputs")
        self.guard, self.guard_tile = guard, guard_tile
        self.sample_seed, self.echo, self.sampling = sample_seed, echo, sampling
        self.sampled = sampled_layers(self.nodes, sampling, self.format)
        if echo:
            head_of(self.outputs)
        self.weights, self.operands, self.slots, self.running = {}, {}, {}, {}
        self.count = 0
        self._learning = self._what_learns()
        for node in self.nodes:
            if node.module is None:
                continue
            for name, values in node.module.named_parameters():
                self.weights[f"{node.name}.{name}"] = encode(FLOAT32, values.detach().numpy())
            for name, values in node.module.named_buffers():
                if name.startswith("running"):
                    self.running[f"{node.name}.{name}"] = encode(FLOAT32, values.numpy())
            if node.kind in PRODUCTS:
                name = f"{node.name}.weight"
                self.operands[name] = encode(self.format, decode(FLOAT32, self.weights[name]))
            for name in node.trainable:
                self.slots[name] = optimizer.start(self.weights[name])

    def _require_format(self, fmt):
        if not fmt.is_float:
            raise ValueError(f"Training needs a float format, not {fmt.name}")

    def _trace(self, model, input_shape):
        return trace(model, input_shape)

    def _what_learns(self):
        """Names of the nodes that depend on a trainable parameter."""
        return learning(self.nodes)

    @property
    def optimizer(self):
        """What updates the parameters."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer):
        require_optimizer(optimizer)
        self._optimizer = optimizer

    def state(self) -> dict:
        """Everything that a later step depends on; arrays are copied."""
        return {
            "count": self.count,
            "weights": {name: values.copy() for name, values in self.weights.items()},
            "slots": {name: tuple(s.copy() for s in slots) for name, slots in self.slots.items()},
            "running": {name: values.copy() for name, values in self.running.items()},
        }

    def restore(self, state: dict) -> None:
        """Go on from what :meth:`state` returned; a ValueError names what of it is missing."""
        require_names("The state", state, own := self.state())
        for part in ("weights", "slots", "running"):
            require_names(f"The state's {part}", state[part], own[part])
        self.count = state["count"]
        self.weights, self.slots = dict(state["weights"]), dict(state["slots"])
        self.running = dict(state["running"])
        for name in self.operands:
            self.operands[name] = encode(self.format, decode(FLOAT32, self.weights[name]))

    def encode_input(self, images) -> np.ndarray | list[np.ndarray]:
        """Operand codes of real images (N, H, W, C), vectors (N, features), sequences (N, T, C), or
        of tokens (N, T); a list where the network has several inputs, which ``images`` is then."""
        return encode_inputs(self.format, self.nodes, images)

    def predict(self, images) -> np.ndarray:
        """Real outputs in evaluation mode, in torch's shape: (N, features), (N, C, H, W) or
        (N, T, C); a list where the network returns several."""
        maps = self.forward(self.encode_input(images), training=False).outputs
        found = []
        for node in self.outputs:
            values = np.moveaxis(decode(FLOAT32, self._wide_output(node, maps)), 3, 1)
            if node.sequence:
                values = np.moveaxis(values[..., 0], 1, 2)
            found.append(values.reshape(len(values), -1) if node.flat else values)
        return found if len(found) > 1 else found[0]

    def forward(self, input_bits, *, training: bool = True) -> ForwardPass:
        """Run operand codes (N, H, W, C) through all nodes; running statistics stay as they are."""
        done = ForwardPass()
        given = iter(input_bits if isinstance(input_bits, list | tuple) else [input_bits])
        for node in self.nodes:
            values = [done.outputs[name] for name in node.inputs]
            if node.kind == "input":
                values = [np.asarray(next(given))]
            output, flags = self._forward_node(node, values, done, training)
            done.outputs[node.name] = output
            done.flags[node.name] = int(np.bitwise_or.reduce(flags, axis=None))
        return done

    def step(self, images, targets) -> StepResult:
        """One batch: forward, loss, backward, update. ``images`` as :meth:`encode_input` takes."""
        return self.step_bits(self.encode_input(images), targets)

    def step_bits(self, input_bits, targets) -> StepResult:
        """:meth:`step` from operand codes."""
        done = self.forward(input_bits)
        losses = self._losses(done.outputs, targets)
        pending = {n.name: [loss.gradient] for n, loss in zip(self.outputs, losses, strict=True)}
        maps, parameters, flags = {}, {}, {}
        for node in reversed(self.nodes):
            if node.name not in pending:
                continue  # it depends on no parameter, or the loss does not depend on it
            dy, flags[node.name] = joined_gradients(
                self.format, pending.pop(node.name), node.name in self._divided
            )
            maps[node.name] = dy
            results, new, node_flags = self._backward_node(node, dy, done)
            parameters.update(new)
            flags[node.name] |= int(node_flags)
            for name, values in zip(node.inputs, results, strict=True):
                if name in self._learning:
                    pending.setdefault(name, []).append(values)
        skipped = self._update(done, parameters, flags)
        echoes = [echo_step(self, done, targets, flags) for _ in range(self.echo)]
        return StepResult(
            forward=done,
            loss=total_loss(losses),
            losses=losses,
            echoes=echoes,
            gradients=maps,
            parameter_gradients=parameters,
            skipped=skipped,
            flags=flags,
        )

    def _update(self, done, gradients, flags):
        """Running statistics, then parameters that have gradients; adds to ``flags``."""
        self._update_running(done, flags)
        self.count += 1
        return self.update_parameters(done, gradients, flags)

    def update_parameters(self, done, gradients, flags) -> dict[str, int]:
        """Update parameters that have gradients, float32 bits by name; adds to ``flags``. Returns
        how many tiles of each the guard left as they were."""
        skipped = {}
        for name, gradient in gradients.items():
            shape = gradient.shape
            weights, slots = self.weights[name], self.slots[name]
            if isinstance(self.optimizer, BrakedSGD) and name in self.operands:
                kernel = self._kernel_shape(name, done)
                weights, gradient = weights.reshape(kernel), gradient.reshape(kernel)
                slots = tuple(slot.reshape(kernel) for slot in slots)
            result = update(
                self.optimizer, self.format, weights, slots, gradient, guard=self.guard,
                tile=self.guard_tile,
            )  # fmt: skip
            self.weights[name] = result.weights.reshape(shape)
            self.slots[name] = tuple(
                slot.reshape(shape) if slot.shape == weights.shape else slot
                for slot in result.slots
            )
            if name in self.operands:
                self.operands[name] = result.operands.reshape(shape)
            skipped[name], flags[name] = result.skipped, result.flags
        return skipped

    def _kernel_shape(self, name, done):
        """(O, I, KH, KW) of the weights ``name`` of a product whose gradient is to be braked."""
        node = next(node for node in self.nodes if f"{node.name}.weight" == name)
        if node.kind == "embedding" or node.options.get("groups", 1) > 1:
            raise ValueError(
                f"layer {node.name}: the gradient of an embedding or a grouped convolution is not "
                "braked"
            )
        return self._kernel(node, done.outputs[node.inputs[0]]).shape

    def _forward_node(self, node, values, done, training):
        fmt, seed = self.format, self.batch_seed() if training else None
        if node.kind == "constant":
            return encode(fmt, node.options["values"]), 0
        x = values[0]
        if node.kind in PRODUCTS:
            sums, flags = self.run_product(node, x)
            if node.output is not None:
                return sums, flags
            codes, new = elementwise_pool.round_sums(fmt, sums)
            return codes, flags | new
        if node.kind in norm_layers.NORMS:
            return self._normalize(node, x, done, training)
        if node.kind in SEQUENCE_KINDS:
            return sequence_layers.forward(self, node, values, done, seed)
        if node.kind == "input":
            return x, 0
        return map_layers.forward(fmt, node, values, seed, **self._array)

    def run_product(self, node, x) -> tuple[np.ndarray, np.ndarray]:
        """Float32 sums of a product of operand codes ``x`` with its weights, and flags."""
        bias = self.weights.get(f"{node.name}.bias")
        return self._product(node).forward(x, self._kernel(node, x), bias)

    def _normalize(self, node, x, done, training):
        codes, flags, statistics, done.factors[node.name] = norm_layers.forward(
            self.format, node, x, self.weights | self.running, training=training
        )
        if statistics is not None:
            done.statistics[node.name] = statistics
        return codes, flags

    def _backward_node(self, node, dy, done):
        """Gradients of the inputs, gradients of the parameters, flags."""
        fmt, outputs = self.format, done.outputs
        if node.name in self.sampled:
            return sampled_backward(self, node, dy, done)
        if node.kind in PRODUCTS:
            return self.backward_product(node, dy, outputs[node.inputs[0]])
        if node.kind in SEQUENCE_KINDS:
            return sequence_layers.backward(self, node, dy, done, self.batch_seed())
        if node.kind in norm_layers.NORMS:
            dx, new, flags = norm_layers.backward(
                fmt, node, dy, outputs[node.inputs[0]], self.running,
                done.statistics.get(node.name), done.factors[node.name],
                sampled_rows(self, node, done),
            )  # fmt: skip
            return [dx], new, flags
        maps = [outputs[name] for name in node.inputs]
        if node.kind == "slice" and node.inputs[0] in self._divided:
            return [part_of(dy, maps[0].shape[3], **node.options)], {}, 0
        results, flags = map_layers.backward(
            fmt, node, dy, maps, outputs[node.name], self.batch_seed(), **self._array
        )
        return results, {}, flags

    def batch_seed(self):
        """Of the random numbers of this step."""
        return self.sample_seed + self.count

    def backward_product(self, node, dy, x):
        """Gradients of the input and the parameters of a product, and flags."""
        new, flags = self.parameter_gradients(node, dy, x)
        if node.inputs[0] not in self._learning:
            return [None], new, flags
        kernel = self._kernel(node, x)
        sums, more = self._product(node).input_gradient(dy, kernel, x.shape[1:3])
        dx, last = elementwise_pool.round_sums(self.format, sums)
        return [dx], new, flags | more | last

    def parameter_gradients(self, node, dy, x):
        """Gradients of the weights and the bias of a product, of those that learn, and flags."""
        product, (weight, bias) = (
            self._product(node),
            (f"{node.name}.{n}" for n in ("weight", "bias")),
        )
        new, flags = {}, 0
        if weight in node.trainable:
            dw, flags = product.weight_gradient(x, dy, self._kernel(node, x))
            dw = dw[:, :, 0, 0].T if node.kind == "embedding" else dw
            new[weight] = dw.reshape(self.weights[weight].shape)
        if bias in node.trainable:
            new[bias], more = product.bias_gradient(dy)
            flags |= more
        return new, flags

    def _product(self, node):
        return Product(
            fmt=self.format,
            kind=node.kind,
            options=node.options,
            rows=self.rows,
            columns=self.columns,
        )

    def _kernel(self, node, x):
        """Weights (O, I, KH, KW); a linear layer's kernel is its map, of sequences one pixel."""
        weights = self.operands[f"{node.name}.weight"]
        if weights.ndim == 4:
            return weights
        if node.kind == "embedding":
            return weights.T[..., np.newaxis, np.newaxis]
        size = x.shape[1:3] if node.kind == "linear" else (1, 1)
        return weights.reshape(len(weights), -1, *size)

    def _update_running(self, done, flags):
        for node in self.nodes:
            if node.name in done.statistics:
                new, more = norm_layers.new_running(node, self.running, done.statistics[node.name])
                self.running |= new
                flags[node.name] = flags.get(node.name, 0) | more

    def _wide_output(self, node, maps):
        values = maps[node.name]
        return values if values.dtype == np.uint32 else widen(self.format, values)

    def _losses(self, maps, targets):
        """Of every output."""
        if len(self.outputs) == 1:
            targets = [targets]
        elif not isinstance(targets, list | tuple) or len(targets) != len(self.outputs):
            raise ValueError(f"Targets must be a list of {len(self.outputs)}, one for each output")
        return [
            batch_loss(self.format, loss, self._wide_output(node, maps), own, node)
            for node, loss, own in zip(self.outputs, self.losses, targets, strict=True)
        ]
