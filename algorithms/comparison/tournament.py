"""Many runs: rates tuned on seeds of their own, then every method on fresh seeds."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from rich.console import Console

from algorithms.data.datasets import load_images
from cli.progress import progress_bar
from cli.workers import Workers

from .contestants import CONTESTANTS, REFERENCE
from .cycles import StepCycles
from .race import Race, batch_size, read_record, record_path, run_race, write_record

__all__ = ["CLOCKS", "Result", "Tournament"]

#: What time can be counted in.
CLOCKS = ("macs", "cycles")
#: Seeds for tuning begin here: no result is of one of them.
_TUNING_SEEDS = 1001


@dataclass(frozen=True, kw_only=True)
class Result:
    """A method at its best rate.

    Members
    -------
    method : in CONTESTANTS
    tuning : mean accuracy by rate, on the seeds for tuning
    records : of the fresh seeds, in order; see :func:`algorithms.comparison.race.run_race`
    cycles : of its batches by kind, and as "unit" those of a batch of backpropagation, on the
        machine; None where they are not known
    """

    method: str
    tuning: dict[float, float]
    records: tuple[dict, ...]
    cycles: dict[str, int] | None = None

    @property
    def rate(self) -> float:
        """The rate with the best mean in tuning."""
        return max(self.tuning, key=self.tuning.__getitem__)

    @property
    def accuracies(self) -> list[float]:
        """At the end, by seed."""
        return [record["curve"][-1][1] for record in self.records]

    @property
    def machine_batches(self) -> float | None:
        """What its steps take the machine, in batches of backpropagation, the mean of all seeds."""
        own = self.cycles
        if own is None:
            return None
        spent = (
            sum(own[kind] * count for kind, count in record["steps"].items())
            for record in self.records
        )
        return mean(spent) / own["unit"]

    @property
    def rate_at_the_edge(self) -> bool:
        """Whether the best rate is the smallest or largest that was tried."""
        return self.rate in (min(self.tuning), max(self.tuning))


@dataclass(frozen=True, kw_only=True)
class Tournament:
    """What is compared.

    Members
    -------
    data, model, budget, batch, pool, train_images, test_images : as in Race
    methods : names in CONTESTANTS; those that others are compared with are added
    rates : learning rates to choose from; tuned in MACs, whatever the clock
    clock : what the time is counted in: "macs", or "cycles" of the machine; methods that it has no
        program for are left out then
    cycles : of batches on the machine; None where nothing is said of it
    device : where torch computes
    tuning_seeds, seeds : how many of each

    Raises
    ------
    ValueError
        as Race, and naming a method, the clock, ``rates`` or a number of seeds.
    """

    data: str
    model: str
    methods: tuple[str, ...]
    rates: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
    tuning_seeds: int = 2
    seeds: int = 5
    budget: int = 300
    batch: int = 64
    pool: int = 1
    train_images: int | None = None
    test_images: int | None = None
    clock: str = "macs"
    cycles: StepCycles | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        if unknown := [name for name in self.methods if name not in CONTESTANTS]:
            raise ValueError(
                f"methods: {', '.join(unknown)} must be among {', '.join(CONTESTANTS)}"
            )
        if not self.rates or not all(0 < rate < math.inf for rate in self.rates):
            raise ValueError(f"rates must be numbers above 0, not {self.rates!r}")
        for name, least in (("tuning_seeds", 1), ("seeds", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.clock not in CLOCKS:
            raise ValueError(f"clock must be one of {', '.join(CLOCKS)}, not {self.clock!r}")
        if self.clock == "cycles" and self.cycles is None:
            raise ValueError("clock cycles needs cycles: a file of python -m perf steps")
        named = {REFERENCE, *self.methods, *(CONTESTANTS[n].against for n in self.methods)}
        ordered = tuple(
            name
            for name in CONTESTANTS
            if name in named and (self.clock == "macs" or CONTESTANTS[name].program)
        )
        object.__setattr__(self, "methods", ordered)
        self._race(REFERENCE, 1, self.rates[0])

    def _race(self, method, seed, rate, cycles=None, tuning=None):
        names = ("data", "model", "budget", "batch", "pool", "train_images", "test_images")
        return Race(
            method=method, seed=seed, rate=rate, cycles=cycles, tuning=tuning,
            device=None if self.device == "cpu" else self.device,
            **{name: getattr(self, name) for name in names},
        )  # fmt: skip

    def step_cycles(self) -> dict[str, dict[str, int] | None]:
        """By method: cycles of its batches by kind, and as "unit" those of a batch of
        backpropagation; None where they are not known. Raises ValueError if some are missing."""
        if self.cycles is None:
            return dict.fromkeys(self.methods)
        channels, *sides = load_images(self.data).train_images.shape[1:]
        shape = (channels, *(side // self.pool for side in sides))
        unit = self.cycles.of(CONTESTANTS[REFERENCE], self.model, shape, self.batch)
        found = {}
        for method in self.methods:
            contestant = CONTESTANTS[method]
            images = batch_size(self.batch, contestant)
            own = self.cycles.of(contestant, self.model, shape, images)
            found[method] = own and unit and own | {"unit": unit["bp"]}
        return found

    def tuning_races(self, method: str) -> list[Race]:
        """Runs that a method's rate is chosen from."""
        seeds = range(_TUNING_SEEDS, _TUNING_SEEDS + self.tuning_seeds)
        return [
            self._race(method, seed, rate, tuning=True) for rate in self.rates for seed in seeds
        ]

    def run(self, directory: str | Path, workers: Workers | None = None) -> list[Result]:
        """Do what has not been done, in processes of this machine unless ``workers`` say otherwise.

        Shows progress where there is a terminal.
        """
        workers, cycles = workers or Workers(), self.step_cycles()
        with progress_bar(Console(stderr=True)) as bar:
            total = len(self.methods) * (len(self.rates) * self.tuning_seeds + self.seeds)
            task = bar.add_task(f"{self.data}, {self.model}", total=total)

            def done(races: Sequence[Race]) -> Iterator[dict]:
                yield from _all(races, directory, workers, lambda: bar.advance(task))

            tuning: dict[str, dict[float, list[float]]] = {}
            races = [race for method in self.methods for race in self.tuning_races(method)]
            for record in done(races):
                race = record["race"]
                accuracies = tuning.setdefault(race["method"], {}).setdefault(race["rate"], [])
                accuracies.append(record["curve"][-1][1])
            results = [
                Result(
                    method=method,
                    tuning={rate: mean(values) for rate, values in tuning[method].items()},
                    records=(),
                    cycles=cycles[method],
                )
                for method in self.methods
            ]
            in_cycles = self.clock == "cycles"
            fresh = [
                self._race(result.method, seed, result.rate, result.cycles if in_cycles else None)
                for result in results
                for seed in range(1, self.seeds + 1)
            ]
            records = list(done(fresh))
        return [
            dataclasses.replace(
                result,
                records=tuple(r for r in records if r["race"]["method"] == result.method),
            )
            for result in results
        ]


def _all(races, directory, workers, advance):
    """Records of all runs, in order; those that are there are read."""
    missing = [race for race in races if not record_path(race, directory).is_file()]
    for _ in range(len(races) - len(missing)):
        advance()
    for number, record in workers.results(run_race, [(race,) for race in missing]):
        write_record(record, missing[number], directory)
        advance()
    return [read_record(race, directory) for race in races]
