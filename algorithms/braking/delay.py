"""Gradients that come some steps late, as in a pipeline that is never emptied."""

from collections import deque
from collections.abc import Mapping, Sequence

import torch

__all__ = ["DelayedGradients", "pipeline_delays"]


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
