"""Gradients that come some steps late, as in a pipeline that is never emptied."""

from collections import deque
from collections.abc import Mapping, Sequence

import torch

__all__ = ["AccumulatedGradients", "DelayedGradients", "pipeline_delays"]


class DelayedGradients:
    """Exchanges each gradient for the one of ``delay`` steps before.

    A gradient is computed whole, with the weights of its own step, and applied later: the delay of
    a pipeline that keeps the weights of every batch under way.

    Parameters
    ----------
    parameters : of a model
    delay : steps, for all parameters, or by parameter

    Raises
    ------
    ValueError
        for a delay below 0.
    """

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        delay: int | Mapping[torch.nn.Parameter, int],
    ) -> None:
        self._parameters = list(parameters)
        self._delays = [
            delay[parameter] if isinstance(delay, Mapping) else delay
            for parameter in self._parameters
        ]
        if min(self._delays) < 0:
            raise ValueError(f"delay must be at least 0, not {min(self._delays)}")
        self._waiting: list[deque] = [deque() for _ in self._parameters]

    def exchange(self) -> None:
        """Call it between ``backward`` and the optimizer's step. Where no gradient is old enough
        the parameter has none then, and the optimizer leaves it alone."""
        for parameter, delay, waiting in zip(
            self._parameters, self._delays, self._waiting, strict=True
        ):
            gradient = parameter.grad
            waiting.append(None if gradient is None else gradient.detach().clone())
            parameter.grad = waiting.popleft() if len(waiting) > delay else None


class AccumulatedGradients:
    """Averages the gradients of several batches, so that late ones are fewer updates late.

    Parameters
    ----------
    parameters : of a model
    batches : for one update; a parameter without a gradient in one of them counts as zero there
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], batches: int) -> None:
        self._parameters, self._batches, self._seen = list(parameters), batches, 0
        self._sums: list[torch.Tensor | None] = [None] * len(self._parameters)

    def add(self) -> bool:
        """Call it when gradients are there. Whether it is time for the optimizer's step; the
        gradients are the means then."""
        if self._batches == 1:
            return True
        for number, parameter in enumerate(self._parameters):
            if parameter.grad is not None:
                part = parameter.grad / self._batches
                old = self._sums[number]
                self._sums[number] = part if old is None else old + part
        self._seen = (self._seen + 1) % self._batches
        if self._seen:
            return False
        for number, parameter in enumerate(self._parameters):
            parameter.grad, self._sums[number] = self._sums[number], None
        return True


def pipeline_delays(
    stages: Sequence[Sequence[torch.nn.Parameter]],
) -> dict[torch.nn.Parameter, int]:
    """Delay of every parameter in a pipeline of ``stages`` without barriers: between a batch's
    forward and backward pass of stage i of S lie 2 (S − 1 − i) steps of that stage."""
    last = len(stages) - 1
    return {
        parameter: 2 * (last - number)
        for number, parameters in enumerate(stages)
        for parameter in parameters
    }
