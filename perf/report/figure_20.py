"""Figure 20: pipelines, with even stages and with those of counted cycles."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean

import paper
from perf.counted import Count, Store
from perf.machine.layers import BEHIND
from perf.pipelines.partition import LayerTime, partition, stages_of
from perf.pipelines.picture import plot_timelines
from perf.pipelines.schedules import Stage, pipeline, steps

from .section import NOT_RUN, Picture, Section, Table
from .wanted import Wanted

__all__ = ["DEVICES", "MICRO_BATCHES", "figure_20", "layer_times"]

DEVICES, MICRO_BATCHES = (2, 4, 8, 16), (4, 8, 16, 32)
_NAMES = ("gpipe", "dapple", "chimera")
#: Of pictures and of the paper.
_DEVICES, _MICRO_BATCHES = 4, 4


def layer_times(count: Count) -> list[LayerTime]:
    """Counted cycles of every layer in a batch of backpropagation; the loss is part of the backward
    pass. Updates are left out: a batch has one, however many micro-batches it has."""
    found = []
    for name, phases in count.bp.layers.items():
        if name != BEHIND:
            backward = phases.get("loss", 0) + phases.get("backward", 0)
            found.append(LayerTime(name=name, forward=phases.get("forward", 0), backward=backward))
    return found


def figure_20(wanted: Wanted, store: Store) -> Section:
    """The section: the paper's sizes, others, and stages as uneven as ours."""
    cells = {name: wanted.cell(name, wanted.first_data, "baseline") for name in wanted.networks}
    counts = {name: store.get(cell) for name, cell in cells.items()}
    layers = {
        name: layer_times(count)
        for name, count in counts.items()
        if count is not None and count.batches
    }
    published = paper.figures()["speed_up_over_baseline"]["figure_20_pipelines_4_devices"]
    said = "; ".join(
        f"{name} {entry['steps_per_batch']} steps a batch, {entry['steps_gp_then_bp']} a pair, at "
        f"most {entry['largest']}, {entry['mean']} on the average"
        for name, entry in published.items()
    )
    means = _means(layers)
    parts: list[str | Table | Picture] = [
        "A *step* is the forward pass of a micro-batch through an even stage; its backward pass "
        "takes two. A *pair* is a batch of Phase GP and one of backpropagation; speed-up B is "
        "twice a batch over a pair. See [pipelines.md](pipelines.md).",
        _at_the_papers_size(layers, published, means),
    ]
    numbers = _sweep(layers)
    jumps = _jumps(numbers)
    parts.append(_sweep_table(numbers))
    parts += [_picture(layers)] if layers else []
    return Section(
        key="figure-20", title="Figure 20: pipelines of several devices",
        paper=f"with {_DEVICES} devices and {_MICRO_BATCHES} micro-batches, {said}.",
        why="the steps are the same. The paper's averages are lower than its largest figures, it "
        "does not say why; our stages, cut by counted cycles, are uneven, and a backward pass is "
        "not exactly two forward passes. Predictor, updates and transfers take no steps, as in the "
        "paper. Chimera is a greedy list schedule here (a device takes a backward pass that is "
        f"ready, or else the earliest forward pass): beyond {_DEVICES} devices and "
        f"{_MICRO_BATCHES} micro-batches it may be longer than the published one, and its "
        f"speed-ups jump{jumps}.",
        parts=parts, missing=[cells[name] for name, count in counts.items() if count is None],
        data={"steps": numbers, "means": means}, glance=_glance(published, means, len(layers)),
    )  # fmt: skip


def _glance(published, means, networks: int) -> list[tuple[str, str, str]]:
    rows = []
    for name in _NAMES:
        own, entry = steps(name, [Stage()] * _DEVICES, _MICRO_BATCHES), published[name]
        rows.append(
            (f"Figure 20, {name}: steps of a batch, of a pair of phases",
             f"{entry['steps_per_batch']}, {entry['steps_gp_then_bp']}",
             f"{_number(own.batch)}, {_number(own.pair)}")
        )  # fmt: skip
    for name in _NAMES:
        ours = f"{means[name]:.3f} (mean of {networks})" if name in means else NOT_RUN
        mean_of_it = f"{published[name]['mean']:.3f}"
        rows.append((f"Figure 20, {name}: speed-up B, mean of networks", mean_of_it, ours))
    return rows


def _means(layers) -> dict[str, float]:
    """Speed-up B of each schedule at the paper's size, mean of the networks; empty if there are
    none."""
    stages = [_stages(own, _DEVICES) for own in layers.values()]
    return {} if not stages else {
        name: mean(float(steps(name, each, _MICRO_BATCHES).speed_up) for each in stages)
        for name in _NAMES
    }  # fmt: skip


