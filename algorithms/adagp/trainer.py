"""ADA-GP for any torch module: training that skips backpropagation by predicting gradients.

The method of "ADA-GP: Accelerating DNN Training By Adaptive Gradient Prediction" (MICRO 2023) in
float32. docs/algorithm.md defines every step and says what is ours.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional

from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import Phase, ScheduleConfig

from .layers import LayerResult, find_layers, measure
from .reorganize import reorganize
from .sources import make_source

__all__ = ["AdaGPTrainer", "BatchResult", "Phase", "PredictorConfig", "ScheduleConfig"]


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchResult:
    """What one batch did.

    Members
    -------
    phase : :class:`golden.prediction.schedule.Phase`
    loss : of the batch; None in Phase GP
    outputs : of the model, without a gradient; None where the batch was skipped
    layers : how good the guesses were, by layer; empty in Phase GP
    held : layers that Phase GP did not update, since they had no guess or one that is not finite
    """

    phase: Phase
    loss: float | None = None
    outputs: torch.Tensor | None = None
    layers: dict[str, LayerResult] = field(default_factory=dict)
    held: tuple[str, ...] = ()


class AdaGPTrainer:
    """Trains a module batch by batch, as the schedule says.

    ::

        trainer = AdaGPTrainer(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
        for epoch in range(epochs):
            for images, labels in batches:
                result = trainer.step(images, labels)
            trainer.end_epoch()

    Phase BP and warm-up are ordinary training: the weights get the same bits as without ADA-GP, and
    the predictor learns beside it. Phase GP runs forward only; weights of predicted layers get
    predicted gradients, the head its true one, and every other parameter is left as it is. The
    model runs in the mode it is in; ``model.train()`` is the caller's.

    Parameters
    ----------
    model : any module, on one device; the weights of its Conv2d and Linear layers are predicted.
        Each may run once in a forward pass.
    optimizer : of torch, over the model's parameters; it has to leave parameters without a gradient
        alone, as those of torch do
    predictor : :class:`golden.prediction.config.PredictorConfig`; None to skip the batches of Phase
        GP
    schedule : :class:`golden.prediction.schedule.ScheduleConfig`
    loss : function of the model's output and the targets, a scalar
    layers : names of the layers to predict, None for all

    Members
    -------
    epoch, batch : those of the next batch, from 0; the batch within its epoch
    source : :mod:`algorithms.adagp.sources`; None without a predictor
    layers : :class:`algorithms.adagp.layers.Layer`, without an exact or held head

    Raises
    ------
    ValueError
        for layers that cannot be predicted, each with its name.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        predictor: PredictorConfig | None = PredictorConfig(),  # noqa: B008 (immutable)
        schedule: ScheduleConfig = ScheduleConfig(),  # noqa: B008
        loss=functional.cross_entropy,
        layers=None,
    ):
        self.model, self.optimizer = model, optimizer
        self.config, self.schedule, self.loss = predictor, schedule, loss
        self.epoch = self.batch = 0
        self.layers, self.head, self.source = [], None, None
        if predictor is not None:
            self.layers, self.head = find_layers(
                model,
                names=layers,
                running=predictor.running,
                separate_head=predictor.head != "predicted",
            )
            device = self.layers[0].module.weight.device
            self.source = make_source([layer.shape for layer in self.layers], predictor).to(device)
            self.source.begin_epoch(0)

    @property
    def phase(self) -> Phase:
        """What the next batch does."""
        return self.schedule.phase(self.epoch, self.batch)

    def step(self, inputs, targets) -> BatchResult:
        """Train on one batch.

        Raises
        ------
        ValueError
            if a layer runs twice, or if the model's output is not that of the exact head.
        """
        if self.phase.backpropagates:
            result = self._backpropagate(inputs, targets)
        elif self.source is None:
            result = BatchResult(phase=self.phase)
        else:
            result = self._predict(inputs, targets)
        self.batch += 1
        return result

    def end_epoch(self) -> None:
        """Go on to the next epoch."""
        self.epoch, self.batch = self.epoch + 1, 0
        if self.source is not None:
            self.source.begin_epoch(self.epoch)

    def _backpropagate(self, inputs, targets):
        self.model.zero_grad(set_to_none=True)
        seen = []
        with self._watching(lambda layer, maps: seen.append((layer, maps))) as head:
            outputs = self.model(inputs)
        self._check_head(outputs, head)
        loss = self.loss(outputs, targets)
        loss.backward()
        results = {}
        for layer, maps in reversed(seen):
            if layer.module.weight.grad is not None:
                results[layer.name] = self._learn(layer, maps)
        self.optimizer.step()
        return BatchResult(
            phase=self.phase, loss=loss.item(), outputs=outputs.detach(), layers=results
        )

    def _learn(self, layer, maps):
        gradient = layer.module.weight.grad.detach().reshape(layer.shape)
        guess = self.source.guess(layer.number, maps)
        if guess is None:
            guess = torch.zeros_like(gradient)
        layer.gate.observe(guess, gradient)
        result = measure(guess, gradient, layer.gate.value)
        self.source.learn(layer.number, maps, gradient)
        return result

    @torch.no_grad()
    def _predict(self, inputs, targets):
        self.model.zero_grad(set_to_none=True)
        held = []
        # The weight may change only after the whole batch has used it: the optimizer steps when
        # all layers have run, which gives the same bits as layer by layer.
        with self._watching(lambda layer, maps: self._set_guess(layer, maps, held)) as head:
            outputs = self.model(inputs)
        self._check_head(outputs, head)
        if head:
            self._set_head(self._head_gradients(head["features"], outputs, targets))
        self.optimizer.step()
        return BatchResult(phase=self.phase, outputs=outputs, held=tuple(held))

    def _set_guess(self, layer, maps, held):
        """The predicted gradient becomes that of the weight; a layer without one joins ``held``."""
        guess = self.source.guess(layer.number, maps)
        if guess is not None and self.config.gate:
            guess = guess * layer.gate.value
        if guess is None or not bool(torch.isfinite(guess).all()):
            held.append(layer.name)
        else:
            layer.module.weight.grad = guess.reshape(layer.module.weight.shape).clone()

    def _check_head(self, outputs, head):
        if head and _identity(outputs) != head["identity"]:
            raise ValueError(
                f"head='exact' needs the output of the last linear layer, {self.head[0]}, to be "
                "that of the model; set PredictorConfig.head to 'predicted' or 'held'"
            )

    def _head_gradients(self, features, outputs, targets):
        """Those of the last linear layer's weight and bias, from the loss alone: δᵀ x, Σ δ."""
        head = self.head[1]
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            (delta,) = torch.autograd.grad(self.loss(leaf, targets), leaf)
        delta = delta.reshape(-1, head.out_features)
        return delta.T @ features.reshape(-1, head.in_features), delta.sum(0)

    def _set_head(self, gradients):
        for parameter, gradient in zip(("weight", "bias"), gradients, strict=True):
            parameter = getattr(self.head[1], parameter)
            if parameter is not None and parameter.requires_grad:
                parameter.grad = gradient

    @contextmanager
    def _watching(self, seen):
        """Call ``seen(layer, maps)`` as outputs complete.

        Gives a dictionary that holds an exact head's inputs after the forward pass.
        """
        names, ends = set(), {}

        def watch(layer):
            def hook(module, inputs, outputs):
                if layer.name in names:
                    raise ValueError(
                        f"layer {layer.name} runs twice in a forward pass; leave it out of layers"
                    )
                names.add(layer.name)
                maps = layer.maps(outputs)
                size = self.config.map_size
                seen(layer, reorganize(maps, bias=module.bias, map_size=size))

            return hook

        def watch_head(module, inputs, outputs):
            ends.update(features=inputs[0].detach(), identity=_identity(outputs))

        handles = [layer.module.register_forward_hook(watch(layer)) for layer in self.layers]
        if self.head is not None and self.config.head == "exact":
            handles.append(self.head[1].register_forward_hook(watch_head))
        try:
            yield ends
        finally:
            for handle in handles:
                handle.remove()

    def state_dict(self) -> dict:
        """Everything that training goes on from: model, optimizer, source, gates, counters."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "source": None if self.source is None else self.source.state_dict(),
            "gates": {layer.name: (layer.gate.product, layer.gate.square) for layer in self.layers},
            "epoch": self.epoch,
            "batch": self.batch,
        }

    def load_state_dict(self, state: dict) -> None:
        """The inverse of :meth:`state_dict`, for a trainer made with the same arguments."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.source is not None:
            self.source.load_state_dict(state["source"])
        for layer in self.layers:
            layer.gate.product, layer.gate.square = state["gates"][layer.name]
        self.epoch, self.batch = state["epoch"], state["batch"]


def _identity(values):
    """Equal for two tensors only if they are the same numbers in the same memory."""
    return values.data_ptr(), values.shape, values._version
