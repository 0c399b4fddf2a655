"""Adds coverage to every build, and collects what every run reaches."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from hw.config import AdaGPConfig
from verif.sim.environment import PROJECT_ROOT
from verif.sim.instrument import Instrument

from .monitor import LOG, monitor_verilog
from .points import Point, mapped_points, raw_points
from .sampling import sample
from .source_map import SourceMap, read_sources

__all__ = ["MAXIMUM_WIDTH", "Collector"]

#: Signals that are wider do not count: they are streams of data and whole commands.
MAXIMUM_WIDTH = 64

_MONITOR = "adagp_monitor.v"
#: Files of Verilator's counts: one of each model that a simulation has made.
_DATA = "coverage*.dat"
_HEADER = "// "
# With line coverage, Verilator 5.48's optimisation of data flow graphs makes wrong simulations of
# accelerators: MATMUL never gets its weights.
_OPTIONS = (
    *("--coverage-line", "--coverage-toggle", "--coverage-max-width", str(MAXIMUM_WIDTH)),
    "-fno-dfg",
)


class Collector(Instrument):
    """Counts of all points of all runs under :func:`~verif.sim.instrument.instrumented`.

    Members
    -------
    counts : :class:`~verif.coverage.points.Point` -> how often; 0 for what exists, but was not
        reached
    """

    def __init__(self) -> None:
        self.counts: dict[Point, int] = {}
        self._maps: dict[Path, dict[str, SourceMap]] = {}

    def prepare(
        self, toplevel: str, sources: Mapping[str, str]
    ) -> tuple[Mapping[str, str], Sequence[str]]:
        """Options for coverage, and where it is switched off."""
        lines = []
        for name, text in sources.items():
            if not name.endswith(".vlt"):
                maps = self._read(name, text)
                off = f'coverage_off -file "*/{name}"'
                lines.append(off if maps is None else maps.configuration(name))
        text = "`verilator_config\n" + "\n".join(lines) + "\n"
        return {"coverage.vlt": text}, _OPTIONS

    def watch(self, config: AdaGPConfig, text: str) -> Mapping[str, str]:
        """The monitor, which names its configuration in its first line."""
        header = _HEADER + json.dumps(config.as_dict())
        return {_MONITOR: f"{header}\n{monitor_verilog(config, text)}"}

    def collect(self, build: Path, run: Path) -> None:
        """Add what a run has reached; one that broke off has written nothing."""
        files = sorted(run.glob(_DATA))
        if not files:
            return
        if build not in self._maps:
            found = {}
            for path in sorted((build / "src").glob("*.v")):
                maps = self._read(path.name, path.read_text())
                if maps is not None:
                    found[path.name] = maps
            self._maps[build] = found
        for data in files:
            raw = raw_points(data.read_text(), str(data))
            self.add(mapped_points(raw, self._maps[build]))
            data.unlink()  # megabytes
        monitor, log = build / "src" / _MONITOR, run / LOG
        if monitor.is_file() and log.is_file():
            with open(monitor) as file:
                values = json.loads(file.readline().removeprefix(_HEADER))
            config = AdaGPConfig(**values)
            with open(log) as file:
                self.add(sample(config, file).items())

    def add(self, points) -> None:
        """Count pairs of a point and a number."""
        for point, count in points:
            self.counts[point] = self.counts.get(point, 0) + count

    @staticmethod
    def _read(name, text) -> SourceMap | None:
        """None for Verilog that is not generated from Python."""
        if "(* src = " not in text:
            return None
        return read_sources(text, PROJECT_ROOT)
