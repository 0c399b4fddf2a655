"""The same training in one process: what the weights of a pipeline must be."""

import torch
from torch import nn

from algorithms.braking.delay import DelayedGradients
from algorithms.common.float_training import one_thread

from .partition import Segment
from .plan import PipelinePlan

__all__ = ["train_single"]


def train_single(plan: PipelinePlan) -> list[Segment]:
    """Train all stages, one after the other; returns them."""
    with one_thread():
        data = plan.load()
        stages = plan.build(data)
        trainers = [plan.trainer(stages, number) for number in range(plan.stages)]
        for epoch in range(plan.epochs):
            batches = plan.batches(data, epoch)
            if plan.schedule == "async":
                _late(plan, stages, trainers, batches)
            else:
                for images, labels in batches:
                    _batch(plan, trainers, images, labels)
            for trainer in trainers:
                trainer.end_epoch()
    return stages


def _batch(plan, trainers, images, labels):
    """One batch in micro-batches, stage by stage."""
    backward = trainers[0].phase.backpropagates
    inputs = list(images.chunk(plan.micro_batches))
    targets = labels.chunk(plan.micro_batches)
    with torch.set_grad_enabled(backward):
        for trainer in trainers:
            with trainer.micro_batches():
                inputs = [trainer.model(each) for each in inputs]
    if backward:
        for outputs, target in zip(inputs, targets, strict=True):
            plan.loss(outputs, target).backward()
        for trainer in trainers:
            for parameter in trainer.model.parameters():
                parameter.grad.div_(plan.micro_batches)
    for trainer in trainers:
        last = trainer is trainers[-1]
        trainer.finish(*((inputs, targets) if last and not backward else ()))


def _late(plan, stages, trainers, batches):
    """An epoch without micro-batches, every stage's gradients late by its own number of batches;
    at the end the last ones are applied, too."""
    delays = plan.delays(stages)
    late = {
        parameter: delay
        for stage, delay in zip(stages, delays, strict=True)
        for parameter in stage.parameters()
    }
    gradients = DelayedGradients(list(late), late)
    model = nn.Sequential(*stages)
    for images, labels in batches:
        model.zero_grad(set_to_none=True)
        plan.loss(model(images), labels).backward()
        gradients.exchange()
        _step(trainers)
    for _ in range(max(delays)):
        model.zero_grad(set_to_none=True)
        gradients.exchange()
        _step(trainers)


def _step(trainers):
    for trainer in trainers:
        trainer.optimizer.step()
