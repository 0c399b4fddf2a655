"""Cycles that a batch takes at least, by its products alone."""

from collections.abc import Sequence

from hw.config import AdaGPConfig
from perf.analytic.shapes import Layer

__all__ = ["least_cycles"]


def least_cycles(layers: Sequence[Layer], config: AdaGPConfig, images: int, *, gp: bool) -> float:
    """No machine of this size is faster: a vector enters the main array in a cycle, and each takes
    one K tile and one tile of columns further.

    ``gp``: with predicted gradients, where half of the batches have no backward products; then it
    is the mean of a batch of Phase BP and one of Phase GP. Depthwise convolutions, which the vector
    engine computes, count as nothing, as do strided input gradients beyond their multiplications.
    """
    rows, columns = config.rows, config.columns
    forward = backward = 0.0
    for number, layer in enumerate(layers):
        if layer.groups > 1 and layer.inputs == layer.groups:
            continue
        product = layer.forward(images)
        tiles = -(-product.depth // rows) * -(-product.columns // columns)
        forward += product.rows * tiles * product.times
        # Weight gradient, and input gradient unless it is the network's first layer.
        backward += product.macs / (rows * columns) * (1 if number == 0 else 2)
    return forward + backward / 2 if gp else forward + backward
