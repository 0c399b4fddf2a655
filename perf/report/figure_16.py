"""Figure 16: VGG13 by layer and phase."""

from collections.abc import Mapping
from pathlib import Path

from compiler.networks.summary import PHASES
from perf.counted import Cell, Store
from perf.counted.count import BatchCount
from perf.machine.layers import BEHIND

from .section import NOT_RUN, Picture, Section, Table
from .wanted import Wanted

__all__ = ["figure_16"]

_NETWORK, _DATA = "vgg13", "cifar10"
_BATCHES = {"bp": "Phase BP", "gp": "Phase GP"}


def figure_16(wanted: Wanted, store: Store) -> Section:
    """The section: phases of each variant, layers of two of them, a picture of all."""
    cells = {name: wanted.cell(_NETWORK, _DATA, name) for name in wanted.with_baseline}
    batches = _batches(cells, store)
    missing = [cell for cell in cells.values() if not _known(store, cell)]
    parts: list[str | Table | Picture] = [_phases(cells, batches)]
    if batches:
        parts += [_layers(batches), _picture(batches, cells["baseline"])]
    base = cells["baseline"]
    return Section(
        key="figure-16",
        title=f"Figure 16: {_NETWORK.upper()} by layer and phase",
        paper="the picture has no numbers that could be read off, so only its shape compares: "
        "the forward pass of a layer takes about half as long as its backward pass, Phase GP has "
        "no backward pass, and the predictor of `max` is hidden behind the next layer.",
        why="the shape is the same, but updates of weights, loss, normalisation and pooling take "
        "time here, in every phase. At a small batch the updates of the last layers take longer "
        "than their products, and the predictor takes longer than the network, so that it is not "
        "hidden. A gradient that is predicted has to be written and read as a true one has.",
        parts=[
            f"{base.text.removesuffix(', baseline, bp')}; cycles by which the steps of a phase put "
            "off the end of what came before. In `efficient` and `max` the predictor works beside "
            "the network and only the network's steps are on this clock: where one of them waits "
            "for the predictor, its cycles hold the waiting. *Updates* are those with true and "
            "with predicted gradients.",
            *parts,
        ],
        missing=missing,
        data={name: batch.layers for name, batch in batches.items()},
        glance=_glance(batches),
    )


def _glance(batches: Mapping[str, BatchCount]) -> list[tuple[str, str, str]]:
    """What of the shape is a number."""
    base = batches.get("baseline, backpropagation")
    learning, predicted = (batches.get(f"max, {label}") for label in _BATCHES.values())
    forward = _sum(base, "forward") if base is not None else 0
    rows = (
        ("forward pass over backward pass, `baseline`", "about a half",
         forward, _sum(base, "backward") if base is not None else 0),
        ("Phase BP of `max` over a batch of `baseline`", "predictor hidden",
         learning.cycles if learning is not None else 0, base.cycles if base is not None else 0),
        ("Phase GP of `max` over the forward pass of `baseline`", "no backward pass",
         predicted.cycles if predicted is not None else 0, forward),
    )  # fmt: skip
    return [
        (f"Figure 16, {_NETWORK}: {what}", theirs,
         f"{over / under:.2f}" if over and under else NOT_RUN)
        for what, theirs, over, under in rows
    ]  # fmt: skip


def _known(store: Store, cell: Cell) -> bool:
    return store.get(cell) is not None


def _batches(cells: Mapping[str, Cell], store: Store) -> dict[str, BatchCount]:
    """Batches by "variant, phase"."""
    found = {}
    for variant, cell in cells.items():
        counted = store.get(cell)
        for name, batch in counted.batches.items() if counted else ():
            label = "backpropagation" if variant == "baseline" else _BATCHES[name]
            found[f"{variant}, {label}"] = batch
    return found


def _sum(batch: BatchCount, phase: str) -> int:
    return sum(phases.get(phase, 0) for phases in batch.layers.values())


def _phases(cells, batches):
    rows = []
    for variant in cells:
        labels = ["backpropagation"] if variant == "baseline" else _BATCHES.values()
        for label in labels:
            batch = batches.get(f"{variant}, {label}")
            if batch is None:
                rows.append([f"`{variant}`", label, *[NOT_RUN] * (len(PHASES) + 1)])
                continue
            counts = [_sum(batch, phase) for phase in PHASES]
            shares = [
                f"{count:,} ({count / batch.cycles:.1%})" if count else "" for count in counts
            ]
            rows.append([f"`{variant}`", label, *shares, f"{batch.cycles:,}"])
    return Table(headings=["variant", "batch of", *PHASES, "all"], rows=rows, left=2)


def _layers(batches):
    """Layers of the first batch and of the last two."""
    chosen = list(dict.fromkeys([*list(batches)[:1], *list(batches)[-2:]]))
    phases = [phase for phase in PHASES if phase != "loss"]
    columns = [(name, phase) for name in chosen for phase in phases if _sum(batches[name], phase)]
    layers = dict.fromkeys(layer for name in chosen for layer in batches[name].layers)
    rows = []
    for layer in layers:
        if layer == BEHIND:
            continue
        counts = [batches[name].layers.get(layer, {}).get(phase, 0) for name, phase in columns]
        rows.append([layer, *(f"{count:,}" if count else "" for count in counts)])
    return Table(
        headings=["layer", *(f"{name}: {phase}" for name, phase in columns)], rows=rows,
        caption="By layer (numbers are torch's; those between convolutions are normalisation with "
        "ReLU and pooling, which count to a convolution that they run beside or ahead of):",
    )  # fmt: skip


def _picture(batches, base):
    def draw(path: Path) -> None:
        from .pictures import draw_layers

        title = base.text.removesuffix(", baseline, bp")
        draw_layers({name: batch.layers for name, batch in batches.items()}, title, path)

    return Picture(name="figure_16", text="Cycles of VGG13 by layer and phase", draw=draw)
