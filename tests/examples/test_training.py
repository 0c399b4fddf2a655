"""The examples of the host's API do what they promise.

Covers: examples/training/digits.py, examples/training/tabular.py, examples/training/residual.py,
examples/training/interruption.py, examples/training/difference.py.
"""

import pytest

from examples.training import difference, digits, interruption, residual, tabular


@pytest.mark.parametrize(("method", "epochs"), [("bp", 2), ("adagp", 3)])
def test_digits(method, epochs):
    history = digits.run(method=method, epochs=epochs, images=512)
    assert history.epochs[-1].validation > 0.8
    if method == "adagp":
        assert history.epochs[-1].phases == {"GP": 8, "BP": 8}


def test_tabular():
    assert tabular.run() > 0.95


def test_residual():
    """Numbers of 16 bits decide as float32 does, but for a few images."""
    right, expected = residual.run(epochs=4)
    assert right > 0.9
    assert abs(right - expected) < 0.02


@pytest.mark.long
def test_interruption():
    assert interruption.run(device="rtl")


def test_difference():
    found = difference.run().differences[0]
    assert (found.batch, found.tensor, found.position) == (2, "weights 2.weight", (0, 0))
