"""One cycle of the whole machine: who gets what, then every block's registers."""

from hw.control.fetch import AHEAD

from .bursts import burst_length
from .bus import ORDER, grant, step_reads, step_writes
from .compilation import inline
from .control import step_control
from .load import load_ready, load_requests, load_takes_beat, step_load
from .loss import loss_reads, loss_ready, step_loss
from .matmul import array_reads, matmul_ready, matmul_step, step_matmul
from .post import post_reads, post_ready, step_post
from .queues import (
    LOAD,
    LOSS,
    MATMUL,
    POST,
    QUEUES,
    STORE,
    VECTOR,
    WEIGHTS,
    arbitrate_tokens,
    offers,
    step_queue,
)
from .store import step_store, store_beat, store_reads, store_ready, store_requests
from .vector import step_vector, vector_ready
from .vector_reader import asks
from .weights import step_weights, weights_request

__all__ = ["step"]

_AHEAD = AHEAD


@inline
def step(
    shared, cores, loads, stores, sizes, commands, batches, counts, core_counts, ends, latency, now
):
    """One cycle; the number of a REPEAT that went back in it, or -1."""
    # What is on the bus in this cycle.
    count = len(cores)
    wanted = 0
    if (
        shared.f_running != 0
        and shared.f_fresh != 0
        and shared.f_more != 0
        and shared.f_unread <= (_AHEAD - 1) * shared.f_beats
        and shared.f_outstanding != _AHEAD
    ):
        wanted = 1
    for index in range(count):
        if load_requests(cores[index], loads[index], sizes[index]):
            wanted |= 2 << index
    reader = -1
    if wanted != 0 and shared.ar == 0:
        reader = grant(shared.ar_latest, wanted, 1 + count)
    wanted = 0
    for index in range(count):
        if store_requests(cores[index], stores[index]):
            wanted |= 1 << index
    writer = -1
    if wanted != 0 and shared.aw == 0 and shared.w_order[0] != ORDER:
        writer = grant(shared.aw_latest, wanted, count)
    receiver, beat_last, beat_taken = -1, False, False
    if shared.d_valid != 0:
        receiver, beat_last = shared.d_beat >> 1, shared.d_beat & 1 != 0
        beat_taken = receiver == 0 or load_takes_beat(cores[receiver - 1], sizes[receiver - 1])
    sender, beat = -1, 0
    if shared.w_order[0] != 0 and shared.w_spare == 0:
        sender = shared.w_order[1]
        beat = store_beat(cores[sender], sizes[sender])
        if beat == 0:
            sender = -1
    answered = shared.n_answer - 1
    read_burst, write_burst = -1, -1
    if reader == 0:
        # From its beat to the end of the line.
        read_burst = shared.f_beats - 1 - shared.f_offset % shared.f_beats << 3
    elif reader > 0:
        read_burst = burst_length(loads[reader - 1].burst) << 3 | reader
    if writer >= 0:
        write_burst = burst_length(stores[writer].burst) << 3 | writer
    beat_bytes = -1
    if sender >= 0:
        beat_bytes = (beat >> 1) * sizes[sender].granule
    received = 0
    if receiver == 0:
        received = 2 if beat_last else 1
    # Sequencer and semaphores look at the queues as they are.
    pushed, address, repeated = step_control(
        shared, cores, sizes, commands, batches, counts, reader == 0, received
    )
    target_core, target_queue = -1, -1
    if pushed >= 0:
        target_core, target_queue = commands[pushed].core, commands[pushed].queue
    take_core, take_queue, give_core, give_queue = arbitrate_tokens(shared, cores, commands)
    if give_core >= 0:
        ends[cores[give_core].q_signals[give_queue][1]] = now
    for index in range(count):
        core = cores[index]
        _step_core(
            core, loads[index], stores[index], sizes[index], commands, core_counts[index],
            reader == index + 1,
            beat_taken and receiver == index + 1,
            beat_last,
            writer == index,
            sender == index,
            answered == index,
            pushed if target_core == index else -1,
            target_queue,
            address,
            take_queue if take_core == index else -1,
            give_queue if give_core == index else -1,
        )  # fmt: skip
    step_reads(shared, counts, latency, beat_taken, read_burst, now)
    step_writes(shared, counts, latency, write_burst, beat_bytes, beat & 1 != 0, now)
    return repeated


@inline
def _bank(address, sizes):
    """The bank of a word, a bit of a mask."""
    number = address & 0x7FFFFF
    if address >> 23 & 1:
        return 1 << 16 + (number >> sizes.bank_shift1)
    return 1 << (number >> sizes.bank_shift0)


