"""The products of a training step: on the array or, depthwise, on the vector unit."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from golden.arithmetic.float32_unit import VectorUnit
from golden.arithmetic.formats import FloatFormat

from . import conv_gradients
from . import depthwise as vector
from .conv_general import convolution

__all__ = ["PRODUCTS", "Product"]

#: Kinds of nodes that are products: their weights are operands, their sums float32.
PRODUCTS = ("convolution", "depthwise", "linear", "transposed", "embedding")


@dataclass(frozen=True, kw_only=True)
class Product:
    """A product layer.

    Methods take operand codes and return float32 bits, not rounded to operands, and the union of
    their :class:`golden.arithmetic.dot_product.Flags` (int).

    Members
    -------
    fmt : operand format
    kind : one of :data:`PRODUCTS`
    options : of :class:`golden.frontend.torch_graph.Node`
    rows, columns : of the array
    """

    fmt: FloatFormat
    kind: str
    options: Mapping
    rows: int
    columns: int | None

    def forward(self, x, kernel, bias):
        """Sums (N, HO, WO, O). ``kernel`` is (O, I, KH, KW); a linear layer's is its map."""
        if self.kind == "depthwise":
            return vector.depthwise(self.fmt, x, kernel, bias, **self.options)
        if self.kind == "transposed":
            return self._transposed(x, kernel, bias)
        return _union(convolution(self.fmt, x, kernel, bias, columns=self.columns, **self._array))

    def weight_gradient(self, x, dy, kernel):
        """Gradient (O, I, KH, KW) of weights of that shape."""
        if self.kind == "depthwise":
            function, options = vector.depthwise_weight_gradient, self.options
        elif self.kind == "transposed":
            x, dy, function, options = dy, x, conv_gradients.weight_gradient, self._array
        else:
            function, options = conv_gradients.weight_gradient, self._array
        return _union(function(self.fmt, x, dy, kernel=kernel.shape[2:], **options))

    def bias_gradient(self, dy):
        """Gradient (O,)."""
        if self.kind in ("depthwise", "transposed"):
            return vector.depthwise_bias_gradient(self.fmt, dy)
        return _union(conv_gradients.bias_gradient(self.fmt, dy, rows=self.rows))

    def input_gradient(self, dy, kernel, input_size):
        """Gradient (N, H, W, I) of an input map of ``input_size`` (H, W)."""
        if self.kind == "transposed":
            return _union(
                convolution(self.fmt, dy, kernel, None, columns=self.columns, **self._array)
            )
        if self.kind == "depthwise":
            function, options = vector.depthwise_input_gradient, self.options
        else:
            function, options = (
                conv_gradients.input_gradient,
                dict(self._array, columns=self.columns),
            )
            if self.kind == "linear":
                options["stride"] = input_size
        return _union(function(self.fmt, dy, kernel, input_size=input_size, **options))

    def _transposed(self, x, kernel, bias):
        """The input gradient of a convolution from the output to ``x``, whose weights (I, O, KH,
        KW) are ``kernel``; then the bias, in one float32 addition."""
        sums, flags = _union(
            conv_gradients.input_gradient(
                self.fmt, x, kernel, input_size=self.options["size"], columns=self.columns,
                **self._array,
            )
        )  # fmt: skip
        if bias is not None:
            unit = VectorUnit()
            sums = unit.add(sums, bias)
            flags |= unit.flags
        return sums, flags

    @property
    def _array(self):
        options = {key: value for key, value in self.options.items() if key != "size"}
        return dict(options, rows=self.rows)


def _union(result):
    bits, flags = result
    return bits, int(np.bitwise_or.reduce(flags, axis=None))
