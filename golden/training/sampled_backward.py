"""Backward passes of convolutions that work on a sample of the batch's images (VCAS)."""

from dataclasses import replace

from golden.frontend.torch_graph import Node
from golden.layers.row_sampling import (
    RowSample,
    RowSampling,
    gather_rows,
    require_range,
    row_counts,
    row_norms,
    sample_rows,
    scatter_rows,
)

from .step_result import ForwardPass

__all__ = ["sampled_backward", "sampled_layers", "sampled_rows"]


def sampled_layers(nodes: list[Node], sampling: RowSampling | None, fmt) -> dict[str, int]:
    """Names of the layers that are sampled, and their numbers.

    Raises
    ------
    ValueError
        naming a layer that cannot be sampled, or its ratio; and for a format that is too narrow.
    """
    if sampling is None:
        return {}
    require_range(fmt)
    able = {
        node.name
        for node in nodes
        if node.kind == "convolution" and node.options.get("groups", 1) == 1 and node.output is None
    }
    for name, ratio in sampling.ratios.items():
        if name not in able:
            known = ", ".join(sorted(able)) or "none"
            raise ValueError(f"layer {name} cannot be sampled; convolutions that can: {known}")
        if not ratio > 0:
            raise ValueError(f"layer {name}: the ratio must be above 0, not {ratio!r}")
    wanted = [node.name for node in nodes if node.name in sampling.ratios]
    return {name: number for number, name in enumerate(wanted)}


def sampled_backward(training, node: Node, dy, done: ForwardPass):
    """What :meth:`~golden.training.step.Training._backward_node` returns, for a layer of
    :func:`sampled_layers`; the sample goes into ``done.samples``."""
    fmt, x = training.format, done.outputs[node.inputs[0]]
    chosen = _sample(training, node, dy)
    done.samples[node.name] = chosen
    dy, flags = gather_rows(fmt, dy, chosen)
    results, new, more = training.backward_product(node, dy, x[chosen.rows])
    results = [part if part is None else scatter_rows(part, chosen, len(x)) for part in results]
    return results, new, flags | more | chosen.flags


def _sample(training, node, dy) -> RowSample:
    images, sampling = len(dy), training.sampling
    counts = sampling.counts or row_counts(images)
    if counts[-1] != images or list(counts) != sorted(set(counts)) or counts[0] < 1:
        raise ValueError(
            f"counts must be ascending, from at least 1 up to the batch of {images}, not {counts}"
        )
    norms, flags = row_norms(training.format, dy, rows=training.rows)
    chosen = sample_rows(
        training.format, norms, kept=sampling.kept(node.name, images),
        counts=counts, layer=training.sampled[node.name], seed=training.batch_seed(),
    )  # fmt: skip
    return replace(chosen, flags=chosen.flags | flags)


def sampled_rows(training, node: Node, done: ForwardPass):
    """Numbers of the images of which a batch normalisation has a gradient: of a layer that is
    sampled and reads its map, perhaps behind a ReLU and then max pooling, and nobody else does.
    None: of all."""
    readers = [one for one in training.nodes if node.name in one.inputs]
    if node.kind != "batch_norm" or not training.sampled:
        return None
    below, passes = node, ("relu", "max_pool")
    while below.output is None and len(readers) == 1:
        below = readers[0]
        if below.name in done.samples:
            return done.samples[below.name].rows
        if below.kind not in passes:
            return None
        passes = ("max_pool",)
        readers = [one for one in training.nodes if below.name in one.inputs]
    return None
