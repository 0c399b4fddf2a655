"""What a step costs: multiplications with weights, counted."""

from dataclasses import dataclass

from algorithms.adagp.history import History
from algorithms.networks.network_facts import LayerFacts, ModelFacts, examine
from algorithms.vcas.trainer import Shares
from golden.prediction.config import PredictorConfig

__all__ = ["Costs"]


@dataclass(frozen=True)
class Costs:
    """MACs of a network for one shape of images.

    Counted are the products with weights and for weights, and the predictor's. Normalisation,
    activations, additions and updates are not.
    """

    facts: ModelFacts

    @classmethod
    def of(cls, model: str, shape: tuple[int, int, int], classes: int) -> "Costs":
        """Of a network in MODELS."""
        return cls(examine(model, shape, classes))

    @property
    def layers(self) -> tuple[LayerFacts, ...]:
        """All convolutions and linear layers; the first one is the network's first."""
        return (*self.facts.layers, self.facts.head)

    def forward(self, images: int) -> int:
        """A forward pass."""
        return images * self.facts.macs

    def backward(self, images: int, shares: dict[str, Shares] | None = None) -> float:
        """A backward pass: gradients of all weights, and of the inputs of all layers but the first.

        ``shares`` says how much of each layer was computed.
        """
        whole = Shares(input_gradient=1.0, weight_gradient=1.0)
        total = 0.0
        for number, layer in enumerate(self.layers):
            share = whole if shares is None else shares[layer.name]
            total += layer.macs * (share.weight_gradient + (share.input_gradient if number else 0))
        return images * total

    def batch(self, images: int) -> float:
        """A batch of backpropagation."""
        return self.forward(images) + self.backward(images)

    def head(self, images: int, steps: int) -> int:
        """Steps of the head alone, from stored inputs: its logits and its weight gradient."""
        return 2 * steps * images * self.facts.head.macs

    def head_gradient(self, images: int) -> int:
        """The weight gradient of the head, whose logits are there."""
        return images * self.facts.head.macs

    def predictor(self, config: PredictorConfig) -> int:
        """A forward pass of the predictor for all layers, or of the network that makes gradients of
        those before; 0 where there is neither."""
        if config.source == "history":
            weights = sum(layer.outputs * layer.size for layer in self.facts.layers)
            return weights * History.macs_per_weight()
        if config.source != "predictor":
            return 0
        return sum(layer.predictor_macs(config) for layer in self.facts.layers)
