"""Words of the on-chip memories, which lie one behind the other in one array of bytes."""

import numpy as np

from hw.config import BUFFER_ADDRESS_WIDTH

from .compilation import inline

__all__ = ["is_written", "memory_of", "operand", "word_place"]

_ADDRESSES = (1 << BUFFER_ADDRESS_WIDTH) - 1
_NUMBER = BUFFER_ADDRESS_WIDTH - 1
_WORDS = (1 << _NUMBER) - 1


@inline
def memory_of(address):
    """Number of the memory in which a word is."""
    return (address & _ADDRESSES) >> _NUMBER


@inline
def word_place(sizes, memory, address):
    """First byte of the word at ``address`` modulo 2**24 in the array of all memories; -1 if it is
    not in ``memory``, or that has no such word or is out of reach."""
    first, depth = sizes.first0, sizes.depth0
    if memory:
        first, depth = sizes.first1, sizes.depth1
    word = address & _WORDS
    if first < 0 or word >= depth or memory_of(address) != memory:
        return np.int64(-1)
    return first + word * sizes.word_bytes


@inline
def is_written(written, start, size):
    """Whether all of ``size`` bytes are."""
    for place in range(start, start + size):
        if not written[place]:
            return False
    return True


@inline
def operand(data, place, item_bytes):
    """Code of the operand whose first byte is at ``place``."""
    code = np.int64(data[place])
    if item_bytes == 2:
        code |= np.int64(data[place + 1]) << 8
    return code
