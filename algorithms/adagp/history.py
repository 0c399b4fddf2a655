"""Gradients from their own history: a small network for all weights, told which layer it is."""

import math

import torch
from torch import nn
from torch.nn import functional

from golden.prediction.config import PredictorConfig

from .gate import running

__all__ = ["History"]

#: Weights of the past in the running means of true gradients that are remembered; 0: the latest.
_FACTORS = (0.0, 0.9, 0.99)
#: Numbers that stand for a layer, and hidden ones of the network.
_EMBEDDING, _HIDDEN = 4, 8


class History(nn.Module):
    """Guesses each weight's gradient from the latest one and two running means of it.

    A network of two layers, (3 + 4) → 8 → 1 with a ReLU, is shared by all weights. Its inputs are
    the remembered gradients, divided by the running root mean square s of the layer's true
    gradients, and four learnt numbers of the layer (its embedding); its output times s is the
    guess. In every batch of Phase BP it makes a step on the mean square error to g / s, and then
    remembers g. Its last layer starts at zero.

    Parameters
    ----------
    shapes : (O, n) of every layer
    config : running, optimizer, learning_rate, momentum and seed of it
    """

    def __init__(self, shapes, config: PredictorConfig):
        super().__init__()
        self.config = config
        self.remembered: list[torch.Tensor | None] = [None] * len(shapes)
        self.squares = [0.0] * len(shapes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.embedding = nn.Parameter(torch.randn(len(shapes), _EMBEDDING))
            self.first = nn.Linear(len(_FACTORS) + _EMBEDDING, _HIDDEN)
        self.last = nn.Linear(_HIDDEN, 1)
        for values in self.last.parameters():
            nn.init.zeros_(values)
        if config.optimizer == "sgd":
            self.optimizer = torch.optim.SGD(
                self.parameters(), lr=config.learning_rate, momentum=config.momentum
            )
        else:
            self.optimizer = torch.optim.Adam(self.parameters(), lr=config.learning_rate)

    @staticmethod
    def macs_per_weight() -> int:
        """Multiplications of a guess: those with a layer's embedding are done once for it."""
        return (len(_FACTORS) + 1) * _HIDDEN

    def guess(self, layer: int, maps: torch.Tensor) -> torch.Tensor | None:
        """(O, n). None until the layer has seen a true gradient other than 0."""
        if not self.squares[layer]:
            return None
        with torch.no_grad():
            return self._outputs(layer) * math.sqrt(self.squares[layer])

    def learn(self, layer: int, maps: torch.Tensor, gradient: torch.Tensor) -> None:
        """A step towards g / s, and the gradient is remembered; not one that is not finite."""
        square = gradient.square().mean().item()
        if not math.isfinite(square):
            return
        if self.squares[layer]:
            self._step(layer, gradient / math.sqrt(self.squares[layer]))
        past = self.remembered[layer]
        if past is None:
            past = torch.stack([gradient] * len(_FACTORS))
            self.squares[layer] = square
        factors = past.new_tensor(_FACTORS).reshape(-1, 1, 1)
        self.remembered[layer] = factors * past + (1 - factors) * gradient
        self.squares[layer] = running(self.squares[layer], square, self.config.running)

    def begin_epoch(self, epoch: int) -> None:
        """Nothing to do."""

    def _outputs(self, layer):
        inputs = self.remembered[layer].movedim(0, -1) / math.sqrt(self.squares[layer])
        embedding = self.embedding[layer].expand(*inputs.shape[:-1], _EMBEDDING)
        hidden = functional.relu(self.first(torch.cat([inputs, embedding], -1)))
        return self.last(hidden)[..., 0]

    def _step(self, layer, target):
        self.optimizer.zero_grad()
        error = functional.mse_loss(self._outputs(layer), target)
        error.backward()
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        if all(bool(torch.isfinite(values).all()) for values in (error, *gradients)):
            self.optimizer.step()

    def get_extra_state(self):
        """What torch's ``state_dict`` does not know of."""
        return {
            "remembered": list(self.remembered),
            "squares": list(self.squares),
            "optimizer": self.optimizer.state_dict(),
        }

    def set_extra_state(self, state):
        """The inverse of :meth:`get_extra_state`."""
        place = self.embedding.device
        self.remembered = [None if old is None else old.to(place) for old in state["remembered"]]
        self.squares = list(state["squares"])
        self.optimizer.load_state_dict(state["optimizer"])
