"""Which layers POST computes together with a product: rounded once, at the end.

A *fused product* is a convolution without groups or a linear layer, then any of ReLU, one pooling
layer and flattening that follow, each the only reader of what is before it. Values between them
are never rounded to the operand format. Rules:

- ReLU belongs to it in front of pooling and behind max pooling (the two commute bit for bit), not
  behind average pooling.
- Pooling belongs to it once, if it has no padding and no other divisor than its window, no window
  reaches beyond the map, and the accumulators hold a window.
- Flattening costs nothing: a linear layer behind it is a convolution with a kernel as large as the
  map.
- Without a vector unit (there is none for integers) a ReLU or such a pooling layer that has no
  product to belong to gets one: the *identity*, a 1 x 1 convolution with weight 1 from each channel
  to itself, 0 elsewhere, no bias. It is exact for finite values; an infinity in one channel makes
  the other channels of its pixel NaN, since zero times infinity is.
"""

from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from golden.frontend.torch_graph import Node
from golden.layers.conv2d import ends, output_size, pair
from golden.layers.torch_convolution import conv2d

__all__ = ["FusedProduct", "Pool", "fuse"]

#: Kinds that need no vector unit, in float formats.
_ARRAY_ALONE = ("convolution", "embedding", "concatenate", "slice")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pooling layer. ``kind`` is "max" or "average"; sizes are (vertical, horizontal)."""

    kind: str
    kernel: tuple[int, int]
    stride: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class FusedProduct:
    """The geometry of a fused product, without numbers.

    Members
    -------
    name : of the layers it consists of, such as "0, 1"
    module : the ``Conv2d`` or ``Linear``; None for an identity
    input_shape : (C, H, W) of the stored input map
    sums_shape : (C, H, W) of the sums, before pooling
    kernel, stride, dilation : of the convolution, (vertical, horizontal); a linear layer's kernel
        is its input map
    padding : ((above, below), (left, right))
    relu : negative sums become zero before pooling
    pool : a :class:`Pool` or None
    wide : the output is stored as float32 (int32): the network returns it
    """

    name: str
    module: nn.Module | None
    input_shape: tuple[int, int, int]
    sums_shape: tuple[int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    dilation: tuple[int, int] = (1, 1)
    relu: bool = False
    pool: Pool | None = None
    wide: bool = False

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the stored output map."""
        channels, height, width = self.sums_shape
        if self.pool is None:
            return self.sums_shape
        (kernel_h, kernel_w), (stride_h, stride_w) = self.pool.kernel, self.pool.stride
        return (
            channels,
            output_size(height, kernel_h, stride_h),
            output_size(width, kernel_w, stride_w),
        )

    @property
    def macs(self) -> int:
        """Multiply-accumulates per image, without padding of any kind."""
        outputs, height, width = self.sums_shape
        return outputs * height * width * self.input_shape[0] * self.kernel[0] * self.kernel[1]

    def reference(self, x: torch.Tensor) -> torch.Tensor:
        """What torch computes: (N, C, H, W) to (N, C, H, W), in ``x``'s type."""
        if self.module is not None:
            bias = self.module.bias
            x = conv2d(
                x,
                self.module.weight.to(x.dtype).reshape(-1, self.input_shape[0], *self.kernel),
                None if bias is None else bias.to(x.dtype),
                stride=self.stride,
                padding=self.padding,
                dilation=self.dilation,
            )
        if self.relu:
            x = functional.relu(x)
        if self.pool is not None:
            pool = functional.max_pool2d if self.pool.kind == "max" else functional.avg_pool2d
            x = pool(x, self.pool.kernel, self.pool.stride)
        return x


def fuse(nodes, *, vector: bool = True, window: int | None = None) -> list[Node]:
    """``nodes`` with one node, of kind "fused", in place of those of a fused product: it has the
    name of the last of them, and a :class:`FusedProduct` as option ``product``.

    Parameters
    ----------
    vector : there is a vector unit
    window : pixels of the largest pooling window that the accumulators hold; None for any

    Raises
    ------
    ValueError
        naming a layer that needs a vector unit where there is none.
    """
    readers = Counter(name for node in nodes for name in node.inputs)
    shapes = {node.name: node.shape for node in nodes}
    result: list[Node] = []
    for node in nodes:
        if not node.inputs:
            result.append(node)
            continue
        source = shapes[node.inputs[0]]
        last = next(n for n in result if n.name == node.inputs[0])
        if last.kind == "fused" and last.output is None and readers[last.name] == 1:
            fused = _extended(last.options["product"], node, window)
            if fused is not None:
                result.remove(last)
                result.append(replace(node, kind="fused", inputs=last.inputs, module=last.module,
                                      options={"product": fused}, trainable=()))  # fmt: skip
                continue
        fused = _product(node, source)
        if fused is None and not vector and node.kind != "flatten":
            identity = FusedProduct(name="identity", module=None, input_shape=source,
                                    sums_shape=source, kernel=(1, 1))  # fmt: skip
            fused = _extended(identity, node, window)
            if fused is None and node.kind not in _ARRAY_ALONE:
                raise ValueError(f"Layer {node.name} ({node.kind}) needs a vector unit")
        if fused is None:
            result.append(node)
            continue
        fused = replace(fused, wide=node.output is not None)
        result.append(replace(node, kind="fused", options={"product": fused}, trainable=()))
    return result


def _product(node, source):
    """The fused product that begins with a node, or None."""
    if node.kind == "linear":
        return FusedProduct(name=node.name, module=node.module, input_shape=source,
                            sums_shape=node.shape, kernel=source[1:])  # fmt: skip
    if node.kind == "convolution" and node.options["groups"] == 1:
        weight = node.module.weight
        return FusedProduct(
            name=node.name,
            module=node.module,
            input_shape=source,
            sums_shape=node.shape,
            # A linear layer on the vectors of a sequence has no kernel.
            kernel=tuple(weight.shape[2:]) or (1, 1),
            stride=pair(node.options["stride"]),
            padding=ends(node.options["padding"]),
            dilation=pair(node.options["dilation"]),
        )
    return None


def _extended(product, node, window):
    """The product with what ``node`` does to it, or None if POST cannot do that."""
    found = replace(product, name=f"{product.name}, {node.name}", wide=node.output is not None)
    if node.kind == "flatten":
        return found if product.name != "identity" else None
    if node.kind == "relu":
        average = product.pool is not None and product.pool.kind == "average"
        return None if average else replace(found, relu=True)
    if node.kind not in ("max_pool", "average_pool") or product.pool is not None:
        return None
    kernel, stride = pair(node.options["kernel"]), pair(node.options["stride"])
    kind = node.kind.removesuffix("_pool")
    found = replace(found, pool=Pool(kind=kind, kernel=kernel, stride=stride))
    plain = (
        pair(node.options["padding"]) == (0, 0)
        and node.options.get("divisor") is None
        and found.output_shape[1:] == tuple(node.shape[1:])
        and (window is None or kernel[0] * kernel[1] <= window)
    )
    return found if plain else None
