"""What the RTL has counted: programs with their counters, kept in files."""

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cli.atomic_files import write_whole
from cli.build_directory import PROJECT_ROOT, build_root
from emulator.batch_loop import BatchLoop
from golden.prediction.schedule import ScheduleConfig, Stage
from hw.config import AdaGPConfig
from verif.networks.reduced.reduced_networks import MEMORY_BYTES
from verif.system import accelerator
from verif.system.simulator import with_memory

__all__ = ["Measured", "kept", "measure"]

#: What decides over programs and over what the RTL does with them.
_SOURCES = ("hw", "rtl_gen", "compiler", "verif", "golden", "algorithms")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A program on the RTL.

    Members
    -------
    config : as a dictionary
    commands : encoded; ``offset``: of the first one in the memory window
    latency, base : of the memory, of the window
    loop : the batches of the run, of a program with BATCH
    counters : of the hardware
    """

    config: dict[str, Any]
    commands: bytes
    offset: int
    latency: int
    base: int
    loop: BatchLoop | None
    counters: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        packed = base64.b64encode(zlib.compress(self.commands)).decode()
        values = {**vars(self), "commands": packed, "loop": None}
        if self.loop is not None:
            values["loop"] = asdict(self.loop)
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Measured":
        """What :meth:`as_dict` has made."""
        commands = zlib.decompress(base64.b64decode(values["commands"]))
        loop = values["loop"]
        if loop is not None:
            schedule = loop["schedule"]
            ladder = tuple(Stage(**stage) for stage in schedule["ladder"])
            loop = BatchLoop(
                **{**loop, "schedule": ScheduleConfig(**{**schedule, "ladder": ladder})}
            )
        return cls(**{**values, "commands": commands, "loop": loop})


def measure(
    work: Callable[[AdaGPConfig], object], config: AdaGPConfig, *, latency: int
) -> list[Measured]:
    """Every program that ``work`` runs on the RTL.

    Raises
    ------
    RuntimeError
        a program ended with an error, or the memory saw the rules of AXI broken
    """
    found: list[Measured] = []

    def observe(config, memory, runs: Sequence, outcomes: Sequence) -> None:
        image = b""
        for run, outcome in zip(runs, outcomes, strict=True):
            image = run.image if run.image is not None else image
            record = outcome.record
            if not record.done or record.protocol_errors:
                raise RuntimeError(f"a program ended with {record.code} of {record.unit}")
            found.append(
                Measured(
                    config=config.as_dict(),
                    commands=bytes(image[run.program : run.program + run.program_size]),
                    offset=run.program, loop=run.loop, counters=record.counters, **memory,
                )
            )  # fmt: skip

    with with_memory(MEMORY_BYTES), accelerator.observing(observe, latency=latency):
        work(config)
    return found


def kept(
    name: str, work: Callable[[AdaGPConfig], object], config: AdaGPConfig, *, latency: int
) -> list[Measured]:
    """What :func:`measure` has found, from a file if it has been measured before with the same
    sources."""
    path = _place() / f"{name}-{config.variant}-{config.hash}-{latency}.json"
    if path.exists():
        return [Measured.from_dict(values) for values in json.loads(path.read_text())]
    found = measure(work, config, latency=latency)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps([item.as_dict() for item in found]))
    return found


def _place() -> Path:
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted(Path(PROJECT_ROOT, folder).rglob("*")):
            if path.suffix in (".py", ".v"):
                digest.update(path.name.encode() + path.read_bytes())
    return build_root() / "validation" / digest.hexdigest()[:12]
