"""What a campaign has counted, in a file: to judge it again, alone or together with others."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cli.atomic_files import write_whole
from verif.sim.environment import PROJECT_ROOT

from .points import Point

__all__ = ["Counted", "hardware", "read_counted"]


def hardware() -> str:
    """A digest of the hardware's sources, whose points are counted."""
    digest = hashlib.sha256()
    for path in sorted((PROJECT_ROOT / "hw").rglob("*.py")):
        digest.update(f"{path.relative_to(PROJECT_ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(kw_only=True)
class Counted:
    """One campaign, or several together.

    Members
    -------
    parts : names of what was simulated, see :mod:`verif.coverage.configs`
    quick : with fewer stimuli, at least one of them
    seeds : of the campaigns
    stimuli : an entry for each stimulus, with its failure or None
    seconds, cpu_seconds : all of it
    counts : :class:`~verif.coverage.points.Point` -> how often it was reached
    """

    parts: tuple[str, ...]
    quick: bool
    seeds: tuple[int, ...]
    stimuli: list[dict] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    counts: dict[Point, int] = field(default_factory=dict)

    @property
    def failures(self) -> list[dict]:
        """Entries of the stimuli whose results were wrong."""
        return [entry for entry in self.stimuli if entry["failure"]]

    def add(self, other: "Counted") -> None:
        """Take over what another campaign has counted."""
        self.parts += tuple(name for name in other.parts if name not in self.parts)
        self.quick |= other.quick
        self.seeds += tuple(seed for seed in other.seeds if seed not in self.seeds)
        self.stimuli += other.stimuli
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds
        for point, count in other.counts.items():
            self.counts[point] = self.counts.get(point, 0) + count

    def write(self, path: Path) -> None:
        """As JSON; a point is a list of its members and its count."""
        content = {
            "hardware": hardware(),
            "parts": self.parts,
            "quick": self.quick,
            "seeds": self.seeds,
            "stimuli": self.stimuli,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "counts": [[p.kind, p.file, p.what, p.bit, n] for p, n in self.counts.items()],
        }
        write_whole(path, json.dumps(content) + "\n")


def read_counted(paths: Iterable[str | Path]) -> Counted:
    """What the campaigns that have written these files have counted together.

    Raises
    ------
    ValueError
        naming a file that is none of these, or whose points are those of other hardware.
    """
    found = Counted(parts=(), quick=False, seeds=())
    for path in paths:
        try:
            content = json.loads(Path(path).read_text())
            known = content.pop("hardware")
            counts = {
                Point(kind=kind, file=file, what=what, bit=bit): count
                for kind, file, what, bit, count in content.pop("counts")
            }
            campaign = Counted(counts=counts, **content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path} is no counts.json of a coverage campaign: {error}") from None
        if known != hardware():
            raise ValueError(f"{path} has counts of other hardware ({known}) than that in hw/ "
                             f"({hardware()}); run its campaign again")  # fmt: skip
        campaign.parts, campaign.seeds = tuple(campaign.parts), tuple(campaign.seeds)
        found.add(campaign)
    return found
