"""Steps from DRAM to DRAM and the tensors between them, before anything has its place."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from math import lcm, prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.replay import StepCall
from compiler.codegen.scratchpad import NoRoom
from compiler.errors import CompileError
from compiler.frontend.layer import Layer
from compiler.stages import stage
from compiler.tensors.intervals import Interval, round_up
from compiler.tensors.tensor import Shape, Tensor
from hw.config import AdaGPConfig, CoreConfig

from .groups import Group, grouped, product_cycles
from .named_tensors import NamedConvolution, TensorReference, resolve
from .step import Step
from .units import byte_cycles, unit_of

__all__ = ["LONG", "StepGraph"]

#: Vectors that enter the array for products forward in a batch that is not long, at most.
LONG = 1 << 22


class StepGraph:
    """Steps, and tensors by name.

    Parameters
    ----------
    config : AdaGPConfig
    images : in a batch

    Members
    -------
    steps : list of :class:`Step`
    tensors : name -> :class:`~compiler.tensors.tensor.Tensor` without a place
    constants : name of a tensor that never changes -> its bytes, as hexadecimal digits
    slices : name of a tensor that is some channels of another one -> (name of that one, bytes from
        its first channel to the own one)
    together : whether steps may change places and run beside each other
    """

    together = False

    def __init__(self, config: AdaGPConfig, *, images: int) -> None:
        self.config, self.images = config, images
        self.core = config.cores[0]
        self.steps: list[Step] = []
        self.tensors: dict[str, Tensor] = {}
        self.slices: dict[str, tuple[str, int]] = {}
        self.constants: dict[str, str] = {}

    @property
    def is_long(self) -> bool:
        """Whether products forward take so long that steps run beside each other unless somebody
        says otherwise."""
        return LONG < product_cycles(self.steps)

    @cached_property
    def groups(self) -> list[Group]:
        """The steps, once all are known, in the order in which they are written."""
        if not self.together:
            return [Group((step,)) for step in self.steps]
        return grouped(self.steps, self.owner)

    def owner(self, name: str) -> str:
        """The tensor that a tensor's memory belongs to: itself, or the one it is a slice of."""
        return self.slices[name][0] if name in self.slices else name

    def _cycles(
        self, function: Callable[..., object], names: Sequence[TensorReference],
        tensors: Iterable[str],
    ) -> int:  # fmt: skip
        """Of a step, roughly: as many as vectors enter the array for a product, else in proportion
        to what it reads and writes."""
        if names and isinstance(names[0], NamedConvolution):
            y, weights = self.tensors[names[0].y], self.tensors[names[0].weights]
            pixels, (kh, kw, inputs, outputs) = prod(y.shape[:3]), weights.shape
            tiles = -(-inputs // self.core.rows) * -(-outputs // self.core.columns)
            return pixels * kh * kw * tiles
        size = sum(self.tensors[name].size for name in tensors)
        return int(size * byte_cycles(function))

    def _pass_cycles(self, core: CoreConfig, name: str) -> int:
        """How long the vector engine of ``core`` takes for a pass through a map, about."""
        y = self.tensors[name]
        return prod(y.shape[:3]) * -(-y.shape[3] // core.rows) * core.groups_per_word

    def placed(self, offset_of: Callable[[str], int | None]) -> dict[str, Tensor]:
        """The tensors with their places; ``offset_of`` gives that of an owner, or None for one
        that nothing uses."""
        found = {}
        for name, tensor in self.tensors.items():
            owner, shift = self.slices.get(name, (name, 0))
            offset = offset_of(owner)
            if offset is not None:
                found[name] = replace(tensor, offset=offset + shift)
        return found

    def _unit(self, kind: str) -> int:
        """Channels of a granule."""
        if kind in ("float32", "int32"):
            return lcm(self.config.granule_bytes, 4) // 4
        return self.config.granule_operands

    def _tensor(
        self, name: str, shape: Shape, *, kind: str | None = None, pitch: int | None = None
    ) -> str:
        kind = kind or self.config.operand_format
        if pitch is None:
            pitch = round_up(shape[3], self._unit(kind))
        self.tensors[name] = Tensor.dense(name, shape, kind=kind, pitch=pitch)
        return name

    def _slice(self, name: str, of: str, channels: Interval) -> str:
        """A tensor that is ``channels`` (begin, end) of another one; they begin with a granule."""
        whole = self.tensors[of]
        begin, end = channels
        assert begin % self._unit(whole.kind) == 0, f"{name} begins within a granule"
        owner, shift = self.slices.get(of, (of, 0))
        self.slices[name] = owner, shift + begin * whole.dtype.itemsize
        self._tensor(name, (*whole.shape[:3], end - begin), kind=whole.kind)
        self.tensors[name] = replace(
            self.tensors[name], stride=whole.stride or whole.pitch, size=whole.size
        )
        return name

    def _constant(self, name: str, values: ArrayLike, *, pitch: int | None = None) -> str:
        """A tensor of operands that never changes, of real numbers (N, H, W, C)."""
        values = np.asarray(values, np.float64)
        count, height, width, channels = values.shape
        self._tensor(name, (count, height, width, channels), pitch=pitch)
        self.constants[name] = self.tensors[name].pack(values).hex()
        return name

    def _map(self, layer: Layer, name: str | None = None, **options: Any) -> str:
        channels, height, width = layer.shape
        shape = (self.images, height, width, channels)
        return self._tensor(name or layer.name, shape, **options)

    def _add(
        self, layer: str, direction: str, function: Callable[..., object], *names: TensorReference,
        reads: Iterable[str | None] = (), writes: Iterable[str | None] = (),
        named: Mapping[str, TensorReference] | None = None, predictor: bool = False,
        background: bool = False, core: int = 0, unit: str | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        """A step that calls ``function(program, *tensors, **options)``; ``named`` are tensors among
        the options, and ``unit`` is that of the step if the function does not say it."""

        def write(program: CoreProgram, tensors: Mapping[str, Tensor]) -> None:
            arguments = [resolve(name, tensors) for name in names]
            more = {key: resolve(name, tensors) for key, name in (named or {}).items()}
            owners = dict.fromkeys(self.owner(name) for name in touched)
            whole = [tensors[owner] for owner in owners]
            others = tensors.keys() - set(touched)
            context = program.recorder.background() if background else nullcontext()
            try:
                with context, stage(direction, layer):
                    program.write_step(StepCall(function, arguments, options | more, whole, others))
            except NoRoom as error:
                raise CompileError(f"layer {layer} ({direction}): {error}") from error

        reads, writes = (tuple(name for name in part if name) for part in (reads, writes))
        touched = *reads, *writes
        if unit is None:
            unit = unit_of(function)
        if background or core or "beside" in options:
            unit = ""
        self.steps.append(
            Step(
                layer=layer,
                direction=direction,
                reads=reads,
                writes=writes,
                unit=unit,
                cycles=self._cycles(function, names, [*reads, *writes]),
                write=write,
                core=core,
                predictor=predictor,
                background=background,
            )
        )
