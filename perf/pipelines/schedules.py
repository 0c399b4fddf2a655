"""GPipe, DAPPLE and Chimera, with batches of Phase GP among those of backpropagation.

GPipe: Huang et al., NeurIPS 2019, arXiv:1811.06965. DAPPLE: Fan et al., PPoPP 2021,
arXiv:2007.01045. Chimera: Li and Hoefler, SC 2021, arXiv:2107.06925. A batch of Phase GP has
forward passes only: predicted gradients update a stage behind its own, and then it may begin the
next batch.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .simulate import Placed, Task, makespan, simulate

__all__ = ["SCHEDULES", "Stage", "Steps", "pipeline", "schedules_of", "steps"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Time of a micro-batch in a stage."""

    forward: Fraction = Fraction(1)
    backward: Fraction = Fraction(2)


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How long batches take on a schedule.

    Members
    -------
    batch : of backpropagation, from an empty pipeline to an empty one
    pair : a batch of Phase GP, then one of backpropagation
    prediction : a batch of Phase GP alone
    work : of a device on the average, in a batch of backpropagation
    """

    batch: Fraction
    pair: Fraction
    prediction: Fraction
    work: Fraction

    @property
    def speed_up(self) -> Fraction:
        """Of alternating both kinds of batches, over backpropagation of all (schedule B)."""
        return 2 * self.batch / self.pair

    @property
    def bubbles(self) -> Fraction:
        """Share of a batch of backpropagation in which a device is idle, on the average."""
        return 1 - self.work / self.batch


def pipeline(
    schedule: str, stages: Sequence[Stage], micro_batches: int, phases: Sequence[str]
) -> list[Placed]:
    """Simulate batches, one after the other, in a pipeline that is empty at first.

    Parameters
    ----------
    schedule : name in SCHEDULES
    stages : one per device
    micro_batches : of a batch; even for Chimera
    phases : "GP" or "BP" for each batch

    Raises
    ------
    ValueError
        naming the argument, its value and what is allowed.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, not {schedule!r}")
    if len(stages) < 2:
        raise ValueError(f"devices must be at least 2, not {len(stages)}")
    if micro_batches < 1:
        raise ValueError(f"micro_batches must be at least 1, not {micro_batches}")
    if wrong := [phase for phase in phases if phase not in ("GP", "BP")]:
        raise ValueError(f"a phase must be GP or BP, not {wrong[0]!r}")
    if schedule not in schedules_of(micro_batches):
        raise ValueError(f"micro_batches must be even for chimera, not {micro_batches}")
    return SCHEDULES[schedule](list(stages), micro_batches, list(phases))


def steps(schedule: str, stages: Sequence[Stage], micro_batches: int) -> Steps:
    """Times of a batch, of a pair and of a prediction; arguments as :func:`pipeline`."""
    batch, pair, prediction = (
        makespan(pipeline(schedule, stages, micro_batches, phases))
        for phases in (["BP"], ["GP", "BP"], ["GP"])
    )
    work = sum((stage.forward + stage.backward for stage in stages), Fraction(0))
    return Steps(
        batch=batch, pair=pair, prediction=prediction, work=work * micro_batches / len(stages)
    )


def _chain(stages, devices, micro_batches, phases, order, *, first=0, prefix=""):
    """Tasks of a pipeline whose stage i is on ``devices[i]``.

    ``order`` is called with kind, batch, micro-batch and stage. Micro-batches are numbered from
    ``first`` on.
    """
    tasks, last = [], len(stages) - 1
    for batch, phase in enumerate(phases):
        for micro in range(first, first + micro_batches):
            for number, stage in enumerate(stages):
                name = f"{prefix}{batch}.{micro}"
                kind = "GP" if phase == "GP" else "forward"
                needs = (f"{name} F{number - 1}",) if number else ()
                tasks.append(
                    Task(name=f"{name} F{number}", device=devices[number], time=stage.forward,
                         needs=needs,
                         order=order(kind, batch, micro - first, number), kind=kind,
                         batch=batch, micro_batch=micro, stage=number)
                )  # fmt: skip
                if phase == "BP":
                    above = f"{name} B{number + 1}" if number < last else f"{name} F{last}"
                    tasks.append(
                        Task(name=f"{name} B{number}", device=devices[number], time=stage.backward,
                             needs=(above,), order=order("backward", batch, micro - first, number),
                             kind="backward", batch=batch, micro_batch=micro, stage=number)
                    )  # fmt: skip
    return tasks


