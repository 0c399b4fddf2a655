"""Unbiased samples of rows: with which probability each is kept, and what is left."""

import torch

__all__ = ["keep_probabilities", "sample", "share_of_norm", "weights_variance"]


def keep_probabilities(norms: torch.Tensor, kept: float) -> torch.Tensor:
    """Probabilities p ≤ 1 in proportion to ``norms`` whose sum is ``kept``.

    Rows that would get more than 1 get 1, and the others share what is left, so that the variance
    of a sample is the least for this number of rows (section 4.1 of the paper).

    Parameters
    ----------
    norms : (N,), not negative
    kept : expected number of rows, at most N; if fewer have a norm above 0, these get 1

    Returns
    -------
    (N,), 0 where the norm is 0
    """
    if kept >= int((norms > 0).sum()):
        return (norms > 0).to(norms.dtype)
    ordered, order = norms.sort(descending=True)
    # Sum of the norms from each place on; if the first `count` rows get 1, the next one gets
    # (kept - count) * its norm / that sum, which must not be above 1 any more.
    rest = ordered.flip(0).cumsum(0).flip(0)
    left = kept - torch.arange(len(norms), device=norms.device)
    certain = (left * ordered > rest) & (left > 0)
    count = int(certain.sum())
    result = torch.ones_like(norms)
    scale = (kept - count) / rest[count]
    result[order[count:]] = (ordered[count:] * scale).clamp(max=1)
    return result


def sample(values: torch.Tensor, probabilities: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep rows with their probability, and divide what is kept by it.

    Parameters
    ----------
    values : (N, ...)
    probabilities : (N,) or any shape that ``values`` begins with

    Returns
    -------
    values with zeros in rows that are not kept; mask of the kept ones
    """
    mask = torch.rand_like(probabilities) < probabilities
    factors = torch.where(mask, 1 / probabilities.clamp(min=torch.finfo(values.dtype).tiny), 0)
    shape = (*probabilities.shape, *[1] * (values.dim() - probabilities.dim()))
    return values * factors.reshape(shape), mask


def share_of_norm(norms: torch.Tensor, share: float) -> float:
    """The least share of rows, those with the largest norms, that have ``share`` of the sum of
    all norms; 1 if all norms are 0."""
    total = norms.sum()
    if not total > 0:
        return 1.0
    held = norms.sort(descending=True).values.double().cumsum(0)
    needed = int((held < share * held[-1] * (1 - 1e-12)).sum()) + 1
    return min(1.0, needed / len(norms))


def weights_variance(products: torch.Tensor, probabilities: torch.Tensor) -> float:
    """Variance that sampling rows adds to a weight gradient: Σ (1 − q) / q · (‖g‖ ‖x‖)².

    Parameters
    ----------
    products : ‖g‖ ‖x‖ of every row
    probabilities : with which each is kept; rows with 0 have no product
    """
    kept = probabilities > 0
    p = probabilities[kept].double()
    return float((products[kept].double().square() * (1 - p) / p).sum())
