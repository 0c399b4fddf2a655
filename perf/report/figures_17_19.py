"""Figures 17 to 19: speed-ups of the 13 networks, three data sets, three data flows."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean

from perf.analytic.evaluation import FIGURES, evaluate, published
from perf.analytic.flows import FLOWS
from perf.analytic.shapes import Layer
from perf.analytic.training import VARIANTS, Batches, Machine
from perf.counted import Cell, Store

from . import speed_columns
from .estimates import Estimated, Estimates, estimated_glance, estimated_table
from .section import NOT_RUN, Picture, Section, Table, of_networks, ratio
from .sweeps import batch_sweep, predictor_counts, predictor_sweep
from .wanted import Speed, Wanted, commits, paper_networks, speed_up

__all__ = ["Formulas", "figures_17_19"]

_COUNTED = "weight-stationary"


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


@dataclass(frozen=True)
class _Sources:
    wanted: Wanted
    store: Store
    formulas: Formulas
    estimates: Estimates

    def counted(
        self, network: str, data: str, variant: str, batch: int | None = None,
        channels: int = Cell.channels,
    ) -> Speed | None:  # fmt: skip
        """None unless both have been counted; ``channels`` of the predictor."""
        base = self.wanted.cell(network, data, "baseline", batch)
        return Speed.of(self.store, base, self.wanted.cell(network, data, variant, batch, channels))

    def estimated(self, network: str, data: str, variant: str) -> Estimated | None:
        """By the compiler."""
        return self.estimates.of(self.wanted, network, data, variant)

    def all_counted(self, data: str) -> bool:
        """Whether nothing is left that an estimate would have to stand for."""
        return all(
            self.counted(network, data, variant) is not None
            for network in self.wanted.networks
            for variant in self.wanted.with_baseline[1:]
        )

    def refusal(
        self, network: str, data: str, variant: str, batch: int | None = None
    ) -> str | None:
        """Why there is no program, if that is known."""
        for name in ("baseline", variant):
            found = self.store.get(self.wanted.cell(network, data, name, batch))
            if found is not None and found.reason is not None:
                return found.reason
        return None


def figures_17_19(
    wanted: Wanted, store: Store, formulas: Formulas, estimates: Estimates
) -> list[Section]:
    """A section for each figure, and one for the sweeps."""
    sources = _Sources(wanted, store, formulas, estimates)
    return [_figure(flow, sources) for flow in FLOWS] + [_sweeps(sources)]


def _figure(flow: str, sources: _Sources) -> Section:
    wanted = sources.wanted
    number, theirs = FIGURES[flow], published(flow)
    said = ", ".join(f"{theirs['mean'][data]:.2f} for {data}" for data in theirs["mean"])
    text = f"`max` gains on the average {said}"
    if "largest" in theirs:
        largest = ", ".join(f"{value:.2f}" for value in theirs["largest"].values())
        text += f"; at most {largest}"
    parts: list[str | Table | Picture] = [_means(flow, sources)]
    missing = []
    if flow == _COUNTED:
        parts.insert(0, _how(wanted))
        for data in wanted.data:
            parts.append(_networks(data, sources))
            parts += _reasons(data, sources)
            if not sources.all_counted(data):
                parts += estimated_table(wanted, data, sources.estimates)
        parts.append(_picture(sources))
        missing = _missing(sources)
    why = {
        "weight-stationary": "our cycles are those of compiled programs, with loads, stores, "
        "normalisation, updates and waiting for memory, of which backpropagation has more than "
        "formulas of products say. Updates and the predictor's own learning take time that does "
        "not depend on the batch, and the engines for them are not as wide as the array: with few "
        "images they outweigh what Phase GP saves. The formulas differ from the paper where a "
        "predicted layer is larger than what it hides behind (VGG's linear layers on ImageNet).",
        "row-stationary": "only formulas: there is no such hardware here. Where they are below the "
        "paper, it is by VGG's linear layers on ImageNet.",
        "input-stationary": "only formulas: there is no such hardware here, but for the gradients "
        "of weights, which hold dY and stream X. Where they are below the paper, it is by VGG's "
        "linear layers on ImageNet.",
    }[flow]
    return Section(
        key=f"figure-{number}", title=f"Figure {number}: speed-ups, {flow}", paper=f"{text}.",
        why=why, parts=parts, missing=missing, data=_data(flow, sources),
        glance=[_glance(number, flow, data, sources) for data in wanted.data],
    )  # fmt: skip


def _how(wanted: Wanted) -> str:
    batches = "; ".join(
        f"{data} {wanted.batches_of(wanted.networks, data)}" for data in wanted.data
    )
    return (
        "*Counted*: programs of the compiler on the model of the machine, F = 64, images of a "
        f"batch: {batches}. *Formulas*: as the paper counts, batch 128 and 32, F = 480, 180 PEs "
        "and 80 more. *A*: a training of 90 epochs, 10 of them warm-up. *B*: one batch of "
        "each phase for ever, which is what the paper's averages follow. None of them are mixed."
    )


def _means(flow: str, sources: _Sources) -> Table:
    """Beside the paper's averages."""
    wanted, rows = sources.wanted, []
    every = len(wanted.networks) == len(paper_networks())
    for data in wanted.data:
        found = [sources.formulas.get(name, data, flow)["max"] for name in wanted.networks]
        row = [data, f"{published(flow)['mean'][data]:.2f}"]
        row += [f"{mean(speed_up(each, schedule) for each in found):.3f}" for schedule in "BA"]
        if flow == _COUNTED:
            counted = [sources.counted(name, data, "max") for name in wanted.networks]
            known = [each.batches for each in counted if each is not None]
            row += [
                ratio(mean(speed_up(each, s) for each in known) if known else None) for s in "BA"
            ]
            row.append(f"{len(known)} of {len(wanted.networks)}")
        rows.append(row)
    headings = ["`max`, mean", "paper", "formulas B", "formulas A"]
    if flow == _COUNTED:
        headings += ["counted B", "counted A", "networks counted"]
    what = "the paper's 13 networks" if every else ", ".join(wanted.networks)
    return Table(headings=headings, rows=rows, caption=f"Means of {what}:")


