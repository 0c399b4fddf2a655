"""The process of one stage."""

import json
import os
import traceback
from pathlib import Path

import torch
from torch import distributed
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from algorithms.common.checkpoints import read_checkpoint
from algorithms.common.float_training import one_thread
from cli.atomic_files import replacing, write_whole

from .late import late_epoch
from .partition import example
from .plan import PipelinePlan
from .trace import Trace

__all__ = ["PEER_LOST", "checkpoint_path", "run_stage"]

#: Exit status of a process that ended because another one did.
PEER_LOST = 4
_SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def checkpoint_path(directory: Path, epoch: int, stage: int) -> Path:
    """Where a stage lies behind so many epochs."""
    return directory / f"epoch{epoch}-stage{stage}.pt"


def run_stage(plan: PipelinePlan, number: int, directory: Path, store: Path, epoch: int) -> None:
    """Train a stage from ``epoch`` on, with the other processes; leaves checkpoints and a trace.

    Parameters
    ----------
    store : file through which the processes find each other
    epoch : whose checkpoint is there; 0 for none

    A fault is written to ``stage<N>.log`` and ends the process, with status ``PEER_LOST`` if it is
    that another process is gone.
    """
    # Nothing leaves this machine.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = "nccl" if plan.device == "cuda" else "gloo"
    try:
        if plan.device == "cuda":
            torch.cuda.set_device(number)
        with one_thread():
            distributed.init_process_group(
                backend, init_method=f"file://{store}", rank=number, world_size=plan.stages
            )
            _train(plan, number, directory, epoch)
            distributed.destroy_process_group()
    except Exception as error:
        write_whole(directory / f"stage{number}.log", traceback.format_exc())
        lost = isinstance(error, distributed.DistError) or "Connection" in str(error)
        os._exit(PEER_LOST if lost else 1)


def _train(plan, number, directory, epoch):
    data = plan.load()
    stages = plan.build(data)
    shapes = _shapes(stages, number, data, plan.batch // plan.micro_batches)
    stages[number].to(plan.place(number))
    trainer, trace = plan.trainer(stages, number), Trace()
    if epoch:
        trainer.load_state_dict(read_checkpoint(checkpoint_path(directory, epoch, number)))
    late = plan.schedule == "async"
    step = None if late else _Synchronous(plan, stages, trainer, trace, number, shapes)
    for current in range(epoch, plan.epochs):
        trace.epoch = current
        batches = plan.batches(data, current)
        if step is None:
            late_epoch(plan, stages, number, trainer, trace, batches)
        else:
            for trace.batch, (images, labels) in enumerate(batches):
                step(images, labels)
        trainer.end_epoch()
        with replacing(checkpoint_path(directory, current + 1, number)) as file:
            torch.save(trainer.state_dict(), file)
        write_whole(
            directory / f"epoch{current + 1}-stage{number}.json", json.dumps(trace.as_json())
        )
        trace.passes.clear()
        # All stages have this checkpoint: older ones are of no use.
        distributed.barrier()
        if current:
            checkpoint_path(directory, current, number).unlink(missing_ok=True)


class _Synchronous:
    """Batches of a pipeline that is empty between batches of backpropagation. A batch of Phase GP
    is followed at once: each stage goes on when it has done with it."""

    def __init__(self, plan, stages, trainer, trace, number, shapes):
        self.plan, self.trainer, self.trace = plan, trainer, trace
        self.first, self.last = number == 0, number == len(stages) - 1
        self.place = plan.place(number)
        inputs, outputs = (each.to(self.place) for each in shapes)
        schedule = _SCHEDULES[plan.schedule]

        def pipeline(kind, loss):
            stage = PipelineStage(
                trainer.model, number, len(stages), self.place,
                input_args=inputs, output_args=outputs,
            )  # fmt: skip
            _watch(stage, trace)
            return kind(stage, plan.micro_batches, loss_fn=loss)

        self.backward = pipeline(schedule, plan.loss)
        self.forward = pipeline(ScheduleGPipe, None)

    def __call__(self, images, labels):
        plan, trainer = self.plan, self.trainer
        backward = trainer.phase.backpropagates
        self.trace.kind = "forward" if backward else "GP"
        arguments = (images.to(self.place),) if self.first else ()
        labels = labels.to(self.place)
        with trainer.micro_batches():
            if backward:
                losses: list = []
                target = {"target": labels, "losses": losses} if self.last else {}
                self.backward.step(*arguments, **target)
                finish = ()
            else:
                with torch.no_grad():
                    outputs = self.forward.eval(*arguments)
                finish = (
                    (outputs.chunk(plan.micro_batches), labels.chunk(plan.micro_batches))
                    if self.last
                    else ()
                )
        trainer.finish(*finish)


def _watch(stage, trace):
    """Note every pass."""
    forward, backward = stage.forward_one_chunk, stage.backward_one_chunk

    def forward_one_chunk(number, *arguments, **options):
        return trace.note(
            lambda: forward(number, *arguments, **options), backward=False, number=number
        )

    def backward_one_chunk(number, *arguments, **options):
        if not stage.has_backward:  # called in Phase GP, too, where it does nothing
            return None
        return trace.note(
            lambda: backward(number, *arguments, **options), backward=True, number=number
        )

    stage.forward_one_chunk, stage.backward_one_chunk = forward_one_chunk, backward_one_chunk


def _shapes(stages, number, data, size):
    """Examples of what a stage is given and gives."""
    images = size, *data.train_images.shape[1:]
    inputs, outputs = (example(stages[:end], images) for end in (number, number + 1))
    return inputs.requires_grad_(number > 0), outputs.requires_grad_()
