"""Label smoothing and labels that do not count, against torch in float64 within derived bounds."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.formats import BF16, FLOAT32, FP16
from golden.arithmetic.running_error import Estimate, worst_excess
from golden.layers.label_loss import label_cross_entropy
from golden.layers.loss import cross_entropy
from golden.training import bounds as training_bounds

NAN, INF = FLOAT32.nan, FLOAT32.infinity
OPTIONS = {
    "smoothing": {"smoothing": 0.1},
    "ignore": {"ignore": 1},
    "both": {"smoothing": 0.25, "ignore": -100},
}
SHAPES = [(1, 2), (7, 5), (20, 33)]


def random_case(rng, shape, ignore=None, **_):
    """Logits, and labels of which about a third do not count, but one does."""
    logits = encode(FLOAT32, rng.standard_normal(shape) * 2.0 ** rng.integers(-3, 4, (shape[0], 1)))
    labels = rng.integers(0, shape[1], shape[0])
    if ignore is not None:
        labels[rng.random(shape[0]) < 0.3] = ignore
        labels[0] = 0
    return logits, labels


def out_of_bound(fmt, result, logits, labels, smoothing=0.0, ignore=None):
    """Names of what is not within its bound of torch."""
    values = torch.from_numpy(decode(FLOAT32, logits)).requires_grad_()
    loss = functional.cross_entropy(
        values,
        torch.from_numpy(labels),
        label_smoothing=smoothing,
        ignore_index=-100 if ignore is None else ignore,
    )
    loss.backward()
    value, gradient = training_bounds.label_cross_entropy(
        fmt, Estimate.bits(FLOAT32, logits), labels, smoothing=smoothing, ignore=ignore
    )
    pairs = {
        "value": (decode(FLOAT32, result.value), loss.item(), value),
        "gradient": (decode(fmt, result.gradient), values.grad.numpy(), gradient.round(fmt)),
    }
    return {
        name: (actual, expected)
        for name, (actual, expected, estimate) in pairs.items()
        if not worst_excess(actual, expected, estimate.error)[0] <= 1
    }


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_within_the_bound_of_torch(name, shape, fmt, rng):
    options = OPTIONS[name]
    logits, labels = random_case(rng, shape, **options)
    result = label_cross_entropy(fmt, logits, labels, **options)
    wrong = out_of_bound(fmt, result, logits, labels, **options)
    assert not wrong, wrong
    counts = labels != options.get("ignore")
    expected = decode(FLOAT32, logits).argmax(1) == labels
    assert result.correct == expected[counts].sum()
    assert not result.gradient[~counts].any()


def test_the_bound_notices_mutations(rng):
    """Other smoothing; a label more that does not count."""
    logits, labels = random_case(rng, (9, 6), ignore=5)
    result = label_cross_entropy(BF16, logits, labels, smoothing=0.1, ignore=5)
    assert not out_of_bound(BF16, result, logits, labels, 0.1, 5)
    assert set(out_of_bound(BF16, result, logits, labels, 0.12, 5)) == {"value", "gradient"}
    labels[0] = 5
    assert set(out_of_bound(BF16, result, logits, labels, 0.1, 5)) == {"value", "gradient"}


def test_without_either_it_is_the_plain_loss(rng):
    logits, labels = random_case(rng, (11, 4))
    plain, same = cross_entropy(BF16, logits, labels), label_cross_entropy(BF16, logits, labels)
    assert (same.value, same.correct, same.flags) == (plain.value, plain.correct, plain.flags)
    assert np.array_equal(same.gradient, plain.gradient)


def test_what_does_not_count_is_not_even_looked_at(rng):
    """Logits that are not finite, in a row without a label, change nothing."""
    logits, labels = random_case(rng, (6, 3), ignore=9)
    labels[2:4] = 9
    clean = label_cross_entropy(BF16, logits, labels, smoothing=0.1, ignore=9)
    logits[2], logits[3] = [NAN, INF, 0], [INF, INF | 1 << 31, NAN]
    result = label_cross_entropy(BF16, logits, labels, smoothing=0.1, ignore=9)
    assert result.value == clean.value and result.correct == clean.correct
    assert result.flags == clean.flags
    assert np.array_equal(result.gradient, clean.gradient)
    logits[0, 1] = NAN
    result = label_cross_entropy(BF16, logits, labels, smoothing=0.1, ignore=9)
    assert np.isnan(decode(FLOAT32, result.value))


def test_messages():
    logits = np.zeros((2, 3), np.uint32)
    with pytest.raises(ValueError, match="All labels are 7, which does not count"):
        label_cross_entropy(BF16, logits, np.array([7, 7]), ignore=7)
    with pytest.raises(ValueError, match="Labels must be from 0 to 2"):
        label_cross_entropy(BF16, logits, np.array([1, 3]), ignore=7)
