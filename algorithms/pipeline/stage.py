"""ADA-GP for one stage of a pipeline, whose batches come in micro-batches."""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from algorithms.adagp.reorganize import reorganize
from algorithms.adagp.trainer import AdaGPTrainer
from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import ScheduleConfig

__all__ = ["StageTrainer"]


class StageTrainer(AdaGPTrainer):
    """What a stage does beside passing micro-batches on: it predicts, learns and updates itself.

    ::

        with trainer.micro_batches():
            ...                                 # forward and, in Phase BP, backward passes
        trainer.finish(outputs, targets)        # in Phase GP of the last stage, else nothing

    Every stage has a predictor of its own, shared by its layers: that of a whole network would have
    to be sent around in every batch. With one stage and one micro-batch the results are those of
    :class:`algorithms.adagp.trainer.AdaGPTrainer`, bit for bit.

    The predictor sees the mean of what it would see of every micro-batch. Gradients are means over
    the micro-batches, as ``torch.distributed.pipelining`` leaves them.

    Parameters
    ----------
    module : the stage
    optimizer : over its parameters
    predictor : None for backpropagation alone; batches of Phase GP are then skipped
    schedule : of phases
    last : whether it is the last stage, which may have a head

    Raises
    ------
    ValueError
        as AdaGPTrainer.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        predictor: PredictorConfig | None,
        schedule: ScheduleConfig,
        last: bool,
    ) -> None:
        if predictor is not None and not last:
            predictor = dataclasses.replace(predictor, head="predicted")
        super().__init__(module, optimizer, predictor=predictor, schedule=schedule)
        self._maps: dict[int, list[torch.Tensor]] = {}
        self._features: list[torch.Tensor] = []

    @contextmanager
    def micro_batches(self) -> Iterator[None]:
        """The forward passes inside are those of one batch."""
        self._maps, self._features = {}, []
        self.model.zero_grad(set_to_none=True)

        def watch(layer):
            def hook(module, inputs, outputs):
                maps = reorganize(
                    layer.maps(outputs), bias=module.bias, map_size=self.config.map_size
                )
                self._maps.setdefault(layer.number, []).append(maps)

            return hook

        handles = [layer.module.register_forward_hook(watch(layer)) for layer in self.layers]
        if self.head is not None and self.config.head == "exact":
            handles.append(
                self.head[1].register_forward_hook(
                    lambda module, inputs, outputs: self._features.append(inputs[0].detach())
                )
            )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def finish(
        self, outputs: Sequence[torch.Tensor] = (), targets: Sequence[torch.Tensor] = ()
    ) -> None:
        """Update the stage: the batch has passed it."""
        if self.phase.backpropagates:
            for number in reversed(self._maps):
                if self.layers[number].module.weight.grad is not None:
                    self._learn(self.layers[number], self._mean(number))
            self.optimizer.step()
        elif self.source is not None:
            with torch.no_grad():
                self._finish_prediction(outputs, targets)
        self.batch += 1

    def _finish_prediction(self, outputs, targets):
        held: list[str] = []
        for number in self._maps:
            self._set_guess(self.layers[number], self._mean(number), held)
        if self._features:
            each = [
                self._head_gradients(*parts)
                for parts in zip(self._features, outputs, targets, strict=True)
            ]
            self._set_head([sum(parts) / len(each) for parts in zip(*each, strict=True)])
        self.optimizer.step()

    def _mean(self, number):
        return torch.stack(self._maps[number]).mean(0)
