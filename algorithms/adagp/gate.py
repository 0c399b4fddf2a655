"""Confidence in a layer's predicted gradient (ours): useless predictions do nothing, not harm."""

import math

import torch

__all__ = ["Gate", "running"]


def running(old: float, new: float, factor: float) -> float:
    """The running value: ``factor`` of the old and the rest of the new."""
    return factor * old + (1 - factor) * new


class Gate:
    """c = E⟨p, g⟩ / E⟨p, p⟩ between 0 and 1, of predictions p and true gradients g.

    The factor that, multiplied with p, comes closest to g in the mean square. E is a running value
    that starts at 0, which the quotient does not see.

    Members
    -------
    product, square : E⟨p, g⟩ and E⟨p, p⟩
    """

    def __init__(self, factor: float):
        self.factor = factor
        self.product = self.square = 0.0

    @property
    def value(self) -> float:
        """c; 0 while all predictions were zero."""
        if not self.square > 0:
            return 0.0
        return min(max(self.product / self.square, 0.0), 1.0)

    def observe(self, prediction: torch.Tensor, gradient: torch.Tensor) -> None:
        """Take in one pair of equal shape.

        A gradient that is not finite is ignored. If it is finite and a product is not, the
        prediction is infinite, NaN or about to be: past and present count as 0, and the gate shuts.
        """
        if not bool(torch.isfinite(gradient).all()):
            return
        product = torch.sum(prediction * gradient).item()
        square = torch.sum(prediction * prediction).item()
        if math.isfinite(product) and math.isfinite(square):
            self.product = running(self.product, product, self.factor)
            self.square = running(self.square, square, self.factor)
        else:
            self.product = self.square = 0.0
