"""What a batch takes the accelerator, in cycles: read from a file that ``python -m perf steps``
has written, since this package knows nothing of the machine."""

import json
from dataclasses import dataclass
from pathlib import Path

from .contestants import Contestant

__all__ = ["StepCycles", "read_cycles"]


@dataclass(frozen=True)
class StepCycles:
    """Cycles of batches on one machine.

    Members
    -------
    machine : how it is described in tables
    steps : (network, (C, H, W), images, program) -> cycles by kind of batch, "bp" and "gp"
    """

    machine: str
    steps: dict[tuple[str, tuple[int, ...], int, str], dict[str, int]]

    def of(
        self, contestant: Contestant, model: str, shape: tuple[int, ...], images: int
    ) -> dict[str, int] | None:
        """Cycles of a method's batches by kind; None where the machine has no program for it.

        Raises
        ------
        ValueError
            if it has one and the file does not say what it takes.
        """
        if contestant.program is None:
            return None
        key = (model, tuple(shape), images, contestant.program)
        if key not in self.steps:
            size = "x".join(map(str, shape))
            raise ValueError(
                f"cycles: there are none of {contestant.program} for {model}, images of {size}, "
                f"batches of {images}; python -m perf steps counts them"
            )
        return self.steps[key]


def read_cycles(path: str | Path) -> StepCycles:
    """Read a file of ``python -m perf steps``.

    Raises
    ------
    ValueError
        if it is none.
    """
    try:
        document = json.loads(Path(path).read_text())
        steps = {
            (each["model"], tuple(each["shape"]), each["images"], each["program"]): each["cycles"]
            for each in document["steps"]
        }
        return StepCycles(document["machine"], steps)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no file of python -m perf steps ({error!r})") from None
