"""A whole run: cycle after cycle, and loops that have settled continued by their period."""

from .compilation import kernel
from .control import ENDED
from .cycle import step
from .streaming import left_in_tile, stream, unchanged

__all__ = ["SNAPSHOTS", "simulate"]

#: Iterations of a loop that one is compared with.
SNAPSHOTS = 32
#: Cycles until the next look whether only the array works, and the least vectors that are worth it.
_REST = 32
#: Without ``exact``: iterations at the beginning that count for nothing; so many behind them must
#: take times that differ by less than this part of one. Short ones may take any time later.
_SETTLING, _WINDOW, _STEADY, _LONG = 1, 4, 256, 8192


@kernel
def simulate(
    shared, cores, loads, stores, sizes, commands, batches, counts, core_counts, ends, batch_ends,
    latency, memory, counters, times, loop_place, own_state, own_counts, snapshots,
    snapshot_counters, snapshot_meta, kept, continues, exact, patience,
):  # fmt: skip
    """Executes a program to its end.

    ``memory``, ``counters``: all state, all counters, as plain numbers that share their memory with
    the records; ``times``: places in ``memory`` that hold cycles; ``loop_place``: of the loops'
    counters; ``own_state``, ``own_counts``: for each core where the array's state begins and ends,
    and where its counters begin. ``snapshots``, (levels, SNAPSHOTS, state), ``snapshot_counters``,
    ``snapshot_meta`` and the numbers ``kept`` of each level are scratch memory. ``continues``:
    loops are continued by their period, with ``exact`` only where the state repeats; ``patience``:
    so many cycles nothing may happen.

    Returns the number of cycles, or -1 if nothing happens any more, and those in which every block
    was looked at.
    """
    now, done, simulated, before, checked = 0, 0, 0, -1, 0
    state, tally = shared[0], counts[0]
    turns = max(state.t_queues, 2)
    watched, left, rest = -1, 0, 0
    seen, earlier = memory.copy(), counters.copy()
    while state.state != ENDED:
        repeated = step(
            state, cores, loads, stores, sizes, commands, batches, tally, core_counts, ends,
            latency, now,
        )  # fmt: skip
        now += 1
        simulated += 1
        if state.batches_done != done:
            batch_ends[done] = now - 1
            done = state.batches_done
        # Where only the array works.
        if watched >= 0:
            left -= 1
            if left == 0:
                count = left_in_tile(cores[watched], commands) - 2
                first, last = own_state[watched, 0], own_state[watched, 1]
                core = cores[watched]
                if count > 0 and unchanged(state, core, commands, memory, seen, first, last):
                    stream(
                        state, cores, watched, sizes, commands, core_counts, counters, earlier,
                        own_counts[watched], count, turns,
                    )  # fmt: skip
                    now += count
                else:
                    rest = _REST
                watched = -1
        elif rest > 0:
            rest -= 1
        elif continues:
            for index in range(len(cores)):
                if left_in_tile(cores[index], commands) > turns + _REST:
                    watched, left = index, turns
                    seen[:] = memory
                    earlier[:] = counters
                    break
        if repeated >= 0 and continues:
            watched = -1
            now = _continue(
                state, commands, repeated, memory, counters, times, loop_place, snapshots,
                snapshot_counters, snapshot_meta, kept, exact, now,
            )  # fmt: skip
        if simulated - checked >= patience:
            checked = simulated
            progress = tally.COMMANDS + tally.READ_BEATS + tally.WRITE_BEATS
            for index in range(len(core_counts)):
                core = core_counts[index]
                progress += core.VECTORS + core.POST_BUSY + core.VECTOR_BUSY + core.LOSS_BUSY
            if progress == before:
                return -1, simulated
            before = progress
    return now, simulated


@kernel
def _continue(
    state, commands, repeated, memory, counters, times, loop_place, snapshots, snapshot_counters,
    snapshot_meta, kept, exact, now,
):  # fmt: skip
    """Behind a REPEAT that went back: how late it is, many iterations later if the loop has
    settled.

    The state is compared with that of earlier iterations. Where commands in the loop move with its
    counter, their places in a block of memory must be the same, too, and so must be the bits of the
    counter, which decide how long an address takes. Without ``exact`` a loop of long iterations,
    the last of which took about the same time, goes on in their average.
    """
    command = commands[repeated]
    level = command.level
    counter = memory[loop_place + level]
    bits, rest = 0, counter
    while rest != 0:
        bits += 1
        rest >>= 1
    if counter == 1 or snapshot_meta[level, 0, 2] != repeated:
        kept[level] = 0
    elif command.strided and counter == 1 << (bits - 1):
        kept[level] = 0
    # What it looks like, seen from now and from here.
    number = kept[level] % SNAPSHOTS
    own = snapshots[level, number]
    own[:] = memory
    for index in times:
        if own[index] != 0:
            own[index] -= now
    own[loop_place + level] = counter % command.order
    for back in range(1, min(kept[level], SNAPSHOTS - 1) + 1):
        other = (kept[level] - back) % SNAPSHOTS
        equal = True
        for index in range(len(own)):
            if own[index] != snapshots[level, other, index]:
                equal = False
                break
        if not equal:
            continue
        period = counter - snapshot_meta[level, other, 0]
        last = command.count - 1
        if command.strided:
            last = min(last, (1 << bits) - 1)
        times_more = (last - counter) // period
        if times_more <= 0:
            break
        late = times_more * (now - snapshot_meta[level, other, 1])
        for index in range(len(counters)):
            counters[index] += times_more * (
                counters[index] - snapshot_counters[level, other, index]
            )
        for index in times:
            if memory[index] != 0:
                memory[index] += late
        memory[loop_place + level] = counter + times_more * period
        kept[level] = 0
        snapshot_meta[level, 0, 2] = repeated
        return now + late
    window = max(_WINDOW, command.order)
    if not exact and window < SNAPSHOTS - 1 and kept[level] > window + _SETTLING:
        shortest, longest, later = now, 0, now
        for back in range(1, window + 1):
            earlier = snapshot_meta[level, (kept[level] - back) % SNAPSHOTS, 1]
            shortest, longest = min(shortest, later - earlier), max(longest, later - earlier)
            later = earlier
        times_more = command.count - 2 - counter
        steady = longest >= _LONG and (longest - shortest) * _STEADY <= longest
        if times_more > 0 and steady:
            other = (kept[level] - window) % SNAPSHOTS
            late = times_more * (now - later) // window
            for index in range(len(counters)):
                counters[index] += (
                    times_more * (counters[index] - snapshot_counters[level, other, index])
                ) // window
            for index in times:
                if memory[index] != 0:
                    memory[index] += late
            memory[loop_place + level] = counter + times_more
            kept[level] = 0
            return now + late
    snapshot_meta[level, number, 0] = counter
    snapshot_meta[level, number, 1] = now
    snapshot_meta[level, number, 2] = repeated
    snapshot_counters[level, number] = counters
    if number == 0:
        snapshot_meta[level, 0, 2] = repeated
    kept[level] += 1
    return now