def _with_updates(tasks):
    """The same tasks; a stage begins a batch when it has done all of the batch before it, on every
    device that has it: its weights are those that this batch has left."""
    last: dict[tuple[int, int], list[str]] = {}
    for task in tasks:
        if task.kind != "forward":
            last.setdefault((task.batch, task.stage), []).append(task.name)
    return [
        task
        if task.kind == "backward"
        else dataclasses.replace(
            task, needs=(*task.needs, *last.get((task.batch - 1, task.stage), ()))
        )
        for task in tasks
    ]


def _gpipe(stages, micro_batches, phases):
    """All forward passes of a batch, then all backward passes."""

    def order(kind, batch, micro, _stage):
        return batch, kind == "backward", -micro if kind == "backward" else micro

    tasks = _chain(stages, range(len(stages)), micro_batches, phases, order)
    return simulate(_with_updates(tasks), strict=True)


def _dapple(stages, micro_batches, phases):
    """One backward pass as early as possible, then one forward pass (1F1B)."""

    def order(kind, batch, micro, stage):
        ahead = len(stages) - stage  # forward passes before the first backward pass
        if kind != "backward":
            return batch, 2 * max(0, micro - ahead + 1), micro
        return batch, 2 * micro + 1, micro

    tasks = _chain(stages, range(len(stages)), micro_batches, phases, order)
    return simulate(_with_updates(tasks), strict=True)


def _chimera(stages, micro_batches, phases):
    """Two pipelines in opposite directions, each with half of the micro-batches; every device has
    two stages, and takes backward passes first. A device without a micro-batch of Phase GP to work
    on may begin the batch behind it, with its other stage."""
    return simulate(_both_ways(stages, micro_batches, phases), strict=False)


def _chimera_in_order(stages, micro_batches, phases):
    """Chimera, but a device begins a batch of backpropagation only when it has done with the batch
    of Phase GP before it."""
    tasks = _both_ways(stages, micro_batches, phases)
    predictions: dict[tuple[int, int], tuple[str, ...]] = {}
    for task in tasks:
        if task.kind == "GP":
            key = (task.device, task.batch)
            predictions[key] = (*predictions.get(key, ()), task.name)
    ordered = [
        dataclasses.replace(
            task, needs=(*task.needs, *predictions.get((task.device, task.batch - 1), ()))
        )
        for task in tasks
    ]
    return simulate(ordered, strict=False)


def _both_ways(stages, micro_batches, phases):
    def order(kind, batch, micro, _stage):
        return kind != "backward", batch, micro

    half, count = micro_batches // 2, len(stages)
    down = _chain(stages, range(count), half, phases, order, prefix="down ")
    up = _chain(stages, range(count - 1, -1, -1), half, phases, order, first=half, prefix="up ")
    return _with_updates([*down, *up])


#: Simulates (stages, micro-batches, phases).
SCHEDULES: dict[str, Callable[..., list[Placed]]] = {
    "gpipe": _gpipe,
    "dapple": _dapple,
    "chimera": _chimera,
    "chimera-in-order": _chimera_in_order,
}


def schedules_of(micro_batches: int) -> list[str]:
    """Names of the schedules that take so many micro-batches: Chimera's two pipelines share
    them."""
    return [name for name in SCHEDULES if not (name.startswith("chimera") and micro_batches % 2)]
