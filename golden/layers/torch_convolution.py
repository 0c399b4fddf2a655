"""Torch's convolution with a padding that may differ at both ends of an axis."""

from torch.nn import functional

from golden.layers.conv2d import ends

__all__ = ["conv2d"]


def conv2d(x, weight, bias=None, *, padding=0, **geometry):
    """``torch.nn.functional.conv2d``; ``padding`` as :func:`golden.layers.conv2d.ends` takes it."""
    rows, columns = ends(padding)
    return functional.conv2d(functional.pad(x, (*columns, *rows)), weight, bias, **geometry)
