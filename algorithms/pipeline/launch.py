"""Starts the processes of a pipeline and watches over them."""

import multiprocessing
import multiprocessing.connection
import signal
import tempfile
from pathlib import Path

import torch

from .partition import Segment
from .plan import PipelinePlan
from .worker import PEER_LOST, checkpoint_path, run_stage

__all__ = ["PipelineError", "finished_epochs", "read_stages", "train_pipeline"]


class PipelineError(RuntimeError):
    """A process has ended; the message says which one, why, and where training goes on."""


def finished_epochs(plan: PipelinePlan, directory: Path) -> int:
    """Epochs behind which all stages have left a checkpoint; 0 for none."""
    for epoch in range(plan.epochs, 0, -1):
        if all(checkpoint_path(directory, epoch, n).is_file() for n in range(plan.stages)):
            return epoch
    return 0


def train_pipeline(plan: PipelinePlan, directory: Path, *, started=lambda processes: None) -> None:
    """Train in a process for every stage, from the last checkpoint in ``directory`` on.

    ``started`` is called with the processes.

    Raises
    ------
    PipelineError
        if a process ends early; the others are ended, too.
    """
    directory.mkdir(parents=True, exist_ok=True)
    epoch = finished_epochs(plan, directory)
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
            _watch(processes, plan, directory)
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
            for process in processes:
                process.join()


def _watch(processes, plan, directory):
    running = {process.sentinel: number for number, process in enumerate(processes)}
    while running:
        for sentinel in multiprocessing.connection.wait(list(running)):
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
    epoch = finished_epochs(plan, directory)
    place = f"after epoch {epoch}" if epoch else "from the start"
    return f"stage {number} of {plan.stages} {why}; the same command goes on {place}"


def read_stages(plan: PipelinePlan, directory: Path) -> list[Segment]:
    """The trained stages."""
    stages = plan.build(plan.load())
    for number in range(plan.stages):
        state = torch.load(checkpoint_path(directory, plan.epochs, number), weights_only=True)
        plan.trainer(stages, number).load_state_dict(state)
    return stages
