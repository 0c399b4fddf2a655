"""Digit sequences: a Transformer reads some digits and writes them in order."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["DIGITS", "START", "TOKENS", "Sorting", "sorting", "written"]

#: Tokens: 0 is padding, 1 to 10 are the digits, 11 is what stands in front of the first one.
DIGITS, START, TOKENS = 10, 11, 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Sorting:
    """Random digits.

    Members
    -------
    sources : (N, T) tokens
    targets : the same in ascending order
    shifted : START, and the targets but the last one: what the decoder reads in training
    """

    sources: np.ndarray
    targets: np.ndarray

    @property
    def shifted(self) -> np.ndarray:
        start = np.full((len(self.targets), 1), START)
        return np.concatenate([start, self.targets[:, :-1]], axis=1)


def sorting(rng: np.random.Generator, count: int, length: int) -> Sorting:
    """``count`` sequences of ``length`` digits."""
    sources = rng.integers(1, DIGITS + 1, (count, length))
    return Sorting(sources=sources, targets=np.sort(sources, axis=1))


def written(predict: Callable[[list], np.ndarray], sources: np.ndarray) -> np.ndarray:
    """(N, T) tokens that a network writes when it reads ``sources``, one after the other: each
    time the likeliest one behind those that it has written.

    ``predict`` takes [sources, tokens in front], both (N, T), and returns logits (N, T, TOKENS).
    """
    count, length = sources.shape
    tokens = np.zeros((count, length + 1), np.int64)
    tokens[:, 0] = START
    for place in range(length):
        # Behind what is written there is padding, which no earlier place sees.
        logits = predict([sources, tokens[:, :-1]])
        tokens[:, place + 1] = logits[:, place].argmax(-1)
    return tokens[:, 1:]
