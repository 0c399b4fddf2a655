"""STORE, a cycle at a time (hw/dma/store.py, gearbox.py)."""

from hw.dma.store import OUTSTANDING_WRITES, WORD_QUEUE_DEPTH

from .bursts import FINAL, FIRST, burst_length, burst_offset, step_planner
from .compilation import inline
from .fifo import pop, push
from .queues import STORE

__all__ = ["step_store", "store_beat", "store_reads", "store_ready", "store_requests"]

_OUTSTANDING, _WORDS = OUTSTANDING_WRITES, WORD_QUEUE_DEPTH


@inline
def store_ready(core, planner):
    return planner.active == 0 and core.s_active == 0 and core.s_prime == 0


@inline
def store_requests(core, planner):
    return planner.out != 0 and core.s_pending[0] != _OUTSTANDING


@inline
def store_reads(core):
    """Address of the word that is asked for, or -1."""
    return core.s_address if core.s_active != 0 and core.s_room != 0 else -1


@inline
def _straight(sizes):
    """Whether words are beats."""
    return sizes.beat_granules == 1 and sizes.word_granules == 1


@inline
def store_beat(core, sizes):
    """The beat that is offered: 0 for none, or the valid granules in it, times two, and whether it
    is the last of its burst."""
    if core.s_due[0] == 0:
        return 0
    last = 1 if core.s_sent == core.s_due[1] else 0
    if _straight(sizes):
        return 2 | last if core.s_words[0] != 0 else 0
    beat = sizes.beat_granules
    if core.s_level >= beat or (core.s_flush != 0 and core.s_level != 0):
        return (min(core.s_level, beat) - core.s_front) * 2 | last
    return 0


@inline
def step_store(core, planner, sizes, commands, counts, accepted, requested, served, sent, answered):
    """One cycle; ``requested``: the burst offered is, ``served``: the word asked for is, ``sent``:
    the beat offered is accepted, ``answered``: a response has come. Returns whether it was the last
    one of a command."""
    if core.s_unfinished == 0 and not accepted:
        return False
    if planner.out != 0 or core.s_pending[0] != 0 or core.s_unfinished != 0:
        counts.STORE_BUSY += 1
    command = commands[core.q_head[STORE]]
    offered = planner.burst
    # Words go into beats.
    word = core.s_words[1] - 1 if core.s_words[0] != 0 else -1
    beat = sizes.beat_granules
    word_taken = False
    if _straight(sizes):
        word_taken = sent
    else:
        full = core.s_level >= beat
        rest = core.s_level
        if sent:
            rest = rest - beat if full else 0
            core.s_front = 0
        ready = core.s_laying != 0 and core.s_flush == 0
        if full and not (sent and core.s_level < 2 * beat):
            ready = False
        word_taken = ready and word >= 0
        idle = core.s_laying == 0 or (core.s_flush != 0 and rest == 0)
        core.s_level = rest
        if word_taken:
            core.s_level = rest + (word >> 1) + 1
            core.s_flush = word & 1
        if idle:
            begins = core.s_offsets[0] != 0 or beat == 1
            offset = core.s_offsets[1] - 1 if core.s_offsets[0] != 0 else 0
            core.s_laying = 1 if begins else 0
            core.s_flush = 0
            core.s_level = core.s_front = offset
            if core.s_offsets[0] != 0:
                pop(core.s_offsets)
    # Words are read.
    arrives = core.s_arriving & 0xFFFF
    core.s_arriving >>= 16
    rest = core.s_left - core.s_top - 1
    run_end = rest < 0
    if word_taken:
        pop(core.s_words)
    if arrives:
        push(core.s_words, arrives)
    if served:
        # A place further on in two cycles.
        core.s_arriving |= (1 + (core.s_top << 1 | (1 if run_end else 0))) << 16
        core.s_address = (core.s_address + 1) & 0xFFFFFF
        core.s_left = core.s_extent if run_end else rest
        if run_end:
            if core.s_runs == 0:
                core.s_active = 0
            else:
                core.s_runs -= 1
    if served or core.s_prime != 0:
        _next_word(core, sizes)
    if core.s_prime != 0:
        core.s_prime, core.s_active = 0, 1
    core.s_taken += (1 if served else 0) - (1 if word_taken else 0)
    core.s_room = 1 if core.s_taken != _WORDS else 0
    # Beats and responses.
    if sent:
        if core.s_sent == core.s_due[1]:
            core.s_sent = 0
            pop(core.s_due)
        else:
            core.s_sent += 1
    done = False
    if answered:
        done = core.s_pending[1] == 2
        pop(core.s_pending)
    if requested:
        push(core.s_due, burst_length(offered))
        push(core.s_pending, 2 if offered & FINAL else 1)
        if beat != 1 and offered & FIRST:
            push(core.s_offsets, burst_offset(offered) + 1)
    step_planner(planner, sizes, command, accepted, core.q_address[STORE], requested)
    if accepted:
        core.s_prime = 1
        core.s_address = command.buffer_address
        core.s_extent = core.s_left = command.run_bytes // sizes.granule - 1
        core.s_runs = command.run_count - 1
        core.s_row, core.s_row_end = command.row_bytes // sizes.granule - 1, 1
    core.s_unfinished += (1 if accepted else 0) - core.s_done
    core.s_done = 1 if done else 0
    return done


@inline
def _next_word(core, sizes):
    """How much of the next word belongs to its row."""
    if sizes.word_granules == 1:
        core.s_top, core.s_row_end = 0, 1
        return
    source = core.s_row if core.s_row_end != 0 else core.s_rest
    rest = source - sizes.word_granules
    core.s_rest = rest if rest >= 0 else 0
    core.s_row_end = 1 if rest < 0 else 0
    core.s_top = source if rest < 0 else sizes.word_granules - 1
