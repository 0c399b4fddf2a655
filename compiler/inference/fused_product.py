"""A product with what POST does to its sums: the layers of a network that one pass computes."""

from dataclasses import dataclass, field

from compiler.codegen.convolution_walk import outputs_of
from compiler.tensors.intervals import Pair

__all__ = ["FusedProduct"]


@dataclass(frozen=True, kw_only=True)
class FusedProduct:
    """Convolution, ReLU, pooling and conversion of one map, without its numbers.

    A linear layer is a convolution whose kernel covers the whole map. All pairs are (vertical,
    horizontal).

    Members
    -------
    layers : names and kinds of what is computed together, such as ``"0 convolution"``
    inputs, outputs : channels
    input_map, kernel : sizes
    bias : whether there is one
    stride, padding, dilation : the padding is that before row and column 0
    conv_map : size of the convolution's output
    relu : negative values become zero before pooling
    pool : "max", "sum" or None
    pool_kernel, pool_stride : (1, 1) without pooling
    scale : the command field: float32 bits, or multiplier + (shift << 16)
    wide : the output keeps its 32 bits
    """

    layers: tuple[str, ...] = field(compare=False)
    inputs: int
    outputs: int
    input_map: Pair
    kernel: Pair
    bias: bool
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    conv_map: Pair
    relu: bool = False
    pool: str | None = None
    pool_kernel: Pair = (1, 1)
    pool_stride: Pair = (1, 1)
    scale: int
    wide: bool = False

    @property
    def output_map(self) -> Pair:
        """(height, width) written."""
        height, width = (
            outputs_of(self.conv_map[i], self.pool_kernel[i], self.pool_stride[i]) for i in (0, 1)
        )
        return height, width

    @property
    def macs(self) -> int:
        """Multiply-accumulates of an image that the layers define, without those for channel
        padding. Outputs of the convolution that no pooling window reads do not count."""
        used = self.inputs * self.outputs * self.kernel[0] * self.kernel[1]
        for outputs, kernel, stride in zip(
            self.output_map, self.pool_kernel, self.pool_stride, strict=True
        ):
            used *= outputs * kernel if stride >= kernel else (outputs - 1) * stride + kernel
        return used
