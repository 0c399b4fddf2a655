"""A network cut into stages."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import nn

__all__ = ["Segment", "cut", "even_runs", "example"]


class _Contiguous(torch.autograd.Function):
    """The same numbers in the usual order of memory, in both directions: what can be sent."""

    @staticmethod
    def forward(context, values):
        return values.contiguous() if not values.is_contiguous() else values.view_as(values)

    @staticmethod
    def backward(context, gradient):
        return gradient.contiguous()


class Segment(nn.Sequential):
    """Layers of one stage. What goes in and out, and its gradients, are contiguous in memory."""

    def forward(self, x):
        """As nn.Sequential."""
        return _Contiguous.apply(super().forward(_Contiguous.apply(x)))


def even_runs(weights: Sequence[int], count: int) -> list[range]:
    """Cut a list into ``count`` runs, none of them empty, whose greatest sum is least.

    Raises
    ------
    ValueError
        if there are fewer weights than runs.
    """
    if len(weights) < count:
        raise ValueError(f"stages must be at most {len(weights)}, not {count}")
    sums = [0, *accumulate(weights)]
    # best[n]: least greatest sum of the first n weights, and where the last run begins.
    best = [(sums[end], 0) for end in range(len(sums))]
    choices = [best]
    for runs in range(2, count + 1):
        best = [
            min(
                ((max(best[at][0], sums[end] - sums[at]), at) for at in range(runs - 1, end)),
                default=(sums[-1] + 1, 0),
            )
            for end in range(len(sums))
        ]
        choices.append(best)
    found, end = [], len(weights)
    for best in reversed(choices):
        begin = best[end][1]
        found.append(range(begin, end))
        end = begin
    return found[::-1]


def cut(model: nn.Sequential, stages: int, inputs: torch.Tensor) -> list[Segment]:
    """Runs of the layers of ``model``, the same modules, as even in time as they can be.

    A layer's time is that of its multiply-accumulates on ``inputs``, and one for each of its
    outputs besides. Every stage begins with a convolution, a linear layer or a block of them; the
    last one has another of these beside the head.

    Raises
    ------
    ValueError
        for a model that is no ``nn.Sequential``, has a layer that draws random numbers, or has too
        few layers.
    """
    if not isinstance(model, nn.Sequential) or type(model).forward is not nn.Sequential.forward:
        raise ValueError(
            "model must be an nn.Sequential, whose layers a pipeline can cut between, "
            f"not {type(model).__name__}"
        )
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p:
            raise ValueError(
                f"layer {name} draws random numbers, which differ from process to process; "
                "give it p=0"
            )
    groups: list[list[nn.Module]] = [[]]
    for layer in model:
        if _has_products(layer) and any(map(_has_products, groups[-1])):
            groups.append([])
        groups[-1].append(layer)
    if len(groups) > 1:
        groups[-2:] = [[*groups[-2], *groups[-1]]]
    costs = _costs(model, groups, inputs)
    return [
        Segment(*(layer for index in run for layer in groups[index]))
        for run in even_runs(costs, stages)
    ]


@torch.no_grad()
def example(stages: Sequence[nn.Module], shape: Sequence[int]) -> torch.Tensor:
    """What stages, which are in training, make of images of zeros; their statistics stay."""
    values = torch.zeros(*shape)
    for stage in stages:
        values = stage.eval()(values)
        stage.train()
    return values


def _has_products(layer):
    return any(isinstance(module, nn.Conv2d | nn.Linear) for module in layer.modules())


@torch.no_grad()
def _costs(model, groups, inputs):
    """MACs and outputs of each group of layers."""
    costs = {}
    handles = []
    for number, group in enumerate(groups):
        for layer in group:
            for module in layer.modules():
                if not list(module.children()):

                    def count(module, _, outputs, number=number):
                        weight = getattr(module, "weight", None)
                        each = weight[0].numel() if weight is not None and weight.dim() > 1 else 0
                        costs[number] = costs.get(number, 0) + outputs.numel() * (each + 1)

                    handles.append(module.register_forward_hook(count))
    training = model.training
    try:
        model.eval()(inputs)
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return [costs[number] for number in range(len(groups))]
