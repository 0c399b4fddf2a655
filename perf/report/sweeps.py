"""Speed-ups over the size of the batch and of the predictor."""

from collections.abc import Callable
from pathlib import Path
from statistics import mean

from compiler.adagp.tensors import PredictorShape
from perf.analytic.flows import FLOWS
from perf.analytic.training import VARIANTS
from perf.counted import Store

from .section import NOT_RUN, Picture, Table
from .wanted import Speed, Wanted

__all__ = ["FEATURES", "batch_sweep", "predictor_counts", "predictor_sweep"]

#: F: c · S² for 4 · 4², 8 · 4², 15 · 4² and 30 · 4².
FEATURES = (64, 128, 240, 480)


def batch_sweep(
    wanted: Wanted, formulas, counted: Callable[..., Speed | None], store: Store
) -> tuple[list[str | Table | Picture], list, dict[str, dict[str, list[float | None]]]]:
    """Parts, cells that have not been counted, and network -> line -> speed-ups by batch."""
    data = next((name for name in wanted.data if name != "imagenet"), None)
    if data is None or not wanted.swept:
        return [], [], {}
    lines: dict[str, dict[str, list[float | None]]] = {}
    rows, missing = [], []
    for network in wanted.swept:
        for batch in wanted.batches:
            row = [network, str(batch)]
            for features in (480, 64):
                found = formulas.get(
                    network, data, "weight-stationary", images=batch, features=features
                )
                row += [f"{found[name].steady:.3f}" for name in ("low", "max")]
                for name in ("low", "max"):
                    key = f"formulas, {name}, F = {features}"
                    lines.setdefault(network, {}).setdefault(key, []).append(found[name].steady)
            for variant in VARIANTS:
                speed = counted(network, data, variant, batch)
                row.append(NOT_RUN if speed is None else f"{speed.batches.steady:.3f}")
                lines[network].setdefault(f"counted, {variant}", []).append(
                    None if speed is None else speed.batches.steady
                )
                if speed is None:
                    missing += [
                        wanted.cell(network, data, name, batch) for name in ("baseline", variant)
                    ]
            rows.append(row)
    headings = ["network", "batch", "formulas, F = 480: low", "max", "F = 64: low", "max"]
    headings += [f"counted, F = 64: `{variant}`" for variant in VARIANTS]
    table = Table(
        headings=headings, rows=rows,
        caption=f"Speed-up B, {data}, weight-stationary, by images of a batch:",
    )  # fmt: skip

    def draw(path: Path) -> None:
        from .pictures import draw_sweep

        draw_sweep(wanted.batches, lines, path, "images of a batch")

    picture = Picture(name="sweep", text="Speed-up over the batch", draw=draw)
    return [table, picture], [cell for cell in missing if store.get(cell) is None], lines


def predictor_counts(
    wanted: Wanted, formulas, counted: Callable[..., Speed | None], store: Store
) -> tuple[list[str | Table | Picture], list, dict[str, dict[str, list[float | None]]]]:
    """The swept networks at their usual batch with larger predictors, as :func:`batch_sweep`."""
    data = wanted.first_data
    if data == "imagenet" or not wanted.swept:
        return [], [], {}
    lines: dict[str, dict[str, list[float | None]]] = {}
    rows, missing = [], []
    sizes = [channels * PredictorShape.map_size**2 for channels in wanted.channels]
    for network in wanted.swept:
        batch = wanted.batch_of(network, data)
        own = lines.setdefault(network, {})
        for channels, features in zip(wanted.channels, sizes, strict=True):
            found = formulas.get(network, data, "weight-stationary", images=batch,
                                 features=features)  # fmt: skip
            row = [network, str(batch), str(features)]
            for name in ("low", "max"):
                row.append(f"{found[name].steady:.3f}")
                own.setdefault(f"formulas, {name}", []).append(found[name].steady)
            for variant in VARIANTS:
                speed = counted(network, data, variant, batch, channels)
                row.append(NOT_RUN if speed is None else f"{speed.batches.steady:.3f}")
                own.setdefault(f"counted, {variant}", []).append(
                    None if speed is None else speed.batches.steady
                )
                missing.append(wanted.cell(network, data, variant, batch, channels))
            rows.append(row)
    headings = ["network", "batch", "F", "formulas: low", "max"]
    headings += [f"counted: `{variant}`" for variant in VARIANTS]
    table = Table(
        headings=headings, rows=rows,
        caption=f"Speed-up B, {data}, weight-stationary, by inputs of the predictor's linear layer "
        f"({', '.join(map(str, wanted.channels))} channels of maps of 4 × 4):",
    )  # fmt: skip

    def draw(path: Path) -> None:
        from .pictures import draw_sweep

        draw_sweep(sizes, lines, path, "inputs of the predictor's linear layer, F")

    picture = Picture(name="predictor", text="Speed-up over the predictor's size", draw=draw)
    return [table, picture], [cell for cell in missing if store.get(cell) is None], lines


def predictor_sweep(wanted: Wanted, formulas) -> list[str | Table | Picture]:
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
