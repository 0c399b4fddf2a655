"""Speed-ups by the formulas of Figures 17 to 19, and their table of all networks."""

from collections.abc import Sequence
from statistics import mean

from perf.analytic.evaluation import evaluate
from perf.analytic.shapes import Layer
from perf.analytic.training import VARIANTS, Batches, Machine

from .section import Table, ratio
from .wanted import Wanted

__all__ = ["Formulas", "formula_table"]


class Formulas:
    """Batches by the formulas of :mod:`perf.analytic`, each worked out once."""

    def __init__(self) -> None:
        self._layers: dict[tuple[str, int], list[Layer]] = {}
        self._found: dict[tuple, dict[str, Batches]] = {}

    def get(
        self, network: str, data: str, flow: str, *, images: int | None = None,
        features: int = Machine.features,
    ) -> dict[str, Batches]:  # fmt: skip
        """By variant; ``images`` None: the paper's batch, 128 or 32."""
        key = network, data, flow, images, features
        if key not in self._found:
            machine = Machine(flow=flow, features=features)
            (row,) = evaluate([network], [data], machine, images=images, layers=self._layers)
            self._found[key] = row.cycles
        return self._found[key]


def formula_table(flow: str, wanted: Wanted, formulas: Formulas) -> Table:
    """Of a data flow: a row for each network, and their means."""
    rows: list[Sequence[str]] = []
    found = {
        network: [
            formulas.get(network, data, flow)[variant].steady
            for data in wanted.data
            for variant in VARIANTS
        ]
        for network in wanted.networks
    }
    rows += [[network, *map(ratio, speeds)] for network, speeds in found.items()]
    if len(found) > 1:
        rows.append(["mean", *(ratio(mean(each)) for each in zip(*found.values(), strict=True))])
    return Table(
        headings=["network", *(f"{data}: `{name}`" for data in wanted.data for name in VARIANTS)],
        rows=rows,
        caption=f"Speed-up B of every network by formulas, {flow}, F = {Machine.features} "
        "(`efficient` is as `low`: formulas know no traffic):",
    )
