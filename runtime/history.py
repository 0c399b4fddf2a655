"""What happened during training: a record of every epoch, as a table, a plot and a file."""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from os import PathLike

from rich import box
from rich.table import Table

from cli.atomic_files import replacing, write_whole

__all__ = ["EpochRecord", "EpochSums", "History"]


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One epoch.

    Members
    -------
    epoch : from 0
    batches, samples : trained
    loss : mean over the batches that compute one
    accuracy : share of the samples of these batches that were classified correctly while training;
        None for other losses than cross-entropy
    validation : share of the validation samples that are classified correctly behind the epoch
    phases : batches by name of their phase
    rate : learning rate of the last batch
    rejected : tiles that the guard left as they were
    gates : how far the prediction of each layer is trusted behind the epoch
    counters : sums over the batches; empty where the device counts nothing
    seconds : wall time of the batches
    """

    epoch: int
    batches: int
    samples: int
    loss: float | None
    accuracy: float | None
    validation: float | None
    phases: dict[str, int]
    rate: float
    rejected: int
    gates: dict[str, float]
    counters: dict[str, int]
    seconds: float

    @property
    def cycles(self) -> int | None:
        """From the start to the end of the batches, without those of waiting for the host."""
        return self.counters.get("CYCLES")

    @property
    def utilisation(self) -> float | None:
        """Share of these cycles in which a vector enters the main array."""
        cycles = self.cycles
        return self.counters["CORE0_VECTORS"] / cycles if cycles else None

    @property
    def bytes(self) -> int | None:
        """Off-chip traffic, read and written."""
        if not self.counters:
            return None
        return self.counters["READ_BYTES"] + self.counters["WRITE_BYTES"]

    def __str__(self) -> str:
        """The epoch in a line."""
        parts = [f"epoch {self.epoch}: {self.batches} batches"]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4f}")
        if self.accuracy is not None:
            parts.append(f"{self.accuracy:.2%} correct")
        if self.validation is not None:
            parts.append(f"validation {self.validation:.2%}")
        if self.cycles is not None:
            parts.append(f"{self.cycles:,} cycles")
        return ", ".join(parts)


@dataclass(kw_only=True)
class History:
    """Records of epochs, in order, and what they are of."""

    method: str
    device: str
    epochs: list[EpochRecord] = field(default_factory=list)

    def table(self) -> Table:
        """A table for ``rich.print``; columns without any number are left out.

        ``valid.``: share of the validation samples that are right; ``busy``: share of the cycles in
        which a vector enters the main array; ``MB``: read and written off-chip; ``gates``: of every
        layer, or the least and the largest; ``samples/s`` of wall time.
        """
        columns = {
            "epoch": lambda e: f"{e.epoch}",
            "batches": lambda e: ", ".join(f"{count} {name}" for name, count in e.phases.items()),
            "rate": lambda e: f"{e.rate:g}",
            "loss": lambda e: _shown(e.loss, ".4f"),
            "correct": lambda e: _shown(e.accuracy, ".1%"),
            "valid.": lambda e: _shown(e.validation, ".1%"),
            "kcycles": lambda e: _shown(None if e.cycles is None else e.cycles / 1e3, ",.1f"),
            "busy": lambda e: _shown(e.utilisation, ".0%"),
            "MB": lambda e: _shown(None if e.bytes is None else e.bytes / 1e6, ",.1f"),
            "gates": lambda e: _gates(e.gates),
            "rejected": lambda e: f"{e.rejected:,}" if e.rejected else "",
            "samples/s": lambda e: _shown(e.samples / e.seconds if e.seconds else None, ",.1f"),
        }
        table = Table(box=box.SIMPLE, title=f"{self.method} on {self.device}")
        rows = {name: [show(epoch) for epoch in self.epochs] for name, show in columns.items()}
        shown = [name for name, cells in rows.items() if any(cells)]
        for name in shown:
            left = name in ("batches", "gates")
            table.add_column(name, justify="left" if left else "right", no_wrap=not left)
        for cells in zip(*(rows[name] for name in shown), strict=True):
            table.add_row(*cells)
        return table

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw loss, accuracies and, where they are known, cycles and gates over epochs."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
        from matplotlib.ticker import MaxNLocator

        series = {
            "loss": {"training": [e.loss for e in self.epochs]},
            "share correct": {
                "training": [e.accuracy for e in self.epochs],
                "validation": [e.validation for e in self.epochs],
            },
            "million cycles": {
                "epoch": [None if e.cycles is None else e.cycles / 1e6 for e in self.epochs]
            },
            "gate": {
                name: [e.gates.get(name) for e in self.epochs]
                for name in (self.epochs[-1].gates if self.epochs else {})
            },
        }
        known = {
            title: {name: values for name, values in lines.items() if _any(values)}
            for title, lines in series.items()
        }
        known = {title: lines for title, lines in known.items() if lines}
        if not known:
            raise ValueError("there is nothing to plot: no epoch has been trained")
        figure, axes = pyplot.subplots(
            1, len(known), figsize=(4.2 * len(known), 3.4), squeeze=False, layout="constrained"
        )
        numbers = [epoch.epoch for epoch in self.epochs]
        for axis, (title, lines) in zip(axes[0], known.items(), strict=True):
            for name, values in lines.items():
                axis.plot(numbers, [math.nan if v is None else v for v in values], ".-", label=name)
            axis.set_xlabel("epoch")
            axis.set_title(title)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            axis.grid(alpha=0.3)
            if len(lines) > 1:
                axis.legend(fontsize=8)
        figure.suptitle(f"{self.method} on {self.device}", fontsize=10)
        with replacing(path) as file:
            figure.savefig(file, format=str(path).rpartition(".")[2] or "png", dpi=120)
        pyplot.close(figure)

    def plain(self) -> dict:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def restored(cls, plain: dict) -> "History":
        """What :meth:`plain` returned."""
        epochs = [EpochRecord(**epoch) for epoch in plain["epochs"]]
        return cls(method=plain["method"], device=plain["device"], epochs=epochs)

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as JSON."""
        write_whole(path, json.dumps(self.plain(), indent=1) + "\n")


