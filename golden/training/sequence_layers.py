"""Layers of sequences, and what is normalised within an image, in a training step: what a node
stores, and its gradients."""

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.layers.attention import attention, attention_backward
from golden.layers.group_norm import group_norm, group_norm_backward
from golden.layers.layer_norm import layer_norm, layer_norm_backward

from .norm_layers import parameters

__all__ = ["SEQUENCE_KINDS", "backward", "forward"]

SEQUENCE_KINDS = ("layer_norm", "group_norm", "attention", "softmax")
#: A softmax over channels is attention of the pixels to keys and values that are an identity.
_PLAIN = {"heads": 1, "causal": False, "scale": 1.0}


def forward(training, node, maps, done, seed=None):
    """(codes, flags) of a node, from the ``maps`` that it reads; ``done.saved`` gets what its
    backward pass needs.

    Parameters
    ----------
    training : :class:`golden.training.step.Training`
    done : :class:`golden.training.step.ForwardPass`
    seed : of the random numbers of the batch, None in evaluation
    """
    if node.kind == "attention":
        result = attention(training.format, *maps, **node.options, rows=training.rows, seed=seed)
        done.saved[node.name] = result
        return result.output, result.flags
    if node.kind == "softmax":
        own = _as_attention(training.format, *maps)
        result = attention(training.format, *own, **_PLAIN, rows=training.rows)
        done.saved[node.name] = result
        return result.output.reshape(maps[0].shape), result.flags
    gamma, beta = parameters(node, training.weights)
    normalize = group_norm if node.kind == "group_norm" else layer_norm
    result = normalize(
        training.format, *maps, gamma, beta, epsilon=node.module.eps, rows=training.rows,
        **node.options,
    )  # fmt: skip
    done.saved[node.name] = result
    return result.output, result.flags


def backward(training, node, dy, done, seed=None):
    """([codes] of the gradients of its inputs, gradients of parameters by name, flags); ``seed`` as
    for :func:`forward`."""
    maps, saved = [done.outputs[name] for name in node.inputs], done.saved[node.name]
    if node.kind == "attention":
        results, flags = attention_backward(
            training.format, *maps, dy, saved, **node.options, rows=training.rows, seed=seed
        )
        return results, {}, flags
    if node.kind == "softmax":
        own = _as_attention(training.format, *maps)
        results, flags = attention_backward(
            training.format, *own, dy.reshape(own[0].shape), saved, **_PLAIN, rows=training.rows
        )  # fmt: skip
        return [results[0].reshape(dy.shape)], {}, flags
    gamma, _ = parameters(node, training.weights)
    own = {"mean": saved.mean, "inverse": saved.inverse, "rows": training.rows}
    if node.kind == "group_norm":
        result = group_norm_backward(
            training.format, *maps, dy, gamma, a=saved.a, **own, **node.options
        )
    else:
        result = layer_norm_backward(training.format, *maps, dy, gamma, **own)
    new = {f"{node.name}.weight": result.scale, f"{node.name}.bias": result.shift}
    new = {name: values for name, values in new.items() if name in node.trainable}
    return [result.input], new, result.flags


def _as_attention(fmt, x):
    """Queries (N, pixels, 1, C), keys and values of a map (N, H, W, C)."""
    queries = x.reshape(len(x), -1, 1, x.shape[3])
    identity = encode(fmt, np.eye(x.shape[3]))[np.newaxis, :, np.newaxis]
    keys = np.broadcast_to(identity, (len(x), *identity.shape[1:]))
    return queries, keys, keys