def _glance(number: int, flow: str, data: str, sources: _Sources) -> tuple[str, str, str]:
    names = sources.wanted.networks
    found = [sources.formulas.get(name, data, flow)["max"].steady for name in names]
    text = f"formulas {mean(found):.2f} (mean of {len(names)})"
    if flow == _COUNTED:
        counted = {name: sources.counted(name, data, "max") for name in names}
        known = {name: each.batches.steady for name, each in counted.items() if each is not None}
        text += f"; counted {of_networks(known)}"
        if known:
            text += f" (batch {sources.wanted.batches_of(known, data)})"
        if len(known) < len(names):
            text += estimated_glance(sources.wanted, data, sources.estimates)
    what = f"Figure {number}, {flow}, {data}: speed-up B of `max`"
    return what, f"{published(flow)['mean'][data]:.2f}", text


def _batches(network: str, data: str, sources: _Sources) -> list[int]:
    """The network's own batch, and others of the sweep at which something has been counted."""
    wanted, usual = sources.wanted, sources.wanted.batch_of(network, data)
    others = [
        batch
        for batch in wanted.batches
        if batch != usual
        and any(
            sources.counted(network, data, variant, batch) is not None
            for variant in wanted.variants
        )
    ]
    return [usual, *others]


def _networks(data: str, sources: _Sources) -> Table:
    """A row for each network: formulas, and what has been counted of every variant; more rows where
    other batches have been counted. Means are of the networks' own batches."""
    wanted = sources.wanted
    _, *variants = wanted.with_baseline
    rows, usual = [], []
    formulas = {name: sources.formulas.get(name, data, _COUNTED) for name in wanted.networks}
    for network, formula in formulas.items():
        for number, batch in enumerate(_batches(network, data, sources)):
            found = [sources.counted(network, data, name, batch) for name in variants]
            refused = [sources.refusal(network, data, name, batch) for name in variants]
            if number == 0:
                usual.append(found)
            row = [network, *(ratio(formula[name].steady) for name in ("low", "max"))]
            row.append(str(batch))
            row += speed_columns.columns(
                found, ["no program" if reason else NOT_RUN for reason in refused]
            )
            row.append(commits(each for each in found if each is not None))
            rows.append(row)
    if len(formulas) > 1:
        row = [
            ratio(mean(each[name].steady for each in formulas.values())) for name in ("low", "max")
        ]
        rows.append(["mean", *row, "", *speed_columns.means(usual), ""])
    headings = ["network", "formulas: low B", "max B", "counted at batch"]
    headings += [*speed_columns.headings(variants), "commits"]
    caption = (
        f"{data} (rows of several commits mix programs of several compilers; means are of so many "
        "networks, by the first row of each):"
    )
    return Table(headings=headings, rows=rows, caption=caption)


def _reasons(data: str, sources: _Sources) -> list[str]:
    lines = []
    for network in sources.wanted.networks:
        for variant in sources.wanted.variants:
            reason = sources.refusal(network, data, variant)
            if reason is not None:
                lines.append(f"- {network}, `{variant}`: {reason}")
    return ["\n".join(["No program:", "", *dict.fromkeys(lines)])] if lines else []


def _missing(sources: _Sources):
    wanted, store = sources.wanted, sources.store
    return [
        cell
        for data in wanted.data
        for network in wanted.networks
        for cell in (wanted.cell(network, data, name) for name in wanted.with_baseline)
        if store.get(cell) is None
    ]


