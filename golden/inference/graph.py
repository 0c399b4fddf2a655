"""Inference of every network that can be trained, bit for bit.

The forward part of :class:`golden.training.step.Training` in evaluation mode, with normalisation
folded into the products before it (:func:`golden.inference.folding.fold`).
"""

import copy

import numpy as np
from torch import nn

from golden.arithmetic.dot_product import decode
from golden.arithmetic.formats import FLOAT32
from golden.layers.optimizer import SGD
from golden.training.step import Training

from .folding import fold

__all__ = ["GraphNetwork"]


class GraphNetwork(Training):
    """A network that is not trained.

    Parameters
    ----------
    model : as for :class:`golden.training.step.Training`; its modules count as in evaluation mode.
        It is not changed.
    input_shape, rows, columns, operand_format : likewise
    """

    def __init__(
        self, model: nn.Module, *, input_shape, rows: int, columns: int, operand_format="bf16"
    ):
        super().__init__(
            copy.deepcopy(model).eval(),
            input_shape=input_shape,
            optimizer=SGD(learning_rate=0.0),
            rows=rows,
            columns=columns,
            operand_format=operand_format,
            loss="mean_squared_error",
        )

    def _trace(self, model, input_shape):
        return fold(super()._trace(model, input_shape))

    def _what_learns(self):
        return frozenset()

    def stored(self, images) -> dict[str, np.ndarray]:
        """What every node stores for real images (N, H, W, C): operand codes, or float32 bits."""
        return self.forward(self.encode_input(images), training=False).outputs

    def decode_logits(self, bits) -> np.ndarray:
        """Real values of the last node's codes, in torch's shape."""
        values = decode(FLOAT32 if bits.dtype == np.uint32 else self.format, bits)
        values = np.moveaxis(values, 3, 1)
        return values.reshape(len(values), -1) if self.nodes[-1].flat else values
