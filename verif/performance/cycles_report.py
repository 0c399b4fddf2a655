"""``python -m verif cycles``: tables, JSON and a chart of :mod:`verif.performance.cycles`."""

import json
from pathlib import Path

from rich import box
from rich.table import Table

from cli.atomic_files import replacing, write_whole
from hw.config import VARIANTS, make_config

from .cycles import (
    BatchCycles,
    VggLike,
    exposed,
    hidden,
    late,
    measure,
    memory_stall,
    speed_ups,
    traffic,
)

__all__ = ["main", "order_of", "plot", "tables"]

#: Images of a batch where nothing else is said: of large arrays, of small ones.
_IMAGES = {True: 64, False: 8}
_COLOURS = {
    "PE array busy": "#4c78a8", "waiting for memory": "#f2cf5b",
    "other: vector engine, loss, pipelines": "#bab0ac", "exposed work of the predictor": "#e45756",
}  # fmt: skip


def main(options, settings, console) -> int:
    """The command; returns the exit status."""
    presets = options.preset or ["paper", "tiny"]
    if not console.is_terminal:
        console.width = max(console.width, 150)  # nobody's window would cut it short
    document, wrong, charts = {}, [], {}
    for preset in presets:
        config = make_config(variant="max", preset=preset, **settings)
        images = options.images or _IMAGES[config.pes > 100]
        batches = []
        for variant in VARIANTS:
            with console.status(f"{preset} {variant}: building and simulating ..."):
                found = measure(
                    variant, preset, images=images, seed=options.seed, settings=settings,
                    model=VggLike(size=options.size), input_shape=(3, options.size, options.size),
                )  # fmt: skip
            for batch in found:
                console.print(
                    f"{preset} {variant} {batch.part}: {batch.cycles:,} cycles, "
                    + ("equal to golden" if not batch.differences else "[red]not golden's[/]"),
                    highlight=False,
                )
                for difference in batch.differences:
                    console.print(difference, markup=False, highlight=False)
            wrong += [text for batch in found for text in batch.differences]
            batches += found
        title = (
            f"VGG-like network, {images} images of {options.size} × {options.size}\n"
            f"preset {preset}, {config.rows} × {config.columns} PEs"
        )
        for table in tables(batches, title.replace("\n", ", ")):
            console.print(table)
        console.print(order_of(batches), highlight=False)
        charts[title] = batches
        document[preset] = {
            "config": config.as_dict(),
            "images": images,
            "seed": options.seed,
            "batches": [batch.as_dict() for batch in batches],
            "speed_up": {name: dict(zip("AB", pair, strict=True))
                         for name, pair in speed_ups(batches).items()},
        }  # fmt: skip
    directory = Path(options.output)
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(directory / "cycles.json", json.dumps(document, indent=1) + "\n")
    plot(charts, directory / "cycles.png")
    console.print(f"written: {directory / 'cycles.json'}, {directory / 'cycles.png'}")
    return 1 if wrong else 0


def tables(batches: list[BatchCycles], title: str) -> list[Table]:
    """Totals of every variant; cycles of every layer, and those that wait for the memory."""
    return [_totals(batches, title), _layers(batches, title), _stalls(batches, title)]


def order_of(batches) -> str:
    """Whether every layer is done on ``max`` no later than on ``efficient``, and there than on
    ``low``."""
    wrong = late(batches)
    if not wrong:
        return "max is done with every layer no later than efficient, efficient no later than low"
    return "done later with more hardware: " + ", ".join(
        " ".join([*filter(None, where), f"{part.upper()} ({more} than {less})"])
        for part, *where, more, less in wrong
    )


def _table(title, *headings):
    table = Table(box=box.SIMPLE, title=title)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=number == 0)
    return table


