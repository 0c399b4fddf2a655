"""About how long the steps of a batch take that learns by gradient prediction, for their order."""

from collections.abc import Collection

from compiler.frontend.layer import Layer
from compiler.kernels.convolution.reorganize import Reorganizer
from compiler.training.steps import TrainingSteps
from hw.config import CoreConfig

from .tensors import LayerTensors, PredictorShape

__all__ = ["StepTimes"]

#: Times that an update goes through the weights.
_UPDATE_PASSES = 6
#: The sums of a map are held on chip where they take no more than one part in so many.
_HELD_SHARE = 16


class StepTimes(TrainingSteps):
    """Cycles of products, predictions and updates by their sizes alone."""

    _predictor_core: CoreConfig
    _shape: PredictorShape
    _predicted: Collection[str]

    def _is_held(self, name: str) -> bool:
        """Whether a layer is a product that holds the sums of its map while it writes it."""
        if name not in self._predicted or self.layers[name].kind == "depthwise":
            return False
        words = Reorganizer.held_words(self.core, self.tensors[self.maps[name]])
        return words * _HELD_SHARE <= self.config.memory_depth[0]

    def _update_cycles(self, core: CoreConfig, own: LayerTensors) -> int:
        """About how long ``core`` takes for an update."""
        return _UPDATE_PASSES * own.rows * -(-own.outputs // core.rows) * core.groups_per_word

    def _array_cycles(self, layer: Layer) -> int:
        """Vectors that enter the main array for a product forward."""
        core, weights = self.core, self.parameters[f"{layer.name}.weight"]
        height, width, inputs, outputs = weights.shape
        _, rows, columns = layer.shape
        tiles = -(-inputs // core.rows) * -(-outputs // core.columns)
        return self.images * rows * columns * height * width * tiles

    def _prediction_cycles(self, own: LayerTensors) -> int:
        """About how long the predictor takes for a layer."""
        pooling = 0 if self._is_held(own.name) else self._pooling_cycles(own)
        core = self._predictor_core
        vector = max(-(-(self._shape.features + 1) // core.rows),
                     core.groups_per_vector * core.chunks_per_wide)  # fmt: skip
        products = own.rows * -(-own.outputs // core.columns) * vector
        return pooling + products

    def _pooling_cycles(self, own: LayerTensors) -> int:
        """About how long it takes to reorganize a layer's map."""
        return self._pass_cycles(self._predictor_core, self.maps[own.name])
