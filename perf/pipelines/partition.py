"""A network cut into stages: as even as its layers allow."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from algorithms.networks.network_facts import examine
from algorithms.pipeline.partition import even_runs

from .schedules import Stage

__all__ = ["LayerTime", "layers_by_cycles", "layers_by_macs", "partition", "stages_of"]


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """What a layer takes for a batch, in any unit."""

    name: str
    forward: int
    backward: int

    @property
    def total(self) -> int:
        """Both directions."""
        return self.forward + self.backward


def layers_by_macs(network: str, shape: tuple[int, int, int], classes: int) -> list[LayerTime]:
    """Multiply-accumulates of every layer for an image: twice as many backward, but for the first
    layer, whose input needs no gradient."""
    facts = examine(network, shape, classes)
    return [
        LayerTime(name=layer.name, forward=layer.macs, backward=layer.macs * (2 if number else 1))
        for number, layer in enumerate((*facts.layers, facts.head))
    ]


def layers_by_cycles(path: str | Path) -> list[LayerTime]:
    """Cycles of every layer, from what ``python -m compiler --network NAME --json FILE`` has
    written; updates count as backward.

    Raises
    ------
    ValueError
        for a file of another kind, or one without cycles of layers.
    """
    try:
        layers = json.loads(Path(path).read_text())["layers"]
        found = []
        for layer in layers:
            cycles = layer["cycles"].get("bp", {})
            backward = sum(cycles.get(phase, 0) for phase in ("loss", "backward", "update"))
            found.append(
                LayerTime(name=layer["name"], forward=cycles.get("forward", 0), backward=backward)
            )
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError):
        raise ValueError(
            f"{path} must be a file that python -m compiler --network NAME --json writes"
        ) from None
    if not any(layer.total for layer in found):
        raise ValueError(
            f"{path} has no cycles of layers: compile for a variant whose steps follow each other "
            "(baseline, low)"
        )
    return found


def partition(layers: Sequence[LayerTime], stages: int) -> list[list[LayerTime]]:
    """Cut into ``stages`` runs of layers so that the longest one is as short as possible.

    Raises
    ------
    ValueError
        if there are fewer layers than stages.
    """
    if len(layers) < stages:
        raise ValueError(f"devices must be at most {len(layers)}, the number of layers")
    runs = even_runs([layer.total for layer in layers], stages)
    return [[layers[index] for index in run] for run in runs]


def stages_of(runs: Sequence[Sequence[LayerTime]]) -> list[Stage]:
    """Times of the stages, of which the mean is 3: as for even stages of 1 forward and 2 backward,
    so that steps compare."""
    total = sum(layer.total for run in runs for layer in run)
    unit = Fraction(total, 3 * len(runs))
    return [
        Stage(
            forward=sum(layer.forward for layer in run) / unit,
            backward=sum(layer.backward for layer in run) / unit,
        )
        for run in runs
    ]
