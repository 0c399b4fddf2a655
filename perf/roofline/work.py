"""What a batch has to compute and to move, and the cycles that this takes at least."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from compiler.networks.registry import InputShape
from hw.config import AdaGPConfig
from perf.counted.count import BatchCount

__all__ = ["Point", "Work", "point_of", "work_of"]


#: What may be at work -> counter of a core.
_BUSY = {"array": "VECTORS", "VECTOR": "VECTOR_BUSY", "LOAD": "LOAD_BUSY", "STORE": "STORE_BUSY"}


@dataclass(frozen=True, kw_only=True)
class Work:
    """Multiplications of a batch: on the array, and those of depthwise convolutions, which the
    vector engine computes. Those of the predictor are not in it."""

    array: int
    depthwise: int

    @property
    def macs(self) -> int:
        """All of them."""
        return self.array + self.depthwise


def work_of(model: nn.Module, shape: InputShape, images: int, *, backward: bool) -> Work:
    """Of a batch: forward, and with ``backward`` the gradients of weights and of inputs, which take
    as many each; a layer that reads the network's input has no input gradient.

    ``model`` and its input of ``shape`` are on the meta device, and torch's own counter of
    operations counts: convolutions, linear layers, both products of an attention. What it does not
    count right are grouped convolutions backward, so backward follows from forward here.
    """
    layers = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    }
    without: set[str] = set()  # layers of which nothing asks for an input gradient

    def watch(name):
        def hook(module, inputs, output):
            if not inputs[0].requires_grad:
                without.add(name)

        return hook

    model = model.to("meta").eval()  # with constants that were not made there
    handles = [module.register_forward_hook(watch(name)) for name, module in layers.items()]
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model(*_inputs(shape))
    for handle in handles:
        handle.remove()
    path = f"{type(model).__name__}."
    macs = {
        name.removeprefix(path): sum(found.values()) // 2  # a multiplication and an addition
        for name, found in counter.get_flop_counts().items()
    }
    depthwise = sum(macs.get(name, 0) for name, layer in layers.items() if _is_depthwise(layer))
    array, times = counter.get_total_flops() // 2 - depthwise, 1
    if backward:
        array, times = 3 * array - sum(macs.get(name, 0) for name in without), 3
    return Work(array=images * array, depthwise=images * times * depthwise)


def _inputs(shape: InputShape) -> list[torch.Tensor]:
    """Of one image or of one sentence of each length."""
    if all(isinstance(size, int) for size in shape):
        return [torch.empty(1, *shape)]
    return [torch.zeros(1, *length, dtype=torch.long) for length in shape]  # type: ignore[misc]


def _is_depthwise(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Conv2d) and layer.groups > 1 and layer.groups == layer.in_channels


@dataclass(frozen=True, kw_only=True)
class Point:
    """A batch on a machine.

    Members
    -------
    network, variant, phase : "bp" or "gp"
    macs, cycles : what was computed, and in how many cycles
    bytes : in the busier direction, read or written
    bounds : what it takes at least, in cycles: "array", "vector engine" (depthwise convolutions
        alone), "read", "write"
    busy : share of the cycles in which the main core's array took a vector, in which a VECTOR, a
        LOAD, a STORE was at work
    beat : bytes that the bus moves in a cycle and direction
    pes : of the main array
    """

    network: str
    variant: str
    phase: str
    macs: int
    cycles: int
    bytes: int
    bounds: dict[str, float]
    busy: dict[str, float]
    beat: int
    pes: int

    @property
    def intensity(self) -> float:
        """Multiplications for each byte."""
        return self.macs / self.bytes

    @property
    def rate(self) -> float:
        """Multiplications in a cycle."""
        return self.macs / self.cycles

    @property
    def roof(self) -> float:
        """The most multiplications in a cycle, of array and bus."""
        return min(self.pes, self.intensity * self.beat)

    @property
    def limit(self) -> str:
        """The largest of the bounds."""
        return max(self.bounds, key=lambda name: self.bounds[name])

    @property
    def share(self) -> float:
        """Of the cycles, that the largest bound explains."""
        return self.bounds[self.limit] / self.cycles


def point_of(
    network: str, variant: str, phase: str, config: AdaGPConfig, work: Work, batch: BatchCount
) -> Point:
    """A counted batch beside what it has to do."""
    core = config.cores[0]
    read, written = batch.counters["READ_BYTES"], batch.counters["WRITE_BYTES"]
    return Point(
        network=network, variant=variant, phase=phase, macs=work.macs, cycles=batch.cycles,
        bytes=max(read, written), beat=config.beat_bytes, pes=core.pes,
        bounds={
            "array": work.array / core.pes,
            "vector engine": work.depthwise / core.post_lanes,
            "read": read / config.beat_bytes,
            "write": written / config.beat_bytes,
        },
        busy={
            name: batch.counters.get(f"CORE0_{counter}", 0) / batch.cycles
            for name, counter in _BUSY.items()
        },
    )  # fmt: skip
