"""Counters of loops against loops written out in Python."""

import itertools

from hw.isa.encoding import Opcode, decode, encode
from hw.isa.execution import dispatched
from hw.isa.loops import LOOP_LEVELS, stride_name


def executed(stream):
    """(number of the command, address that it has) of each LOAD of a stream at offset 0."""
    commands, found = [decode(command) for command in stream], []
    for place, counters in dispatched(commands):
        opcode, fields = commands[place]
        if opcode is Opcode.LOAD:
            found.append((place, counters.address(fields)))
    assert counters.values == [0] * LOOP_LEVELS
    return found


def load(**fields):
    return encode(Opcode.LOAD, buffer_address=0, run_bytes=8, row_bytes=8, **fields)


def repeat(level, count, first):
    return encode(Opcode.REPEAT, level=level, count=count, first=64 * first)


def test_loops_inside_each_other():
    """Four levels, in no particular order from the inside out, with a command in each body."""
    levels, counts = (2, 0, 3, 1), (3, 1, 2, 4)  # the innermost first
    stream = [load(dram_address=64, **{stride_name(level): 8}) for level in reversed(levels)]
    stream += [repeat(level, count, 3 - n) for n, (level, count) in enumerate(zip(levels, counts))]
    expected = []
    for a in range(counts[3]):
        expected.append((0, 64 + 8 * a))
        for b in range(counts[2]):
            expected.append((1, 64 + 8 * b))
            for c in range(counts[1]):
                expected.append((2, 64 + 8 * c))
                expected += [(3, 64 + 8 * d) for d in range(counts[0])]
    assert executed(stream) == expected


def test_addresses_add_up_modulo_the_window():
    """All strides in one command; the sums wrap at 2**32."""
    strides = (8, -16, (1 << 31) - 8, 1 << 20)
    values = {stride_name(level): stride for level, stride in enumerate(strides)}
    counts = (2, 3, 4, 2)
    stream = [load(dram_address=8, **values)]
    stream += [repeat(level, count, 0) for level, count in enumerate(counts)]
    steps = itertools.product(*(range(count) for count in reversed(counts)))
    expected = [
        (8 + sum(n * stride for n, stride in zip(reversed(step), strides))) % (1 << 32)
        for step in steps
    ]
    assert [address for _, address in executed(stream)] == expected


def test_one_iteration_is_no_loop():
    assert executed([load(dram_address=0, loop0_stride=8), repeat(0, 1, 0)]) == [(0, 0)]


def test_the_same_counter_serves_one_loop_after_the_other():
    stream = [load(dram_address=0, loop2_stride=8), repeat(2, 2, 0)] * 2
    stream[3] = repeat(2, 3, 2)
    assert executed(stream) == [(0, 0), (0, 8), (2, 0), (2, 8), (2, 16)]
