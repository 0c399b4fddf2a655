"""How many tokens a semaphore may come to hold."""

import random

import pytest

from compiler.codegen.cost import Command, bits, executed
from compiler.codegen.linking.tokens import MAX_TOKENS, fits
from hw.isa.encoding import COMMAND_BYTES, Opcode

DEPTH = 3
QUEUES = Opcode.LOAD, Opcode.VECTOR, Opcode.STORE


def repeat(first, count, level=0):
    fields = {"first": first * COMMAND_BYTES, "count": count, "level": level}
    return Command(Opcode.REPEAT, fields=fields)


def fits_one_by_one(commands, depth):
    """The same by counting: while a command waits for a token, those that follow are dispatched
    until its queue is full and one more of its kind comes."""
    stream = list(executed(commands, most=depth + 2))
    for number in range(32):
        signals = [place for place, c in enumerate(stream) if c.signal >> number & 1]
        waits = [place for place, c in enumerate(stream) if c.wait >> number & 1]
        if len(signals) != len(waits):
            return False
        for taken, (given, place) in enumerate(zip(signals, waits, strict=True)):
            # Pairs of queues that share a semaphore do so one after the other.
            other = [n for n in waits[taken:] if stream[n].opcode != stream[place].opcode]
            last = taken + len([n for n in waits[taken:] if not other or n < other[0]])
            kind = [n for n, c in enumerate(stream) if c.opcode == stream[place].opcode]
            stop = kind.index(place) + depth + 1
            limit = kind[stop] if stop < len(kind) else len(stream)
            held = [n for n in signals[taken:last] if n < limit]
            if given >= place or len(held) > MAX_TOKENS:
                return False
    return True


def test_a_token_comes_before_the_command_that_takes_it():
    give, take = Command(Opcode.LOAD, signal=1), Command(Opcode.VECTOR, wait=1)
    assert fits([give, take], DEPTH)
    assert not fits([take, give], DEPTH)
    assert not fits([give], DEPTH) and not fits([take], DEPTH)


@pytest.mark.parametrize(("count", "wanted"), [(MAX_TOKENS, True), (MAX_TOKENS + 1, False)])
def test_more_tokens_than_a_semaphore_holds(count, wanted):
    """All are given before the first one is taken."""
    commands = [Command(Opcode.LOAD, signal=2)] * count + [Command(Opcode.VECTOR, wait=2)] * count
    assert fits(commands, DEPTH) is wanted


def test_what_is_dispatched_while_a_queue_is_full():
    """Tokens behind what the queue has room for do not count."""
    pair = [Command(Opcode.LOAD, signal=1), Command(Opcode.VECTOR, wait=1)]
    assert fits(pair * 100, DEPTH)
    assert fits([*pair, repeat(0, 1000)], DEPTH)


def test_any_program(seed):
    """As counted one by one, whether they fit or not."""
    rng = random.Random(seed)
    found = set()
    for _ in range(150):
        commands = []
        for number in range(rng.randrange(1, 3)):
            source, target = rng.sample(QUEUES, 2)
            most = rng.choice([1, MAX_TOKENS, MAX_TOKENS + 2])
            waiting = 0
            for _ in range(rng.randrange(40)):
                give = waiting == 0 or (waiting < most and rng.random() < 0.6)
                waiting += 1 if give else -1
                mask = 1 << number
                commands.append(
                    Command(source, signal=mask) if give else Command(target, wait=mask)
                )
            commands += [Command(target, wait=1 << number)] * (waiting - (rng.random() < 0.1))
        if commands and rng.random() < 0.5:
            commands.append(repeat(0, rng.choice([2, 50])))
        wanted = fits_one_by_one(commands, DEPTH)
        assert fits(commands, DEPTH) is wanted, [
            (c.opcode.name, list(bits(c.wait)), list(bits(c.signal))) for c in commands
        ]
        found.add(wanted)
    assert found == {True, False}