def _picture(sources: _Sources) -> Picture:
    def draw(path: Path) -> None:
        from .pictures import draw_speed_ups

        wanted, panels = sources.wanted, {}
        for data in wanted.data:
            theirs = published(_COUNTED)["mean"][data]
            usual = wanted.batches_of(wanted.networks, data)
            # Of a few networks the table and the sweep say more than a panel of dots.
            swept = Counter(
                b for name in wanted.networks for b in _batches(name, data, sources)[1:]
            )
            many = sorted(b for b, count in swept.items() if 2 * count >= len(wanted.networks))
            for batch, text in [(None, usual), *((b, str(b)) for b in many)]:
                counted = partial(sources.counted, data=data, batch=batch)
                panels[f"{data}, counted at batch {text}"] = _bars(data, sources, counted), theirs
            if sources.all_counted(data):
                continue
            estimated = partial(sources.estimated, data=data)
            panels[f"{data}, estimated by the compiler"] = _bars(data, sources, estimated), theirs
        # What nobody knows anything of needs no panel, unless that is all there is.
        shown = {name: panel for name, panel in panels.items() if _is_known(panel[0])}
        panels = shown or dict(list(panels.items())[:1])
        draw_speed_ups(wanted.networks, panels, path)

    return Picture(
        name="figure_17", text="Speed-up of every network and variant beside the paper's mean",
        draw=draw,
    )  # fmt: skip


def _bars(
    data: str, sources: _Sources, find: Callable[..., Speed | None]
) -> dict[str, Sequence[float | None]]:
    """Speed-ups B by network: formulas, and for each variant what ``find`` knows."""
    networks = sources.wanted.networks
    formulas = (sources.formulas.get(name, data, _COUNTED) for name in networks)
    bars: dict[str, Sequence[float | None]] = {"formulas, max": [f["max"].steady for f in formulas]}
    for variant in VARIANTS:
        found = (find(network=name, variant=variant) for name in networks)
        bars[variant] = [None if each is None else each.batches.steady for each in found]
    return bars


def _is_known(bars: Mapping[str, Sequence[float | None]]) -> bool:
    return any(speed is not None for name in VARIANTS for speed in bars[name])


def _data(flow: str, sources: _Sources) -> dict:
    found: dict[str, dict] = {}
    wanted = sources.wanted
    for data in wanted.data:
        for network in wanted.networks:
            entry = found.setdefault(data, {}).setdefault(network, {})
            entry["formulas"] = {
                variant: {"A": speed_up(own, "A"), "B": speed_up(own, "B")}
                for variant, own in sources.formulas.get(network, data, flow).items()
            }
            if flow == _COUNTED:
                entry["counted"] = _counted(network, data, sources)
                estimated = {name: sources.estimated(network, data, name) for name in VARIANTS}
                entry["estimated"] = {
                    name: each and each.summary for name, each in estimated.items()
                }
    return found


def _counted(network: str, data: str, sources: _Sources) -> Mapping[str, dict | None]:
    """By variant, at the usual batch; None for what has not been counted."""
    result: dict[str, dict | None] = {}
    for variant in VARIANTS:
        speed = sources.counted(network, data, variant)
        result[variant] = None
        if speed is not None:
            own = speed.batches
            result[variant] = {
                "A": speed_up(own, "A"), "B": speed_up(own, "B"), "baseline": own.plain,
                "bp": own.learning, "gp": own.predicted, "commit": speed.state,
            }  # fmt: skip
    return result


def _sweeps(sources: _Sources) -> Section:
    """Sizes of the batch and of the predictor."""
    wanted = sources.wanted
    known = wanted, sources.formulas, sources.counted, sources.store
    parts, missing, lines = batch_sweep(*known)
    larger, more, by_size = predictor_counts(*known)
    return Section(
        key="sweeps", title="Sizes of the batch and of the predictor",
        paper="does not sweep them. It has 480 inputs of the predictor's linear layer, and 80 PEs "
        "for it in `max`; of the batch it says nothing here.",
        why="the predictor's work does not depend on the batch, all other work does: with few "
        "images it is not hidden, with many it is nearly free. Our predictor has F = 64, so it is "
        "hidden from smaller batches on; our updates take time that does not depend on the batch "
        "either. A larger predictor costs `max` most: its 80 PEs do all of the predictor's work, "
        "of which less and less is hidden, where `low` has 180.",
        parts=[*parts, *larger, *predictor_sweep(wanted, sources.formulas)],
        missing=[*missing, *more],
        data={
            "batches": list(wanted.batches), "speed_up_b": lines,
            "channels": list(wanted.channels), "speed_up_b_of_channels": by_size,
        },
    )  # fmt: skip
