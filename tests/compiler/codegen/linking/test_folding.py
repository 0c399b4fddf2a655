"""Streams with and without folded loops execute the same commands."""

import random

import pytest

from compiler.codegen.cost import Command
from compiler.codegen.linking.folding import fold
from hw.isa.encoding import COMMAND_BYTES, Opcode
from hw.isa.execution import dispatched
from hw.isa.loops import LOOP_LEVELS


def load(address, place=0, **header):
    fields = {"buffer_address": place, "run_bytes": 8, "row_bytes": 8, "dram_address": address}
    return Command(Opcode.LOAD, fields=fields, **header)


def work(place, **header):
    fields = {"accumulator_bank": 0, "x_address": place, "channels": 1}
    return Command(Opcode.MATMUL, fields=fields, **header)


def run(commands):
    """What is executed: opcode, semaphores, places, and the address at that time."""
    stream = [(command.opcode, command.fields) for command in commands]
    return [
        (
            stream[place][0], commands[place].wait, commands[place].signal,
            stream[place][1].get("x_address", stream[place][1].get("buffer_address")),
            counters.address(stream[place][1]) if stream[place][0] is Opcode.LOAD else None,
        )
        for place, counters in dispatched(stream) if stream[place][0] is not Opcode.REPEAT
    ]  # fmt: skip


def depths(commands):
    """How many loops each command is in."""
    found = [0] * len(commands)
    for place, command in enumerate(commands):
        if command.opcode is Opcode.REPEAT:
            for number in range(command.fields["first"] // COMMAND_BYTES, place):
                found[number] += 1
    return found


def check(commands, count, cuts=()):
    """So many commands are left, and they do the same; returns them and the places."""
    wanted = run(commands)
    folded, places = fold(commands, cuts)
    assert run(folded) == wanted
    assert len(folded) == count
    assert len(places) == len(commands)
    for command, place in zip(commands, places, strict=True):
        assert folded[place].opcode in (command.opcode, Opcode.REPEAT)
    return folded, places


def tile(number, size=5):
    """Commands of a tile: a load, and work on what it brings."""
    return [load(1000 + 64 * number), *(work(place, wait=place % 2) for place in range(1, size))]


def test_tiles():
    commands = [work(99), *(c for n in range(6) for c in tile(n)), work(98)]
    folded, places = check(commands, 1 + 5 + 1 + 1)
    repeat = folded[6]
    assert repeat.fields == {"level": 0, "count": 6, "first": COMMAND_BYTES}
    assert folded[1].fields["loop0_stride"] == 64
    assert places == [0, 1, 2, 3, 4, 5, *[6] * 25, 7]


def test_nothing_comes_again():
    check([work(place) for place in range(50)], 50)
    # A loop takes time, too.
    check([c for n in range(2) for c in tile(n)], 10)


def test_what_differs_is_not_folded():
    """In a semaphore, a place in the buffer, or the distance of addresses."""
    check([c for n in range(3) for c in [load(64 * n, wait=n), *tile(0, 9)[1:]]], 27)
    check([c for n in range(3) for c in [load(64 * n, place=n), *tile(0, 9)[1:]]], 27)
    uneven = [c for n in range(4) for c in [load(64 * n * n), *tile(0, 12)[1:]]]
    folded, _ = check(uneven, 26)
    assert [c.fields["count"] for c in folded if c.opcode is Opcode.REPEAT] == [2, 2]


def test_loops_in_loops():
    """Of two outer iterations each with ten inner ones; and where there are loops already."""

    def rows(row):
        inner = (c for n in range(10) for c in [load(1000 * row + 16 * n), work(1), work(2)])
        return [work(50), *inner, work(51)]

    commands = [c for row in range(4) for c in rows(row)]
    folded, _ = check(commands, 1 + 3 + 1 + 1 + 1)
    assert depths(folded)[:4] == [1, 2, 2, 2]
    levels = [c.fields["level"] for c in folded if c.opcode is Opcode.REPEAT]
    assert len(set(levels)) == 2
    again, _ = check(folded * 1, 7)
    assert [c.fields for c in again] == [c.fields for c in folded]


def test_no_more_loops_than_counters():
    """Each loop in the one before; the fifth is written out."""
    commands = [load(0)]
    for depth in range(LOOP_LEVELS + 1):
        later = [
            load(c.fields["dram_address"] + 4096 * 4**depth) if c.opcode is Opcode.LOAD
            else work(c.fields["x_address"]) for c in commands
        ]  # fmt: skip
        edges = [[work(100 * depth + place) for place in range(10)] for _ in range(2)]
        commands = [*commands, *edges[0], *later, *edges[1]]
    folded, _ = fold(commands)
    wanted = run(commands)
    assert run(folded) == wanted
    assert max(depths(folded)) == LOOP_LEVELS


def test_cuts():
    """No loop has commands of two steps; loops that are there already may not be cut."""
    commands = [c for n in range(8) for c in tile(n)]
    check(commands, 5 + 1)
    folded, places = check([c for n in range(8) for c in tile(n)], 2 * (5 + 1), cuts=[20])
    assert places[19] == 5 and places[20] == 6
    check(folded, 2 * (5 + 1), cuts=[3])


@pytest.mark.parametrize("number", range(6))
def test_random_streams(number, seed):
    """Of few different commands, so that much comes again by chance."""
    rng = random.Random(f"{seed} {number}")
    commands = []
    while len(commands) < 300:
        part = [rng.choice((0, 0, 1, 2)) for _ in range(rng.randint(1, 12))]
        step = 16 * rng.randint(-3, 3)
        for time in range(rng.randint(1, 5)):
            commands += [
                work(kind) if kind else load(5000 + step * time + 32 * place)
                for place, kind in enumerate(part)
            ]
    wanted = run(commands)
    folded, _ = fold(commands, rng.sample(range(len(commands)), 2))
    assert run(folded) == wanted
    assert len(folded) < len(commands)
