"""Starts the processes of a pipeline and watches over them."""

import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from algorithms.common.checkpoints import read_checkpoint
from cli.atomic_files import write_whole

from .partition import Segment
from .plan import PipelinePlan
from .worker import PEER_LOST, checkpoint_path, run_stage

__all__ = ["PipelineError", "finished_epochs", "read_stages", "train_pipeline"]

#: Of the training that a directory holds.
_SETTINGS = "settings.json"
#: Seconds between two looks at how far it is.
_POLL = 0.5


class PipelineError(RuntimeError):
    """A process has ended; the message says which one, why, and where training goes on."""


def finished_epochs(plan: PipelinePlan, directory: Path) -> int:
    """Epochs behind which all stages have left a checkpoint; 0 for none.

    Raises
    ------
    ValueError
        if what lies in the directory is of other settings, which it names.
    """
    _require_own(plan, directory)
    return _last_epoch(plan, directory)


def _require_own(plan, directory):
    if not any(directory.glob("epoch*-stage*.pt")):
        return
    path = directory / _SETTINGS
    try:
        kept = dict(json.loads(path.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        raise ValueError(
            f"{directory} holds checkpoints, but {path} does not say of what"
        ) from None
    other = [
        f"{name} {kept.get(name)!r}, not {own!r}"
        for name, own in _settings(plan).items()
        if kept.get(name) != own
    ]
    if other:
        raise ValueError(
            f"{directory} holds a training with {'; '.join(other)}; delete it or choose another "
            "directory"
        )


def _last_epoch(plan, directory):
    for epoch in range(plan.epochs, 0, -1):
        if all(checkpoint_path(directory, epoch, n).is_file() for n in range(plan.stages)):
            return epoch
    return 0


def train_pipeline(
    plan: PipelinePlan,
    directory: Path,
    *,
    started: Callable[[list], object] = lambda processes: None,
    progress: Callable[[int], object] = lambda epochs: None,
) -> None:
    """Train in a process for every stage, from the last checkpoint in ``directory`` on.

    ``started`` is called with the processes, ``progress`` now and then with the number of whole
    epochs that are done.

    Raises
    ------
    PipelineError
        if a process ends early; the others are ended, too.
    ValueError
        as finished_epochs.
    """
    epoch = finished_epochs(plan, directory)
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(directory / _SETTINGS, json.dumps(_settings(plan), indent=1) + "\n")
    if epoch == plan.epochs:
        return
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        store = Path(place) / "store"
        processes = [
            context.Process(
                target=run_stage, args=(plan, number, directory, store, epoch), daemon=True
            )
            for number in range(plan.stages)
        ]
        try:
            for process in processes:
                process.start()
            started(processes)
            _watch(processes, plan, directory, progress)
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
            for process in processes:
                process.join()


def _watch(processes, plan, directory, progress):
    running = {process.sentinel: number for number, process in enumerate(processes)}
    while running:
        ended = multiprocessing.connection.wait(list(running), timeout=_POLL)
        progress(_last_epoch(plan, directory))
        for sentinel in ended:
            number = running.pop(sentinel)
            processes[number].join()
            if processes[number].exitcode:
                # Others notice that it is gone: which was the first?
                for process in processes:
                    process.join(2)
                raise PipelineError(_message(processes, plan, directory))


def _message(processes, plan, directory):
    ended = {number: process.exitcode for number, process in enumerate(processes)}
    number, code = next(
        ((n, code) for n, code in ended.items() if code not in (None, 0, PEER_LOST)),
        next((n, code) for n, code in ended.items() if code),
    )
    why = (
        f"was ended by {signal.Signals(-code).name}"
        if code < 0
        else f"failed: see {directory / f'stage{number}.log'}"
    )
    epoch = _last_epoch(plan, directory)
    place = f"after epoch {epoch}" if epoch else "from the start"
    return f"stage {number} of {plan.stages} {why}; the same command goes on {place}"


def _settings(plan):
    """As JSON gives them back."""
    return json.loads(json.dumps(dataclasses.asdict(plan) | {"torch": torch.__version__}))


def read_stages(plan: PipelinePlan, directory: Path) -> list[Segment]:
    """The trained stages.

    Raises
    ------
    ValueError
        naming a checkpoint that is damaged.
    """
    stages = plan.build(plan.load())
    for number in range(plan.stages):
        state = read_checkpoint(checkpoint_path(directory, plan.epochs, number))
        plan.trainer(stages, number).load_state_dict(state)
    return stages
