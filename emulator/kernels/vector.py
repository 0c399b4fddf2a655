"""VECTOR: streams of words as float32 numbers, chains of operations on them, results."""

import numpy as np

from golden.arithmetic.float32_unit import PARTIAL_SUMS
from golden.arithmetic.formats import FLOAT32
from hw.isa.vector import Carry, Condition, Factor, Source, Term

from .compilation import inline, kernel
from .numbers import (
    INFINITY,
    MAGNITUDE,
    NAN,
    SIGN,
    add,
    as_float,
    canonical,
    multiply,
    narrow,
    negate,
    power_of_two,
    widen,
)
from .words import is_written, memory_of, operand, word_place

__all__ = ["read_stream", "run_chain", "store", "sum_steps", "watch"]

_WIDE, _IMMEDIATE, _COEFFICIENT = (
    int(kind) for kind in (Source.WIDE, Source.IMMEDIATE, Source.COEFFICIENT)
)
_ADD, _SUBTRACT, _START = int(Term.ADD), int(Term.SUBTRACT), int(Term.IMMEDIATE)
_ONE, _Y, _Z = int(Factor.ONE), int(Factor.Y), int(Factor.Z)
_CARRY_Y = int(Carry.Y)
_GREATER, _POSITIVE, _EQUAL = (
    int(kind) for kind in (Condition.GREATER, Condition.POSITIVE, Condition.EQUAL)
)
_FRACTION_BITS = FLOAT32.mantissa_bits


@kernel
def read_stream(
    command, layout, data, written, source, address, i0_stride, i1_stride, i2_stride, constant
):
    """Whether it may be read, and the numbers (cb, steps, rows) uint32 of one stream.

    ``constant`` is what a register or the immediate says. Lanes beyond the channels are zeros.
    """
    c, sizes = command[0], layout[0]
    rows, size, item = sizes.rows, sizes.word_bytes, sizes.item_bytes
    steps = c.i0_count * c.i1_count * c.i2_count
    numbers = np.zeros((c.cb_count, steps, rows), np.uint32)
    if source == _IMMEDIATE or source == _COEFFICIENT:
        bits = canonical(constant)
        for cb in range(c.cb_count):
            for step in range(steps):
                for lane in range(rows):
                    numbers[cb, step, lane] = bits
        return True, numbers
    wide = source == _WIDE
    if wide:
        item = 4
    block = rows * item // size
    memory = memory_of(address)
    for cb in range(c.cb_count):
        lanes = min(rows, c.channels - cb * rows)
        step = 0
        for i2 in range(c.i2_count):
            for i1 in range(c.i1_count):
                for i0 in range(c.i0_count):
                    word = address + cb * block + i0 * i0_stride + i1 * i1_stride + i2 * i2_stride
                    for part in range(block):
                        if word_place(sizes, memory, word + part) < 0:
                            return False, numbers
                    first = word_place(sizes, memory, word)
                    if not is_written(written, first, lanes * item):
                        return False, numbers
                    for lane in range(lanes):
                        place = first + lane * item
                        if wide:
                            bits = operand(data, place, 2) | operand(data, place + 2, 2) << 16
                            bits = canonical(bits)
                        else:
                            code = operand(data, place, item)
                            bits = widen(code, sizes.mantissa_bits, sizes.exponent_bits)
                        numbers[cb, step, lane] = bits
                    step += 1
    return True, numbers


@kernel
def watch(command, layout, numbers):
    """Whether an active lane holds an infinity or NaN."""
    c, rows = command[0], layout[0].rows
    for cb in range(numbers.shape[0]):
        for step in range(numbers.shape[1]):
            for lane in range(min(rows, c.channels - cb * rows)):
                if np.int64(numbers[cb, step, lane]) & MAGNITUDE >= INFINITY:
                    return True
    return False


@inline
def _chain(c, x, y, z, immediate):
    """Bits and flags of one number."""
    carry = y if c.carry == _CARRY_Y else z
    taken = True
    if c.condition == _GREATER:
        taken = x == NAN or (y != NAN and as_float(x) > as_float(y))
    elif c.condition == _POSITIVE:
        taken = z < SIGN and z >> _FRACTION_BITS != 0
    elif c.condition == _EQUAL:
        taken = z == immediate
    if not taken:
        return carry if c.keep else np.int64(0), 0
    u, union = x, 0
    if c.term == _ADD:
        u, union = add(x, y)
    elif c.term == _SUBTRACT:
        u, union = add(x, negate(y))
    elif c.term == _START:
        u = immediate
    v = u
    if c.factor != _ONE:
        factor = u
        if c.factor == _Y or c.factor == _Z:
            factor = y if c.factor == _Y else z
            if c.power:
                factor = power_of_two(factor)
        v, flags = multiply(u, factor)
        union |= flags
    if c.negate_product:
        v = negate(v)
    if c.add:
        v, flags = add(v, negate(carry) if c.negate_carry else carry)
        union |= flags
    return v, union


