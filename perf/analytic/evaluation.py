"""Networks on the data sets of the paper."""

from dataclasses import dataclass

import paper
from algorithms.networks.paper_networks import imagenet_shape
from golden.prediction.schedule import ScheduleConfig

from .shapes import Layer, layers_of
from .training import VARIANTS, Batches, Machine, batches

__all__ = ["DATA", "FIGURES", "Row", "evaluate", "published"]

#: Data sets of the paper: classes, and images of a batch.
DATA = {"cifar10": (10, 128), "cifar100": (100, 128), "imagenet": (1000, 32)}
#: Figure of the paper by data flow.
FIGURES = {"weight-stationary": 17, "row-stationary": 18, "input-stationary": 19}
_EPOCHS = 90  # of schedule A


def published(flow: str) -> dict[str, dict[str, float]]:
    """What the paper says of ``max`` on a data flow: "mean" and, but for the input-stationary one,
    "largest" speed-up by data set."""
    key = f"figure_{FIGURES[flow]}_{flow.replace('-', '_')}_max"
    found: dict[str, dict[str, float]] = paper.figures()["speed_up_over_baseline"][key]
    return found


@dataclass(frozen=True, kw_only=True)
class Row:
    """A network on a data set, by variant."""

    network: str
    data: str
    images: int
    cycles: dict[str, Batches]

    def speed_up(self, variant: str, schedule: str) -> float:
        """Of schedule "A", a whole training, or "B", alternating for ever."""
        own = self.cycles[variant]
        return own.training(ScheduleConfig(), _EPOCHS) if schedule == "A" else own.steady


def evaluate(
    networks: list[str],
    data: list[str],
    machine: Machine,
    *,
    images: int | None = None,
    layers: dict[tuple[str, int], list[Layer]] | None = None,
) -> list[Row]:
    """Every network on every data set; ``images`` of a batch, None for those of DATA.

    ``layers`` keeps the networks' layers by name and classes from call to call.
    """
    known = {} if layers is None else layers
    rows = []
    for name in data:
        classes, usual = DATA[name]
        for network in networks:
            shape = imagenet_shape(network) if name == "imagenet" else (3, 32, 32)
            key = network, classes
            if key not in known:
                known[key] = layers_of(network, shape, classes)
            count = images or usual
            found = {each: batches(known[key], machine, each, count) for each in VARIANTS}
            rows.append(Row(network=network, data=name, images=count, cycles=found))
    return rows
