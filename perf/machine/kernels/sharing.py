"""How fast engines work beside each other: the buffer has one write channel and a read in each bank
and cycle, the bus a beat in each direction."""

from .compilation import inline
from .queues import LOAD, MATMUL, POST, QUEUES, STORE, VECTOR

__all__ = ["share"]

_QUEUES = QUEUES
#: An engine that waits is never slower than this: what it waits for has gaps.
_LEAST = 0.01
#: Words per cycle that VECTOR's queue of results takes up, so that none of them is late.
_FEW = 0.05
#: A result of VECTOR that waits for LOAD's words is late by more than one of them, as these come in
#: rows; a word for it that waits for STORE's words seldom is, as words are read ahead.
_ROWS, _AHEAD = 0.24, 0.08


@inline
def share(works, kinds, queues, cores, now):
    """Sets the rates of everything that is at work from cycle ``now`` on.

    In the order of the hardware's priorities: words of POST, of LOAD, of VECTOR are written; words
    of the array, of STORE, of VECTOR are read.
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
        load = queues[first + LOAD]
        if load.running >= 0 and load.begins <= now:
            work = works[kinds[load.running]]
            part = work.words / max(1, work.cycles)
            load.rate = max(_LEAST, min(1.0, (1 - written) / part)) if part > 0 else 1.0
            written += part * load.rate
            # A beat stays on the bus until its words are written.
            reads += load.rate * max(work.read_beats, work.words) / max(1, work.cycles)
        store = queues[first + STORE]
        stored, banks = 0.0, 0
        if store.running >= 0:
            work = works[kinds[store.running]]
            part = work.reads / max(1, work.cycles)
            free = 1 - tiles - (vectors if work.banks & array else 0.0)
            store.rate = max(_LEAST, min(1.0, free / part)) if part > 0 else 1.0
            stored, banks = part * store.rate, work.banks
            writes += store.rate * work.write_beats / max(1, work.cycles)
        vector = queues[first + VECTOR]
        if vector.running >= 0:
            work = works[kinds[vector.running]]
            rate, part = 1.0, work.words / max(1, work.cycles)
            if part > _FEW:
                rate = min((1 - written) / part, 1 - written * part / (1 - _ROWS * written))
            part = work.reads / max(1, work.cycles)
            free = 1.0
            if work.banks & banks:
                free -= stored
                rate -= _AHEAD * stored * part
            free -= vectors if work.banks & array else 0.0
            if part > 0:
                rate = min(rate, free / part)
            vector.rate = max(_LEAST, min(1.0, rate))
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
    count, rest = 0, work.banks
    while rest != 0:
        count += rest & 1
        rest >>= 1
    cycles = max(1, work.cycles)
    tiles = min(1.0, work.pace * work.tiles / cycles)
    return tiles, min(1.0, work.reads / cycles) / max(1, count), work.banks
