"""The predictor in DRAM: shape, weights, statistics, and what it computes for a layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from compiler.errors import CompileError
from compiler.tensors.parameters import StoredParameter, channel_pitch, lanes
from compiler.tensors.tensor import Shape, Tensor
from hw.config import AdaGPConfig, CoreConfig

__all__ = [
    "GRADIENT_STATISTICS",
    "INPUT_STATISTICS",
    "LayerTensors",
    "PredictorShape",
    "PredictorTensors",
]

#: Numbers of a layer, in order; the first ones are running sums, the others are made of them.
INPUT_STATISTICS = ("weight", "mean_sum", "variance_sum", "mean", "inverse")
GRADIENT_STATISTICS = (
    "weight", "square", "product", "power", "scale", "inverse_scale", "gate", "factor"
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PredictorShape:
    """What of the predictor is built into a program.

    Members
    -------
    channels : of its convolution, c
    map_size : S; F = c · S²
    running : weight of the past in running values
    """

    channels: int = 4
    map_size: int = 4
    running: float = 0.9

    def __post_init__(self) -> None:
        for name in ("channels", "map_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise CompileError(f"{name} must be an integer of at least 1, not {value!r}")
        if not 0 <= self.running < 1:
            raise CompileError(f"running must be at least 0 and below 1, not {self.running!r}")

    @property
    def cells(self) -> int:
        return self.map_size**2

    @property
    def features(self) -> int:
        return self.channels * self.cells


@dataclass(frozen=True, kw_only=True)
class LayerTensors:
    """What belongs to one predicted layer; n rows (kh, kw, ci) of its weights, O outputs.

    Members
    -------
    name : of the layer
    weights : its parameter
    rows, outputs : n, O
    cells : (1, S, S, O) float32, the reorganised map
    inputs : (1, S² + 1, 1, O) operands, standardised; ones in the last row
    hidden : (1, 1, F + 1, O) operands; ones in the last row
    hidden_sums : (1, 1, F + 1, O) float32, the gradient of the hidden numbers before the mask
    hidden_gradient : (1, 1, F, O) operands
    prediction : (1, n, 1, O) float32
    error : (1, n, 1, O) operands
    gradient_sums : (1, 1, 3, O) operands, what the gradient statistics are made of
    input_statistics, gradient_statistics : (1, 1, count, lanes) float32, a number in all lanes
    """

    name: str
    weights: StoredParameter
    rows: int
    outputs: int
    cells: Tensor
    inputs: Tensor
    hidden: Tensor
    hidden_sums: Tensor
    hidden_gradient: Tensor
    prediction: Tensor
    error: Tensor
    gradient_sums: Tensor
    input_statistics: Tensor
    gradient_statistics: Tensor

    @property
    def tensors(self) -> list[Tensor]:
        """All of them that are not the layer's own."""
        return [value for value in vars(self).values() if isinstance(value, Tensor)]

    def placed(self, tensors: Mapping[str, Tensor]) -> "LayerTensors":
        """The same with those of ``tensors`` (by name) that are there."""
        own: dict[str, Any] = {
            key: tensors[value.name]
            for key, value in vars(self).items()
            if isinstance(value, Tensor) and value.name in tensors
        }
        return replace(self, weights=self.weights.placed_as(tensors), **own)

    @property
    def kept(self) -> list[Tensor]:
        """Those that outlive a batch."""
        return [self.inputs, self.hidden, self.input_statistics, self.gradient_statistics]


