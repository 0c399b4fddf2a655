"""LOAD and STORE, byte by byte."""

import numpy as np

from .compilation import kernel
from .words import is_written, memory_of, word_place

__all__ = ["transfer"]


@kernel
def transfer(command, layout, data, written, dram, dram_written, store):
    """Execute one of the two; False, and nothing done, if it must not be done."""
    c, sizes = command[0], layout[0]
    size = sizes.word_bytes
    row_words = -(-c.row_bytes // size)
    memory = memory_of(c.buffer_address)
    # Once to look, once to do.
    for doing in range(2):
        word = c.buffer_address
        for run in range(c.run_count):
            for row in range(c.run_bytes // c.row_bytes):
                source = c.dram_address + run * c.run_stride + row * c.row_bytes
                if source + c.row_bytes > len(dram):
                    return False
                if not doing and not store:
                    if not is_written(dram_written, source, c.row_bytes):
                        return False
                for number in range(row_words):
                    place = word_place(sizes, memory, word)
                    word += 1
                    first = number * size
                    used = min(size, c.row_bytes - first)
                    if place < 0:
                        return False
                    if store and not doing:
                        if not is_written(written, place, used):
                            return False
                    elif store:
                        for byte in range(used):
                            dram[source + first + byte] = data[place + byte]
                            dram_written[source + first + byte] = True
                    elif doing:
                        for byte in range(size):
                            value = dram[source + first + byte] if byte < used else np.uint8(0)
                            data[place + byte] = value
                            written[place + byte] = True
    return True
