"""The way to memory (hw/bus/axi_mux.py), and the memory (verif/sim/rtl/axi_ram.v), a cycle at a
time.

Requester 0 is the fetch, then come the LOADs of the cores; STOREs number from 0.
"""

from hw.bus.axi_mux import WRITE_ORDER_DEPTH

from .compilation import inline
from .fifo import pop, push

__all__ = ["MEMORY_QUEUE", "ORDER", "grant", "step_reads", "step_writes"]

#: Write bursts whose beats may be due at the same time.
ORDER = WRITE_ORDER_DEPTH
#: Bursts that the memory keeps of each direction.
MEMORY_QUEUE = 16
#: Bits of a burst: who asks, then its beats minus one.
_ID = 3


@inline
def grant(latest, wanted, count):
    """Who of those in the mask ``wanted`` is granted, beginning behind ``latest``; -1: nobody."""
    for step in range(1, count + 1):
        candidate = (latest + step) % count
        if wanted >> candidate & 1:
            return candidate
    return -1


@inline
def step_reads(shared, counts, latency, taken, burst, now):
    """One cycle; ``taken``: the beat that is offered is; ``burst``: what enters the address
    register, or -1."""
    ready = shared.d_spare == 0
    valid = shared.m_read != 0
    # The memory.
    accepted = False
    if shared.ar != 0:
        if shared.m_bursts[0] != MEMORY_QUEUE:
            accepted = True
        else:
            counts.READ_STALL += 1
    beat = shared.m_beat
    if valid and ready:
        counts.READ_BEATS += 1
    starts = shared.m_bursts[0] != 0 and now - shared.m_times[1] >= latency
    if not valid or ready:
        shared.m_read = 0
        if starts:
            head = shared.m_bursts[1]
            last = 1 if shared.m_place == head >> _ID else 0
            shared.m_read = 1
            shared.m_beat = (head & 7) << 1 | last
            shared.m_place = 0 if last else shared.m_place + 1
            if last:
                pop(shared.m_bursts)
                pop(shared.m_times)
    if accepted:
        push(shared.m_bursts, shared.ar_burst)
        push(shared.m_times, now)
    # The register of beats.
    spare = shared.d_spare != 0
    if taken or shared.d_valid == 0:
        shared.d_valid = 1 if valid or spare else 0
        shared.d_beat = shared.d_second if spare else (beat if valid else 0)
        shared.d_spare = shared.d_second = 0
    elif valid and not spare:
        shared.d_spare, shared.d_second = 1, beat
    # The register of addresses.
    if shared.ar == 0:
        if burst >= 0:
            shared.ar, shared.ar_burst = 1, burst
            shared.ar_latest = burst & 7
    elif accepted:
        shared.ar = shared.ar_burst = 0


@inline
def step_writes(shared, counts, latency, burst, beat, last, now):
    """One cycle; ``burst``: what enters the address register, or -1; ``beat``: bytes of the beat
    that enters the register of data, or -1, the ``last`` of its burst or not."""
    ready = shared.n_due[0] != 0
    accepted = False
    stalls = False
    if shared.aw != 0:
        if shared.n_used != MEMORY_QUEUE:
            accepted = True
        else:
            stalls = True
    sent = shared.w_valid != 0 and ready
    if sent:
        counts.WRITE_BEATS += 1
        counts.WRITE_BYTES += shared.w_bytes
    elif shared.w_valid != 0:
        stalls = True
    if stalls:
        counts.WRITE_STALL += 1
    # The memory.
    answers = shared.n_done[0] != 0 and now - shared.n_times[1] >= latency
    shared.n_answer = 0
    if answers:
        shared.n_answer = 1 + shared.n_done[1]
        pop(shared.n_done)
        pop(shared.n_times)
        shared.n_used -= 1
    if sent:
        if shared.n_place == shared.n_due[1] >> _ID:
            shared.n_place = 0
            push(shared.n_done, shared.n_due[1] & 7)
            push(shared.n_times, now)
            pop(shared.n_due)
        else:
            shared.n_place += 1
    if accepted:
        push(shared.n_due, shared.aw_burst)
        shared.n_used += 1
    # The register of beats.
    spare = shared.w_spare != 0
    if sent or shared.w_valid == 0:
        shared.w_valid = 1 if beat >= 0 or spare else 0
        shared.w_bytes = shared.w_second if spare else (beat if beat >= 0 else 0)
        shared.w_spare = shared.w_second = 0
    elif beat >= 0:
        shared.w_spare, shared.w_second = 1, beat
    if beat >= 0 and last:
        pop(shared.w_order)
    # The register of addresses.
    if shared.aw == 0:
        if burst >= 0:
            shared.aw, shared.aw_burst = 1, burst
            shared.aw_latest = burst & 7
            push(shared.w_order, burst & 7)
    elif accepted:
        shared.aw = shared.aw_burst = 0
