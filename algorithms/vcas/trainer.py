"""Training with VCAS, batch by batch."""

from collections import deque
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from .controller import Controller, VCASConfig
from .layers import SampledLayer, sampled_layers, sampling

__all__ = ["Shares", "StepResult", "VCASTrainer"]


@dataclass(frozen=True, kw_only=True)
class Shares:
    """What a backward pass has computed of a layer, from 0 to 1.

    Members
    -------
    input_gradient : images; 0 where none is needed
    weight_gradient : rows
    """

    input_gradient: float
    weight_gradient: float


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a step has done.

    Members
    -------
    loss : of the batch
    forward_passes : one, and those of a measurement
    backward_passes : by layer, shares of each: of the step, then of a measurement
    """

    loss: float
    forward_passes: int
    backward_passes: tuple[dict[str, Shares], ...]


class VCASTrainer:
    """Trains a module whose backward passes work on samples.

    Every ``config.every`` steps it measures: with the batch of the step and the batches before it,
    at the weights of now, it computes exact gradients and sampled ones, and the controller changes
    the ratios. Nothing is sampled before the first measurement that finds room for it. Biases and
    normalisation get their gradients from the images that are kept.

    Parameters
    ----------
    model : on one device; its Conv2d and Linear layers are sampled, each executed once; the first
        dimension of what they are given is that of the images or sentences
    optimizer : of torch, over the model's parameters
    config : VCASConfig
    loss : function of the model's output and the targets, a mean over the batch

    Members
    -------
    layers : :class:`~algorithms.vcas.layers.SampledLayer` from the input to the loss; known after
        the first step
    controller : None before it

    Raises
    ------
    ValueError
        as :func:`algorithms.vcas.layers.sampled_layers`, and in a step if a layer is executed
        twice or not at all.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        config: VCASConfig = VCASConfig(),  # noqa: B008 (immutable)
        loss=functional.cross_entropy,
    ) -> None:
        self.model, self.optimizer, self.config, self.loss = model, optimizer, config, loss
        self.layers: list[SampledLayer] = sampled_layers(model)
        for layer in self.layers:
            layer.ratio, layer.weights_ratio = config.ratio, config.weights_ratio
        self.controller: Controller | None = None
        self.count = 0
        self._batches: deque = deque(maxlen=config.repetitions)

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> StepResult:
        """Train on one batch."""
        loss = self._forward(inputs, targets)
        passes = [self._backward(loss)]
        self.optimizer.step()
        forward = 1
        self._batches.append((inputs, targets))
        self.count += 1
        if self.count % self.config.every == 0 and len(self._batches) == self.config.repetitions:
            passes += self._measure()
            forward += len(self._batches)
        return StepResult(loss=loss.item(), forward_passes=forward, backward_passes=tuple(passes))

    def _forward(self, inputs, targets):
        with sampling(self.layers) as executed:
            loss = self.loss(self.model(inputs), targets)
        if self.controller is None:
            if len(executed) != len(self.layers) or set(executed) != set(self.layers):
                names = [layer.name for layer in self.layers if executed.count(layer) != 1]
                raise ValueError(f"each layer must be executed once, not {', '.join(names)}")
            self.layers = executed
            self.controller = Controller(executed, self.config)
        return loss

    def _backward(self, loss, **options):
        self.model.zero_grad(set_to_none=True)
        loss.backward(**options)
        return {
            layer.name: Shares(
                input_gradient=layer.images if layer.input_gradient else 0.0,
                weight_gradient=layer.rows,
            )
            for layer in self.layers
        }

    def _measure(self):
        """Shares of its backward passes."""
        exact, sampled, norms, passes = [], [], [], []
        sums = dict.fromkeys((layer.name for layer in self.layers), 0.0)
        kept = [(layer, layer.ratio) for layer in self.layers]
        kinds = (nn.BatchNorm1d, nn.BatchNorm2d)
        normalized = [module for module in self.model.modules() if isinstance(module, kinds)]
        momenta = [module.momentum for module in normalized]
        for module in normalized:
            module.momentum = 0.0  # batches that were there before leave the statistics alone
        try:
            for inputs, targets in self._batches:
                loss = self._forward(inputs, targets)
                for layer, _ in kept:
                    layer.ratio, layer.sample_weights = 1.0, False
                passes.append(self._backward(loss, retain_graph=True))
                exact.append(self._gradients())
                norms.append({layer.name: layer.norms for layer in self.layers})
                samples = []
                for _ in range(self.config.repetitions):
                    for layer, ratio in kept:
                        layer.ratio = ratio
                    passes.append(self._backward(loss, retain_graph=True))
                    samples.append(self._gradients())
                    for layer, _ in kept:
                        sums[layer.name] += layer.variance
                sampled.append(samples)
        finally:
            for module, momentum in zip(normalized, momenta, strict=True):
                module.momentum = momentum
            for layer, ratio in kept:
                layer.ratio, layer.sample_weights = ratio, True
            self.model.zero_grad(set_to_none=True)
        number = len(sampled) * self.config.repetitions
        self.controller.adjust(
            exact, sampled, norms, {name: total / number for name, total in sums.items()}
        )
        return passes

    def _gradients(self):
        return {layer.name: layer.module.weight.grad.clone() for layer in self.layers}