@dataclass(kw_only=True)
class EpochSums:
    """Adds up the batches of an epoch; members as in :class:`EpochRecord`."""

    batches: int = 0
    samples: int = 0
    judged: int = 0
    correct: int = 0
    rejected: int = 0
    losses: list[float] = field(default_factory=list)
    phases: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    rate: float = 0.0

    def add(self, result, samples, rate, seconds):
        """A :class:`runtime.session.BatchResult`."""
        self.batches += 1
        self.samples += samples
        self.seconds += seconds
        self.rate = rate
        self.rejected += result.rejected
        self.phases[result.phase.name] = self.phases.get(result.phase.name, 0) + 1
        for name, value in result.counters.items():
            self.counters[name] = self.counters.get(name, 0) + value
        if result.loss is not None:
            self.losses.append(result.loss)
        if result.correct is not None:
            self.correct += result.correct
            self.judged += samples

    def record(self, epoch, *, validation, gates) -> EpochRecord:
        """The whole epoch."""
        return EpochRecord(
            epoch=epoch, batches=self.batches, samples=self.samples,
            loss=sum(self.losses) / len(self.losses) if self.losses else None,
            accuracy=self.correct / self.judged if self.judged else None,
            validation=validation, phases=dict(self.phases), rate=self.rate,
            rejected=self.rejected, gates=gates, counters=dict(self.counters),
            seconds=self.seconds,
        )  # fmt: skip


def _shown(value, form):
    return "" if value is None else format(value, form)


def _gates(gates):
    if not gates:
        return ""
    values = list(gates.values())
    if len(values) <= 2:
        return " ".join(f"{value:.2f}" for value in values)
    return f"{min(values):.2f}-{max(values):.2f}"


def _any(values):
    return any(value is not None for value in values)
