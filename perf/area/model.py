"""The area of a machine that was not synthesised: a model of each block, fitted to those that were.

A block's logic grows with few numbers (:data:`GROWTH`): the array's with its PEs, rows and columns,
the engines' with their lanes. What each of them costs is fitted to the measured blocks, with no
negative costs; a design is the sum of its blocks. How far it is off is found by leaving out
(:meth:`AreaModel.left_out`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean

import numpy as np
from scipy.optimize import nnls

from hw.config import AdaGPConfig, CoreConfig
from hw.isa.encoding import queue_opcodes

from .measured import FLOWS, Synthesis, syntheses

__all__ = ["GROWTH", "AreaModel", "LeftOut", "fitted"]

_PREDICTOR = "predictor "
#: Resources of which the array takes one for each PE that is not made of look-up tables.
_MULTIPLIERS = ("DSP48E1", "MULT18X18D")

#: Block -> the numbers with which it grows, of :func:`_numbers`.
GROWTH = {
    "array": ("dsp_pes", "lut_pes", "rows", "columns"),
    "accumulators": ("one", "columns"),
    "array control": ("one", "rows"),
    "post-processing": ("one", "post"),
    "vector engine": ("one", "lanes"),
    "loss engine": ("one", "lanes"),
    "DMA": ("one", "rows", "axi"),
    "command queues": ("queues", "deep_queues"),
    "buffer ports": ("one", "banks"),
    "connections": ("one", "main"),
    "register file": ("one", "more_cores"),
    "sequencer": ("one", "more_cores", "axi"),
    "batch control": ("one",),
    "bus": ("one", "more_cores", "axi"),
}


def _numbers(config: AdaGPConfig, core: CoreConfig) -> dict[str, int]:
    lut_rows = min(core.lut_multiplier_rows, core.rows)
    queues = len(queue_opcodes(core))
    return {
        "one": 1,
        "rows": core.rows,
        "columns": core.columns,
        "dsp_pes": (core.rows - lut_rows) * core.columns,
        "lut_pes": lut_rows * core.columns,
        "lanes": core.post_lanes,
        "post": core.post_lanes * core.post_groups,
        "axi": config.axi_data_width,
        "queues": queues,
        "deep_queues": queues if len(config.cores) > 1 else 0,
        "banks": core.rows * sum(len(config.memory_banks[memory]) for memory in core.memories),
        "main": int(core.index == 0),
        "more_cores": len(config.cores) - 1,
    }


@dataclass(frozen=True, kw_only=True)
class _Block:
    """A block of a synthesis: ``key`` of the design, what it is, its numbers, its amounts."""

    design: str
    kind: str
    numbers: tuple[float, ...]
    amounts: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """What the model says of a design whose blocks it has not been shown."""

    name: str
    resource: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """As a share of what was measured."""
        return self.predicted / self.measured - 1 if self.measured else 0.0


class AreaModel:
    """Costs of what the blocks grow with, for one flow.

    Parameters
    ----------
    flow : of :data:`~perf.area.measured.FLOWS`
    found : the syntheses to fit; those without blocks only serve to check

    Raises
    ------
    ValueError
        if no synthesis of the flow has blocks.
    """

    def __init__(self, flow: str, found: Sequence[Synthesis]) -> None:
        self.flow = flow
        self.resources = FLOWS[flow]
        self.syntheses = [each for each in found if each.flow == flow]
        self._blocks = [block for each in self.syntheses for block in _blocks_of(each)]
        if not self._blocks:
            raise ValueError(f"no synthesis for {flow} has the figures of its blocks")
        self._costs = _fit(self._blocks, self.resources)

    def estimate(self, config: AdaGPConfig) -> dict[str, float]:
        """Resource -> amount, without memories."""
        return self._sum(config, self._costs)

    @property
    def never_varied(self) -> list[str]:
        """Numbers that are the same in every synthesis, so that what they cost is not known: they
        count as part of what is always there, or as nothing."""
        numbers = [
            _numbers(each.config, core) for each in self.syntheses if each.blocks
            for core in each.config.cores
        ]  # fmt: skip
        return [
            name for name in numbers[0]
            if name != "one" and len({own[name] for own in numbers}) == 1
        ]  # fmt: skip

    def _sum(self, config, costs):
        total = dict.fromkeys(self.resources, 0.0)
        for kind, numbers in _kinds(config):
            for resource in self.resources:
                total[resource] += float(np.dot(costs[kind, resource], numbers))
        return total

    def left_out(self) -> list[LeftOut]:
        """Every design, predicted from the others.

        Left out are also blocks of other designs that are as this one's: without that, the main
        core of one variant would be predicted from the same core of another. Blocks of which all
        are the same stay.
        """
        found = []
        for each in self.syntheses:
            own = {(block.kind, block.numbers) for block in _blocks_of(each)}
            others = [
                block for block in self._blocks
                if block.design != each.name and (block.kind, block.numbers) not in own
            ]  # fmt: skip
            same = [block for block in self._blocks if block.design != each.name]
            kinds = {block.kind for block in others}
            others += [block for block in same if block.kind not in kinds]
            if {kind for kind, _ in _kinds(each.config)} <= {block.kind for block in others}:
                predicted = self._sum(each.config, _fit(others, self.resources))
                found += [
                    LeftOut(name=each.name, resource=resource, measured=each.totals[resource],
                            predicted=predicted[resource])
                    for resource in self.resources
                ]  # fmt: skip
        return found

    def error(
        self, resource: str, left_out: Iterable[LeftOut] | None = None
    ) -> tuple[float, float]:
        """Mean and largest of the absolute errors of :meth:`left_out`, as shares."""
        found = self.left_out() if left_out is None else left_out
        errors = [abs(each.error) for each in found if each.resource == resource]
        return mean(errors), max(errors)


@cache
def fitted(flow: str) -> AreaModel:
    """The model fitted to the syntheses that come with the project."""
    return AreaModel(flow, syntheses())


def _kinds(config: AdaGPConfig) -> list[tuple[str, tuple[float, ...]]]:
    """The blocks of a machine with their numbers."""
    found = []
    for core in config.cores:
        numbers = _numbers(config, core)
        for kind, growth in GROWTH.items():
            of_core = kind in _OF_CORES
            if (core.index and not of_core) or (kind == "loss engine" and not core.has_loss):
                continue
            if kind in ("vector engine", "batch control") and not core.has_vector:
                continue
            found.append((kind, tuple(float(numbers[name]) for name in growth)))
    return found


_OF_CORES = (
    "array", "accumulators", "array control", "post-processing", "vector engine", "DMA",
    "command queues", "buffer ports", "connections",
)  # fmt: skip


def _blocks_of(synthesis: Synthesis) -> list[_Block]:
    found = []
    for core in synthesis.config.cores:
        prefix = _PREDICTOR if core.index else ""
        numbers = _numbers(synthesis.config, core)
        for kind, growth in GROWTH.items():
            if (amounts := synthesis.blocks.get(prefix + kind)) is not None:
                values = tuple(float(numbers[name]) for name in growth)
                found.append(
                    _Block(design=synthesis.name, kind=kind, numbers=values, amounts=amounts)
                )
    return found


def _fit(blocks, resources):
    """(kind, resource) -> costs of its numbers. Equal blocks count once."""
    found = {}
    for kind in dict.fromkeys(block.kind for block in blocks):
        own = {block.numbers: block for block in blocks if block.kind == kind}
        matrix = np.array(list(own))
        scale = np.maximum(matrix.max(axis=0), 1.0)
        for resource in resources:
            amounts = np.array([block.amounts.get(resource, 0.0) for block in own.values()])
            weights = 1 / scale
            if kind == "array" and resource in _MULTIPLIERS:
                weights = weights * [name == "dsp_pes" for name in GROWTH[kind]]
            elif "one" in GROWTH[kind]:
                # What is the same everywhere cannot be told from what is always there.
                varied = np.ptp(matrix, axis=0) > 0
                weights = weights * (varied | (np.array(GROWTH[kind]) == "one"))
            found[kind, resource] = nnls(matrix * weights, amounts)[0] * weights
    return found