@kernel
def run_chain(command, layout, x, y, z):
    """Results (cb, steps, rows) of operation CHAIN on three streams, and the union of the flags."""
    c, rows = command[0], layout[0].rows
    immediate = canonical(c.immediate)
    results = np.zeros(x.shape, np.uint32)
    union = 0
    for cb in range(x.shape[0]):
        for step in range(x.shape[1]):
            for lane in range(min(rows, c.channels - cb * rows)):
                bits, flags = _chain(
                    c,
                    np.int64(x[cb, step, lane]),
                    np.int64(y[cb, step, lane]),
                    np.int64(z[cb, step, lane]),
                    immediate,
                )
                results[cb, step, lane] = bits
                union |= flags
    return results, union


@kernel
def sum_steps(numbers):
    """Sums (cb, 1, rows) over the steps of ``numbers``, in golden's order, and their flags."""
    blocks, steps, rows = numbers.shape
    results = np.zeros((blocks, 1, rows), np.uint32)
    partial = np.empty(PARTIAL_SUMS, np.int64)
    union = 0
    for cb in range(blocks):
        for lane in range(rows):
            for place in range(PARTIAL_SUMS):
                partial[place] = 0
            for step in range(steps):
                number = np.int64(numbers[cb, step, lane])
                place = step % PARTIAL_SUMS
                partial[place], flags = add(partial[place], number)
                union |= flags
            left = PARTIAL_SUMS
            while left > 1:
                left //= 2
                for place in range(left):
                    partial[place], flags = add(partial[2 * place], partial[2 * place + 1])
                    union |= flags
            results[cb, 0, lane] = partial[0]
    return results, union


@kernel
def store(command, layout, data, written, numbers):
    """Store the results (cb, steps or 1, rows), or with ``wide`` 0 what they round to.

    Returns
    -------
    the union of the flags, or -1 and nothing done for an address out of range
    """
    c, sizes = command[0], layout[0]
    rows, size = sizes.rows, sizes.word_bytes
    item = 4 if c.wide else sizes.item_bytes
    parts = rows * item // size
    memory = memory_of(c.o_address)
    last = c.i0_count * c.i1_count * c.i2_count - 1
    union = 0
    places = np.empty((c.cb_count, last + 1, parts), np.int64)
    for cb in range(c.cb_count):
        step = 0
        for i2 in range(c.i2_count):
            for i1 in range(c.i1_count):
                for i0 in range(c.i0_count):
                    address = c.o_address + cb * parts
                    address += i0 * c.o_i0_stride + i1 * c.o_i1_stride + i2 * c.o_i2_stride
                    for part in range(parts):
                        place = word_place(sizes, memory, address + part)
                        if place < 0:
                            return -1
                        places[cb, step, part] = place
                    step += 1
    codes = np.empty(numbers.shape, np.int64)
    for cb in range(numbers.shape[0]):
        for step in range(numbers.shape[1]):
            for lane in range(rows):
                bits, flags, sign = np.int64(numbers[cb, step, lane]), 0, SIGN
                if not c.wide:
                    bits, flags = narrow(bits, sizes.mantissa_bits, sizes.exponent_bits)
                    sign = 1 << (sizes.mantissa_bits + sizes.exponent_bits)
                # The one NaN has no sign.
                if c.relu and bits & sign:
                    bits = np.int64(0)
                codes[cb, step, lane] = bits
                union |= flags
    first = last if c.reduce else 0
    # Where results go to the same word, the last one stays.
    for part in range(parts):
        for cb in range(c.cb_count):
            for step in range(first, last + 1):
                place = places[cb, step, part]
                for byte in range(size):
                    lane, position = divmod(part * size + byte, item)
                    data[place + byte] = (codes[cb, step - first, lane] >> (8 * position)) & 0xFF
                    written[place + byte] = True
    return union
