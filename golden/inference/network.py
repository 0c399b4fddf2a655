"""A network as the accelerator runs it forward: every stored map, bit for bit.

The forward part of :class:`golden.training.step.Training` in evaluation mode, with normalisation
folded into the products before it (:mod:`golden.inference.folding`) and with what POST computes
together with a product fused (:mod:`golden.inference.fusion`).
"""

import copy
from dataclasses import dataclass

import numpy as np
from torch import nn

from golden.arithmetic.dot_product import decode
from golden.arithmetic.formats import FLOAT32, FloatFormat, IntFormat, format_by_name
from golden.commands.post import post
from golden.layers.conv2d import conv2d
from golden.layers.conv_general import convolution
from golden.layers.optimizer import SGD
from golden.training.step import Training
from golden.training.step_result import ForwardPass

from .folding import fold
from .fusion import FusedProduct, fuse
from .parameters import ProductParameters, float_parameters
from .quantize import quantize

__all__ = ["Network", "ProductResult", "forward_product", "pooling_windows"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ProductResult:
    """What one fused product computes.

    Members
    -------
    sums : (N, H, W, C) uint32, accumulators: float32 (int32) bits, before post-processing
    output : (N, H, W, C) what is stored: operand codes, or uint32 bits of a wide one
    flags : uint8, union of :class:`golden.arithmetic.dot_product.Flags` over all elements and steps
    """

    sums: np.ndarray
    output: np.ndarray
    flags: int


class Network(Training):
    """A network that is not trained.

    Parameters
    ----------
    model : as for :class:`golden.training.step.Training`; its modules count as in evaluation mode.
        It is not changed.
    input_shape, rows, columns : likewise; columns matter to grouped layers only
    operand_format : name of a format
    calibration : float (N, H, W, C) images from which the scales of an integer format are chosen
        (:func:`golden.inference.quantize.quantize`)
    vector, window : see :func:`golden.inference.fusion.fuse`; integers have no vector unit

    Members
    -------
    nodes : list of :class:`golden.frontend.torch_graph.Node`
    products, parameters : :class:`~golden.inference.fusion.FusedProduct` and
        :class:`~golden.inference.parameters.ProductParameters` by node
    scales : real value of one unit of the map of a node; none in float formats

    Raises
    ------
    ValueError
        for an unsupported layer, naming it; an unknown format; a missing calibration.
    """

    def __init__(
        self, model: nn.Module, *, input_shape, rows: int, columns: int | None = None,
        granule: int | None = None, operand_format: str = "bf16", calibration=None,
        vector: bool = True, window: int | None = None,
    ):  # fmt: skip
        fmt = format_by_name(operand_format)
        self._vector, self._window = vector and fmt.is_float, window
        self._rows: dict = {}
        super().__init__(
            copy.deepcopy(model).eval(),
            input_shape=input_shape,
            optimizer=SGD(learning_rate=0.0),
            rows=rows,
            columns=columns,
            granule=granule,
            operand_format=operand_format,
            loss="mean_squared_error",
        )
        self.products: dict[str, FusedProduct] = {
            node.name: node.options["product"] for node in self.nodes if node.kind == "fused"
        }
        self.parameters: dict[str, ProductParameters] = {}
        self.scales: dict[str, float] = {}
        if fmt.is_float:
            for name, product in self.products.items():
                self.parameters[name] = float_parameters(product, fmt)
        elif calibration is None:
            raise ValueError(f"Format {fmt.name} needs calibration images")
        else:
            self.parameters, self.scales = quantize(self.nodes, fmt, calibration)

    def _require_format(self, fmt) -> None:
        """All formats are good."""

    def _trace(self, model, input_shape):
        nodes = fold(super()._trace(model, input_shape))
        return fuse(nodes, vector=self._vector, window=self._window)

    def _what_learns(self):
        return frozenset()

    def encode_input(self, images):
        """Operand codes of real images, vectors or sequences."""
        if self.scales:
            images = np.asarray(images, np.float64) / self.scales[self.nodes[0].name]
        return super().encode_input(images)

    def forward(self, input_bits, *, training: bool = False, rows=None) -> ForwardPass:
        """Run operand codes (N, H, W, C) through all nodes. ``rows``: name of a fused product ->
        [(first image, last image + 1, rows of the array that computes them)] where they differ.

        ``saved`` of the result has a :class:`ProductResult` for each fused product.
        """
        assert not training
        self._rows = rows or {}
        return super().forward(input_bits, training=False)

    def stored(self, images) -> dict[str, np.ndarray]:
        """What every node stores for real images (N, H, W, C): operand codes, or 32-bit ones."""
        return self.forward(self.encode_input(images)).outputs

    def _forward_node(self, node, values, done, training):
        if node.kind != "fused":
            return super()._forward_node(node, values, done, training)
        x, product = values[0], self.products[node.name]
        results = [
            forward_product(
                self.format, product, self.parameters[node.name], x[first:last], rows=rows
            )
            for first, last, rows in self._rows.get(node.name, [(0, len(x), self.rows)])
        ]
        done.saved[node.name] = ProductResult(
            sums=np.concatenate([result.sums for result in results]),
            output=np.concatenate([result.output for result in results]),
            flags=int(np.bitwise_or.reduce([result.flags for result in results])),
        )
        return done.saved[node.name].output, done.saved[node.name].flags

    def predict(self, images) -> np.ndarray:
        """Real outputs in torch's shape; of a network with one output."""
        return self.decode_logits(self.stored(images)[self.nodes[-1].name])

    def decode_logits(self, bits) -> np.ndarray:
        """Real values of the last node's codes, in torch's shape."""
        node = self.nodes[-1]
        if self.scales:
            values = np.asarray(bits, np.uint32).view(np.int32) * self.scales[node.name]
        else:
            values = decode(FLOAT32 if bits.dtype == np.uint32 else self.format, bits)
        values = np.moveaxis(values, 3, 1)
        if node.sequence:
            return np.moveaxis(values[..., 0], 1, 2)
        return values.reshape(len(values), -1) if node.flat else values


def forward_product(
    fmt: FloatFormat | IntFormat,
    product: FusedProduct,
    parameters: ProductParameters,
    x_bits,
    *,
    rows: int,
) -> ProductResult:
    """Run operand codes ``x_bits`` (N, H, W, C) through one fused product."""
    operands = x_bits, parameters.weights_bits, parameters.bias_bits
    if product.dilation == (1, 1):
        sums, sum_flags = conv2d(
            fmt, *operands, stride=product.stride, padding=product.padding, rows=rows
        )
    else:
        sums, sum_flags = convolution(
            fmt, *operands, stride=product.stride, padding=product.padding,
            dilation=product.dilation, rows=rows,
        )  # fmt: skip
    windows, (batch, height, width, channels) = pooling_windows(sums, product.pool)
    output, post_flags = post(
        fmt,
        windows,
        relu=product.relu,
        pool="sum" if product.pool is not None and product.pool.kind == "average" else "max",
        scale=parameters.scale_field,
        wide=product.wide,
    )
    return ProductResult(
        sums=sums,
        output=output.reshape(batch, height, width, channels),
        flags=int(np.bitwise_or.reduce(sum_flags, axis=None))
        | int(np.bitwise_or.reduce(post_flags, axis=None)),
    )


def pooling_windows(values: np.ndarray, pool) -> tuple[np.ndarray, tuple[int, int, int, int]]:
    """Gather pooling windows, each in order of rows, then columns.

    ``values`` is (N, H, W, C); the result is (N * HO * WO, window, C) and the shape
    (N, HO, WO, C) of the pooled map. Without a pool every position is a window of its own.
    """
    kernel, stride = ((1, 1), (1, 1)) if pool is None else (pool.kernel, pool.stride)
    views = np.lib.stride_tricks.sliding_window_view(values, kernel, axis=(1, 2))
    views = views[:, :: stride[0], :: stride[1]]
    batch, height, width, channels = views.shape[:4]
    windows = views.transpose(0, 1, 2, 4, 5, 3).reshape(batch * height * width, -1, channels)
    return windows, (batch, height, width, channels)
