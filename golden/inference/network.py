"""A network as the accelerator computes it: every stored activation and the logits, bit for bit."""

from dataclasses import dataclass

import numpy as np
from torch import nn

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import FLOAT32, FloatFormat, IntFormat, format_by_name
from golden.commands.post import post
from golden.layers.conv2d import conv2d

from .parameters import StageParameters, float_parameters
from .quantize import quantize
from .stages import Stage, group_layers

__all__ = ["ForwardResult", "Network", "StageResult", "forward_stage", "pooling_windows"]


@dataclass(frozen=True, kw_only=True, eq=False)
class StageResult:
    """What one stage computes.

    Members
    -------
    sums : (N, H, W, C) uint32, accumulators: float32 (int32) bits, before post-processing
    output : (N, H, W, C) what is stored: operand codes, or uint32 bits of a wide stage
    flags : uint8, union of :class:`golden.arithmetic.dot_product.Flags` over all elements and steps
    """

    sums: np.ndarray
    output: np.ndarray
    flags: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ForwardResult:
    """What a network computes for a batch.

    Members
    -------
    input_bits : (N, H, W, C) operand codes of the images
    stages : one :class:`StageResult` per stage
    logits : real values of the last stage's output, in the shape and order that torch has:
        (N, features) behind Flatten or Linear, else (N, C, H, W); float64, in integer formats
        multiplied by the output scale
    """

    input_bits: np.ndarray
    stages: tuple[StageResult, ...]
    logits: np.ndarray

    @property
    def outputs(self) -> list[np.ndarray]:
        """Every stage's stored output, in order."""
        return [stage.output for stage in self.stages]

    @property
    def flags(self) -> int:
        """Union of all stages' flags."""
        return int(np.bitwise_or.reduce([stage.flags for stage in self.stages]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """Stages and their numbers; made by :meth:`from_torch`.

    Members
    -------
    operand_format : of weights and stored activations
    rows : rows of the array that executes it; decides the order of sums
    input_shape : (C, H, W) of one image
    stages, parameters : one :class:`golden.inference.stages.Stage` and one
        :class:`golden.inference.parameters.StageParameters` per stage
    scales : real value of one unit of the network's input and of each stage's output; 1 in float
        formats
    """

    operand_format: FloatFormat | IntFormat
    rows: int
    input_shape: tuple[int, int, int]
    stages: tuple[Stage, ...]
    parameters: tuple[StageParameters, ...]
    scales: tuple[float, ...]

    @classmethod
    def from_torch(
        cls,
        model: nn.Sequential,
        *,
        input_shape,
        rows: int,
        operand_format: str = "bf16",
        calibration=None,
    ) -> "Network":
        """Group the layers of ``model`` and round its weights to the operand format.

        Parameters
        ----------
        model : see :func:`golden.inference.stages.group_layers`
        input_shape : (C, H, W) of one image, or (features,)
        rows : rows of the array
        operand_format : name of a format
        calibration : float (N, H, W, C) images from which the scales of an integer format are
            chosen (:func:`golden.inference.quantize.quantize`)

        Raises
        ------
        ValueError
            for an unsupported layer, naming it; an unknown format; a missing calibration.
        """
        fmt = format_by_name(operand_format)
        stages = group_layers(model, input_shape)
        if fmt.is_float:
            parameters = [float_parameters(stage, fmt) for stage in stages]
            scales = [1.0] * (len(stages) + 1)
        elif calibration is None:
            raise ValueError(f"Format {fmt.name} needs calibration images")
        else:
            parameters, scales = quantize(stages, fmt, calibration)
        return cls(
            operand_format=fmt,
            rows=rows,
            input_shape=stages[0].input_shape,
            stages=tuple(stages),
            parameters=tuple(parameters),
            scales=tuple(scales),
        )

    def encode_input(self, images) -> np.ndarray:
        """Operand codes of float ``images`` (N, H, W, C) or, for linear inputs, (N, features)."""
        channels, height, width = self.input_shape
        images = np.asarray(images, np.float64)
        if images.ndim == 2 and images.shape[1:] == (channels,) and height == width == 1:
            images = images[:, np.newaxis, np.newaxis, :]
        if images.ndim != 4 or images.shape[1:] != (height, width, channels):
            raise ValueError(
                f"Images must have shape (N, {height}, {width}, {channels}), not {images.shape}"
            )
        return encode(self.operand_format, images / self.scales[0])

    def forward(self, images) -> ForwardResult:
        """Run float ``images`` (N, H, W, C) through all stages."""
        return self.forward_bits(self.encode_input(images))

    def forward_bits(self, input_bits) -> ForwardResult:
        """Run operand codes (N, H, W, C) through all stages."""
        results, x = [], input_bits
        for stage, parameters in zip(self.stages, self.parameters, strict=True):
            results.append(forward_stage(self.operand_format, stage, parameters, x, rows=self.rows))
            x = results[-1].output
        return ForwardResult(
            input_bits=input_bits,
            stages=tuple(results),
            logits=self.decode_logits(results[-1].output),
        )

    def decode_logits(self, bits) -> np.ndarray:
        """Real values of the last stage's output bits (N, H, W, C), shaped as torch's result."""
        if self.operand_format.is_float:
            values = decode(FLOAT32, bits)
        else:
            values = np.asarray(bits, np.uint32).view(np.int32) * self.scales[-1]
        values = np.moveaxis(values, 3, 1)
        return values.reshape(len(values), -1) if self.stages[-1].flattened else values


def forward_stage(
    fmt: FloatFormat | IntFormat, stage: Stage, parameters: StageParameters, x_bits, *, rows: int
) -> StageResult:
    """Run operand codes ``x_bits`` (N, H, W, C) through one stage."""
    sums, sum_flags = conv2d(
        fmt,
        x_bits,
        parameters.weights_bits,
        parameters.bias_bits,
        stride=stage.stride,
        padding=stage.padding,
        rows=rows,
    )
    windows, (batch, height, width, channels) = pooling_windows(sums, stage.pool)
    output, post_flags = post(
        fmt,
        windows,
        relu=stage.relu,
        pool="sum" if stage.pool is not None and stage.pool.kind == "average" else "max",
        scale=parameters.scale_field,
        wide=stage.wide,
    )
    return StageResult(
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