def _jumps(numbers: Sequence[dict]) -> str:
    """Where Chimera's speed-up rises most from a number of micro-batches to the next one, though
    more of them leave less to gain."""
    found: dict[tuple[str, int], list[dict]] = {}
    for each in numbers:
        if each["schedule"] == "chimera":
            found.setdefault((each["stages"], each["devices"]), []).append(each)
    rises = {
        key: max((b["speed_up"] - a["speed_up"] for a, b in pairwise(own)), default=0.0)
        for key, own in found.items()
    }
    if max(rises.values(), default=0.0) <= 0:
        return ""
    stages, devices = most = max(rises, key=rises.__getitem__)
    counts = ", ".join(str(each["micro_batches"]) for each in found[most])
    speeds = ", ".join(f"{each['speed_up']:.2f}" for each in found[most])
    return f", most with {stages} on {devices} devices: with {counts} micro-batches {speeds}"


def _number(value) -> str:
    return f"{float(value):.4g}"


def _stages(layers: list[LayerTime], devices: int) -> list[Stage]:
    """Empty for fewer layers than devices."""
    return stages_of(partition(layers, devices)) if len(layers) >= devices else []


def _at_the_papers_size(layers, published, means):
    rows = []
    for what, stages in [("even stages", [Stage()] * _DEVICES)] + [
        (name, _stages(own, _DEVICES)) for name, own in layers.items()
    ]:
        row = [what]
        for name in _NAMES:
            found = steps(name, stages, _MICRO_BATCHES)
            row += [_number(found.batch), _number(found.pair), f"{float(found.speed_up):.3f}"]
        rows.append(row)
    row = ["paper, largest"]
    for name in _NAMES:
        entry = published[name]
        row += [
            str(entry["steps_per_batch"]),
            str(entry["steps_gp_then_bp"]),
            f"{entry['largest']:.3f}",
        ]
    rows.insert(1, row)
    for what, found in (
        (f"mean of {len(layers)}", means),
        ("paper, mean", {name: published[name]["mean"] for name in _NAMES}),
    ):
        if found:
            texts = (text for name in _NAMES for text in ("", "", f"{found[name]:.3f}"))
            rows.append([what, *texts])
    headings = ["stages"]
    for name in _NAMES:
        headings += [f"{name}: BP", "GP + BP", "speed-up B"]
    caption = (
        f"{_DEVICES} devices, {_MICRO_BATCHES} micro-batches; the stages of a network are runs of "
        "layers, as even as they get, and their mean is that of even ones:"
    )
    return Table(headings=headings, rows=rows, caption=caption)


def _sweep(layers) -> list[dict]:
    found = []
    for name, own in [("even stages", None), *layers.items()]:
        for devices in DEVICES:
            stages = [Stage()] * devices if own is None else _stages(own, devices)
            if not stages:
                continue
            for count in MICRO_BATCHES:
                for schedule in _NAMES:
                    each = steps(schedule, stages, count)
                    found.append(
                        {"stages": name, "devices": devices, "micro_batches": count,
                         "schedule": schedule, "batch": float(each.batch),
                         "pair": float(each.pair), "speed_up": float(each.speed_up)}
                    )  # fmt: skip
    return found


def _sweep_table(numbers) -> Table:
    columns = list(dict.fromkeys((each["devices"], each["micro_batches"]) for each in numbers))
    rows: dict[tuple[str, str], dict] = {}
    for each in numbers:
        key = each["stages"], each["schedule"]
        rows.setdefault(key, {})[each["devices"], each["micro_batches"]] = each["speed_up"]
    return Table(
        headings=["stages", "schedule", *(f"{d} × {m}" for d, m in columns)],
        rows=[
            [*key, *(f"{own[c]:.2f}" if c in own else "–" for c in columns)]
            for key, own in rows.items()
        ],
        left=2, caption="Speed-up B by devices × micro-batches:",
    )  # fmt: skip


def _picture(layers) -> Picture:
    network, own = next(iter(layers.items()))

    def draw(path: Path) -> None:
        stages = _stages(own, _DEVICES)
        plot_timelines(
            {f"{network}, {name}, a batch of Phase GP and one of backpropagation":
             pipeline(name, stages, _MICRO_BATCHES, ["GP", "BP"]) for name in _NAMES},
            path,
        )  # fmt: skip

    return Picture(name="figure_20", text=f"Timelines of {network} in four stages", draw=draw)
