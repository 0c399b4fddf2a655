"""Which layers of a module are predicted, and how well: what ADA-GP knows of one layer."""

from dataclasses import dataclass

import torch
from torch import nn

from .gate import Gate

__all__ = ["Layer", "LayerResult", "find_layers", "measure"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """A layer whose weight is predicted.

    Members
    -------
    name : torch's path
    number : of the layer, for sources
    module : Conv2d or Linear
    gate : :class:`algorithms.adagp.gate.Gate`
    """

    name: str
    number: int
    module: nn.Module
    gate: Gate

    @property
    def shape(self) -> tuple[int, int]:
        """(O, n): output channels and gradients per output channel."""
        weight = self.module.weight
        return len(weight), weight[0].numel()

    def maps(self, outputs: torch.Tensor) -> torch.Tensor:
        """What the module returned as (B, O, H, W); a linear layer's vectors as maps of 1 × 1."""
        if isinstance(self.module, nn.Linear):
            return outputs.reshape(-1, outputs.shape[-1], 1, 1)
        return outputs if outputs.dim() == 4 else outputs[None]


@dataclass(frozen=True, kw_only=True)
class LayerResult:
    """A guess, made before the batch was learnt from and not gated, beside the true gradient.

    Members
    -------
    mse : mean squared error
    mape : mean of |guess − g| / |g| over the entries with g ≠ 0, in percent; 100 for a guess of 0
    cosine : of the angle between the two; 0 if one of them is 0
    gate : confidence with this batch taken in
    """

    mse: float
    mape: float
    cosine: float
    gate: float


def find_layers(model: nn.Module, *, names, running: float, separate_head: bool):
    """Predicted layers in the order of ``named_modules``, and the head's (name, module) or None.

    Parameters
    ----------
    names : the layers to predict, the head among them; None for every Conv2d and Linear whose
        weight requires a gradient
    running : of the gates
    separate_head : leave the last linear layer out and return it as head, if a parameter of it
        requires a gradient

    Raises
    ------
    ValueError
        for a name that is none of these layers, a shared weight, and if no layer is left.
    """
    modules = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    }
    found = {name: module for name, module in modules.items() if module.weight.requires_grad}
    if names is not None:
        if unknown := sorted(set(names) - set(found)):
            raise ValueError(
                f"layers: {', '.join(unknown)} must be Conv2d or Linear with a weight that "
                f"requires a gradient; the model has {', '.join(found) or 'none'}"
            )
        found = {name: module for name, module in found.items() if name in set(names)}
    owners = {}
    for name, module in found.items():
        if (other := owners.setdefault(id(module.weight), name)) != name:
            raise ValueError(f"layers: {other} and {name} share a weight; leave both out")
    head = None
    if separate_head:
        able = modules if names is None else found
        linear = [name for name, module in able.items() if isinstance(module, nn.Linear)]
        if linear:
            found.pop(linear[-1], None)
            module = modules[linear[-1]]
            if any(parameter.requires_grad for parameter in module.parameters()):
                head = linear[-1], module
    if not found:
        raise ValueError("layers: the model has no Conv2d or Linear to predict besides its head")
    layers = [
        Layer(name=name, number=number, module=module, gate=Gate(running))
        for number, (name, module) in enumerate(found.items())
    ]
    return layers, head


def measure(guess: torch.Tensor, gradient: torch.Tensor, gate: float) -> LayerResult:
    """Compare a guess with the true gradient, both (O, n)."""
    error = guess - gradient
    counted = gradient != 0
    relative = (error[counted] / gradient[counted]).abs()
    lengths = (guess.norm() * gradient.norm()).item()
    return LayerResult(
        mse=error.square().mean().item(),
        mape=100 * relative.mean().item() if len(relative) else 0.0,
        cosine=torch.sum(guess * gradient).item() / lengths if lengths else 0.0,
        gate=gate,
    )
