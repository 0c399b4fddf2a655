"""Tensor reorganisation (section 3.6, figure 6 of the paper): a layer's output as predictor input.

What every output channel looks like on average over the batch, pooled to S × S pixels: the output
channels become the predictor's batch, so one small predictor serves layers of any size.
"""

import torch
from torch.nn import functional

__all__ = ["reorganize"]


def reorganize(outputs: torch.Tensor, *, bias: torch.Tensor | None, map_size: int) -> torch.Tensor:
    """Mean over the batch, then adaptive average pooling.

    Parameters
    ----------
    outputs : (B, O, H, W), what the layer returns; a linear layer has maps of 1 × 1, whose number
        fills all S × S pixels
    bias : (O,), taken off again, since the predictor sees what leaves the accumulators before the
        bias; or None
    map_size : S

    Returns
    -------
    torch.Tensor
        (O, 1, S, S), without a gradient
    """
    means = outputs.detach().mean(0)
    if bias is not None:
        means = means - bias.detach()[:, None, None]
    return functional.adaptive_avg_pool2d(means, map_size)[:, None]
