"""A ``torch.nn.Sequential`` as a list of stages.

A *stage* is one convolution or linear layer with the ReLU and the pooling layer that follow it;
values are rounded to the operand format only at its end. Layers that do not fit this pattern (a
pooling layer at the start, two in a row, a ReLU after average pooling) become a stage of their
own, led by a 1x1 convolution with the identity matrix, which is exact for finite values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from compiler.errors import CompileError
from compiler.tensors.encoding import codes_of, storage
from compiler.tensors.intervals import Pair
from compiler.tensors.tensor import Shape
from hw.config import AdaGPConfig
from hw.formats import FLOAT32, FloatFormat, IntFormat

__all__ = ["Stage", "stages_of"]

ALLOWED = "Conv2d, Linear, ReLU, MaxPool2d, AvgPool2d and Flatten"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Convolution, ReLU, pooling and conversion of one tensor.

    A linear layer is a convolution whose kernel covers the whole map.

    Members
    -------
    index : position in the network; ``name`` is ``stage<index>``
    layers : names of the modules merged here, such as ``"0 Conv2d"``
    input_shape : (N, H, W, C) read
    weight : (Co, C, Kh, Kw) operand codes
    bias : (Co,) uint32, bits of float32 or int32 numbers, or None
    stride, padding, dilation : (vertical, horizontal); the padding is that before row and column 0
    conv_shape : (height, width) of the convolution's output
    relu : negative values become zero before pooling
    pool : "max", "sum" or None
    pool_kernel, pool_stride : (vertical, horizontal); (1, 1) without pooling
    scale : the command field: float32 bits, or multiplier + (shift << 16)
    wide : the output keeps its 32 bits
    """

    index: int
    layers: tuple[str, ...]
    input_shape: Shape
    weight: np.ndarray
    bias: np.ndarray | None
    stride: Pair
    padding: Pair
    dilation: Pair
    conv_shape: Pair
    relu: bool
    pool: str | None
    pool_kernel: Pair
    pool_stride: Pair
    scale: int
    wide: bool

    @property
    def name(self) -> str:
        return f"stage{self.index}"

    @property
    def output_shape(self) -> Shape:
        """(N, H, W, C) written."""
        height, width = (
            (self.conv_shape[i] - self.pool_kernel[i]) // self.pool_stride[i] + 1 for i in (0, 1)
        )
        return (self.input_shape[0], height, width, self.weight.shape[0])

    @property
    def macs(self) -> int:
        """Multiply-accumulates that the layer defines, without those for channel padding.

        Outputs of the convolution that no pooling window reads do not count.
        """
        _, height, width, _ = self.output_shape
        used = 1
        for outputs, kernel, stride in zip(
            (height, width), self.pool_kernel, self.pool_stride, strict=True
        ):
            used *= outputs * kernel if stride >= kernel else (outputs - 1) * stride + kernel
        return self.input_shape[0] * used * self.weight.size


def _pair(value: int | Sequence[int]) -> Pair:
    return tuple(value) if isinstance(value, tuple | list) else (value, value)


