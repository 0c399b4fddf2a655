"""POST: from accumulators to the buffer, for float formats."""

import numpy as np

from hw.isa.encoding import Pool

from .compilation import inline, kernel
from .numbers import INFINITY, MAGNITUDE, NAN, SIGN, add, canonical, larger, multiply, narrow
from .words import is_written, memory_of, word_place

__all__ = ["post"]

_SUM = int(Pool.SUM)


@inline
def _reduced(c, sums, entry, lane):
    """The number that a window leaves, and its flags; NaN and flags -1 for what is no sum."""
    result, flags = np.int64(0), 0
    for ph in range(c.ph_count):
        for pw in range(c.pw_count):
            bits = np.int64(sums[entry + ph * c.ph_stride + pw * c.pw_stride, lane])
            if bits != canonical(bits):
                return np.int64(NAN), -1
            if bits & MAGNITUDE > INFINITY and bits != NAN:
                return np.int64(NAN), -1
            if c.relu and bits & SIGN:
                bits = np.int64(0)
            if ph == 0 and pw == 0:
                result = bits
            elif c.pool == _SUM:
                result, new = add(result, bits)
                flags |= new
            else:
                result = larger(result, bits)
    return result, flags


@kernel
def post(command, layout, sums, sums_written, data, written):
    """Execute a command.

    Parameters
    ----------
    command, layout : records
    sums : (entries, columns) uint32
    sums_written : (bytes of all entries,) bool
    data, written : all on-chip memories

    Returns
    -------
    the union of the flags, or -1 and nothing done if it must not be done
    """
    c, sizes = command[0], layout[0]
    mantissa_bits, exponent_bits = sizes.mantissa_bits, sizes.exponent_bits
    lanes = c.group_count * sizes.post_lanes
    valid = min(c.channels, lanes, sizes.columns)
    outputs = c.n_count * c.ho_count * c.wo_count
    item = 4 if c.wide else sizes.item_bytes
    size = lanes * item
    skip = c.out_group * sizes.group_bytes
    words = -(-(skip + size) // sizes.word_bytes)
    memory = memory_of(c.out_address)
    factor = canonical(c.scale)
    entry_bytes = 4 * sizes.columns
    union = 0
    results = np.zeros((outputs, lanes), np.uint32)
    output = 0
    for n in range(c.n_count):
        for ho in range(c.ho_count):
            for wo in range(c.wo_count):
                entry = c.accumulator_address + n * c.n_stride + ho * c.ho_stride + wo * c.wo_stride
                for ph in range(c.ph_count):
                    for pw in range(c.pw_count):
                        place = entry + ph * c.ph_stride + pw * c.pw_stride
                        if place < 0 or place >= len(sums):
                            return -1
                        if not is_written(sums_written, place * entry_bytes, entry_bytes):
                            return -1
                for lane in range(valid):
                    bits, flags = _reduced(c, sums, entry, lane)
                    if flags < 0:
                        return -1
                    bits, new = multiply(bits, factor)
                    union |= flags | new
                    if not c.wide:
                        bits, new = narrow(bits, mantissa_bits, exponent_bits)
                        union |= new
                    results[output, lane] = bits
                address = c.out_address + n * c.out_n_stride + ho * c.out_ho_stride
                address += wo * c.out_wo_stride
                for word in range(words):
                    if word_place(sizes, memory, address + word) < 0:
                        return -1
                output += 1
    output = 0
    for n in range(c.n_count):
        for ho in range(c.ho_count):
            for wo in range(c.wo_count):
                address = c.out_address + n * c.out_n_stride + ho * c.out_ho_stride
                address += wo * c.out_wo_stride
                for byte in range(size):
                    word, rest = divmod(skip + byte, sizes.word_bytes)
                    place = word_place(sizes, memory, address + word) + rest
                    lane, part = divmod(byte, item)
                    data[place] = (results[output, lane] >> np.uint32(8 * part)) & np.uint32(0xFF)
                    written[place] = True
                output += 1
    return union
