"""What the report asks for: networks, data sets, batches; and cells for them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import paper
from algorithms.networks.paper_networks import NETWORKS, imagenet_shape
from compiler.networks.registry import (
    SMALL,
    InputShape,
    published,
    read_shape,
    shape_text,
    usual_batch,
    usual_method,
)
from golden.prediction.schedule import ScheduleConfig
from hw.config import VARIANTS
from hw.config.selection import DEFAULT_PRESET
from perf.analytic.evaluation import DATA
from perf.analytic.training import Batches
from perf.area.measured import report_designs
from perf.area.verdict import cells_of
from perf.counted import Cell, Store

__all__ = [
    "BATCHES",
    "CHANNELS",
    "EPOCHS",
    "OTHERS",
    "Speed",
    "Wanted",
    "commits",
    "paper_networks",
    "speed_up",
]

#: Batches of the sweep.
BATCHES = (16, 32, 64, 128, 256)
#: Of the predictor, with S = 4: whole granules of the DRAM.
CHANNELS = (4, 8, 16, 32)
#: The networks of Tables 2 and 3.
OTHERS = ("transformer", "yolo-v3")
#: Of schedule A.
EPOCHS = 90


def paper_networks() -> list[str]:
    """The 13 that read images and classify, in the paper's order."""
    return [name for name in paper.figures()["models"] if name in NETWORKS]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is wanted.

    Members
    -------
    networks : of :func:`paper_networks`
    data : of :data:`perf.analytic.evaluation.DATA`
    variants : of the hardware; the baseline is always counted
    images : of a batch of CIFAR, of ImageNet and YOLO-v3; sentences of a batch of Transformer; None
        for those of :func:`compiler.networks.registry.usual_batch`
    batches, channels : of the sweeps, of images and of the predictor, for ``swept`` networks
    others, rivals : whether Transformer and YOLO-v3 are wanted, and baselines of the same cost
    preset, settings, width : of the machine, of the networks
    """

    networks: Sequence[str]
    data: Sequence[str] = tuple(DATA)
    variants: Sequence[str] = tuple(VARIANTS)
    images: tuple[int, int, int] | None = None
    batches: Sequence[int] = BATCHES
    channels: Sequence[int] = CHANNELS
    swept: Sequence[str] = ("vgg13",)
    others: bool = True
    rivals: bool = True
    preset: str = DEFAULT_PRESET
    settings: tuple[str, ...] = ()
    width: float = 1.0

    @property
    def small_data(self) -> str | None:
        """The first data set of small images, of which sizes are swept; None if there is none."""
        return next((name for name in self.data if name != "imagenet"), None)

    @property
    def first_data(self) -> str:
        """:attr:`small_data`, or the first one if there is none."""
        return self.small_data or self.data[0]

    def batch_of(self, network: str, data: str) -> int:
        """Images of a batch of a data set."""
        size = shape_text(self._shape(network, data))
        return self._batch(network, size, data == "imagenet")

    def batches_of(self, networks: Iterable[str], data: str) -> str:
        """All of :meth:`batch_of`."""
        return " or ".join(dict.fromkeys(str(self.batch_of(name, data)) for name in networks))

    def _batch(self, network: str, size: str, number: int) -> int:
        """That of :attr:`images` with a number, if there are any."""
        return usual_batch(network, size) if self.images is None else self.images[number]

    @staticmethod
    def _shape(network: str, data: str) -> InputShape:
        return imagenet_shape(network) if data == "imagenet" else read_shape(SMALL)

    def cell(
        self, network: str, data: str, variant: str, batch: int | None = None,
        channels: int = Cell.channels,
    ) -> Cell:  # fmt: skip
        """A network on a data set; ``batch`` None: :meth:`batch_of`; ``channels`` of the
        predictor."""
        shape, (classes, _) = self._shape(network, data), DATA[data]
        usual = published(network).classes_of(shape)
        return self._cell(
            network, shape_text(shape), variant, batch or self.batch_of(network, data),
            classes=None if classes == usual else classes, channels=channels,
        )  # fmt: skip

    def other_cell(self, network: str, variant: str) -> Cell:
        """Transformer or YOLO-v3, at its own size."""
        found = published(network)
        size = shape_text(found.shapes[0])
        batch = self._batch(network, size, 1 if found.reads_images else 2)
        return self._cell(network, size, variant, batch)

    def _cell(self, network, size, variant, batch, classes=None, channels=Cell.channels):
        return Cell(
            network=network, input=size, batch=batch, variant=variant,
            method=usual_method(variant), preset=self.preset,
            settings=self.settings, width=self.width, classes=classes,
            channels=channels,
        )  # fmt: skip

    @property
    def with_baseline(self) -> list[str]:
        """All variants, the baseline first."""
        return ["baseline", *(name for name in self.variants if name != "baseline")]

    @property
    def has_costs(self) -> bool:
        """Whether area and energy of these machines are known: of this preset only."""
        return self.preset == DEFAULT_PRESET and not self.settings

    def rival_cells(self) -> Iterator[Cell]:
        """The baselines of the same cost as a variant; none where costs are not known."""
        if self.has_costs:
            report = report_designs()
            for network in self.networks:
                batch = self.cell(network, self.first_data, "baseline")
                found = cells_of(report, batch, self.with_baseline[1:])
                yield from (cell for cell in found if cell.settings)

    def cells(self) -> Iterator[Cell]:
        """All that the report shows of our machine, what takes least first."""
        for data in self.data:
            for network in self.networks:
                yield from (self.cell(network, data, name) for name in self.with_baseline)
            if data == self.first_data and self.rivals:
                yield from self.rival_cells()
            if data != "imagenet":
                for network in self.swept:
                    for batch in self.batches:
                        for name in self.with_baseline:
                            yield self.cell(network, data, name, batch)
            if data == self.small_data:
                for network, name, size in product(
                    self.swept, self.with_baseline[1:], self.channels
                ):
                    yield self.cell(network, data, name, channels=size)
        if self.others:
            for network in OTHERS:
                yield from (self.other_cell(network, name) for name in self.with_baseline)


def speed_up(batches: Batches, schedule: str) -> float:
    """Of schedule "A", a whole training, or "B", alternating for ever."""
    return batches.training(ScheduleConfig(), EPOCHS) if schedule == "A" else batches.steady


@dataclass(frozen=True, kw_only=True)
class Speed:
    """A variant beside the baseline, both counted: speed-ups of schedules A and B."""

    batches: Batches
    state: str

    @classmethod
    def of(cls, store: Store, base: Cell, cell: Cell) -> "Speed | None":
        """None unless both have been counted."""
        plain, own = store.get(base), store.get(cell)
        if plain is None or own is None or not plain.batches or "gp" not in own.batches:
            return None
        found = Batches(plain=plain.bp.cycles, learning=own.bp.cycles, predicted=own.gp.cycles)
        states = dict.fromkeys(each.state for each in (plain, own))
        return cls(batches=found, state=", ".join(states))

    def speed_up(self, schedule: str) -> float:
        """As :func:`speed_up`."""
        return speed_up(self.batches, schedule)


def commits(speeds: Iterable[Speed]) -> str:
    """All states of the project by which some speed-ups were found, each once."""
    return ", ".join(dict.fromkeys(state for each in speeds for state in each.state.split(", ")))
