"""One step of each method, and what it costs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from algorithms.adagp.layers import find_layers
from algorithms.adagp.trainer import AdaGPTrainer
from algorithms.braking.delay import AccumulatedGradients, DelayedGradients, pipeline_delays
from algorithms.braking.optimizer import BrakedSGD
from algorithms.common.ada_momentum import AdaMomentum
from algorithms.vcas.trainer import VCASTrainer
from golden.prediction.schedule import Phase

from .contestants import Contestant
from .costs import Costs

__all__ = ["Step", "TimedSchedule", "make_stepper"]

#: Trains one batch.
Stepper = Callable[[torch.Tensor, torch.Tensor], "Step"]

_MOMENTUM = 0.9
#: Batches of Phase GP for each of Phase BP behind the warm-up, each for an equal share of the time.
_LADDER = (4, 3, 2, 1)


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a batch has cost.

    Members
    -------
    macs : of the batch
    kind : "bp", or "gp" for a batch of Phase GP: batches of one kind take the machine the same time
    kept : what is worth keeping, numbers by name
    """

    macs: float
    kind: str = "bp"
    kept: dict[str, float] = field(default_factory=dict)


class TimedSchedule:
    """Phases by the share of the time that has gone: a warm-up, then 4, 3, 2 and 1 batches of Phase
    GP for each one of Phase BP.

    Members
    -------
    warm_up : share of the time
    gone : share of the time, to be set before every batch
    """

    def __init__(self, warm_up: float) -> None:
        self.warm_up, self.gone, self._since = warm_up, 0.0, 0

    def phase(self, epoch: int, batch: int) -> Phase:
        """Of the next batch, whatever its number."""
        if self.gone < self.warm_up:
            return Phase.WARM_UP
        share = (self.gone - self.warm_up) / (1 - self.warm_up)
        most = _LADDER[min(int(share * len(_LADDER)), len(_LADDER) - 1)]
        return Phase.GP if self._since < most else Phase.BP

    def over(self, phase: Phase) -> None:
        """A batch has been trained."""
        self._since = self._since + 1 if phase is Phase.GP else 0


def make_stepper(
    contestant: Contestant, model: nn.Module, costs: Costs, *, rate: float, schedule: TimedSchedule
) -> tuple[torch.optim.Optimizer, Stepper]:
    """The optimizer, whose rates may be changed between batches, and the step."""
    groups: Any = model.parameters()
    if contestant.head_rate != 1:
        head = set(_head(model).parameters())
        others = [parameter for parameter in model.parameters() if parameter not in head]
        groups = [{"params": others}, {"params": list(head), "lr": rate * contestant.head_rate}]
    optimizer = _optimizer(contestant, groups, rate)
    if contestant.predictor is not None:
        return optimizer, _adagp(contestant, model, costs, optimizer, schedule)
    if contestant.vcas is not None:
        return optimizer, _vcas(contestant, model, costs, optimizer)
    return optimizer, _backpropagation(contestant, model, costs, optimizer)


def _optimizer(contestant, groups, rate) -> torch.optim.Optimizer:
    if contestant.braking:
        return BrakedSGD(groups, rho=contestant.braking, lr=rate, momentum=_MOMENTUM)
    if contestant.optimizer == "adam":
        return torch.optim.Adam(groups, lr=rate)
    if contestant.optimizer == "adamomentum":
        return AdaMomentum(groups, lr=rate)
    return torch.optim.SGD(groups, lr=rate, momentum=_MOMENTUM)


def _delays(contestant, model):
    """By parameter where there are stages, of as many parameters as possible each."""
    parameters = list(model.parameters())
    if contestant.stages == 1:
        return contestant.delay
    count = contestant.stages
    cuts = [len(parameters) * number // count for number in range(count + 1)]
    return pipeline_delays([parameters[a:b] for a, b in pairwise(cuts)])


def _head(model):
    """The last linear layer."""
    _, (_, head) = find_layers(model, names=None, running=0.0, separate_head=True)
    return head


def _backpropagation(contestant, model, costs, optimizer):
    parameters = list(model.parameters())
    delayed = DelayedGradients(parameters, _delays(contestant, model))
    mean = AccumulatedGradients(parameters, contestant.accumulate)
    late = contestant.delay > 0 or contestant.stages > 1
    head = _head(model)
    features: dict[str, torch.Tensor] = {}
    if contestant.echo:
        head.register_forward_hook(lambda _, inputs, __: features.update(x=inputs[0].detach()))

    def step(images, labels):
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        own = [parameter.grad for parameter in parameters]
        delayed.exchange()
        kept = {"late": _cosine(own, [parameter.grad for parameter in parameters])} if late else {}
        if mean.add():
            optimizer.step()
        stored = features.pop("x", None)
        for _ in range(contestant.echo):
            optimizer.zero_grad(set_to_none=True)
            logits = functional.linear(stored, head.weight, head.bias)
            functional.cross_entropy(logits, labels).backward()
            optimizer.step()
        macs = costs.batch(len(images)) + costs.head(len(images), contestant.echo)
        return Step(macs=macs, kept=kept)

    return step


def _cosine(own, late) -> float:
    """Of all gradients together, those of parameters that have both; NaN if none has."""
    pairs = [(a.flatten(), b.flatten()) for a, b in zip(own, late, strict=True)
             if a is not None and b is not None]  # fmt: skip
    if not pairs:
        return math.nan
    one, other = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    return float(functional.cosine_similarity(one, other, dim=0))


def _adagp(contestant, model, costs, optimizer, schedule):
    config = contestant.predictor
    trainer = AdaGPTrainer(model, optimizer, predictor=config, schedule=schedule)

    def step(images, labels):
        result = trainer.step(images, labels)
        schedule.over(result.phase)
        count, predictor = len(images), costs.predictor(config)
        if result.phase is Phase.GP:
            macs = costs.forward(count) + costs.head_gradient(count) + predictor
            return Step(macs=macs, kind="gp")
        values = [layer.cosine for layer in result.layers.values() if layer.cosine is not None]
        kept = {"cosine": sum(values) / len(values)} if values else {}
        # The predictor learns: its forward pass, and the gradients of its weights and of its maps.
        return Step(macs=costs.batch(count) + 3 * predictor, kept=kept)

    return step


def _vcas(contestant, model, costs, optimizer):
    trainer = VCASTrainer(model, optimizer, config=contestant.vcas)

    def step(images, labels):
        result = trainer.step(images, labels)
        count = len(images)
        macs = result.forward_passes * costs.forward(count)
        macs += sum(costs.backward(count, shares) for shares in result.backward_passes)
        own = costs.backward(count, result.backward_passes[0]) / costs.backward(count)
        return Step(macs=macs, kept={"backward": own, "norm": trainer.controller.norm})

    return step
