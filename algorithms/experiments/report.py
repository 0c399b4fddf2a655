"""Tables and plots of finished runs: accuracy, the time it took, how good predictions were."""

import json
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from cli.atomic_files import replacing

from .methods import METHODS

__all__ = ["Comparison", "MethodRuns", "compare", "read_records", "write_report"]

#: Settings that runs of one table share.
_SHARED = (
    "data", "model", "epochs", "batch", "momentum", "weight_decay", "schedule", "train_images",
    "test_images", "device",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MethodRuns:
    """Runs that differ by their seeds only.

    Members
    -------
    method : name in METHODS
    learning_rate : at the start
    records : see :func:`algorithms.experiments.experiment.run`, by seed
    """

    method: str
    learning_rate: float
    records: tuple[dict, ...]

    @property
    def accuracies(self) -> list[float]:
        """On test images after the last epoch, by run."""
        return [record["epochs"][-1]["accuracy"] for record in self.records]

    @property
    def spread(self) -> float:
        """Standard deviation of the accuracies (n − 1); NaN for one run."""
        values = self.accuracies
        return statistics.stdev(values) if len(values) > 1 else math.nan

    def count(self, predicted: bool) -> int:
        """Batches of Phase GP, or all others, of one run."""
        phases = self.records[0]["phases"]
        number = phases.count("G")
        return number if predicted else len(phases) - number

    @property
    def time(self) -> float:
        """Of one run, in batches of Phase BP; see ``Method``."""
        return self.count(False) + METHODS[self.method].prediction_cost * self.count(True)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs that differ by method, learning rate and seed only.

    Members
    -------
    settings : what they share, by name of the experiment's field
    methods : :class:`MethodRuns` in the order of METHODS, then by learning rate
    """

    settings: dict
    methods: tuple[MethodRuns, ...]

    @property
    def title(self) -> str:
        """The settings in a line."""
        schedule = self.settings["schedule"]
        ladder = " ".join(
            f"{stage['gp']}:{stage['bp']}" + (f"x{stage['epochs']}" if stage["epochs"] else "")
            for stage in schedule["ladder"]
        )
        return (
            f"{self.settings['data']}, {self.settings['model']}, {self.settings['epochs']} epochs, "
            f"batch {self.settings['batch']}, warm-up {schedule['warm_up']}, {ladder}"
        )

    def table(self) -> str:
        """Markdown: accuracy, batches and time of every method."""
        lines = [
            "| method | learning rate | seeds | accuracy in % | BP batches | GP batches | time |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        for runs in self.methods:
            accuracy = f"{100 * statistics.mean(runs.accuracies):.2f}"
            if len(runs.records) > 1:
                accuracy += f" ± {100 * runs.spread:.2f}"
            lines.append(
                f"| {runs.method} | {runs.learning_rate:g} | {len(runs.records)} | {accuracy} | "
                f"{runs.count(False)} | {runs.count(True)} | {runs.time:.0f} |"
            )
        return "\n".join(lines)


def read_records(directory) -> list[dict]:
    """Records of all finished runs in a directory.

    Raises
    ------
    ValueError
        if there are none, or for a file that is no record.
    """
    records = []
    for path in sorted(Path(directory).glob("*.json")):
        try:
            record = json.loads(path.read_text())
            complete = len(record["epochs"]) == record["experiment"]["epochs"]
            complete &= record["experiment"].keys() >= set(_SHARED)
        except (ValueError, KeyError, TypeError):
            complete = False
        if not complete:
            raise ValueError(f"{path} is not the record of a finished run of this version")
        records.append(record)
    if not records:
        raise ValueError(f"no records in {directory}: run python -m algorithms train first")
    return records


def compare(records) -> list[Comparison]:
    """Sort records into comparisons."""
    groups = defaultdict(lambda: defaultdict(list))
    for record in records:
        experiment = record["experiment"]
        shared = json.dumps({name: experiment[name] for name in _SHARED}, sort_keys=True)
        groups[shared][experiment["method"], experiment["learning_rate"]].append(record)
    order = list(METHODS)
    result = []
    for shared in sorted(groups):
        methods = [
            MethodRuns(
                method=method,
                learning_rate=rate,
                records=tuple(sorted(runs, key=lambda record: record["experiment"]["seed"])),
            )
            for (method, rate), runs in groups[shared].items()
        ]
        methods.sort(key=lambda runs: (order.index(runs.method), runs.learning_rate))
        result.append(Comparison(settings=json.loads(shared), methods=tuple(methods)))
    return result


def write_report(directory, *, plots: bool = True) -> tuple[str, list[Path]]:
    """Write ``report.md`` and the plots beside the records; the text and the files written."""
    directory = Path(directory)
    parts, files = [], []
    for number, comparison in enumerate(compare(read_records(directory)), 1):
        parts.append(f"## {comparison.title}\n\n{comparison.table()}\n")
        if plots:
            from .report_plots import plot_accuracy, plot_predictions

            files.append(plot_accuracy(comparison, directory / f"accuracy-{number}.png"))
            for runs in comparison.methods:
                if any(epoch["layers"] for epoch in runs.records[0]["epochs"]):
                    name = f"predictions-{number}-{runs.method}-{runs.learning_rate:g}.png"
                    files.append(plot_predictions(runs, comparison.title, directory / name))
    parts.append(
        "Accuracy is that on test images after the last epoch, mean and standard deviation over "
        "seeds. Time is in batches of\nPhase BP: a backward pass counts as two forward passes, the "
        "predictor as running beside them.\n"
    )
    text = "\n".join(parts)
    report = directory / "report.md"
    report.parent.mkdir(parents=True, exist_ok=True)
    with replacing(report) as file:
        file.write(text.encode())
    return text, [report, *files]
