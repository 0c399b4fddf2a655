"""Digit sequences: what is read, what is to be written, and how it is written."""

import numpy as np

from algorithms.data.sequences import START, TOKENS, sorting, written


def test_sorting(rng):
    own = sorting(rng, 50, 6)
    assert own.sources.shape == own.targets.shape == own.shifted.shape == (50, 6)
    assert set(np.unique(own.sources)) == set(range(1, 11))
    assert (np.diff(own.targets, axis=1) >= 0).all() and (np.diff(own.sources, axis=1) < 0).any()
    assert (np.sort(own.sources, axis=1) == own.targets).all()
    assert (own.shifted[:, 0] == START).all() and (own.shifted[:, 1:] == own.targets[:, :-1]).all()


def test_each_token_is_read_when_the_next_one_is_written(rng):
    """A network that sorts, but for its first sequence, in which it writes what it read last."""
    sources = sorting(rng, 4, 5).sources
    seen = []

    def predict(inputs):
        given, before = inputs
        seen.append(before.copy())
        tokens = np.sort(given, axis=1)
        tokens[0] = before[0]
        return np.eye(TOKENS)[tokens]

    found = written(predict, sources)
    assert (found[1:] == np.sort(sources[1:], axis=1)).all()
    assert (found[0] == START).all()
    for place, before in enumerate(seen):
        assert (before[:, 0] == START).all() and not before[:, place + 1 :].any()
        assert (before[:, 1 : place + 1] == found[:, :place]).all()
