"""Figures 17 to 19: speed-ups of the 13 networks, three data sets, three data flows."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean

from compiler.adagp.tensors import PredictorShape
from perf.analytic.evaluation import FIGURES, published
from perf.analytic.flows import FLOWS
from perf.analytic.training import VARIANTS, Machine
from perf.counted import Cell, Store

from . import speed_columns
from .estimates import Estimated, Estimates, estimated_glance, estimated_table
from .formulas import Formulas, formula_table
from .section import NOT_RUN, Picture, Section, Table, of_networks, ratio
from .sweeps import sweeps
from .wanted import Speed, Wanted, commits, paper_networks, speed_up

__all__ = ["figures_17_19"]

_COUNTED = "weight-stationary"
#: F of what is counted and estimated.
_FEATURES = PredictorShape().features
#: Of a picture: the bar of the formulas, and what F is.
_GREY = f"formulas, max, F = {Machine.features}"
_LEGEND = "F: inputs of the predictor's linear layer"


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
    return [
        *(_figure(flow, sources) for flow in FLOWS),
        sweeps(wanted, formulas, sources.counted, store),
    ]


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
    else:
        parts.append(formula_table(flow, wanted, sources.formulas))
    return Section(
        key=f"figure-{number}", title=f"Figure {number}: speed-ups, {flow}", paper=f"{text}.",
        why=_why(flow, sources), parts=parts, missing=missing, data=_data(flow, sources),
        glance=[_glance(number, flow, data, sources) for data in wanted.data],
    )  # fmt: skip


def _why(flow: str, sources: _Sources) -> str:
    if flow == _COUNTED:
        return (
            "our cycles are those of compiled programs, with loads, stores, normalisation, updates "
            "and waiting for memory, of which backpropagation has more than formulas of products "
            "say. Updates and the predictor's own learning take time that does not depend on the "
            "batch, and the engines for them are not as wide as the array: with few images they "
            f"{_few_images(sources)}. {_of_features(sources)} The formulas differ from the paper "
            "where a predicted layer is larger than what it hides behind (VGG's linear layers on "
            "ImageNet)."
        )
    text = "only formulas: there is no such hardware here."
    if flow == "input-stationary":
        text += " Ours holds weights or, for the gradients of weights, dY, and never X."
    return (
        f"{text} Where they are below the paper, it is by VGG's linear layers on ImageNet. What "
        "of our machine carries over to such an array: [analytic.md](analytic.md#other-arrays)."
    )


def _few_images(sources: _Sources) -> str:
    """What becomes of the gain with few images, by the least speed-up that was counted."""
    wanted, found = sources.wanted, {}
    for data, network in product(wanted.data, wanted.networks):
        for batch, name in product(_batches(network, data, sources), wanted.with_baseline[1:]):
            if (speed := sources.counted(network, data, name, batch)) is not None:
                found[data, network, name, batch] = speed.batches.steady
    if not found:
        return "eat up a part of what Phase GP saves"
    (data, network, name, batch), least = min(found.items(), key=lambda each: each[1])
    most = max(speed for key, speed in found.items() if key[:3] == (data, network, name))
    what = "eat up most of" if 2 * (least - 1) < most - 1 else "eat up a part of"
    return (
        f"{'outweigh' if least < 1 else what} what Phase GP saves (the least that was counted is "
        f"{least:.2f}, of `{name}` for {network} on {data} with {batch} images"
        + (f"; with more images it is up to {most:.2f})" if most > least else ")")
    )


def _of_features(sources: _Sources) -> str:
    """What the formulas' larger predictor does, with networks of which that is all of it."""
    above: dict[str, dict[str, float]] = {}
    for data, network in product(sources.wanted.data, sources.wanted.networks):
        counted = sources.counted(network, data, "max")
        theirs, ours = (
            sources.formulas.get(network, data, _COUNTED, features=size)["max"].steady
            for size in (Machine.features, _FEATURES)
        )
        if counted is not None and theirs < counted.batches.steady < ours:
            above.setdefault(data, {})[network] = ours
    text = (
        f"The formulas (grey bars) have the paper's predictor, F = {Machine.features}, and the "
        f"counts ours, F = {_FEATURES}, which multiplies {Machine.features / _FEATURES:g} times "
        "less."
    )
    if above:
        names = "; ".join(f"{data} {', '.join(found)}" for data, found in above.items())
        speeds = [speed for found in above.values() for speed in found.values()]
        text += (
            " That is why some networks are above their grey bars: with our F, formulas give `max` "
            f"{min(speeds):.2f} to {max(speeds):.2f} there, more than was counted ({names})."
        )
    return text


