"""What WEIGHTS and MATMUL read: operand codes as uint16, tile by tile.

A kernel that returns False has met something that the command must not do: an address out of range,
or a byte that was never written.
"""

import numpy as np

from .compilation import kernel
from .words import is_written, memory_of, operand, word_place

__all__ = ["read_vectors", "read_weights"]


@kernel
def read_weights(command, layout, data, written, tiles, bias):
    """WEIGHTS: fill ``tiles`` (tiles, rows, columns) uint16, zeros so far, and ``bias`` (bytes of
    its words,) uint8."""
    c, sizes = command[0], layout[0]
    item, size = sizes.item_bytes, sizes.word_bytes
    memory = np.int64(-1)
    for word in range(len(bias) // size):
        if memory < 0:
            memory = memory_of(c.bias_address)
        place = word_place(sizes, memory, c.bias_address + word)
        if place < 0 or not is_written(written, place, size):
            return False
        for byte in range(size):
            bias[word * size + byte] = data[place + byte]
    tile = 0
    lines = sizes.rows if c.transpose else sizes.columns
    blocks = c.block_count if c.transpose else 1
    for cb in range(c.cb_count):
        limit = c.row_limit - (cb * sizes.rows if c.transpose else 0)
        for kh in range(c.kh_count):
            for kw in range(c.kw_count):
                base = c.address + cb * c.cb_stride + kh * c.kh_stride + kw * c.kw_stride
                for line in range(min(lines, limit)):
                    for block in range(blocks):
                        address = base + line * c.row_stride + block
                        if memory < 0:
                            memory = memory_of(address)
                        place = word_place(sizes, memory, address)
                        if place < 0 or not is_written(written, place, size):
                            return False
                        for lane in range(sizes.rows):
                            code = operand(data, place + lane * item, item)
                            if c.transpose:
                                column = block * sizes.rows + lane - c.skip
                                if 0 <= column < sizes.columns:
                                    tiles[tile, line, column] = code
                            else:
                                tiles[tile, lane, line] = code
                tile += 1
    return True


@kernel
def read_vectors(command, layout, data, written, one, vectors):
    """MATMUL: fill ``vectors`` (K tiles, M, rows) uint16, zeros so far; ``one`` is 1.0."""
    c, sizes = command[0], layout[0]
    item, rows, size = sizes.item_bytes, sizes.rows, sizes.word_bytes
    tap = 0
    for cb in range(c.cb_count):
        for kh in range(c.kh_count):
            for kw in range(c.kw_count):
                base = c.x_address + cb * c.cb_stride + kh * c.kh_stride + kw * c.kw_stride
                memory = np.int64(-1)
                pixel = 0
                for n in range(c.n_count):
                    for ho in range(c.ho_count):
                        h = c.h_origin + ho * c.ho_step + kh * c.kh_step
                        for wo in range(c.wo_count):
                            w = c.w_origin + wo * c.wo_step + kw * c.kw_step
                            pixel += 1
                            if not (0 <= h < c.h_limit and 0 <= w < c.w_limit):
                                continue
                            address = base + n * c.n_stride + ho * c.ho_stride + wo * c.wo_stride
                            if memory < 0:
                                memory = memory_of(address)
                            place = word_place(sizes, memory, address)
                            if place < 0 or not is_written(written, place, size):
                                return False
                            for lane in range(rows):
                                code = operand(data, place + lane * item, item)
                                if c.transpose:
                                    tile, step = divmod(pixel - 1, rows)
                                    vectors[tile, tap * rows + lane, step] = code
                                else:
                                    vectors[tap, pixel - 1, lane] = code
                tap += 1
    if c.transpose and c.ones:
        for tile in range(vectors.shape[0]):
            for lane in range(rows):
                vectors[tile, vectors.shape[1] - 1, lane] = one
    return True
