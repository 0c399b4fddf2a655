"""How parameters lie in DRAM: shapes, channel pitch, and conversion from and to torch's shapes.

A product's weights are (KH, KW, CI, CO), its biases (1, 1, column tiles, columns), each column tile
in a row of its own because the array takes them so; everything else is a vector (1, 1, 1, C). A
linear layer is a convolution whose kernel is the map in front of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm, prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from compiler.errors import CompileError
from hw.config import AdaGPConfig, CoreConfig
from hw.formats import FLOAT32, FORMATS

from .column_tiles import ColumnTiles
from .encoding import codes_of
from .intervals import round_up
from .tensor import IN_ORDER, Order, Shape, Tensor

__all__ = [
    "CORRECTIONS",
    "TAPS_TOGETHER",
    "StoredParameter",
    "TracedLayer",
    "channel_pitch",
    "lanes",
    "pack_state",
    "stored_parameters",
    "unpack_state",
]


#: Role of the two numbers that an optimizer keeps for a whole parameter.
CORRECTIONS = "corrections"
#: Of weights (KH, KW, CI, CO): the rows of an input channel lie one after the other.
TAPS_TOGETHER: Order = (2, 0, 1)


class TracedLayer(Protocol):
    """What is asked of a :class:`compiler.frontend.torch_graph.Layer`."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def module(self) -> Any: ...
    @property
    def trainable(self) -> tuple[str, ...]: ...
    @property
    def constants(self) -> Mapping[str, float]: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


def lanes(config: AdaGPConfig) -> int:
    """Lanes that hold a single number: as many as a word of any core has."""
    return max(core.rows for core in config.cores)