class PredictorTensors:
    """Tensors of the predictor for some layers.

    Parameters
    ----------
    config : AdaGPConfig
    core : the core that runs it
    shape : PredictorShape
    layers : list of (name, :class:`~compiler.tensors.parameters.StoredParameter` of the weights)

    Members
    -------
    full : StoredParameter (1, n_max, 1, F + 1) with the largest n; the last channel is the bias
    taps : StoredParameter (1, 1, 10, c) of the convolution; the last row is the bias
    toeplitz : (1, S² + 1, 1, F) operands, the convolution as a matrix from cells to features
    toeplitz_gradient : of the same shape
    layers : layer -> :class:`LayerTensors`
    """

    def __init__(
        self,
        config: AdaGPConfig,
        core: CoreConfig,
        shape: PredictorShape,
        layers: Sequence[tuple[str, StoredParameter]],
    ) -> None:
        self.config, self.core, self.shape = config, core, shape
        if shape.channels * core.operand_width // 8 % config.granule_bytes:
            raise CompileError(
                f"the predictor's channels must fill whole granules of {config.granule_bytes} "
                f"bytes, which {shape.channels} operands of {core.operand_width} bits do not"
            )
        pitch = channel_pitch(shape.features, config)
        while pitch % shape.channels:
            pitch = channel_pitch(pitch + 1, config)
        largest = max(prod(weights.shape[:3]) for _, weights in layers)
        self.full = self._parameter("predictor.full", (1, largest, 1, shape.features + 1))
        self.taps = self._parameter("predictor.taps", (1, 1, 10, shape.channels), operands=False)
        matrix = (1, shape.cells + 1, 1, shape.features)
        self.toeplitz = self._operands("predictor.toeplitz", matrix, pitch)
        self.toeplitz_gradient = self._operands("predictor.toeplitz.gradient", matrix, pitch)
        self.layers = {name: self._layer(name, weights) for name, weights in layers}

    def _operands(self, name: str, shape: Shape, pitch: int | None = None) -> Tensor:
        pitch = pitch or channel_pitch(shape[3], self.config)
        return Tensor.dense(name, shape, kind=self.config.operand_format, pitch=pitch)

    def _float(self, name: str, shape: Shape) -> Tensor:
        pitch = channel_pitch(shape[3], self.config)
        return Tensor.dense(name, shape, kind="float32", pitch=pitch)

    def _parameter(self, name: str, shape: Shape, *, operands: bool = True) -> StoredParameter:
        tensors = {"master": self._float(name, shape)}
        for role in ("velocity", "gradient"):
            tensors[role] = self._float(f"{name}.{role}", shape)
        if operands:
            tensors["operands"] = self._operands(f"{name}.operands", shape)
        return StoredParameter(
            name=name, layer="predictor", torch_shape=shape, shape=shape, groups=1,
            tensors=tensors,
        )  # fmt: skip

    def _layer(self, name: str, weights: StoredParameter) -> LayerTensors:
        shape, outputs = self.shape, weights.shape[3]
        rows, size = prod(weights.shape[:3]), shape.map_size

        def named(what: str) -> str:
            return f"{name}.prediction.{what}"

        return LayerTensors(
            name=name,
            weights=weights,
            rows=rows,
            outputs=outputs,
            cells=self._float(named("cells"), (1, size, size, outputs)),
            inputs=self._operands(named("inputs"), (1, shape.cells + 1, 1, outputs)),
            hidden=self._operands(named("hidden"), (1, 1, shape.features + 1, outputs)),
            hidden_sums=self._float(named("hidden_sums"), (1, 1, shape.features + 1, outputs)),
            hidden_gradient=self._operands(
                named("hidden_gradient"), (1, 1, shape.features, outputs)
            ),
            prediction=self._float(named("output"), (1, rows, 1, outputs)),
            error=self._operands(named("error"), (1, rows, 1, outputs)),
            gradient_sums=self._operands(named("gradient_sums"), (1, 1, 3, outputs)),
            input_statistics=self._float(
                named("input_statistics"), (1, 1, len(INPUT_STATISTICS), lanes(self.config))
            ),
            gradient_statistics=self._float(
                named("gradient_statistics"), (1, 1, len(GRADIENT_STATISTICS), lanes(self.config))
            ),
        )

    @property
    def constants(self) -> Tensor:
        """A word of operands 1, as a tensor."""
        return self._operands("predictor.ones", (1, 1, 1, self.core.rows))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors, by name."""
        found = [
            *self.full.tensors.values(),
            *self.taps.tensors.values(),
            self.toeplitz,
            self.toeplitz_gradient,
            self.constants,
            *(tensor for layer in self.layers.values() for tensor in layer.tensors),
        ]
        return {tensor.name: tensor for tensor in found}

    @property
    def kept(self) -> set[str]:
        """Names of those that outlive a batch."""
        found = [
            *(t for p in (self.full, self.taps) for r, t in p.tensors.items() if r != "gradient"),
            self.toeplitz,
            self.constants,
            *(tensor for layer in self.layers.values() for tensor in layer.kept),
        ]
        return {tensor.name for tensor in found}

    def contents(self, state: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
        """What all :attr:`kept` tensors hold at the start, by name, in their shapes.

        ``state`` maps names to arrays of those that are not zero at the start: real numbers or
        codes in the tensor's shape. Taps make :attr:`toeplitz`, a master its operand copy.
        """
        tensors, found = self.tensors, {}
        for name in self.kept:
            found[name] = np.zeros(tensors[name].shape)
        for name, values in state.items():
            if name not in found:
                raise ValueError(f"the predictor keeps no {name}; it keeps {', '.join(found)}")
            found[name] = np.asarray(values)
        found[self.constants.name] = np.ones(self.constants.shape)
        for layer in self.layers.values():
            for tensor in (layer.inputs, layer.hidden):
                values = np.zeros(tensor.shape)
                values.reshape(-1, layer.outputs)[-1] = 1
                found[tensor.name] = values
        full, taps = self.full.tensors, found[self.taps.name]
        found[full["operands"].name] = _real(full["master"], found[self.full.name])
        found[self.toeplitz.name] = self._matrix(_real(self.taps.tensors["master"], taps))
        return found

    def _matrix(self, taps: np.ndarray) -> np.ndarray:
        """The convolution as a matrix, of real taps (1, 1, 10, c)."""
        size, channels = self.shape.map_size, self.shape.channels
        matrix = np.zeros((self.shape.cells + 1, size, size, channels))
        for i in range(size):
            for j in range(size):
                for di in range(3):
                    for dj in range(3):
                        h, w = i + di - 1, j + dj - 1
                        if 0 <= h < size and 0 <= w < size:
                            matrix[h * size + w, i, j] = taps[0, 0, 3 * di + dj]
        matrix[-1] = taps[0, 0, 9]
        return matrix.reshape(self.toeplitz.shape)

    def part(self, tensors: Mapping[str, Tensor], rows: int) -> StoredParameter:
        """The fully connected layer's parameter, only its first ``rows`` rows, placed as in
        ``tensors`` (by name)."""
        found = {}
        for role, tensor in self.full.tensors.items():
            tensor = tensors.get(tensor.name, tensor)
            shape = (1, rows, *tensor.shape[2:])
            size = prod(shape[:3]) * tensor.pitch * tensor.dtype.itemsize
            found[role] = replace(tensor, shape=shape, size=size)
        return replace(self.full, tensors=found)


def _real(tensor: Tensor, values: np.ndarray) -> np.ndarray:
    """Real numbers of what ``tensor`` holds."""
    if values.dtype.kind == "u":
        return tensor.values(values)
    return np.asarray(values, np.float32).astype(np.float64)
