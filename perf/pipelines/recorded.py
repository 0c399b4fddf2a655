"""Steps of a training that ran on a pipeline: what its processes did, in the order they did it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from .simulate import Placed, Task, makespan, simulate

__all__ = ["RecordedSteps", "recorded_steps"]

_TIMES = {"GP": Fraction(1), "forward": Fraction(1), "backward": Fraction(2)}


@dataclass(frozen=True, kw_only=True)
class RecordedSteps:
    """How long batches of a recorded training take.

    Members
    -------
    schedule, devices, micro_batches : of the training
    batch : a batch of backpropagation, from an empty pipeline to an empty one; None where the
        pipeline is never emptied
    pair : a batch of Phase GP and the one of backpropagation behind it; None if there is none
    bubbles : share of ``batch`` (of everything, if None) in which a device is idle
    timelines : by title, for pictures
    """

    schedule: str
    devices: int
    micro_batches: int
    batch: Fraction | None
    pair: Fraction | None
    bubbles: Fraction
    timelines: dict[str, list[Placed]]


def recorded_steps(path: str | Path) -> RecordedSteps:
    """Read the ``trace.json`` of ``python -m algorithms pipeline``.

    The order of the passes of every process is what it was; a forward pass takes one step and a
    backward pass two, and none begins before what it needs is there.

    Raises
    ------
    ValueError
        for a file of another kind.
    """
    try:
        trace = json.loads(Path(path).read_text())
        stages = trace["stages"]
        schedule = trace["schedule"]
        batches: dict[tuple[int, int], str] = {}
        for each in stages[0]:
            batches.setdefault((each["epoch"], each["batch"]), each["kind"])
    except (KeyError, IndexError, TypeError, json.JSONDecodeError):
        raise ValueError(
            f"{path} must be the trace.json that python -m algorithms pipeline writes"
        ) from None
    order = list(batches)
    if schedule == "async":
        epoch = order[0][0]
        placed = _placed(stages, [key for key in order if key[0] == epoch])
        return _steps(trace, None, None, placed, {"an epoch of async": placed})
    whole = next(key for key in order if batches[key] != "GP")
    alone = _placed(stages, [whole])
    timelines = {f"{schedule}, a batch of backpropagation": alone}
    pair = None
    for first, second in pairwise(order):
        if batches[first] == "GP" and batches[second] != "GP":
            pair = _placed(stages, [first, second])
            timelines[f"{schedule}, a batch of Phase GP and one of backpropagation"] = pair
            break
    return _steps(trace, alone, pair, alone, timelines)


def _steps(trace, batch, pair, idle, timelines):
    busy = sum((each.task.time for each in idle), Fraction(0))
    devices = len(trace["stages"])
    return RecordedSteps(
        schedule=trace["schedule"],
        devices=devices,
        micro_batches=trace["micro_batches"],
        batch=batch and makespan(batch),
        pair=pair and makespan(pair),
        bubbles=1 - busy / (devices * makespan(idle)),
        timelines=timelines,
    )


def _placed(stages: Sequence[Sequence[dict]], batches: Sequence[tuple[int, int]]) -> list[Placed]:
    """The passes of some batches, as early as their order and what they need allow."""
    wanted, tasks, last = set(batches), [], len(stages) - 1
    for device, passes in enumerate(stages):
        chosen = [each for each in passes if (each["epoch"], each["batch"]) in wanted]
        for place, each in enumerate(chosen):
            key = f"{each['epoch']}.{each['batch']}.{each['micro_batch']}"
            kind = each["kind"]
            if kind == "backward":
                name = f"{key} B{device}"
                needs = (f"{key} F{last}" if device == last else f"{key} B{device + 1}",)
            else:
                name, needs = f"{key} F{device}", (f"{key} F{device - 1}",) if device else ()
            tasks.append(
                Task(
                    name=name, device=device, time=_TIMES[kind], needs=needs, order=(place,),
                    kind=kind, batch=batches.index((each["epoch"], each["batch"])),
                    micro_batch=each["micro_batch"] if len(batches) < 3 else each["batch"],
                    stage=device,
                )
            )  # fmt: skip
    return simulate(tasks, strict=True)