def _flatten(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    for name, module in model.named_children():
        if isinstance(module, nn.Sequential):
            yield from _flatten(module, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name} {type(module).__name__}", module


def _require(label: str, checks: Iterable[tuple[bool, str]]) -> None:
    for good, text in checks:
        if not good:
            raise CompileError(f"layer {label}: {text}")


class _Builder:
    """Collects layers into open stage dictionaries."""

    def __init__(self, shape: Shape, flat: bool) -> None:
        self.shape = shape
        self.flat = flat
        self.stages: list[dict[str, Any]] = []

    def open(
        self,
        label: str,
        weight: np.ndarray,
        bias: np.ndarray | None,
        *,
        stride: Pair = (1, 1),
        padding: Pair = (0, 0),
        dilation: Pair = (1, 1),
        total: Pair,
    ) -> None:
        """Begin a stage; ``total`` is the padding of both sides together."""
        n, h, w, _ = self.shape
        kernel = weight.shape[2:]
        conv = tuple(
            (size + total[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
            for i, size in enumerate((h, w))
        )
        _require(label, [(min(conv) >= 1, f"kernel {kernel} is larger than its {h} x {w} input")])
        self.stages.append(
            {
                "layers": [label],
                "input_shape": self.shape,
                "weight": weight,
                "bias": bias,
                "stride": stride,
                "padding": padding,
                "dilation": dilation,
                "conv_shape": conv,
                "relu": False,
                "pool": None,
                "pool_kernel": (1, 1),
                "pool_stride": (1, 1),
            }
        )
        self.shape = (n, *conv, weight.shape[0])

    def identity(self) -> None:
        channels = self.shape[3]
        weight = np.eye(channels, dtype=np.float32)[:, :, None, None]
        self.open("identity", weight, None, total=(0, 0))

    def convolution(self, label: str, layer: nn.Conv2d) -> None:
        _require(
            label,
            [
                (not self.flat, "a convolution cannot follow Flatten or a linear layer"),
                (layer.groups == 1, f"groups must be 1, not {layer.groups}"),
                (
                    layer.padding_mode == "zeros",
                    f"padding_mode must be 'zeros', not {layer.padding_mode!r}",
                ),
                (
                    layer.in_channels == self.shape[3],
                    f"expects {layer.in_channels} input channels but gets {self.shape[3]}",
                ),
                (
                    max(*_pair(layer.stride), *_pair(layer.dilation)) <= 255,
                    f"stride and dilation must be at most 255, not {layer.stride} and "
                    f"{layer.dilation}",
                ),
            ],
        )
        dilation = _pair(layer.dilation)
        if layer.padding == "valid":
            total = padding = (0, 0)
        elif layer.padding == "same":
            height, width = (dilation[i] * (layer.kernel_size[i] - 1) for i in (0, 1))
            total, padding = (height, width), (height // 2, width // 2)
        else:
            padding = _pair(layer.padding)
            total = 2 * padding[0], 2 * padding[1]
        self.open(
            label,
            *_parameters(layer),
            stride=_pair(layer.stride),
            padding=padding,
            dilation=dilation,
            total=total,
        )

    def linear(self, label: str, layer: nn.Linear) -> None:
        _, h, w, c = self.shape
        _require(
            label,
            [
                (self.flat, "a linear layer needs Flatten before it"),
                (
                    layer.in_features == h * w * c,
                    f"expects {layer.in_features} features but gets {h * w * c}",
                ),
            ],
        )
        weight, bias = _parameters(layer)
        self.open(label, weight.reshape(-1, c, h, w), bias, total=(0, 0))

    def relu(self, label: str) -> None:
        last = self.stages[-1] if self.stages else None
        if last is None or last["pool"] == "sum":
            self.identity()
        elif not last["relu"]:
            last["layers"].append(label)
            last["relu"] = True
            return
        else:
            last["layers"].append(label)
            return
        self.stages[-1]["layers"].append(label)
        self.stages[-1]["relu"] = True

    def pool(self, label: str, layer: nn.MaxPool2d | nn.AvgPool2d) -> None:
        kernel, stride = _pair(layer.kernel_size), _pair(layer.stride or layer.kernel_size)
        average = isinstance(layer, nn.AvgPool2d)
        _, h, w, _ = self.shape
        _require(
            label,
            [
                (not self.flat, "a pooling layer cannot follow Flatten or a linear layer"),
                (_pair(layer.padding) == (0, 0), f"padding must be 0, not {layer.padding}"),
                (not layer.ceil_mode, f"ceil_mode must be False, not {layer.ceil_mode}"),
                (
                    average or _pair(layer.dilation) == (1, 1),
                    f"dilation must be 1, not {getattr(layer, 'dilation', 1)}",
                ),
                (not getattr(layer, "return_indices", False), "return_indices must be False"),
                (
                    getattr(layer, "divisor_override", None) is None,
                    f"divisor_override must be None, not {getattr(layer, 'divisor_override', 0)}",
                ),
                (
                    kernel[0] <= h and kernel[1] <= w,
                    f"window {kernel} is larger than its {h} x {w} input",
                ),
            ],
        )
        if not self.stages or self.stages[-1]["pool"] is not None:
            self.identity()
        last = self.stages[-1]
        last["layers"].append(label)
        last |= {
            "pool": "sum" if average else "max",
            "pool_kernel": kernel,
            "pool_stride": stride,
        }
        conv, (n, _, _, c) = last["conv_shape"], self.shape
        self.shape = (n, *((conv[i] - kernel[i]) // stride[i] + 1 for i in (0, 1)), c)


def _parameters(layer: nn.Conv2d | nn.Linear) -> tuple[np.ndarray, np.ndarray | None]:
    weight = layer.weight.detach().float().numpy()
    return weight, None if layer.bias is None else layer.bias.detach().float().numpy()


def _given(
    stage: Mapping[str, Any], entry: Any, fmt: FloatFormat | IntFormat, label: str
) -> dict[str, Any]:
    """A stage's numbers from an entry of ``parameters`` (see :func:`compiler.compile`)."""
    get = entry.get if isinstance(entry, dict) else lambda name: getattr(entry, name, None)
    weight, bias, scale = (get(name) for name in ("weights_bits", "bias_bits", "scale_field"))
    shape = stage["weight"].shape
    if weight is None or scale is None:
        raise CompileError(f"layer {label}: weights_bits or scale_field is missing")
    _require(
        label,
        [
            (np.size(weight) == stage["weight"].size, f"weights_bits must have shape {shape}"),
            (bias is None or np.shape(bias) == shape[:1], f"bias_bits must have shape {shape[:1]}"),
            (0 <= int(scale) < 1 << 32, "scale_field must have 32 bits"),
        ],
    )
    return {
        "weight": np.asarray(weight).reshape(shape).astype(storage(fmt.width)),
        "bias": None if bias is None else np.asarray(bias).astype(np.uint32),
        "scale": int(scale),
    }


def _from_model(stage: Mapping[str, Any], fmt: FloatFormat | IntFormat) -> dict[str, Any]:
    """A stage's numbers from the model: weights rounded to ``fmt``, the bias in float32."""
    window = stage["pool_kernel"][0] * stage["pool_kernel"][1]
    factor = np.float32(1 / window if stage["pool"] == "sum" else 1)
    return {
        "weight": codes_of(fmt, stage["weight"]),
        "bias": None if stage["bias"] is None else codes_of(FLOAT32, stage["bias"]),
        "scale": int(factor.view(np.uint32)),
    }


def stages_of(
    model: nn.Module,
    input_shape: Sequence[int],
    config: AdaGPConfig,
    parameters: Sequence[Any] | None = None,
) -> list[Stage]:
    """Split ``model`` into stages.

    Parameters
    ----------
    model : torch.nn.Sequential, may be nested
    input_shape : (N, C, H, W), or (N, F) for a network that starts with a linear layer
    config : AdaGPConfig
    parameters : see :func:`compiler.compile`

    Raises
    ------
    CompileError : naming the layer, why it is not supported and what is
    """
    if not isinstance(model, nn.Sequential):
        raise CompileError(f"the model must be a torch.nn.Sequential, not {type(model).__name__}")
    try:
        sizes = tuple(int(size) for size in input_shape)
    except (TypeError, ValueError):
        sizes = ()
    if len(sizes) not in (2, 4) or min(sizes) < 1:
        raise CompileError(f"input_shape must be (N, C, H, W) or (N, F), not {input_shape!r}")
    input_shape = sizes
    flat = len(input_shape) == 2
    n, c, h, w = (*input_shape, 1, 1) if flat else input_shape
    builder = _Builder((n, h, w, c), flat)
    for label, layer in _flatten(model):
        if isinstance(layer, nn.Conv2d):
            builder.convolution(label, layer)
        elif isinstance(layer, nn.Linear):
            builder.linear(label, layer)
        elif isinstance(layer, nn.ReLU):
            builder.relu(label)
        elif isinstance(layer, nn.MaxPool2d | nn.AvgPool2d):
            builder.pool(label, layer)
        elif isinstance(layer, nn.Flatten):
            if layer.start_dim != 1 or layer.end_dim not in (-1, 3):
                raise CompileError(
                    f"layer {label}: it must flatten everything but the batch, start_dim=1 and "
                    f"end_dim=-1 or 3, not start_dim={layer.start_dim} and end_dim={layer.end_dim}"
                )
            builder.flat = True
        else:
            raise CompileError(f"layer {label}: not supported; allowed are {ALLOWED}")
    if not builder.stages:
        raise CompileError(f"the model has no layer that computes; allowed are {ALLOWED}")
    return _finish(builder.stages, config, parameters)


def _finish(
    stages: list[dict[str, Any]], config: AdaGPConfig, parameters: Sequence[Any] | None
) -> list[Stage]:
    fmt = config.format
    names = [" + ".join(stage["layers"]) for stage in stages]
    if parameters is None and not fmt.is_float:
        raise CompileError(
            f"format {fmt.name} needs parameters, one entry for each stage: {'; '.join(names)}"
        )
    if parameters is not None and len(parameters) != len(stages):
        raise CompileError(
            f"parameters must have one entry for each of the {len(stages)} stages "
            f"({'; '.join(names)}), not {len(parameters)}"
        )
    result = []
    for index, stage in enumerate(stages):
        if parameters is None:
            stage |= _from_model(stage, fmt)
        else:
            stage |= _given(stage, parameters[index], fmt, names[index])
        stage["layers"] = tuple(stage["layers"])
        result.append(Stage(index=index, wide=index == len(stages) - 1, **stage))
    return result
