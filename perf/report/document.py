"""The report as files: Markdown, pictures beside it, JSON."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from cli.atomic_files import write_whole
from paper import SOURCE
from perf.counted import Count

from .section import Picture, Section, Table, commands_of

__all__ = ["write_report"]

_HEAD = """# The paper's evaluation, with our numbers

What the evaluation of {source} shows,
with what this project finds beside it. This page is written by

```
python -m perf {command}
```

*Counted* are cycles of programs that the compiler makes, on the model of the machine that counts
as the RTL does ([perf_model.md](perf_model.md)), or on that of events, which goes by whole
commands: [beside the first](perf_model.md#from-event-to-event) it is off by 0.6 % at most on full
networks, beside the RTL by 1 to 3 % on small ones. The last table says which. *Estimated* is
what the compiler says of such programs when it has made them
([results_networks.md](results_networks.md)). *Formulas* are the paper's way of counting, without
memory ([analytic.md](analytic.md)). *Not run* is what nobody has counted yet; the command below
each item counts it, and writing the page again shows it. Nothing stands for something else.
"""


def write_report(
    sections: Sequence[Section], counts: Iterable[Count], path: Path, command: str
) -> list[Path]:
    """Write ``path``, a Markdown file, its pictures and its numbers beside it; their paths."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []

    def place(picture: Picture) -> str:
        return f"{path.stem}_{picture.name}.png"

    for section in sections:
        for part in section.parts:
            if isinstance(part, Picture):
                target = path.with_name(place(part))
                part.draw(target)
                written.append(target)
    kept = sorted(counts, key=lambda count: (count.cell.network, count.cell.input, count.cell.text))
    blocks = [_HEAD.format(source=SOURCE, command=command)]
    rows = [row for section in sections for row in section.glance]
    glance = Table(headings=["", "paper", "here"], rows=rows, left=3)
    blocks.append("\n\n".join(["## At a glance", "\n".join(glance.markdown())]) + "\n")
    blocks += [section.markdown(place) for section in sections]
    blocks.append(_counted(kept))
    write_whole(path, "\n".join(blocks))
    numbers = path.with_suffix(".json")
    document = {
        "command": f"python -m perf {command}",
        "sections": {
            section.key: {
                "title": section.title, "paper": section.paper, "why": section.why,
                "not_run": [f"python -m perf {line}" for line in commands_of(section.missing)],
                **section.data,
            }
            for section in sections
        },
    }  # fmt: skip
    write_whole(numbers, json.dumps(document, indent=1) + "\n")
    return [path, numbers, *written]


def _counted(counts: Sequence[Count]) -> str:
    """What stands behind the numbers: every cell with its commit and what it took."""
    rows = []
    for count in counts:
        batches = count.batches
        cycles = [f"{batches[name].cycles:,}" if name in batches else "" for name in ("bp", "gp")]
        if count.reason is not None:
            cycles = ["no program", ""]
        moved = [
            f"{(batch.counters['READ_BYTES'] + batch.counters['WRITE_BYTES']) / 1e6:,.0f}"
            if (batch := batches.get(name)) and "READ_BYTES" in batch.counters
            else ""
            for name in ("bp", "gp")
        ]
        rows.append(
            [
                count.cell.text,
                *cycles,
                *moved,
                *(f"{s:,.0f}" for s in count.seconds),
                count.model,
                count.state,
            ]
        )
    table = Table(
        headings=[
            "batch", "cycles BP", "GP", "MB moved BP", "GP", "compiler s", "model s", "model",
            "commit",
        ],
        rows=rows,
    )  # fmt: skip
    text = (
        "Seconds are of processor time. *Model*: the one from cycle to cycle, or the one from "
        "event to event ([perf_model.md](perf_model.md#from-event-to-event) says how far they are "
        "apart). *Commit*: the last one that had changed hardware, compiler, networks or model. "
        "Numbers of different commits may differ for that reason "
        "alone; `--outdated` counts them again."
    )
    return "\n\n".join(["## What has been counted", text, "\n".join(table.markdown())]) + "\n"