@inline
def _step_core(
    core, loads, stores, sizes, commands, counts, requested, beat, beat_last, write_requested, sent,
    answered, pushed, target, address, granted, gave,
):  # fmt: skip
    if core.q_active == 0 and core.done == 0 and pushed < 0 and _rests(core):
        counts.STALL_COMMAND += 1
        return
    # Buffer reads, first come first: weights, vectors, VECTOR, stores, LOSS.
    taken, served, stalled = 0, 0, False
    word = weights_request(core, commands)
    shared_channel = word >= 0
    if shared_channel:
        taken, served = _bank(word, sizes), 1
    issues, word = matmul_step(core)
    if word >= 0:
        bank = _bank(word, sizes)
        if not taken & bank:
            served |= 2
        taken |= bank
    busy = 0
    if core.v_state != 0:
        for number in range(3):
            word = asks(core, number)
            if word < 0:
                continue
            channel = sizes.channel_x
            if number == 1:
                channel = sizes.channel_y
            elif number == 2:
                channel = sizes.channel_z
            if not busy >> channel & 1:
                bank = _bank(word, sizes)
                if not taken & bank:
                    served |= 8 << number
                taken |= bank
            busy |= 1 << channel
            if not served >> (3 + number) & 1:
                stalled = True
    if core.s_active != 0:
        word = store_reads(core)
        if word >= 0 and not shared_channel:
            bank = _bank(word, sizes)
            if not taken & bank:
                served |= 4
            taken |= bank
    if core.o_state != 0:
        word = loss_reads(core)
        if word >= 0 and not busy >> sizes.channel_loss & 1 and not taken & _bank(word, sizes):
            served |= 64
    # Buffer writes: one channel.
    post_writes = core.p_out != 0
    vector_writes = core.v_out != 0 and not post_writes
    load_writes = core.l_out != 0 and core.v_out == 0 and not post_writes
    loss_writes = core.o_full != 0 and core.v_out == 0 and core.l_out == 0 and not post_writes
    # Accumulators.
    post_bank = post_reads(core, commands)
    post_read = post_bank >= 0 and array_reads(core, sizes) != post_bank
    # Commands that are accepted.
    load_takes = offers(core, LOAD) and load_ready(core, loads)
    weights_take = offers(core, WEIGHTS) and core.w_state == 0
    matmul_takes = offers(core, MATMUL) and matmul_ready(core, sizes, commands)
    post_takes = offers(core, POST) and post_ready(core)
    store_takes = offers(core, STORE) and store_ready(core, stores)
    vector_takes = offers(core, VECTOR) and vector_ready(core)
    loss_takes = offers(core, LOSS) and loss_ready(core)
    finished = core.done
    done = 0
    tile_loaded = core.w_loaded >> 1 & 1 != 0
    tile_used, bias_used, ended = step_matmul(
        core, sizes, commands, counts, matmul_takes, issues, served >> 1 & 1 != 0, tile_loaded
    )
    done |= (1 << MATMUL) if ended else 0
    if step_weights(core, sizes, commands, weights_take, served & 1 != 0, tile_used, bias_used):
        done |= 1 << WEIGHTS
    if step_post(core, sizes, commands, counts, post_takes, post_bank >= 0, post_read, post_writes):
        done |= 1 << POST
    if step_load(
        core, loads, sizes, commands, counts, load_takes, requested, beat, beat_last, load_writes
    ):
        done |= 1 << LOAD
    if step_store(
        core, stores, sizes, commands, counts, store_takes, write_requested, served >> 2 & 1 != 0,
        sent, answered,
    ):  # fmt: skip
        done |= 1 << STORE
    if step_vector(
        core, sizes, commands, counts, vector_takes, served >> 3 & 7, stalled, vector_writes
    ):
        done |= 1 << VECTOR
    if step_loss(core, sizes, commands, counts, loss_takes, served >> 6 & 1 != 0, loss_writes):
        done |= 1 << LOSS
    core.done = done
    active = core.q_active | finished
    if pushed >= 0:
        active |= 1 << target
    following = 0
    for queue in range(QUEUES):
        if not active >> queue & 1:
            continue
        accepted = (
            (queue == LOAD and load_takes)
            or (queue == WEIGHTS and weights_take)
            or (queue == MATMUL and matmul_takes)
            or (queue == POST and post_takes)
            or (queue == STORE and store_takes)
            or (queue == VECTOR and vector_takes)
            or (queue == LOSS and loss_takes)
        )
        if step_queue(
            core, queue, sizes, commands, pushed if target == queue else -1, accepted,
            granted == queue, gave == queue, finished >> queue & 1, address,
        ):  # fmt: skip
            following |= 1 << queue
    core.q_active = following


@inline
def _rests(core):
    """Whether all engines are idle, with nothing under way."""
    return (
        core.m_active == 0
        and core.m_valid == 0
        and core.m_out == 0
        and core.m_vectors_ago == 0
        and core.m_drain == 0
        and core.m_settle == 0
        and core.w_state == 0
        and core.w_held == 0
        and core.w_filling == 0
        and core.w_loaded == 0
        and core.p_state == 0
        and core.v_state == 0
        and core.o_state == 0
        and core.l_unfinished == 0
        and core.s_unfinished == 0
    )
