"""ADA-GP training as the accelerator computes it: predicted gradients and the predictor's own.

The executable form of docs/prediction.md on top of :class:`golden.training.step.Training`.
"""

from dataclasses import dataclass, field, fields

import numpy as np

from golden.arithmetic.float32_unit import VectorUnit, widen
from golden.frontend.torch_graph import Node
from golden.layers.optimizer import SGD
from golden.training.step import StepResult, Training

from .arithmetic import (
    GRADIENT_STATISTICS,
    INPUT_STATISTICS,
    StatisticsRule,
    predicted_gradient,
    reorganize_map,
    scaled_error,
    standardize,
)
from .config import PredictorConfig
from .predictor import PredictorForward, PredictorGradients, PredictorNetwork
from .schedule import Phase

__all__ = ["LayerPrediction", "PredictedLayer", "PredictedStep", "PredictedTraining"]

#: Fields of PredictorConfig that are taken; the others have to be as they are by default.
_USED = ("channels", "map_size", "running", "seed", "learning_rate", "momentum")


@dataclass(frozen=True, kw_only=True)
class PredictedLayer:
    """A layer whose weight is predicted.

    Members
    -------
    node : :class:`golden.frontend.torch_graph.Node`
    source : name of the node whose stored map the predictor sees
    kernel : (O, I, KH, KW); a linear layer's kernel is its map
    """

    node: Node
    source: str
    kernel: tuple[int, int, int, int]

    @property
    def parameter(self) -> str:
        """Name of the weight."""
        return f"{self.node.name}.weight"

    @property
    def outputs(self) -> int:
        """O."""
        return self.kernel[0]

    @property
    def size(self) -> int:
        """n, weights of an output channel."""
        return self.kernel[1] * self.kernel[2] * self.kernel[3]

    def to_rows(self, weights) -> np.ndarray:
        """Weights in torch's shape as (n, O), rows in order of (kh, kw, input channel)."""
        return np.reshape(weights, self.kernel).transpose(2, 3, 1, 0).reshape(self.size, -1)

    def from_rows(self, rows) -> np.ndarray:
        """The inverse: (O, I, KH, KW)."""
        outputs, inputs, *kernel = self.kernel
        return np.reshape(rows, (*kernel, inputs, outputs)).transpose(3, 2, 0, 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerPrediction:
    """What was computed for one layer in one batch.

    Members
    -------
    cells : a, (S * S, O) float32 bits, the reorganised map
    standardized : A, (S * S + 1, O) operand codes
    predictor : :class:`golden.prediction.predictor.PredictorForward`: Hw, H, out
    gradient : g, (n, O) float32 bits: the predicted one in Phase GP, else the true one
    error : E, (n, O) operand codes; None in Phase GP
    learned : :class:`golden.prediction.predictor.PredictorGradients`: dV, dHw, dH, dT, dtaps; None
        in Phase GP
    rejected : 0 or 1 by "input_statistics", "gradient_statistics", "predictor_weights" and "taps":
        what the guard left as it was; empty in Phase GP
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    """

    cells: np.ndarray
    standardized: np.ndarray
    predictor: PredictorForward
    gradient: np.ndarray
    error: np.ndarray | None = None
    learned: PredictorGradients | None = None
    rejected: dict[str, int] = field(default_factory=dict)
    flags: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictedStep(StepResult):
    """What one batch computes.

    As :class:`golden.training.step.StepResult`; in Phase GP ``gradients`` holds that of the head's
    output alone, ``parameter_gradients`` and ``skipped`` what was updated, and ``loss`` is None
    without a head.

    Members
    -------
    phase : :class:`golden.prediction.schedule.Phase`
    layers : :class:`LayerPrediction` by name of the layer
    """

    phase: Phase
    layers: dict[str, LayerPrediction]


class PredictedTraining(Training):
    """A network in training whose batches of Phase GP have no backward pass.

    Parameters
    ----------
    model, options : as :class:`golden.training.step.Training`
    predictor : :class:`golden.prediction.config.PredictorConfig`, of which channels, map_size,
        running, seed, learning_rate and momentum may be chosen
    predictor_rows : rows of the core that runs the predictor; None for ``rows``
    predict : names of the layers to predict; None for all that can be, which are those whose
        weight is trainable. Others hold in Phase GP.

    Members
    -------
    layers : :class:`PredictedLayer` by name, in order of execution
    head : the only output if it is linear and has a trainable parameter: it gets its exact gradient
        in Phase GP; else None
    predictor : :class:`golden.prediction.predictor.PredictorNetwork`
    predictor_rate, predictor_momentum : real numbers, rounded to float32; may be changed between
        batches
    predictor_running : weight of the past in the statistics
    input_statistics, gradient_statistics : float32 bits (5,) and (8,) by layer, in the order of
        :data:`golden.prediction.arithmetic.INPUT_STATISTICS` and ``GRADIENT_STATISTICS``

    Raises
    ------
    ValueError
        as :class:`golden.training.step.Training`; for a field of ``predictor`` that is not used,
        naming it; for a name in ``predict`` that cannot be predicted, and if no layer can.
    """

    def __init__(
        self,
        model,
        *,
        rows: int,
        predictor: PredictorConfig = PredictorConfig(),  # noqa: B008 (immutable)
        predictor_rows: int | None = None,
        predict=None,
        **options,
    ):
        super().__init__(model, rows=rows, **options)
        _check_config(predictor)
        self.predictor_rows = rows if predictor_rows is None else predictor_rows
        last, *others = self.outputs
        exact = not others and last.kind == "linear" and last.trainable
        self.head = last if exact else None
        self.layers = self._choose(predict)
        self.predictor_running = predictor.running
        self.predictor_rate = predictor.learning_rate
        self.predictor_momentum = predictor.momentum
        self.predictor = PredictorNetwork(
            self.format,
            largest=max(layer.size for layer in self.layers.values()),
            config=predictor,
            rows=self.predictor_rows,
        )
        self.input_statistics, self.gradient_statistics = (
            {name: np.zeros(len(numbers), np.uint32) for name in self.layers}
            for numbers in (INPUT_STATISTICS, GRADIENT_STATISTICS)
        )

    @property
    def predictor_weights(self) -> np.ndarray:
        """V, (largest n, F + 1) float32 bits."""
        return self.predictor.weights

    @property
    def predictor_velocity(self) -> np.ndarray:
        """Of V."""
        return self.predictor.velocity

    @property
    def predictor_operands(self) -> np.ndarray:
        """Operand codes of V."""
        return self.predictor.operands

    @property
    def taps(self) -> np.ndarray:
        """(10, c) float32 bits of the convolution."""
        return self.predictor.taps

    @property
    def taps_velocity(self) -> np.ndarray:
        """Of the taps."""
        return self.predictor.taps_velocity

    @property
    def toeplitz(self) -> np.ndarray:
        """T, (S * S + 1, F) operand codes."""
        return self.predictor.toeplitz

    def state(self) -> dict:
        """As that of :class:`golden.training.step.Training`, with predictor and statistics."""
        return {
            **super().state(),
            "predictor": self.predictor.state(),
            "input_statistics": _copy(self.input_statistics),
            "gradient_statistics": _copy(self.gradient_statistics),
        }

    def restore(self, state: dict) -> None:
        """Go on from what :meth:`state` returned."""
        super().restore(state)
        self.predictor.restore(state["predictor"])
        self.input_statistics = _copy(state["input_statistics"])
        self.gradient_statistics = _copy(state["gradient_statistics"])

    def step(self, images, targets, phase: Phase = Phase.BP) -> PredictedStep:
        """One batch; ``images`` as :meth:`encode_input` takes, ``targets`` as in training."""
        return self.step_bits(self.encode_input(images), targets, phase)

    def step_bits(self, input_bits, targets, phase: Phase = Phase.BP) -> PredictedStep:
        """:meth:`step` from operand codes."""
        if phase.backpropagates:
            result = super().step_bits(input_bits, targets)
            layers = self._learn(result)
        else:
            result, layers = self._predict(input_bits, targets)
        values = {part.name: getattr(result, part.name) for part in fields(StepResult)}
        return PredictedStep(**values, phase=phase, layers=layers)

    def _learn(self, result):
        """Statistics of all layers forward, then predictions and the predictor's steps backward."""
        rule = StatisticsRule(
            self.format, rows=self.predictor_rows, running=self.predictor_running, guard=self.guard
        )
        inputs = {}
        for name, layer in self.layers.items():
            unit = VectorUnit()
            cells = self._cells(unit, layer, result.forward)
            self.input_statistics[name], rejected = rule.observe_input(
                unit, self.input_statistics[name], cells
            )
            statistics = self.input_statistics[name]
            standardized = standardize(unit, self.format, cells, statistics)
            inputs[name] = unit, rejected, cells, standardized
        optimizer = SGD(learning_rate=self.predictor_rate, momentum=self.predictor_momentum)
        results = {}
        for name, layer in reversed(self.layers.items()):
            unit, rejected, cells, standardized = inputs[name]
            gradient = layer.to_rows(result.parameter_gradients[layer.parameter])
            done = self.predictor.forward(standardized, layer.size)
            self.gradient_statistics[name], no_gradient = rule.observe_gradient(
                unit, self.gradient_statistics[name], gradient, done.output
            )
            error = scaled_error(
                unit, self.format, gradient, done.output, self.gradient_statistics[name]
            )
            learned = self.predictor.learn(standardized, done, error, optimizer, guard=self.guard)
            rejected = {"input_statistics": rejected, "gradient_statistics": no_gradient}
            results[name] = LayerPrediction(
                cells=cells,
                standardized=standardized,
                predictor=done,
                gradient=gradient,
                error=error,
                learned=learned,
                rejected=rejected | learned.rejected,
                flags=unit.flags | done.flags | learned.flags,
            )
        return results

    def _predict(self, input_bits, targets):
        """Forward, the head's exact gradient, and an update with predicted gradients."""
        forward = self.forward(input_bits)
        gradients, flags, maps, losses, results = {}, {}, {}, [], {}
        for name, layer in self.layers.items():
            unit = VectorUnit()
            cells = self._cells(unit, layer, forward)
            standardized = standardize(unit, self.format, cells, self.input_statistics[name])
            done = self.predictor.forward(standardized, layer.size)
            gradient = predicted_gradient(unit, done.output, self.gradient_statistics[name])
            shape = self.weights[layer.parameter].shape
            gradients[layer.parameter] = layer.from_rows(gradient).reshape(shape)
            results[name] = LayerPrediction(
                cells=cells,
                standardized=standardized,
                predictor=done,
                gradient=gradient,
                flags=unit.flags | done.flags,
            )
        if self.head is not None:
            name = self.head.name
            losses = self._losses(forward.outputs, targets)
            maps[name] = losses[0].gradient
            features = forward.outputs[self.head.inputs[0]]
            new, flags[name] = self.parameter_gradients(self.head, maps[name], features)
            gradients |= new
        result = StepResult(
            forward=forward,
            loss=losses[0] if losses else None,
            losses=losses,
            gradients=maps,
            parameter_gradients=gradients,
            skipped=self._update(forward, gradients, flags),
            flags=flags,
        )
        return result, results

    def _cells(self, unit, layer, forward):
        """The reorganised map of a layer."""
        stored = forward.outputs[layer.source]
        wide = stored if stored.dtype == np.uint32 else widen(self.format, stored)
        return reorganize_map(unit, wide, self.predictor.size)

    def _choose(self, names):
        """Predicted layers by name."""
        shapes = {node.name: node.shape for node in self.nodes}
        wanted = _contributing(self.nodes)
        found = {}
        for node in self.nodes:
            if not _predictable(node) or node is self.head or node.name not in wanted:
                continue
            readers = [other for other in self.nodes if node.name in other.inputs]
            alone = len(readers) == 1 and readers[0].kind == "relu"
            kernel = (*node.module.weight.shape, 1, 1)[:4]
            if node.kind == "linear":
                kernel = (kernel[0], *shapes[node.inputs[0]])
            source = readers[0].name if alone else node.name
            found[node.name] = PredictedLayer(node=node, source=source, kernel=kernel)
        if names is not None:
            if unknown := sorted(set(names) - set(found)):
                raise ValueError(
                    f"predict: {', '.join(unknown)} cannot be predicted; the model has "
                    f"{', '.join(found) or 'no layer that can'}"
                )
            found = {name: layer for name, layer in found.items() if name in set(names)}
        if not found:
            raise ValueError("predict: no layer to predict")
        return found


def _predictable(node):
    """Dense and depthwise convolutions, linear layers, with a weight that is trainable."""
    if f"{node.name}.weight" not in node.trainable:
        return False
    if node.kind == "convolution":
        return node.options["groups"] == 1
    return node.kind in ("depthwise", "linear")


def _contributing(nodes):
    """Names of the nodes that an output depends on."""
    names = {node.name for node in nodes if node.output is not None}
    for node in reversed(nodes):
        if node.name in names:
            names.update(node.inputs)
    return names


def _check_config(config):
    default = PredictorConfig()
    wrong = [
        f"{part.name} must be {getattr(default, part.name)!r}, not {getattr(config, part.name)!r}"
        for part in fields(config)
        if part.name not in _USED and getattr(config, part.name) != getattr(default, part.name)
    ]
    if wrong:
        raise ValueError("PredictorConfig for the accelerator: " + "; ".join(wrong))


def _copy(arrays):
    return {name: values.copy() for name, values in arrays.items()}
