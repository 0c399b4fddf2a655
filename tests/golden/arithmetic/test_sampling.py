"""golden.arithmetic.sampling: nothing is lost, every bit counts, and no pattern is left."""

import numpy as np
import pytest

from golden.arithmetic.sampling import SAMPLE_BITS, SAMPLE_ROUNDS, sample, sample_state

MASK = (1 << SAMPLE_BITS) - 1
BITS = {"seed": 32, "stream": 16, "pixel": 24, "channel": 16}


def undone(seed, stream, x, y):
    """The place whose state is (x, y): the rounds backwards."""
    keys = seed & MASK, (seed >> SAMPLE_BITS) | (stream << 8)
    for number in reversed(range(SAMPLE_ROUNDS)):
        y = y ^ x
        y = ((y >> 3) | (y << (SAMPLE_BITS - 3))) & MASK
        x = ((x ^ keys[number % 2] ^ number) - y) & MASK
        x = ((x << 8) | (x >> (SAMPLE_BITS - 8))) & MASK
    return x, y


def test_every_place_has_a_state_of_its_own(rng):
    """The state leads back to its place: many pixels of a channel, all channels of some pixels, and
    any; so no two places of a stream have the same state."""
    every, some = np.arange(0, 1 << 24, 61), rng.integers(0, 1 << 24, 4)[:, np.newaxis]
    cases = [(every, int(rng.integers(1 << 16))), (some, np.arange(1 << 16))]
    cases.append((rng.integers(0, 1 << 24, 100_000), rng.integers(0, 1 << 16, 100_000)))
    for pixel, channel in cases:
        seed, stream = int(rng.integers(1 << 32)), int(rng.integers(1 << 16))
        x, y = undone(seed, stream, *sample_state(seed, stream, pixel, channel))
        assert (x == pixel).all() and (y == channel).all()


@pytest.mark.parametrize("name", BITS)
def test_every_bit_of_the_place_moves_every_bit_of_the_number(name, rng):
    """With a probability of one half; of small places too, which have few bits set. 5.5 standard
    deviations in 20,000 tries: by chance one bit of 2112 in 13,000 runs."""
    small = {"seed": 1000, "stream": 64, "pixel": 4096, "channel": 512}
    places = {key: rng.integers(0, limit, 20_000) for key, limit in small.items()}
    numbers = sample(**places)
    for bit in range(BITS[name]):
        moved = numbers ^ sample(**places | {name: places[name] ^ (1 << bit)})
        shares = np.array([((moved >> place) & 1).mean() for place in range(SAMPLE_BITS)])
        assert np.abs(shares - 0.5).max() < 5.5 * 0.5 / np.sqrt(20_000), (bit, shares)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_masks_have_no_pattern(share, rng):
    """What is kept of a map: as many as wanted, independent of neighbours in every direction, of
    the next batch and of the next layer. Each sum is one of independent terms: 5.5 deviations."""
    seed, pixels, channels = int(rng.integers(1 << 32)), 2048, 256
    places = np.arange(pixels)[:, np.newaxis], np.arange(channels)

    def mask(seed, stream):
        return (sample(seed, stream, *places) < share * 2**SAMPLE_BITS) - share

    own, variance = mask(seed, 3), share * (1 - share)
    assert abs(own.sum()) < 5.5 * np.sqrt(variance * own.size)
    pairs = {f"pixel + {n}": (own[n:], own[:-n]) for n in (1, 2, 4, 7, 32, 224, 1024)}
    pairs |= {f"channel + {n}": (own[:, n:], own[:, :-n]) for n in (1, 2, 3, 8, 64, 128)}
    pairs |= {"next batch": (own, mask(seed + 1, 3)), "next layer": (own, mask(seed, 4))}
    for name, (first, second) in pairs.items():
        product = first * second
        assert abs(product.sum()) < 5.5 * variance * np.sqrt(product.size), name
    for axis in (0, 1):
        sums = own.sum(axis=axis)
        ratio = sums.var() / (variance * own.shape[axis])
        assert abs(ratio - 1) < 5.5 * np.sqrt(2 / sums.size), axis