def channel_pitch(channels: int, config: AdaGPConfig) -> int:
    """Channels that a row of ``channels`` takes in every tensor of a parameter.

    The least number, at least ``channels``, such that an operand row is whole granules, and a
    float32 row takes ``chunks_per_wide`` times the buffer words of an operand row in every core.
    Then one VECTOR command walks rows of both, and never writes behind a row.
    """
    width = config.format.width
    unit = lcm(config.granule_bytes * 8, width) // width
    pitch = round_up(channels, unit)
    while not all(
        -(-pitch * 4 // core.word_bytes) == core.chunks_per_wide * -(-pitch // core.rows)
        for core in config.cores
    ):
        pitch += unit
    return pitch


@dataclass(frozen=True, kw_only=True)
class StoredParameter:
    """A parameter or a running statistic and its tensors in DRAM.

    Members
    -------
    name : as in torch's ``state_dict``
    layer : name of its layer
    torch_shape : torch's shape
    shape : (KH, KW, CI, CO), (1, 1, column tiles, columns) or (1, 1, 1, C); CI is 1 for a
        depthwise convolution. Columns behind the last channel hold +0.
    width : channels in a row, by default all; of a product's biases those of a column tile, and
        +0 behind them
    constant : what it holds if torch's module has no such parameter; None if it has
    transposed : torch has (CI, CO), as an embedding does, not (CO, CI)
    groups : 1, or the number of blocks on the diagonal of (CI, CO); outside them are zeros
    tensors : by role, all with one pitch, named ``name`` or ``name.role``. A running statistic has
        a ``master`` only, a frozen parameter ``master`` and ``operands`` only.

        ========== ======== =====================================================
        master     float32  what is learned, or frozen
        gradient   float32  of ``shape``; outside the groups it may hold anything; once it has a
                            place, only of layers that an output depends on
        (slots)    float32  the optimizer's numbers, such as ``velocity``; ``corrections`` are
                            (1, 1, 2, lanes), two numbers in all lanes
        operands   operand  weights of products only: the master, rounded once; all taps of an input
                            channel lie together, so that one LOAD brings those of a K tile
        mask       operand  grouped only: (1, 1, CI, CO), 1 in the groups, +0 elsewhere
        ========== ======== =====================================================
    """

    name: str
    layer: str
    torch_shape: tuple[int, ...]
    shape: tuple[int, int, int, int]
    groups: int
    tensors: Mapping[str, Tensor]
    width: int | None = None
    transposed: bool = False
    constant: float | None = None

    def placed(self, offsets: Mapping[str, int]) -> "StoredParameter":
        """The same with the tensors at ``offsets`` (by name of tensor), without a gradient that has
        no place: nothing writes that of a layer which no output depends on."""
        tensors = {
            role: replace(tensor, offset=offsets[tensor.name])
            for role, tensor in self.tensors.items()
            if role != "gradient" or tensor.name in offsets
        }
        return replace(self, tensors=tensors)

    def placed_as(self, tensors: Mapping[str, Tensor]) -> "StoredParameter":
        """The same with those of ``tensors`` (by name) that are there."""
        own = {role: tensors[tensor.name] for role, tensor in self.tensors.items()
               if tensor.name in tensors}  # fmt: skip
        return replace(self, tensors=own)

    @property
    def mask(self) -> np.ndarray:
        """(CI, CO) bool: which weights exist."""
        inputs, outputs = self.shape[2] // self.groups, self.shape[3] // self.groups
        return np.kron(np.eye(self.groups, dtype=bool), np.ones((inputs, outputs), bool))

    def to_memory(self, values: ArrayLike) -> np.ndarray:
        """(KH, KW, CI, CO) of an array in torch's shape, zero outside the groups."""
        values = np.asarray(values)
        if values.shape != self.torch_shape:
            raise ValueError(f"{self.name} has shape {self.torch_shape}, not {values.shape}")
        if self.transposed:
            return np.ascontiguousarray(values.reshape(self.shape))
        if values.ndim == 1:
            width = self.width or self.shape[3]
            rows = np.zeros((prod(self.shape[:3]), width), values.dtype)
            rows.reshape(-1)[: len(values)] = values
            padded = np.zeros((len(rows), self.shape[3]), values.dtype)
            padded[:, :width] = rows
            return padded.reshape(self.shape)
        kh, kw, _, outputs = self.shape
        dense = values.reshape(outputs, -1, kh, kw).transpose(2, 3, 1, 0)
        if self.groups == 1:
            return np.ascontiguousarray(dense)
        # What a group's outputs take lies at its own input channels.
        repeated = np.tile(dense, (1, 1, self.groups, 1))
        return np.where(self.mask, repeated, np.zeros((), values.dtype))

    def from_memory(self, values: ArrayLike) -> np.ndarray:
        """An array (KH, KW, CI, CO) in torch's shape; what lies outside the groups is dropped."""
        values = np.asarray(values)
        if values.shape != self.shape:
            raise ValueError(f"{self.name} is stored as {self.shape}, not {values.shape}")
        if self.transposed:
            return np.ascontiguousarray(values.reshape(self.torch_shape))
        if len(self.torch_shape) == 1:
            rows = values.reshape(-1, self.shape[3])[:, : self.width]
            return rows.reshape(-1)[: self.torch_shape[0]]
        if self.groups > 1:
            kh, kw, inputs, outputs = self.shape
            blocks = (self.groups, inputs // self.groups, self.groups, outputs // self.groups)
            index = np.arange(self.groups)
            # (groups, KH, KW, inputs, outputs) of a group, then all outputs last.
            values = values.reshape(kh, kw, *blocks)[:, :, index, :, index]
            values = np.moveaxis(values, 0, 3).reshape(kh, kw, blocks[1], outputs)
        return np.ascontiguousarray(values.transpose(3, 2, 0, 1)).reshape(self.torch_shape)

    def pack(self, role: str, values: ArrayLike) -> bytes:
        """Bytes of a tensor from real numbers (rounded once) or codes, in torch's shape."""
        tensor = self.tensors[role]
        if role == CORRECTIONS:
            values = np.asarray(values)
            if values.shape != tensor.shape[2:3]:
                raise ValueError(f"{tensor.name} has shape {tensor.shape[2:3]}, not {values.shape}")
            return tensor.pack(np.broadcast_to(values[:, np.newaxis], tensor.shape))
        values = self.to_memory(values)
        if tensor.kind == "float32" and values.dtype.kind == "f":
            values = codes_of(FLOAT32, values)
        return tensor.pack(values)

    def unpack(self, role: str, memory: bytes | bytearray | memoryview) -> np.ndarray:
        """Codes of a tensor in torch's shape, from the bytes of the whole memory window."""
        if role == CORRECTIONS:
            return self.tensors[role].unpack(memory)[0, 0, :, 0]
        return self.from_memory(self.tensors[role].unpack(memory))


def stored_parameters(
    layers: Sequence[TracedLayer], config: AdaGPConfig, *, slots: Sequence[str] = ("velocity",)
) -> dict[str, StoredParameter]:
    """All parameters and running statistics of traced ``layers``, by torch's names.

    Tensors have offset 0 until :meth:`StoredParameter.placed`.

    Parameters
    ----------
    layers : list of :class:`compiler.frontend.torch_graph.Layer`
    config : AdaGPConfig
    slots : names of the optimizer's numbers

    Raises
    ------
    CompileError
        for an integer format.
    """
    if not config.format.is_float:
        raise CompileError(
            f"training needs a float format, not {config.operand_format}; allowed are "
            + ", ".join(name for name, fmt in FORMATS.items() if fmt.is_float)
        )
    maps = {layer.name: layer.shape for layer in layers}
    found: dict[str, StoredParameter] = {}
    for layer in layers:
        if layer.module is None:
            continue
        for name, values in layer.module.named_parameters():
            shape, groups, width = _shape(layer, values, maps, config.cores[0])
            trainable = f"{layer.name}.{name}" in layer.trainable
            roles = ["master", *slots, "gradient"] if trainable else ["master"]
            if values.dim() > 1:
                roles += ["operands", "mask"] if groups > 1 and trainable else ["operands"]
            _add(found, layer, name, values, shape, width, groups, roles, config)
        for name, values in layer.module.named_buffers():
            if name.startswith("running"):
                shape, groups, width = _shape(layer, values, maps, config.cores[0])
                _add(found, layer, name, values, shape, width, groups, ["master"], config)
    return found


def pack_state(
    parameters: Mapping[str, StoredParameter],
    state: Mapping[str, Any],
    slots: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, bytes]:
    """Contents of all tensors but gradients, by name of tensor.

    Parameters
    ----------
    parameters : of :func:`stored_parameters`
    state : real numbers by torch's name, such as a ``state_dict``; others than ``parameters`` are
        left out
    slots : the optimizer's numbers by role and torch's name; zero where missing

    Raises
    ------
    ValueError
        naming what is missing, has another shape, or is no role.
    """
    slots = slots or {}
    if not isinstance(state, Mapping):
        raise ValueError(
            f"the state must map names to numbers, as state_dict() does, not {type(state).__name__}"
        )
    needed = [name for name, parameter in parameters.items() if parameter.constant is None]
    if missing := [name for name in needed if name not in state]:
        raise ValueError(
            f"the state has no {', '.join(missing)}; it must have all of {', '.join(needed)}"
        )
    roles = {role for parameter in parameters.values() for role in parameter.tensors}
    roles -= {"master", "gradient", "operands", "mask"}
    if unknown := sorted(set(slots) - roles):
        raise ValueError(
            f"the optimizer keeps no {', '.join(unknown)}; slots may be {', '.join(sorted(roles))}"
        )
    contents = {}
    for name, parameter in parameters.items():
        if parameter.constant is None:
            numbers = _real(state[name])
        else:
            numbers = np.full(parameter.torch_shape, parameter.constant)
        master = codes_of(FLOAT32, numbers)
        for role, tensor in parameter.tensors.items():
            if role == "gradient":
                continue
            if role == "master":
                data = parameter.pack(role, master)
            elif role == "operands":
                data = parameter.pack(role, replace(tensor, kind="float32").values(master))
            elif role == "mask":
                data = tensor.pack(parameter.mask[np.newaxis, np.newaxis].astype(np.float64))
            else:
                values = slots.get(role, {}).get(name)
                data = bytes(tensor.size) if values is None else parameter.pack(role, _real(values))
            contents[tensor.name] = data
    return contents


def unpack_state(
    parameters: Mapping[str, StoredParameter],
    memory: bytes | bytearray | memoryview,
    role: str = "master",
) -> dict[str, np.ndarray]:
    """Float32 arrays in torch's shapes by torch's names, of those that have ``role``."""
    return {
        name: parameter.unpack(role, memory).view(np.float32)
        for name, parameter in parameters.items()
        if role in parameter.tensors and parameter.constant is None
    }


def _real(values: Any) -> np.ndarray:
    """A NumPy array (float64) of an array or torch tensor."""
    if hasattr(values, "detach"):  # torch's; it is not imported for programs that were saved
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, np.float64)


def _shape(
    layer: TracedLayer, values: Any, maps: Mapping[str, tuple[int, int, int]], core: CoreConfig
) -> tuple[Shape, int, int | None]:
    """(shape in memory, groups, width) of a parameter or statistic."""
    size = tuple(values.shape)
    if values.dim() == 1 and layer.kind in ("convolution", "linear"):
        tiles = ColumnTiles.of(size[0], core, layer.options.get("groups", 1))
        return (1, 1, tiles.count, core.columns), 1, tiles.width
    if values.dim() == 1:
        return (1, 1, 1, *size), 1, None
    if layer.kind == "embedding":
        return (1, 1, size[0], size[1]), 1, None
    if layer.kind == "linear":
        channels, height, width = maps[layer.inputs[0]]
        return (height, width, channels, size[0]), 1, None
    outputs, inputs, *kernel = size
    if layer.kind == "depthwise":
        return (*kernel, 1, outputs), 1, None
    groups = layer.options["groups"]
    kernel = kernel or [1, 1]  # of a linear layer on sequences
    return (*kernel, inputs * groups, outputs), groups, None


def _add(
    found: dict[str, StoredParameter],
    layer: TracedLayer,
    name: str,
    values: Any,
    shape: Shape,
    width: int | None,
    groups: int,
    roles: Sequence[str],
    config: AdaGPConfig,
) -> None:
    full, pitch = f"{layer.name}.{name}", channel_pitch(shape[3], config)
    tensors = {}
    for role in roles:
        wide = role not in ("operands", "mask")
        dims = (1, 1, *shape[2:]) if role == "mask" else shape
        if role == CORRECTIONS:
            dims = (1, 1, 2, lanes(config))
        tensors[role] = Tensor.dense(
            full if role == "master" else f"{full}.{role}",
            dims,
            kind="float32" if wide else config.operand_format,
            pitch=channel_pitch(dims[3], config) if role == CORRECTIONS else pitch,
            order=TAPS_TOGETHER if role == "operands" and prod(dims[:2]) > 1 else IN_ORDER,
        )
    found[full] = StoredParameter(
        name=full,
        layer=layer.name,
        torch_shape=tuple(values.shape),
        shape=shape,
        width=width,
        transposed=layer.kind == "embedding",
        constant=layer.constants.get(name),
        groups=groups,
        tensors=tensors,
    )
