"""Steps of a network that runs forward, with fused products on one or two cores."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import lcm
from typing import Any

import numpy as np

from compiler.codegen.core_builder import CoreProgram
from compiler.frontend.layer import Layer
from compiler.tensors.intervals import Interval, round_up
from compiler.tensors.parameters import StoredParameter, stored_parameters
from compiler.tensors.tensor import Tensor
from compiler.training.steps import TrainingSteps
from hw.config import AdaGPConfig, CoreConfig

from .autotune import plan_run
from .fused_product import FusedProduct
from .fusion import FUSED
from .numbers import Numbers
from .placement import Placement
from .run import Plan, Run
from .schedule import RunScheduler
from .tiling import Geometry

__all__ = ["GraphSteps"]


class GraphSteps(TrainingSteps):
    """The forward steps of traced, folded and fused ``layers``; nothing is kept for a backward
    pass.

    Parameters
    ----------
    numbers : of the fused products, by layer
    placement : which core computes which of them for which images
    memories : layer -> memories that its weights may go through on core 0, the best first; the
        others go through each core's own

    Members
    -------
    places : step -> core and images of a fused product
    plans : (layer, core, images) -> how it is cut, of all that have been written
    contents : name of a tensor of a fused product's numbers -> their codes
    """

    def __init__(
        self, layers: Sequence[Layer], config: AdaGPConfig, *, images: int,
        numbers: Mapping[str, Numbers], placement: Placement,
        memories: Mapping[str, Sequence[int]],
    ) -> None:  # fmt: skip
        self._fused_numbers, self._placement, self._weights_in = numbers, placement, memories
        self._products: list[str] = []
        #: Of products that are not alike, about.
        self._share = len({y.options["product"] for y in layers if y.kind == FUSED})
        self._known: dict[tuple[object, ...], Plan] = {}
        self.places: dict[int, tuple[CoreConfig, Interval]] = {}
        self.plans: dict[tuple[str, int, Interval], Plan] = {}
        self.contents: dict[str, np.ndarray] = {}
        super().__init__(layers, config, images=images, loss="mean_squared_error", optimizer="sgd")

    def _stored_parameters(self, layers: Sequence[Layer]) -> dict[str, StoredParameter]:
        """Those of the layers that are not fused, of which products read operands only."""
        others = [replace(y, module=None) if y.kind == FUSED else y for y in layers]
        found: dict[str, StoredParameter] = {}
        if any(layer.module is not None for layer in others):
            found = stored_parameters(others, self.config)
        for name, parameter in found.items():
            if "operands" in parameter.tensors:
                tensors = {"operands": parameter.tensors["operands"]}
                found[name] = replace(parameter, tensors=tensors)
        return found

    def _build(self, layers: Sequence[Layer]) -> None:
        self._needs_gradient = frozenset()
        for layer in layers:
            self._forward(layer)
        for group in range(1, len(self._placement.groups)):
            for layer in layers:
                if layer.kind == FUSED:
                    self._multiply(layer, group)

    @property
    def kept(self) -> set[str]:
        """Names of the tensors that always exist: parameters, the inputs, the outputs."""
        found = {*self.inputs, *self.constants, *self.contents}
        found |= {self.owner(self.maps[output.layer]) for output in self.outputs}
        for parameter in self.parameters.values():
            found |= {tensor.name for tensor in parameter.tensors.values()}
        return found

    # Fused products --------------------------------------------------------------------------

    def _precision(self, layer: Layer) -> dict[str, Any]:
        """An output has 32 bits, in whole groups of lanes of every core."""
        if layer.kind != FUSED or layer.output is None:
            return super()._precision(layer)
        lanes = [4 * core.post_lanes for core in self.config.cores]
        pitch = round_up(layer.shape[0], lcm(self.config.granule_bytes, *lanes) // 4)
        return {"kind": self._sums, "pitch": pitch}

    @property
    def _sums(self) -> str:
        """Kind of sums and biases."""
        return "float32" if self.config.format.is_float else "int32"

    def _forward_fused(self, layer: Layer, sources: list[str]) -> None:
        self.maps[layer.name] = self._map(layer, **self._precision(layer))
        self._products.append(layer.name)
        numbers = self._fused_numbers[layer.name]
        weights = self._tensor(f"{layer.name}.weight", numbers.weights.shape)
        self.contents[weights] = numbers.weights
        if numbers.bias is not None:
            for index in sorted({cores[self._number(layer)] for cores in self._placement.cores}):
                self._bias(layer, index, numbers.bias)
        self._multiply(layer, 0)

    def _number(self, layer: Layer) -> int:
        return self._products.index(layer.name)

    def _bias(self, layer: Layer, index: int, bias: np.ndarray) -> None:
        """Biases as core ``index`` takes them, a row for each column tile."""
        columns = self.config.cores[index].columns
        tiles = -(-len(bias) // columns)
        rows = np.zeros(tiles * columns, "<u4")
        rows[: len(bias)] = bias
        name = f"{layer.name}.bias.core{index}"
        shape = (1, 1, tiles, columns)
        self.contents[self._tensor(name, shape, kind=self._sums)] = rows.reshape(shape)

    def _multiply(self, layer: Layer, group: int) -> None:
        """The step of a fused product for the images of a group."""
        images = self._placement.groups[group]
        core = self._placement.cores[group][self._number(layer)]
        x, y = (self._some(self.maps[name], images) for name in (*layer.inputs, layer.name))
        weights, bias = f"{layer.name}.weight", f"{layer.name}.bias.core{core}"
        tensors = [x, y, weights, bias if bias in self.contents else None]
        own = self.config.cores[core].memories[:1]
        memories = self._weights_in.get(layer.name, own) if core == 0 else own
        self.places[len(self.steps)] = self.config.cores[core], images
        self._add(
            layer.name, "forward", self._write, *tensors, reads=[x, *tensors[2:]], writes=[y],
            core=core, product=layer.options["product"], memories=memories,
            place=(layer.name, core, images),
        )  # fmt: skip

    def _some(self, name: str, images: Interval) -> str:
        """The tensor that is some images of a map."""
        whole = self.tensors[name]
        if images == (0, self.images):
            return name
        begin, end = images
        part = f"{name}[{begin}:{end}]"
        owner, shift = self.slices.get(name, (name, 0))
        step = whole.shape[1] * whole.shape[2] * whole.distance * whole.dtype.itemsize
        self.slices[part] = owner, shift + begin * step
        shape = (end - begin, *whole.shape[1:])
        self.tensors[part] = replace(whole, name=part, shape=shape, size=(end - begin) * step)
        return part

    def _write(
        self, program: CoreProgram, x: Tensor, y: Tensor, weights: Tensor, bias: Tensor | None, *,
        product: FusedProduct, memories: Iterable[int], place: tuple[str, int, Interval],
    ) -> None:  # fmt: skip
        """Commands of a product; products that are alike are planned once."""
        core = program.core
        run = Run(product=product, core=core, source=x, target=y, weights=weights, bias=bias)
        key = product, core.index, x.shape[0], y.pitch, y.distance, tuple(memories)
        if key not in self._known:
            self._known[key] = plan_run(self.config, run, memories, share=self._share)
        plan = self.plans[place] = self._known[key]
        RunScheduler(self.config, run, plan, Geometry(product, core)).write(program)
