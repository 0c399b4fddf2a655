"""Attention against torch.autograd in float64, within the bounds that its operands give.

Covers: golden/training/attention_bounds.py, golden/layers/map_products.py.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import BF16, FP16
from golden.arithmetic.running_error import Estimate, worst_excess
from golden.layers.attention import attention, attention_backward
from golden.layers.dropout import dropout_mask
from golden.training.attention_bounds import attention_bounds

#: (sentences, queries, keys, channels of q and k, channels of v, heads, causal)
CASES = [
    (1, 1, 1, 3, 2, 1, False),
    (2, 5, 7, 8, 12, 2, False),
    (2, 6, 6, 8, 8, 4, True),
    (1, 9, 4, 5, 6, 1, True),
]


def random_case(rng, fmt, case):
    images, queries, keys, channels, values, *_ = case
    shapes = [(queries, channels), (keys, channels), (keys, values), (queries, values)]
    spread = 2.0 ** rng.integers(-1, 3)
    return [
        encode(fmt, rng.standard_normal((images, length, 1, size)) * spread)
        for length, size in shapes
    ]


def golden(fmt, maps, **options):
    """Real output and gradients of q, k and v."""
    *operands, dy = maps
    done = attention(fmt, *operands, **options)
    gradients, _ = attention_backward(fmt, *operands, dy, done, **options)
    return [decode(fmt, part) for part in (done.output, *gradients)]


def reference(fmt, maps, *, heads, causal, scale, mask=None, p=0.0, stream=0, seed=None, **_):
    """The same in float64 by torch."""
    leaves = [torch.from_numpy(decode(fmt, part)).requires_grad_() for part in maps[:3]]
    q, k, v = (leaf[:, :, 0].unflatten(2, (heads, -1)).transpose(1, 2) for leaf in leaves)
    added = None if mask is None else torch.from_numpy(decode(fmt, encode(fmt, mask)))
    if p:
        shares = torch.softmax(q @ k.transpose(2, 3) * scale, -1)
        kept = torch.from_numpy(kept_shares(maps, heads, p, stream, seed))
        y = (shares * kept.unflatten(0, (-1, heads)).transpose(2, 3) / (1 - p)) @ v
    else:
        y = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=added, is_causal=causal, scale=scale
        )
    y = y.transpose(1, 2).flatten(2)[:, :, None]
    found = torch.autograd.grad(y, leaves, torch.from_numpy(decode(fmt, maps[3])))
    return [part.detach().numpy() for part in (y, *found)]


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("case", CASES)
def test_every_result_within_its_bound(case, fmt, rng):
    maps, (*_, heads, causal) = random_case(rng, fmt, case), case
    options = {"heads": heads, "causal": causal, "scale": 0.4, "rows": 5}
    errors = attention_bounds(fmt, *(decode(fmt, part) for part in maps), **options)
    within_bounds(fmt, maps, options, errors)


def kept_shares(maps, heads, p, stream, seed):
    """(N * heads, keys, queries) which shares a dropout keeps."""
    (images, queries), keys = maps[0].shape[:2], maps[1].shape[1]
    place = {"p": p, "whole": False, "stream": stream, "seed": seed}
    return dropout_mask((images * heads, keys, 1, queries), **place)[:, :, 0]


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("p", [0.2, 0.75])
def test_dropout(fmt, p, rng):
    maps = random_case(rng, fmt, CASES[1])
    place = {"p": p, "stream": 3, "seed": 99}
    options = {"heads": 2, "causal": False, "scale": 0.4, "rows": 5}
    kept = kept_shares(maps, 2, **place)
    assert 0 < kept.mean() < 1
    real = [decode(fmt, part) for part in maps]
    errors = attention_bounds(fmt, *real, **options, p=p, kept=kept)
    within_bounds(fmt, maps, options | place, errors)
    # In evaluation nothing is dropped.
    alone, dropped = (
        attention(fmt, *maps[:3], **options, p=p, stream=3, seed=seed).output for seed in (None, 99)
    )
    assert (alone == attention(fmt, *maps[:3], **options).output).all()
    assert (alone != dropped).any()


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
def test_masks(fmt, rng):
    """Numbers that are no operands, large ones, and minus infinity."""
    maps = random_case(rng, fmt, CASES[1])
    mask = rng.standard_normal((5, 7))
    mask[rng.random(mask.shape) < 0.3] = -1e4
    mask[rng.random(mask.shape) < 0.3] = -np.inf
    mask[:, 2] = 0.1
    options = {"heads": 2, "causal": False, "scale": 0.4, "rows": 5, "mask": mask}
    errors = attention_bounds(fmt, *(decode(fmt, part) for part in maps), **options)
    within_bounds(fmt, maps, options, errors)
    # A key that nobody sees has no gradient.
    mask[:, 3] = -np.inf
    *_, key, value = golden(fmt, maps, **options)
    seen = [np.abs(part[:, 3]).max() / np.abs(part).max() for part in (key, value)]
    assert max(seen) < 2.0**-100


def within_bounds(fmt, maps, options, errors):
    found, expected = golden(fmt, maps, **options), reference(fmt, maps, **options)
    for index, (actual, wanted, error) in enumerate(zip(found, expected, errors, strict=True)):
        ratio, place = worst_excess(actual, wanted, Estimate(wanted, error).round(fmt).error)
        assert ratio <= 1, f"result {index} at {place}: {actual[place]}, not {wanted[place]}"


def test_the_bounds_notice_a_mutation(rng):
    """Without its mask, a causal attention is out of bound."""
    maps = random_case(rng, BF16, CASES[2])
    options = {"heads": 4, "scale": 0.4, "rows": 5}
    values = [decode(BF16, part) for part in maps]
    error = attention_bounds(BF16, *values, causal=True, **options)[0]
    wanted = reference(BF16, maps, causal=True, **options)[0]
    wrong = golden(BF16, maps, causal=False, **options)[0]
    assert worst_excess(wrong, wanted, Estimate(wanted, error).round(BF16).error)[0] > 1


def test_later_keys_are_not_seen(rng):
    """Whatever stands there."""
    maps = random_case(rng, BF16, CASES[2])
    options = {"heads": 4, "causal": True, "scale": 0.4, "rows": 5}
    other = [part.copy() for part in maps]
    for part in other[1:3]:
        part[:, 3:] = encode(BF16, rng.standard_normal(part[:, 3:].shape))
    found, expected = (attention(BF16, *part[:3], **options).output for part in (other, maps))
    assert np.array_equal(found[:, :3], expected[:, :3])
    assert (found[:, 3:] != expected[:, 3:]).any()
