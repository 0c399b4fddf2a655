"""Tasks on devices: when each begins, if none waits longer than it has to."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm

__all__ = ["Placed", "Task", "makespan", "simulate"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A pass of a micro-batch through a stage.

    Members
    -------
    name : unique
    device : that does it, from 0
    time : that it takes
    needs : names of tasks that must be over
    order : a device that may choose begins the task with the least
    kind : "GP", "forward" or "backward", for pictures
    batch, micro_batch, stage : from 0
    """

    name: str
    device: int
    time: Fraction
    needs: tuple[str, ...]
    order: tuple[int, ...]
    kind: str
    batch: int
    micro_batch: int
    stage: int


@dataclass(frozen=True)
class Placed:
    """A task and when it begins."""

    task: Task
    begin: Fraction

    @property
    def end(self) -> Fraction:
        """When it is over."""
        return self.begin + self.task.time


@dataclass
class _Device:
    """What a device has to do, and until when it is at work."""

    waiting: list[Task] = field(default_factory=list)
    free: int = 0


def simulate(tasks: Sequence[Task], *, strict: bool) -> list[Placed]:
    """Begin every task as early as its device allows.

    Parameters
    ----------
    tasks : all tasks; what they need is among them
    strict : a device does its tasks in their order, and waits for the next one if need be;
        otherwise it takes the first in their order that can begin

    Returns
    -------
    list
        In the order in which they begin.

    Raises
    ------
    ValueError
        if the tasks wait for each other, naming one.
    """
    # Times as whole numbers of a common unit: exact, and much faster than fractions.
    unit = lcm(*(Fraction(task.time).denominator for task in tasks))
    times = {task.name: int(task.time * unit) for task in tasks}
    devices: dict[int, _Device] = {}
    for task in sorted(tasks, key=lambda each: each.order):
        devices.setdefault(task.device, _Device()).waiting.append(task)
    ended: dict[str, int] = {}
    placed: list[Placed] = []
    # Moments at which something may begin: the start, and the end of each task.
    moments = [0]
    while moments:
        now = heapq.heappop(moments)
        for device in devices.values():
            if device.free > now:
                continue
            choice = device.waiting[:1] if strict else device.waiting
            task = next(
                (t for t in choice if all(ended.get(n, now + 1) <= now for n in t.needs)), None
            )
            if task is not None:
                device.waiting.remove(task)
                placed.append(Placed(task, Fraction(now, unit)))
                device.free = ended[task.name] = now + times[task.name]
                heapq.heappush(moments, device.free)
    for device in devices.values():
        for task in device.waiting:
            raise ValueError(f"task {task.name} can never begin: it waits for {task.needs}")
    return placed


def makespan(placed: Sequence[Placed]) -> Fraction:
    """When the last task is over."""
    return max(each.end for each in placed)
