"""Maps that slices divide among each other: their gradients come in parts."""

import numpy as np

from golden.frontend.torch_graph import outputs_of
from golden.layers.concatenation import divides
from golden.layers.elementwise_pool import sum_gradients

__all__ = ["divided_maps", "joined_gradients", "part_of"]


def divided_maps(nodes, granule: int | None) -> frozenset[str]:
    """Names of the nodes that slices alone read, which are whole granules of ``granule`` operands,
    have no channel in common and leave none out, and of which an output depends on each."""
    readers = {node.name: [] for node in nodes}
    needed = {node.name for node in outputs_of(nodes)}
    for node in reversed(nodes):
        if node.name in needed:
            needed.update(node.inputs)
        for name in node.inputs:
            readers[name].append(node)
    found = []
    for node in nodes:
        parts = readers[node.name]
        if parts and all(part.kind == "slice" and part.name in needed for part in parts):
            ranges = [(part.options["begin"], part.options["end"]) for part in parts]
            if divides(ranges, node.shape[0], granule):
                found.append(node.name)
    return frozenset(found)


def part_of(dy_bits, size: int, *, begin: int, end: int) -> np.ndarray:
    """Of a gradient with ``size`` channels those of a slice, +0 elsewhere."""
    dy = np.asarray(dy_bits)
    whole = np.zeros((*dy.shape[:3], size), dy.dtype)
    whole[..., begin:end] = dy
    return whole


def joined_gradients(fmt, gradients, divided: bool):
    """(codes, flags) of the gradient of a map from ``gradients``, one of each layer that reads it:
    their sum, or for a ``divided`` map what :func:`part_of` has made parts of."""
    if divided:
        return np.bitwise_or.reduce([np.asarray(part) for part in gradients]), 0
    return sum_gradients(fmt, gradients)
