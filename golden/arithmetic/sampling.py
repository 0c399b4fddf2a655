"""Random numbers that are a function of where they are used, bit for bit.

The executable form of the section "Random numbers" of docs/numerics.md: a cipher of add, rotate and
xor, with 12 rounds, of the place of a number under a key. It needs no state and no order: forward
and backward, one core or two, get the same number for the same place.
"""

import numpy as np

__all__ = ["SAMPLE_BITS", "SAMPLE_ROUNDS", "sample", "sample_state"]

#: Bits of a random number.
SAMPLE_BITS = 24
SAMPLE_ROUNDS = 12

_MASK = (1 << SAMPLE_BITS) - 1


def sample(seed, stream, pixel, channel) -> np.ndarray:
    """Numbers of 24 bits (int64), of the broadcast shape of the arguments.

    Parameters
    ----------
    seed : 32 bits, of which there is one for each batch
    stream : 16 bits, of which there is one for each layer
    pixel : 24 bits
    channel : 16 bits

    The number is the first half of the state that :func:`sample_state` leaves.
    """
    return sample_state(seed, stream, pixel, channel)[0]


def sample_state(seed, stream, pixel, channel) -> tuple[np.ndarray, np.ndarray]:
    """Both halves of the state, 24 bits each: another one for every place of a stream, since every
    round can be undone."""
    seed, stream, pixel, channel = np.broadcast_arrays(
        *(np.asarray(value, np.int64) for value in (seed, stream, pixel, channel))
    )
    seed, stream = seed & 0xFFFFFFFF, stream & 0xFFFF
    keys = seed & _MASK, (seed >> SAMPLE_BITS) | (stream << 8)
    x, y = pixel & _MASK, channel & 0xFFFF
    for number in range(SAMPLE_ROUNDS):
        x = ((_rotate(x, 16) + y) & _MASK) ^ keys[number % 2] ^ number
        y = _rotate(y, 3) ^ x
    return x, y


def _rotate(value, left):
    """``value`` with its bits moved round to the left."""
    return ((value << left) | (value >> (SAMPLE_BITS - left))) & _MASK
