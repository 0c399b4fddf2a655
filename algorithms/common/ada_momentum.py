"""Adam whose second moment is that of the momentum instead of the gradient."""

import torch

__all__ = ["AdaMomentum"]


class AdaMomentum(torch.optim.Optimizer):
    """AdaMomentum (arXiv:2106.06753): m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) m² + ε, both
    divided by 1 − βᵗ as in Adam, W ← W − lr · m / √v.

    Parameters
    ----------
    parameters : of a model
    lr : learning rate
    betas : (β₁, β₂)
    epsilon : ε, added under the root in every step
    """

    def __init__(
        self, parameters, *, lr: float, betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-16,
    ) -> None:  # fmt: skip
        super().__init__(parameters, {"lr": lr, "betas": betas, "epsilon": epsilon})

    @torch.no_grad()
    def step(self, closure=None):
        """One step; parameters without a gradient are left alone."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = 0
                    state["m"] = torch.zeros_like(parameter)
                    state["v"] = torch.zeros_like(parameter)
                state["step"] += 1
                mean = state["m"].lerp_(parameter.grad, 1 - first)
                square = state["v"].mul_(second).addcmul_(mean, mean, value=1 - second)
                square.add_(group["epsilon"])
                root = (square / (1 - second ** state["step"])).sqrt()
                parameter.addcdiv_(mean, root, value=-group["lr"] / (1 - first ** state["step"]))
        return loss
