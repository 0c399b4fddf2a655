"""How fast engines work beside each other: the buffer has one write channel and a read in each bank
and cycle, the bus a beat in each direction."""

from .compilation import inline
from .queues import LOAD, MATMUL, POST, QUEUES, STORE, VECTOR

__all__ = ["share"]

_QUEUES = QUEUES
#: An engine that waits is never slower than this: what it waits for has gaps.
_LEAST = 0.01


@inline
def share(works, kinds, queues, cores, now):
    """Sets the rates of everything that is at work from cycle ``now`` on.

    In the order of the hardware's priorities: words of POST, of VECTOR, of LOAD are written; words
    of the array, of VECTOR, of STORE are read.
    """
    reads, writes = 0.0, 0.0
    for core in range(cores):
        first = core * _QUEUES
        tiles, vectors, array = _array(works, kinds, queues[first + MATMUL], now)
        written = 0.0
        post = queues[first + POST]
        if post.running >= 0:
            work = works[kinds[post.running]]
            written = min(1.0, work.words / max(1, work.cycles))
        vector = queues[first + VECTOR]
        taken, streamed = 0.0, 0
        if vector.running >= 0:
            work = works[kinds[vector.running]]
            part, rate = work.words / max(1, work.cycles), 1.0
            if part > 0:
                rate = min(rate, (1 - written) / part)
            # Of each of its banks; how its own streams hold each other up has been measured.
            streamed = work.banks
            taken = work.reads / max(1, work.cycles) / max(1, _count(streamed))
            if taken > 0 and streamed & array:
                rate = min(rate, (1 - vectors) / taken)
            vector.rate = max(_LEAST, min(1.0, rate))
            written += part * vector.rate
            taken *= vector.rate
        load = queues[first + LOAD]
        if load.running >= 0 and load.begins <= now:
            work = works[kinds[load.running]]
            part = work.words / max(1, work.cycles)
            load.rate = max(_LEAST, min(1.0, (1 - written) / part)) if part > 0 else 1.0
            # A beat stays on the bus until its words are written.
            reads += load.rate * max(work.read_beats, work.words) / max(1, work.cycles)
        store = queues[first + STORE]
        if store.running >= 0:
            work = works[kinds[store.running]]
            part = work.reads / max(1, work.cycles)
            free = 1 - tiles - (vectors if work.banks & array else 0.0)
            free -= taken if work.banks & streamed else 0.0
            store.rate = max(_LEAST, min(1.0, free / part)) if part > 0 else 1.0
            writes += store.rate * work.write_beats / max(1, work.cycles)
    for core in range(cores):
        if reads > 1:
            queues[core * _QUEUES + LOAD].rate /= reads
        if writes > 1:
            queues[core * _QUEUES + STORE].rate /= writes


@inline
def _array(works, kinds, queue, now):
    """Cycles of which the array's weights take the channel that STORE reads by, and in which its
    vectors take a bank, as shares; and the banks."""
    if queue.running < 0 or queue.begins > now:
        return 0.0, 0.0, 0
    work = works[kinds[queue.running]]
    cycles = max(1, work.cycles)
    tiles = min(1.0, work.pace * work.tiles / cycles)
    return tiles, min(1.0, work.reads / cycles) / max(1, _count(work.banks)), work.banks


@inline
def _count(banks):
    """How many banks there are in a mask."""
    count, rest = 0, banks
    while rest != 0:
        count += rest & 1
        rest >>= 1
    return count