def _how(wanted: Wanted) -> str:
    batches = "; ".join(
        f"{data} {wanted.batches_of(wanted.networks, data)}" for data in wanted.data
    )
    return (
        "*F*: inputs of the predictor's linear layer, the numbers that its convolution makes of a "
        "layer's pooled output. *Counted*: programs of the "
        f"compiler on the model of the machine, F = {_FEATURES}, images of a batch: {batches}. "
        f"*Formulas*: as the paper counts, batch 128 and 32, F = {Machine.features}, 180 PEs and "
        "80 more. *A*: a training of 90 epochs, 10 of them warm-up. *B*: one batch of each phase "
        "for ever, which is what the paper's averages follow. None of them are mixed."
    )


def _means(flow: str, sources: _Sources) -> Table:
    """Beside the paper's averages and largest ones."""
    wanted, rows = sources.wanted, []
    every = len(wanted.networks) == len(paper_networks())
    largest = published(flow).get("largest", {})
    for data in wanted.data:
        found = [sources.formulas.get(name, data, flow)["max"] for name in wanted.networks]
        row = [data, f"{published(flow)['mean'][data]:.2f}"]
        row += [f"{mean(speed_up(each, schedule) for each in found):.3f}" for schedule in "BA"]
        most = [f"{largest[data]:.2f}" if data in largest else "not said"]
        most.append(f"{max(each.steady for each in found):.3f}")
        if flow == _COUNTED:
            counted = [sources.counted(name, data, "max") for name in wanted.networks]
            known = [each.batches for each in counted if each is not None]
            row += [
                ratio(mean(speed_up(each, s) for each in known) if known else None) for s in "BA"
            ]
            row.append(f"{len(known)} of {len(wanted.networks)}")
            most.append(ratio(max((each.steady for each in known), default=None)))
        rows.append([*row, *most])
    headings = ["`max`, mean", "paper", "formulas B", "formulas A"]
    if flow == _COUNTED:
        headings += ["counted B", "counted A", "networks counted"]
    headings += ["largest: paper", "largest: formulas B"]
    headings += ["largest: counted B"] * (flow == _COUNTED)
    what = "the paper's 13 networks" if every else ", ".join(wanted.networks)
    return Table(headings=headings, rows=rows, caption=f"Means of {what}, and the largest of them:")


def _glance(number: int, flow: str, data: str, sources: _Sources) -> tuple[str, str, str]:
    names, theirs = sources.wanted.networks, published(flow)
    found = [sources.formulas.get(name, data, flow)["max"].steady for name in names]
    text = f"formulas {mean(found):.2f} (mean of {len(names)}), at most {max(found):.2f}"
    if flow == _COUNTED:
        counted = {name: sources.counted(name, data, "max") for name in names}
        known = {name: each.batches.steady for name, each in counted.items() if each is not None}
        text += f"; counted {of_networks(known)}"
        if known:
            text += f" (batch {sources.wanted.batches_of(known, data)})"
        if len(known) < len(names):
            text += estimated_glance(sources.wanted, data, sources.estimates)
    what = f"Figure {number}, {flow}, {data}: speed-up B of `max`"
    said = f"{theirs['mean'][data]:.2f}"
    if "largest" in theirs:
        said += f", at most {theirs['largest'][data]:.2f}"
    return what, said, text


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
        draw_speed_ups(wanted.networks, panels, path, _LEGEND)

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
    bars: dict[str, Sequence[float | None]] = {_GREY: [f["max"].steady for f in formulas]}
    for variant in VARIANTS:
        found = (find(network=name, variant=variant) for name in networks)
        speeds = [None if each is None else each.batches.steady for each in found]
        bars[f"{variant}, F = {_FEATURES}"] = speeds
    return bars


def _is_known(bars: Mapping[str, Sequence[float | None]]) -> bool:
    return any(speed is not None for name in bars if name != _GREY for speed in bars[name])


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
