"""Speed-ups over the size of the batch and of the predictor."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean

from compiler.adagp.tensors import PredictorShape
from perf.analytic.flows import FLOWS
from perf.analytic.training import VARIANTS
from perf.counted import Cell, Store

from .formulas import Formulas
from .section import Picture, Section, Table, ratio
from .wanted import Speed, Wanted, commits

__all__ = ["FEATURES", "sweeps"]

#: F: c · S² for 4 · 4², 8 · 4², 15 · 4² and 30 · 4².
FEATURES = (64, 128, 240, 480)
#: Network -> line of a picture -> speed-ups, None for what has not been counted.
Lines = dict[str, dict[str, list[float | None]]]
#: The one of our machine.
_FLOW = "weight-stationary"


def sweeps(
    wanted: Wanted, formulas: Formulas, counted: Callable[..., Speed | None], store: Store
) -> Section:
    """The section; ``counted`` of network, data, variant, batch and the predictor's channels."""
    known = wanted, formulas, counted, store
    parts, missing, lines = _batch_sweep(*known)
    larger, more, by_size = _predictor_counts(*known)
    return Section(
        key="sweeps", title="Sizes of the batch and of the predictor",
        paper="sweeps neither. Its predictor has 480 inputs of the linear layer, and 80 PEs for it "
        "in `max`.",
        why="the predictor's work does not depend on the batch, all other work does: with few "
        "images it is not hidden, with many it is nearly free. Our predictor has F = 64, so it is "
        "hidden from smaller batches on; our updates take time that does not depend on the batch "
        "either. A larger predictor costs `max` most: its 80 PEs do all of the predictor's work, "
        "of which less and less is hidden, where `low` has 180.",
        parts=[*parts, *larger, *_predictor_sweep(wanted, formulas)],
        missing=[*missing, *more],
        data={
            "batches": list(wanted.batches), "speed_up_b": lines,
            "channels": list(wanted.channels), "speed_up_b_of_channels": by_size,
        },
    )  # fmt: skip


class _Sweep:
    """Speed-ups B over sizes: a row of a table for each, and by network lines of a picture."""

    def __init__(self, wanted: Wanted, data: str, counted: Callable[..., Speed | None]) -> None:
        self.wanted, self.data, self.counted = wanted, data, counted
        self.rows: list[list[str]] = []
        self.lines: Lines = {}
        self._missing: list[Cell] = []

    def add(
        self, network: str, sizes: Sequence[int], formulas: Mapping[str, float], batch: int,
        channels: int = Cell.channels,
    ) -> None:  # fmt: skip
        """A row that begins with ``sizes``: ``formulas`` by name, and what has been counted with so
        many images of a batch and channels of the predictor."""
        speeds = {v: self.counted(network, self.data, v, batch, channels) for v in VARIANTS}
        known: dict[str, float | None] = {f"formulas, {name}": formulas[name] for name in formulas}
        for variant, speed in speeds.items():
            known[f"counted, {variant}"] = None if speed is None else speed.batches.steady
        states = commits(speed for speed in speeds.values() if speed is not None)
        self.rows.append([network, *map(str, sizes), *map(ratio, known.values()), states])
        for name, value in known.items():
            self.lines.setdefault(network, {}).setdefault(name, []).append(value)
        for variant, speed in speeds.items():
            if speed is None:
                for name in ("baseline", variant):
                    used = Cell.channels if name == "baseline" else channels
                    self._missing.append(self.wanted.cell(network, self.data, name, batch, used))

    def missing(self, store: Store) -> list[Cell]:
        """Cells that have not been counted."""
        return [cell for cell in self._missing if store.get(cell) is None]

    def table(self, headings: Sequence[str], by: str) -> Table:
        """Of all rows; ``headings`` but the network's and those of what is counted."""
        counted = [f"counted: `{variant}`" for variant in VARIANTS]
        return Table(
            headings=["network", *headings, *counted, "commits"], rows=self.rows,
            caption=f"Speed-up B, {self.data}, {_FLOW}, by {by}:",
        )  # fmt: skip

    def picture(self, name: str, text: str, sizes: Sequence[int], label: str) -> Picture:
        """Of all lines, over ``sizes``, which ``label`` names."""

        def draw(path: Path) -> None:
            from .pictures import draw_sweep

            draw_sweep(sizes, self.lines, path, label)

        return Picture(name=name, text=text, draw=draw)


def _batch_sweep(
    wanted: Wanted, formulas, counted: Callable[..., Speed | None], store: Store
) -> tuple[list[str | Table | Picture], list[Cell], Lines]:
    """Parts, cells that have not been counted, and network -> line -> speed-ups by batch."""
    data = wanted.small_data
    if data is None or not wanted.swept:
        return [], [], {}
    sweep = _Sweep(wanted, data, counted)
    for network, batch in product(wanted.swept, wanted.batches):
        found: dict[str, float] = {}
        for features in (480, 64):
            own = formulas.get(network, data, _FLOW, images=batch, features=features)
            found |= {f"{name}, F = {features}": own[name].steady for name in ("low", "max")}
        sweep.add(network, [batch], found, batch)
    headings = ["batch", "formulas, F = 480: low", "max", "F = 64: low", "max"]
    by = "images of a batch"
    picture = sweep.picture("sweep", "Speed-up over the batch", wanted.batches, by)
    table = sweep.table(headings, f"{by} (counted with F = 64)")
    return [table, picture], sweep.missing(store), sweep.lines


def _predictor_counts(
    wanted: Wanted, formulas, counted: Callable[..., Speed | None], store: Store
) -> tuple[list[str | Table | Picture], list[Cell], Lines]:
    """The swept networks at their usual batch with larger predictors, as :func:`_batch_sweep`."""
    data = wanted.small_data
    if data is None or not wanted.swept:
        return [], [], {}
    sweep = _Sweep(wanted, data, counted)
    sizes = {channels: channels * PredictorShape.map_size**2 for channels in wanted.channels}
    for network, (channels, features) in product(wanted.swept, sizes.items()):
        batch = wanted.batch_of(network, data)
        own = formulas.get(network, data, _FLOW, images=batch, features=features)
        found = {name: own[name].steady for name in ("low", "max")}
        sweep.add(network, [batch, features], found, batch, channels)
    by = "inputs of the predictor's linear layer"
    maps = f"{', '.join(map(str, sizes))} channels of maps of 4 × 4"
    table = sweep.table(["batch", "F", "formulas: low", "max"], f"{by} ({maps})")
    text = "Speed-up over the predictor's size"
    picture = sweep.picture("predictor", text, list(sizes.values()), f"{by}, F")
    return [table, picture], sweep.missing(store), sweep.lines


def _predictor_sweep(wanted: Wanted, formulas) -> list[str | Table | Picture]:
    """By formulas, means of the networks."""
    rows = []
    for flow in FLOWS:
        for data in wanted.data:
            for variant in ("low", "max"):
                row = [flow, data, f"`{variant}`"]
                for features in FEATURES:
                    found = [
                        formulas.get(name, data, flow, features=features)[variant].steady
                        for name in wanted.networks
                    ]
                    row.append(f"{mean(found):.3f}")
                rows.append(row)
    return [
        Table(
            headings=["data flow", "data", "variant", *(f"F = {size}" for size in FEATURES)],
            rows=rows, left=3,
            caption="Speed-up B by formulas, batch 128 (ImageNet 32), mean of "
            f"{len(wanted.networks)} networks, by inputs of the predictor's linear layer "
            "(`efficient` is as `low`: formulas know no traffic):",
        )
    ]  # fmt: skip
