"""Grouping of a ``torch.nn.Sequential`` into the stages that the accelerator executes.

A *stage* is a convolution or linear layer, then optionally ReLU, then optionally one pooling
layer; its output is rounded once and stored. Values between the layers of a stage are never
rounded to the operand format. Rules:

- ReLU joins the stage before it, also behind max pooling (the two commute bit for bit) and behind
  ``Flatten``. Behind average pooling, or as the first layer, it opens a stage of its own.
- Pooling joins the stage before it unless that has pooled already. As the first layer, or behind
  another pooling layer, it opens a stage of its own.
- A stage of its own begins with an *identity* convolution: 1 x 1, weight 1 from each channel to
  itself, 0 elsewhere, no bias. Exact for finite values; an infinity in one channel makes the
  other channels of its pixel NaN, since zero times infinity is.
- ``Flatten`` costs nothing: the linear layer behind it is a convolution with a kernel as large as
  the map.
"""

from dataclasses import dataclass, replace
from typing import Never

import torch
from torch import nn
from torch.nn import functional

from golden.layers.conv2d import output_size, pair

__all__ = ["Pool", "Stage", "group_layers"]


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pooling layer. ``kind`` is "max" or "average"; sizes are (vertical, horizontal)."""

    kind: str
    kernel: tuple[int, int]
    stride: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage: its geometry, without numbers.

    Members
    -------
    name : the torch layers it consists of, e.g. "0 Conv2d, 1 ReLU"
    kind : "conv2d", "linear" or "identity"
    module : the ``Conv2d`` or ``Linear``; None for an identity
    input_shape : (C, H, W) of the stored input map
    sums_shape : (C, H, W) of the sums, before pooling
    kernel, stride, padding : of the convolution, (vertical, horizontal); a linear layer's kernel
        is its input map
    relu : negative sums become zero before pooling
    pool : a :class:`Pool` or None
    wide : the output is stored as float32 (int32): the last stage
    flattened : torch sees the output as vectors (N, C * H * W)
    """

    name: str
    kind: str
    module: nn.Module | None
    input_shape: tuple[int, int, int]
    sums_shape: tuple[int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    relu: bool = False
    pool: Pool | None = None
    wide: bool = False
    flattened: bool = False

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
        """What torch computes for this stage: (N, C, H, W) to (N, C, H, W), in ``x``'s type."""
        if self.module is not None:
            bias = self.module.bias
            x = functional.conv2d(
                x,
                self.module.weight.to(x.dtype).reshape(-1, self.input_shape[0], *self.kernel),
                None if bias is None else bias.to(x.dtype),
                stride=self.stride,
                padding=self.padding,
            )
        if self.relu:
            x = functional.relu(x)
        if self.pool is not None:
            pool = functional.max_pool2d if self.pool.kind == "max" else functional.avg_pool2d
            x = pool(x, self.pool.kernel, self.pool.stride)
        return x


def group_layers(model: nn.Sequential, input_shape) -> list[Stage]:
    """Group the layers of ``model`` into stages.

    Parameters
    ----------
    model : Conv2d, Linear, ReLU, MaxPool2d, AvgPool2d and Flatten, also in nested Sequentials
    input_shape : (C, H, W) of one image, or (features,) if the first layer is linear

    Raises
    ------
    ValueError
        naming the layer and why it is not supported.
    """
    if not isinstance(model, nn.Sequential):
        raise ValueError(f"The model must be a torch.nn.Sequential, not {type(model).__name__}")
    shape = tuple(int(size) for size in input_shape)
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise ValueError(f"input_shape must be (C, H, W) or (features,), not {input_shape!r}")
    flattened = len(shape) == 1
    grouping = _Grouping(shape if len(shape) == 3 else (*shape, 1, 1), flattened)
    for name, layer in _leaves(model):
        grouping.add(f"{name} {type(layer).__name__}", layer)
    if not grouping.stages:
        raise ValueError("The model has no layer that computes anything")
    grouping.stages[-1] = replace(grouping.stages[-1], wide=True)
    return grouping.stages


def _leaves(model, prefix=""):
    for name, layer in model.named_children():
        if type(layer) is nn.Sequential:
            yield from _leaves(layer, f"{prefix}{name}.")
        else:
            yield prefix + name, layer


class _Grouping:
    """The stages so far and the shape behind them."""

    def __init__(self, shape, flattened):
        self.input_shape = shape
        self.flattened = flattened
        self.stages = []

    @property
    def shape(self):
        return self.stages[-1].output_shape if self.stages else self.input_shape

    def add(self, name, layer):
        add = {
            nn.Conv2d: self._conv2d,
            nn.Linear: self._linear,
            nn.ReLU: self._relu,
            nn.MaxPool2d: self._pool,
            nn.AvgPool2d: self._pool,
            nn.Flatten: self._flatten,
        }.get(type(layer))
        if add is None:
            _refuse(
                name, "supported are Conv2d, Linear, ReLU, MaxPool2d, AvgPool2d and Flatten only"
            )
        add(name, layer)

    def _open(self, **fields):
        self.stages.append(Stage(input_shape=self.shape, flattened=self.flattened, **fields))

    def _open_identity(self, name):
        self._open(name=name, kind="identity", module=None, sums_shape=self.shape, kernel=(1, 1))

    def _extend(self, name, **fields):
        last = self.stages[-1]
        self.stages[-1] = replace(last, name=f"{last.name}, {name}", **fields)

    def _conv2d(self, name, layer):
        if self.flattened:
            _refuse(name, "its input has been flattened to vectors")
        if layer.groups != 1:
            _refuse(name, f"groups must be 1, not {layer.groups}")
        if layer.dilation != (1, 1):
            _refuse(name, f"dilation must be 1, not {layer.dilation}")
        if layer.padding_mode != "zeros":
            _refuse(name, f"padding_mode must be 'zeros', not {layer.padding_mode!r}")
        padding = (0, 0) if layer.padding == "valid" else layer.padding
        if isinstance(padding, str):
            _refuse(name, f"padding must be given in numbers, not {layer.padding!r}")
        channels, height, width = self.shape
        if layer.in_channels != channels:
            _refuse(name, f"it takes {layer.in_channels} channels but gets {channels}")
        kernel, stride, padding = pair(layer.kernel_size), pair(layer.stride), pair(padding)
        out_h = output_size(height, kernel[0], stride[0], padding[0])
        out_w = output_size(width, kernel[1], stride[1], padding[1])
        if out_h < 1 or out_w < 1:
            _refuse(name, f"its kernel {kernel} does not fit the {height} x {width} map")
        self._open(
            name=name,
            kind="conv2d",
            module=layer,
            sums_shape=(layer.out_channels, out_h, out_w),
            kernel=kernel,
            stride=stride,
            padding=padding,
        )

    def _linear(self, name, layer):
        channels, height, width = self.shape
        if not self.flattened:
            _refuse(name, "a Flatten layer must come before it")
        if layer.in_features != channels * height * width:
            _refuse(
                name,
                f"it takes {layer.in_features} features but gets {channels * height * width}",
            )
        self._open(
            name=name,
            kind="linear",
            module=layer,
            sums_shape=(layer.out_features, 1, 1),
            kernel=(height, width),
        )

    def _relu(self, name, layer):
        last = self.stages[-1] if self.stages else None
        if last is None or (last.pool is not None and last.pool.kind == "average"):
            self._open_identity(name)
            self.stages[-1] = replace(self.stages[-1], relu=True)
        else:
            self._extend(name, relu=True)

    def _pool(self, name, layer):
        if self.flattened:
            _refuse(name, "its input has been flattened to vectors")
        if pair(layer.padding) != (0, 0):
            _refuse(name, f"padding must be 0, not {layer.padding}")
        if layer.ceil_mode:
            _refuse(name, "ceil_mode must be False")
        kernel = pair(layer.kernel_size)
        if isinstance(layer, nn.MaxPool2d):
            if pair(layer.dilation) != (1, 1):
                _refuse(name, f"dilation must be 1, not {layer.dilation}")
            if layer.return_indices:
                _refuse(name, "return_indices must be False")
        elif layer.divisor_override not in (None, kernel[0] * kernel[1]):
            _refuse(name, f"divisor_override must be None, not {layer.divisor_override}")
        height, width = self.shape[1:]
        if kernel[0] > height or kernel[1] > width:
            _refuse(name, f"its kernel {kernel} does not fit the {height} x {width} map")
        pool = Pool(
            kind="max" if isinstance(layer, nn.MaxPool2d) else "average",
            kernel=kernel,
            stride=pair(layer.stride),
        )
        if not self.stages or self.stages[-1].pool is not None:
            self._open_identity(name)
            self.stages[-1] = replace(self.stages[-1], pool=pool)
        else:
            self._extend(name, pool=pool)

    def _flatten(self, name, layer):
        if layer.start_dim != 1 or layer.end_dim not in (-1, 3):
            _refuse(
                name,
                "it must flatten everything but the batch: start_dim 1 and end_dim -1, not "
                f"{layer.start_dim} and {layer.end_dim}",
            )
        if self.stages:
            self._extend(name, flattened=True)
        self.flattened = True


def _refuse(name: str, reason: str) -> Never:
    raise ValueError(f"Layer {name} is not supported: {reason}")