def _totals(batches, title):
    table = _table(
        f"a batch: {title}", "variant", "BP", "GP", "speed-up A", "speed-up B", "memory stall",
        "predictor exposed", "MB in BP", "MB in GP", "saved in B",
    )  # fmt: skip
    speed, bytes_ = speed_ups(batches), traffic(batches)
    for variant in dict.fromkeys(batch.variant for batch in batches):
        own = {batch.part: batch for batch in batches if batch.variant == variant}
        cells = [f"{own[part].cycles:,}" if part in own else "" for part in ("bp", "gp")]
        stalls = " + ".join(f"{memory_stall(batch.counters):,}" for batch in own.values())
        if variant in speed:
            a, b = speed[variant]
            extra = [sum(exposed(batches, batch).values()) for batch in own.values()]
            bp, gp, saved = bytes_[variant]
            cells += [
                f"{a:.3f}", f"{b:.3f}", stalls, " + ".join(f"{cycles:,}" for cycles in extra),
                f"{bp / 1e6:.2f}", f"{gp / 1e6:.2f}", f"{saved:.0%}",
            ]  # fmt: skip
        else:
            total = own["bp"].read_bytes + own["bp"].write_bytes
            cells += ["1", "1", stalls, "", f"{total / 1e6:.2f}", "", ""]
        table.add_row(variant, *cells)
    return table


def _layers(batches, title):
    baseline = next(batch for batch in batches if batch.variant == "baseline")
    variants = [name for name in dict.fromkeys(b.variant for b in batches) if name != "baseline"]
    headings = ["layer", "direction", "baseline", "array busy"]
    headings += [f"{name} {part}" for part in ("GP", "BP") for name in variants]
    table = _table(f"cycles of a layer, and what the predictor adds: {title}",
                   *headings, "hidden by max")  # fmt: skip
    columns = [
        exposed(batches, next(b for b in batches if (b.variant, b.part) == (name, part)))
        for part in ("gp", "bp") for name in variants
    ]  # fmt: skip
    shares = hidden(batches)
    for segment in baseline.segments:
        key = (segment.layer, segment.direction)
        table.add_row(
            *key, f"{segment.cycles:,}", f"{segment.array / max(segment.cycles, 1):.0%}",
            *(f"{column[key]:+,}" if key in column else "" for column in columns),
            f"{shares[key]:.0%}" if key in shares else "",
        )  # fmt: skip
    table.add_row("behind the last layer", "", "", "",
                  *(f"{column['behind', '']:+,}" for column in columns), "")  # fmt: skip
    return table


def _stalls(batches, title):
    """Of every layer, on every variant."""
    headings = [f"{batch.variant} {batch.part.upper()}" for batch in batches]
    table = _table(f"memory stall of a layer, cycles: {title}", "layer", "direction", *headings)
    columns = [
        {(s.layer, s.direction): s.memory_stall for s in batch.segments} for batch in batches
    ]
    for key in columns[0]:
        table.add_row(*key, *(f"{column[key]:,}" if key in column else "" for column in columns))
    return table


def plot(charts, path) -> None:
    """A stacked bar for every batch: what the main array does, its waiting for weights and buffer,
    what the predictor adds, the rest (vector engine, loss, transfers). ``charts`` maps titles to
    batches."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(charts), figsize=(5 * len(charts), 4.5), squeeze=False, sharey=True,
        layout="constrained",
    )  # fmt: skip
    for axis, (title, batches) in zip(axes[0], charts.items(), strict=True):
        names = [f"{batch.variant}\n{batch.part.upper()}" for batch in batches]
        below = [0.0] * len(batches)
        parts = {name: [] for name in _COLOURS}
        for batch in batches:
            array = sum(segment.array for segment in batch.segments)
            extra = sum(exposed(batches, batch).values()) if batch.variant != "baseline" else 0
            busy, waiting, other, predictor = parts.values()
            busy.append(array / 1e6)
            # A stall may be the predictor's: what it adds is counted first.
            extra = max(0, extra)
            stall = min(memory_stall(batch.counters), batch.cycles - array - extra)
            waiting.append(stall / 1e6)
            predictor.append(extra / 1e6)
            other.append((batch.cycles - array - extra - stall) / 1e6)
        for name in _COLOURS:
            axis.bar(names, parts[name], bottom=below, label=name, color=_COLOURS[name])
            below = [a + b for a, b in zip(below, parts[name], strict=True)]
        for place, height in enumerate(below):
            axis.annotate(f"{height:.2f}", (place, height), ha="center", va="bottom")
        axis.set_title(title)
        axis.margins(y=0.06)
    axes[0][0].set_ylabel("million cycles per batch")
    figure.legend(*axes[0][-1].get_legend_handles_labels(), ncols=2,
                  loc="outside lower center")  # fmt: skip
    with replacing(path) as file:
        figure.savefig(file, dpi=130, format="png")
    pyplot.close(figure)
