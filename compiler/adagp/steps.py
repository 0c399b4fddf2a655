"""Steps of a batch that learns by gradient prediction: Phase GP, and backpropagation beside which
the predictor learns."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.view import Coefficient
from compiler.frontend.torch_graph import Layer
from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_weight_gradient import weight_gradient
from compiler.kernels.convolution.reorganize import reorganize
from compiler.kernels.maps.pooling import max_pool
from compiler.kernels.updates.rules import MomentumRule
from compiler.kernels.updates.update import update
from compiler.tensors.parameters import StoredParameter
from compiler.tensors.tensor import Tensor
from compiler.training.graph import LONG
from compiler.training.map_steps import window_options
from compiler.training.named_tensors import TensorReference
from compiler.training.step import VECTOR
from compiler.training.units import UNITS
from hw.config import AdaGPConfig, CoreConfig

from .predicted_layers import predicted_layers
from .predictor import error, learn, predict
from .standardize import standardize
from .statistics import finish_statistics, gradient_statistics, gradient_sums
from .step_times import StepTimes
from .tensors import GRADIENT_STATISTICS, LayerTensors, PredictorShape, PredictorTensors

__all__ = ["PredictionSteps"]

_ByName = Mapping[str, Tensor]
#: What makes the parameter and the factor of an update, and the tensors that it reads and writes.
_Update = tuple[
    Callable[[_ByName], StoredParameter], Callable[[_ByName], tuple[Tensor, int]],
    list[Tensor], list[Tensor],
]  # fmt: skip


class PredictionSteps(StepTimes):
    """The steps of a batch.

    Parameters
    ----------
    layers, options : see :class:`~compiler.training.steps.TrainingSteps`
    core : the core that runs the predictor
    shape : :class:`~compiler.adagp.tensors.PredictorShape`
    predict : names of the layers to predict, None for all
    together : whether steps run beside each other; None: if the batch is long
    backpropagate : whether this is a batch of backpropagation, or of Phase GP

    Members
    -------
    predictor : :class:`~compiler.adagp.tensors.PredictorTensors`
    head : name of the layer with an exact gradient in Phase GP, or None
    forward_cycles : vectors that enter the main array for products forward
    """

    def __init__(
        self, layers: Sequence[Layer], config: AdaGPConfig, *, core: CoreConfig,
        shape: PredictorShape, predict: Collection[str] | None, backpropagate: bool,
        together: bool | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self._predictor_core, self._shape, self._backpropagate = core, shape, backpropagate
        self._late: list[tuple[int, LayerTensors]] = []
        self._beside: list[LayerTensors] = []
        self._predictor_free = 0  # when the predictor's core has done what it has got so far
        self._wanted = together
        # (When its cells are there, layer), and when the last map in the background is done.
        self._reorganized: list[tuple[int, Layer]] = []
        self._background_free = 0
        self._predicted, self.head = predicted_layers(layers, predict)
        super().__init__(layers, config, **options)

    def _build(self, layers: Sequence[Layer]) -> None:
        weights = [(name, self.parameters[f"{name}.weight"]) for name in self._predicted]
        self.predictor = PredictorTensors(self.config, self._predictor_core, self._shape, weights)
        self.tensors |= self.predictor.tensors
        # A depthwise convolution is work of the vector engine, and so are updates.
        products = [
            self._array_cycles(layer) if layer.kind in ("convolution", "linear") else 0
            for layer in layers
        ]
        cycles, self.forward_cycles = 0, sum(products)  # of the main array so far, and in all
        self.together = self.forward_cycles > LONG if self._wanted is None else self._wanted
        # Where steps may run beside each other, all that the predictor wants of a vector engine is
        # beside products of the main core. Else a predictor with a memory alone has updates, and
        # maps that are read again to be reorganized, in the background; one with a core does all of
        # it there.
        has_memory, has_core = self.config.has_predictor_memory, self.config.has_predictor_core
        self._is_aside = has_memory and self.together
        self._in_background = has_memory and not has_core and not self.together
        self._is_apart = has_core and not self.together
        for number, layer in enumerate(layers):
            self._beside = self._ready(cycles, products[number])
            self._forward(layer)
            cycles += products[number]
            self._use_cells(cycles)
            if (observed := self._observed(layer)) is not None:
                self._observe(observed, cycles, self._until_next(layers, products, number))
        if self._backpropagate:
            self._add_loss()
            self._use_cells()
            self._backward(layers)
        else:
            self._end_of_prediction()

    def _end_of_prediction(self) -> None:
        """The updates that are left: the last on the predictor's core, the others on the main core
        beside the loss; and the head's."""
        late = [own for _, own in self._late]
        self._beside = late[:-1] if self.head is not None else []
        for own in late[len(self._beside) :]:
            self._predicted_update(own, predictor=True)
        if self.head is not None:
            self._add_loss()
        self._use_cells()
        if self.head is not None:
            self._exact_head(self.layers[self.head])

    def _add(
        self, layer: str, direction: str, function: Callable[..., object], *names: TensorReference,
        reads: Iterable[str | None] = (), writes: Iterable[str | None] = (), **options: Any,
    ) -> None:  # fmt: skip
        """As everywhere; updates are beside products and loss; a product reorganizes its map."""
        if function is forward and self._is_held(layer):
            cells = self.predictor.layers[layer].cells
            writes = [*writes, cells.name]
            options["named"] = options.get("named", {}) | {"cells": cells.name}
        if (function is forward or direction == "loss") and self._beside:
            updates = [self._update(own) for own in self._beside]
            self._beside = []

            def beside(program: CoreProgram, tensors: Mapping[str, Tensor]) -> None:
                for placed, factor, _, _ in updates:
                    update(program, placed(tensors), self._rule, factor=factor(tensors))

            reads = [*reads, *(tensor.name for *_, part, _ in updates for tensor in part)]
            writes = [*writes, *(tensor.name for *_, part in updates for tensor in part)]
            named = options.get("named", {}) | {"tensors": dict}
            options |= {"beside": beside, "named": named}
        super()._add(layer, direction, function, *names, reads=reads, writes=writes, **options)

    @property
    def kept(self) -> set[str]:
        return super().kept | self.predictor.kept

    # Forward ---------------------------------------------------------------------------------

    def _predictor_step(
        self, layer: Layer, direction: str, function: Callable[..., object],
        *names: TensorReference, reads: Iterable[Tensor], writes: Iterable[Tensor],
        predictor: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        """A step on the core of the predictor; ``reads`` and ``writes`` are tensors. What may run
        beside products on its core is in the memory of these."""
        unit = UNITS.get(direction, "")
        if self._is_aside and unit == VECTOR:
            predictor = False
        elif self.config.has_predictor_memory:
            unit = ""
        self._add(
            layer.name, direction, function, *names,
            reads=[tensor.name for tensor in reads], writes=[tensor.name for tensor in writes],
            predictor=predictor, unit=unit, **options,
        )  # fmt: skip

    def _forward_max_pool(self, layer: Layer, sources: list[str]) -> None:
        if self._backpropagate:
            return super()._forward_max_pool(layer, sources)
        self._simple(layer, sources, max_pool, **window_options(layer))

    def _until_next(self, layers: Sequence[Layer], products: Sequence[int], number: int) -> int:
        """Cycles of the main array from the end of a layer to that of the next predicted one, or
        none: behind the last one there is nothing to hide an update."""
        cycles = 0
        for layer, product in zip(layers[number + 1 :], products[number + 1 :], strict=True):
            cycles += product
            if layer.name in self._predicted:
                return cycles
        return 0

    def _observed(self, layer: Layer) -> Layer | None:
        """The layer whose gradients are predicted from the map that ``layer`` has written, if there
        is one."""
        if layer.kind == "relu" and self._follower(layer.inputs[0]) == layer.name:
            layer = self.layers[layer.inputs[0]]
        elif self._follower(layer.name) is not None:
            return None
        return layer if layer.name in self._predicted else None

    def _follower(self, name: str) -> str | None:
        """The ReLU that alone reads a map and writes another one; products write that of theirs."""
        relu = self._relu_behind(name)
        return None if relu in self._fused else relu

    def _observe(self, layer: Layer, cycles: int, window: int) -> None:
        own = self.predictor.layers[layer.name]
        y = self.maps[self._follower(layer.name) or layer.name]
        if self._is_held(layer.name):
            if self._is_apart:
                self._react(layer, cycles, window)
            else:
                # Its sums are folded beside the next product.
                self._reorganized.append((cycles + 1, layer))
            return
        self._predictor_step(
            layer, "reorganize", reorganize, y, own.cells.name,
            reads=[self.tensors[y]], writes=[own.cells], background=self._in_background,
        )  # fmt: skip
        if self._in_background:
            begin = max(cycles, self._background_free)
            self._background_free = begin + self._pooling_cycles(own)
            self._reorganized.append((self._background_free, layer))
        else:
            self._react(layer, cycles, window)

    def _use_cells(self, cycles: int | None = None) -> None:
        """What follows from the maps that are reorganized after ``cycles`` of products, or from all
        of them: commands behind those that wait for cells would wait, too."""
        while self._reorganized and (cycles is None or self._reorganized[0][0] <= cycles):
            self._react(self._reorganized.pop(0)[1])

    def _react(self, layer: Layer, cycles: int = 0, window: int = 0) -> None:
        """What the predictor makes of a layer's cells; ``cycles``, ``window`` on its own core."""
        own, ones = self.predictor.layers[layer.name], self.predictor.constants
        self._predictor_step(
            layer, "standardize", standardize, own.placed, ones.name,
            reads=[own.cells, own.input_statistics, ones],
            writes=[own.inputs, own.input_statistics],
            factor=self._shape.running if self._backpropagate else None,
        )  # fmt: skip
        if not self._backpropagate:
            self._predict(own)
            if not self._is_apart:
                self._predicted_update(own, predictor=True, background=self._in_background)
                return
            there = max(cycles, self._predictor_free) + self._prediction_cycles(own)
            updated = there + self._update_cycles(self._predictor_core, own)
            if updated <= cycles + window:
                # In time for the next layer's prediction.
                self._predictor_free = updated
                self._predicted_update(own, predictor=True)
            else:
                self._predictor_free = there
                self._late.append((there, own))

    def _ready(self, cycles: int, product: int) -> list[LayerTensors]:
        """Layers whose update fits beside the second half of a ``product`` that begins after
        ``cycles`` of products, when the prediction is there. They are late no longer.

        Where the predictor has a core of its own, these are updates for which it has no time before
        the next layer's prediction. Commands of a core are executed in order, so one that came too
        early would keep those behind it waiting.
        """
        found, room = [], product / 2
        while self._late and self._late[0][0] <= cycles:
            own = self._late[0][1]
            if (room := room - self._update_cycles(self.core, own)) < 0:
                break
            found.append(self._late.pop(0)[1])
        return found

    def _predict(self, own: LayerTensors) -> None:
        full, matrix = self.predictor.full.tensors, self.predictor.toeplitz
        self._predictor_step(
            self.layers[own.name], "predict", predict, own.placed, matrix.name, self._part(own),
            reads=[own.inputs, matrix, full["operands"]], writes=[own.hidden, own.prediction],
        )  # fmt: skip

    def _part(self, own: LayerTensors) -> Callable[[Mapping[str, Tensor]], StoredParameter]:
        return lambda tensors: self.predictor.part(tensors, own.rows)

    def _update(self, own: LayerTensors) -> _Update:
        """A layer's update by the prediction times scale and gate: what makes its parameter and the
        factor of the tensors by name, and the tensors that it reads and writes."""
        parameter = self.parameters[f"{own.name}.weight"]
        changed = [t for role, t in parameter.tensors.items() if role != "gradient"]

        def placed(tensors: Mapping[str, Tensor]) -> StoredParameter:
            kernel = replace(
                tensors[own.prediction.name],
                name=f"{own.prediction.name} as weights",
                shape=parameter.shape,
            )
            return parameter.placed_as({**tensors, parameter.tensors["gradient"].name: kernel})

        def factor(tensors: Mapping[str, Tensor]) -> tuple[Tensor, int]:
            return tensors[own.gradient_statistics.name], GRADIENT_STATISTICS.index("factor")

        return placed, factor, [own.prediction, own.gradient_statistics, *changed], changed

    def _predicted_update(self, own: LayerTensors, **options: Any) -> None:
        """That update as a step; ``predictor=True`` on the predictor's core."""
        placed, factor, reads, writes = self._update(own)
        self._predictor_step(
            self.layers[own.name], "predicted update", update, placed,
            reads=reads, writes=writes, rule=self._rule, named={"factor": factor}, **options,
        )  # fmt: skip

    # Backward --------------------------------------------------------------------------------

    def _exact_head(self, layer: Layer) -> None:
        """Gradient and update of the last layer from the loss alone."""
        product, gradients = self._product(layer), self._gradients(layer)
        dy = self.gradients[layer.name] = f"{layer.name}.gradient"
        self._add_weight_gradient(layer, weight_gradient, product, dy, gradients)
        super()._updates(layer)

    def _updates(self, layer: Layer) -> None:
        super()._updates(layer)
        if layer.name in self._predicted:
            self._learn(layer, self.predictor.layers[layer.name])

    @property
    def _predictor_rule(self) -> MomentumRule:
        """The predictor's own optimizer."""
        rate, momentum = (Coefficient(index=index) for index in (3, 4))
        return MomentumRule(rate=rate, momentum=momentum, decay=0.0)

    def _learn(self, layer: Layer, own: LayerTensors) -> None:
        predictor = self.predictor
        gradient = self.parameters[f"{layer.name}.weight"].tensors["gradient"]
        rows = (1, prod(gradient.shape[:3]), 1, gradient.shape[3])

        def true_gradient(tensors: Mapping[str, Tensor]) -> Tensor:
            placed = tensors[gradient.name]
            return replace(placed, name=f"{placed.name} by rows", shape=rows)

        self._predict(own)
        ones, sums = predictor.constants, own.gradient_sums
        options: dict[str, Any] = {
            "writes": [own.gradient_statistics], "factor": self._shape.running
        }  # fmt: skip
        if self.together:
            # The sums are work beside products.
            self._predictor_step(
                layer, "gradient sums", gradient_sums, own.placed, true_gradient,
                reads=[own.prediction, gradient], writes=[sums],
            )  # fmt: skip
            self._predictor_step(
                layer, "gradient statistics", finish_statistics, own.placed, ones.name,
                reads=[sums, own.gradient_statistics, ones], **options,
            )  # fmt: skip
        else:
            self._predictor_step(
                layer, "gradient statistics", gradient_statistics, own.placed, true_gradient,
                ones.name,
                reads=[own.prediction, gradient, own.gradient_statistics, ones], **options,
            )  # fmt: skip
        self._predictor_step(
            layer, "error", error, own.placed, true_gradient,
            reads=[own.prediction, gradient, own.gradient_statistics], writes=[own.error],
        )  # fmt: skip
        matrix, slope = predictor.toeplitz, predictor.toeplitz_gradient
        state = [*predictor.full.tensors.values(), *predictor.taps.tensors.values(), matrix]
        between = [own.hidden_sums, own.hidden_gradient, slope]
        self._predictor_step(
            layer, "predictor learns", learn, own.placed, matrix.name, slope.name,
            self._part(own), predictor.taps.placed_as,
            reads=[own.inputs, own.hidden, own.error, *between, *state],
            writes=[*between, *state],
            rule=self._predictor_rule,
        )  # fmt: skip
