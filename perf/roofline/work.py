"""What a batch has to compute and to move, and the cycles that this takes at least."""

from collections.abc import Sequence
from dataclasses import dataclass

from hw.config import AdaGPConfig
from perf.analytic.shapes import Layer
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


def work_of(layers: Sequence[Layer], images: int, *, backward: bool) -> Work:
    """Of a batch: forward, and with ``backward`` weight and input gradients, which take as many
    each; the first layer has no input gradient."""
    array = depthwise = 0
    for number, layer in enumerate(layers):
        times = 1 if not backward else 3 if number else 2
        macs = layer.forward(images).macs * times
        if layer.groups > 1 and layer.groups == layer.inputs:
            depthwise += macs
        else:
            array += macs
    return Work(array=array, depthwise=depthwise)


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
