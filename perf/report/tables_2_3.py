"""Tables 2 and 3: Transformer and YOLO-v3."""

import paper
from perf.counted import Store

from .estimates import Estimates
from .section import NOT_RUN, Section, Table, cycles_text, ratio
from .wanted import Speed, Wanted

__all__ = ["tables_2_3"]

_WHY = {
    "transformer": "our cycles include attention's softmax, layer normalisation, the loss over "
    "10,000 tokens and the updates of embeddings, on which prediction saves nothing, and our "
    "sentences have one length. Cycles of a whole training are not given, because the paper does "
    "not say how many batches it counts.",
    "yolo-v3": "our cycles include loads, stores, normalisation, updates and the loss of each of "
    "the three outputs, whose last layers are not predicted. The paper's cycles are 10¹⁵ and more, "
    "which cannot be those of a batch; what it counts is not said.",
}


def tables_2_3(wanted: Wanted, store: Store, estimates: Estimates) -> list[Section]:
    """Two sections."""
    published = paper.figures()["speed_up_over_baseline"]
    transformer, yolo = paper.table("2"), paper.table("3")
    ours = published["table_2_transformer"]
    whole = ", ".join(f"{name} {row['cycles 1e9']:,.0f} · 10⁹ cycles" for name, row in yolo.items())
    said = {
        "transformer": (
            "2", "Transformer, 3 + 3 layers, Multi30k", {"": ours},
            f"ADA-GP takes {transformer['ada-gp']['cycles 1e9']:,} · 10⁹ cycles, the baseline "
            f"{transformer['baseline']['cycles 1e9']:,} · 10⁹, a speed-up of {ours}; of which "
            "variant is not said.",
        ),
        "yolo-v3": (
            "3", "YOLO-v3, 416 × 416, Pascal VOC", published["table_3_yolo_v3"],
            "`efficient` gains "
            f"{published['table_3_yolo_v3']['efficient']}, `max` "
            f"{published['table_3_yolo_v3']['max']} ({whole}).",
        ),
    }  # fmt: skip
    return [_section(name, *found, wanted, store, estimates) for name, found in said.items()]


def _section(network, number, title, theirs, text, wanted, store, estimates):
    base = wanted.other_cell(network, "baseline")
    rows, missing, data, reasons = [], [], {}, []
    for variant in wanted.with_baseline:
        cell = wanted.other_cell(network, variant)
        found = store.get(cell)
        if found is None:
            missing.append(cell)
        elif found.reason is not None:
            reasons.append(f"`{variant}` has no program: {found.reason}")
        batches = found.batches if found else {}
        refused = "no program" if found is not None and found.reason is not None else None
        counts = [
            refused or cycles_text(batches[name].cycles if name in batches else None)
            if variant != "baseline" or name == "bp"
            else ""
            for name in ("bp", "gp")
        ]
        speed = Speed.of(store, base, cell)
        speeds = [ratio(speed.speed_up(schedule) if speed else None) for schedule in "BA"]
        if variant == "baseline":
            speeds = ["1", "1"]
        estimate = estimates.speed(base, cell)
        speeds.append(f"{estimate.speed_up('B'):.3f} (batch {estimate.images})" if estimate else "")
        published = str(theirs.get(variant, theirs.get("", ""))) if variant != "baseline" else "1"
        rows.append([f"`{variant}`", *counts, *speeds, published])
        data[variant] = {
            "cycles": {name: batch.cycles for name, batch in batches.items()},
            "commit": found.state if found else NOT_RUN,
        } | ({schedule: speed.speed_up(schedule) for schedule in "AB"} if speed else {})
    glance = [
        (f"Table {number}, {network}: speed-up of `{variant}`", str(value),
         row[3] + (f"; estimated {row[5]}" if row[5] and row[3] == NOT_RUN else ""))
        for variant, value in ({"max": theirs[""]} if "" in theirs else theirs).items()
        for row in rows
        if row[0] == f"`{variant}`"
    ]  # fmt: skip
    headings = ["variant", "cycles of a batch BP", "GP", "speed-up B", "A", "estimated B", "paper"]
    size = base.text.removesuffix(", baseline, bp")
    return Section(
        key=f"table-{number}", title=f"Table {number}: {title}", paper=text, why=_WHY[network],
        parts=[Table(headings=headings, rows=rows, caption=f"{size}, counted:"), *reasons],
        missing=missing, data=data, glance=glance,
    )  # fmt: skip
