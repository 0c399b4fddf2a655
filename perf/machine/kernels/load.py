"""LOAD, a cycle at a time (hw/dma/load.py, gearbox.py)."""

from .bursts import FINAL, FIRST, LAST, burst_end, burst_offset, step_planner
from .compilation import inline
from .fifo import pop, push
from .queues import LOAD

__all__ = ["load_ready", "load_requests", "load_takes_beat", "step_load"]


@inline
def load_ready(core, planner):
    return planner.active == 0 and core.l_waiting == 0


@inline
def load_requests(core, planner, sizes):
    return planner.out != 0 and core.l_pending[0] != sizes.outstanding


@inline
def _emits(core):
    """Whether a word is complete and there is room for it."""
    return core.l_packing != 0 and core.l_level > core.l_top and core.l_spare == 0


@inline
def _ends_run(core):
    return core.l_ending != 0 and core.l_row_end != 0 and core.l_level == core.l_top + 1


@inline
def _kept(core, sizes):
    """Slots that stay when a word leaves."""
    if _ends_run(core):
        return 0
    return core.l_used - (core.l_position + core.l_top + 1 >> sizes.beat_bits)


@inline
def load_takes_beat(core, sizes):
    if core.l_packing == 0:
        return False
    emit = _emits(core)
    if core.l_ending != 0 and not (emit and _ends_run(core) and core.l_final == 0):
        return False
    if emit:
        slots = (sizes.beat_granules - 1 + sizes.word_granules - 1) // sizes.beat_granules + 1
        return _kept(core, sizes) < min(2, slots)
    return core.l_level <= core.l_top


@inline
def step_load(
    core, planner, sizes, commands, counts, accepted, requested, beat, beat_last, written
):
    """One cycle; ``requested``: the burst offered is, ``beat``: one arrives and is taken, the last
    one of its burst if ``beat_last``; ``written``: the word offered is accepted. Returns whether
    the last word of a command was."""
    if core.l_unfinished == 0 and not accepted:
        return False
    if planner.out != 0 or core.l_pending[0] != 0 or core.l_unfinished != 0:
        counts.LOAD_BUSY += 1
    command = commands[core.q_head[LOAD]]
    burst = core.l_pending[1]
    offered = planner.burst
    # The packer.
    free = core.l_packing == 0 and core.l_prime == 0
    starts = free and core.l_waiting != 0
    emit = _emits(core)
    ends_run = _ends_run(core)
    word_final = 1 if ends_run and core.l_final != 0 else 0
    used = _kept(core, sizes) if emit else core.l_used
    level = core.l_level
    step = core.l_position + core.l_top + 1
    word_address = core.l_address
    if emit:
        level -= core.l_top + 1
        core.l_position = 0 if ends_run else step & (1 << sizes.beat_bits) - 1
        core.l_address = (core.l_address + 1) & 0xFFFFFF
        if ends_run:
            core.l_ending = 0
        if word_final:
            core.l_packing = 0
    if emit or core.l_prime != 0:
        _next_word(core, sizes)
    if core.l_prime != 0:
        core.l_prime, core.l_packing = 0, 1
    if beat:
        first = burst & FIRST != 0 and core.l_begun == 0
        end = burst_end(burst) if beat_last else (1 << sizes.beat_bits) - 1
        used += 1
        level += end + 1 - (burst_offset(burst) if first else 0)
        core.l_ending = 1 if beat_last and burst & LAST else 0
        core.l_final = 1 if beat_last and burst & FINAL else 0
        if first:
            core.l_position = burst_offset(burst)
        core.l_begun = 0 if beat_last else 1
        if beat_last:
            pop(core.l_pending)
    core.l_used, core.l_level = used, level
    if starts:
        core.l_waiting, core.l_prime = 0, 1
        core.l_address = core.l_next_address
        core.l_row, core.l_row_end = core.l_next_row, 1
    # Words on their way out: one that is offered, one behind it.
    done = core.l_out != 0 and written and core.l_out_final != 0
    spare = core.l_spare != 0
    if written or core.l_out == 0:
        core.l_out = 1 if emit or spare else 0
        core.l_out_address = core.l_spare_address if spare else (word_address if emit else 0)
        core.l_out_final = core.l_spare_final if spare else (word_final if emit else 0)
        core.l_spare = core.l_spare_address = core.l_spare_final = 0
    elif emit:
        core.l_spare, core.l_spare_address, core.l_spare_final = 1, word_address, word_final
    if requested:
        push(core.l_pending, offered)
    step_planner(planner, sizes, command, accepted, core.q_address[LOAD], requested)
    if accepted:
        core.l_waiting = 1
        core.l_next_address = command.buffer_address
        core.l_next_row = command.row_bytes // sizes.granule - 1
    core.l_unfinished += (1 if accepted else 0) - core.l_done
    core.l_done = 1 if done else 0
    return done


@inline
def _next_word(core, sizes):
    """How much of the next word belongs to its row."""
    if sizes.word_granules == 1:
        core.l_top, core.l_row_end = 0, 1
        return
    source = core.l_row if core.l_row_end != 0 else core.l_left
    rest = source - sizes.word_granules
    core.l_left = rest if rest >= 0 else 0
    core.l_row_end = 1 if rest < 0 else 0
    core.l_top = source if rest < 0 else sizes.word_granules - 1
