"""SGD with momentum whose gradients are braked."""

import torch

__all__ = ["BrakedSGD", "brake"]


def brake(gradient: torch.Tensor, velocity: torch.Tensor, rho: float) -> torch.Tensor:
    """(1 − ρ cos(g, v)) g, filter by filter; g where either of both is 0.

    Parameters
    ----------
    gradient, velocity : (O, ...); a filter is all numbers of an output channel
    rho : ρ, 0 brakes nothing
    """
    shape = (-1, *[1] * (gradient.dim() - 1))
    g, v = gradient.flatten(1), velocity.flatten(1)
    norms = g.norm(dim=1) * v.norm(dim=1)
    cosine = torch.where(norms > 0, (g * v).sum(1) / norms.clamp(min=1e-30), 0)
    return gradient * (1 - rho * cosine).reshape(shape)


class BrakedSGD(torch.optim.SGD):
    """``torch.optim.SGD`` that brakes the gradient of every weight before the momentum step.

    Parameters with fewer than two dimensions (biases, normalisation) are not braked: a filter of
    theirs is one number, whose cosine is a sign.

    Parameters
    ----------
    rho : ρ, from 0 on; 0 is plain SGD.
    others : as ``torch.optim.SGD``; there must be a momentum

    Raises
    ------
    ValueError
        naming ``rho`` or ``momentum``.
    """

    def __init__(self, parameters, *, rho: float, **options) -> None:
        if not rho >= 0:
            raise ValueError(f"rho must be at least 0, not {rho!r}")
        if not options.get("momentum"):
            raise ValueError("momentum must be above 0: braking compares gradients with a velocity")
        super().__init__(parameters, **options)
        self.rho = rho

    @torch.no_grad()
    def step(self, closure=None):
        """One step; gradients are changed in place."""
        for group in self.param_groups:
            for parameter in group["params"]:
                velocity = self.state[parameter].get("momentum_buffer")
                if velocity is None or parameter.grad is None or parameter.dim() < 2:
                    continue
                parameter.grad.copy_(brake(parameter.grad, velocity, self.rho))
        return super().step(closure)
