"""POST, a cycle at a time (hw/engines/post/)."""

from hw.engines.post.writer import PostWriter
from hw.isa.encoding import Pool

from .compilation import inline
from .fifo import pop, push
from .queues import POST

__all__ = ["post_reads", "post_ready", "step_post"]

IDLE, _CHECK, _BEGIN, _RUN = range(4)
_FILLING, _VALID = 2, 3
_DEPTH = PostWriter.DEPTH
_SUM = int(Pool.SUM)
#: Bits of a step; its groups lie from the last one on.
_WINDOW_LAST, _OUTPUT_LAST, _WO_LAST, _HO_LAST, _FINAL = 1, 2, 4, 8, 16
_GROUPS = 5


@inline
def post_ready(core):
    return core.p_state == IDLE


@inline
def post_reads(core, commands):
    """The accumulator bank that is asked for, or -1."""
    if core.p_valid != 0 and core.p_places[0] != _DEPTH and core.p_wait == 0:
        return commands[core.p_command].accumulator_bank
    return -1


@inline
def step_post(core, sizes, commands, counts, accepted, asks, read, written):
    """One cycle; ``asks``, ``read``: an accumulator is asked for, and given; ``written``: the word
    offered is accepted. Returns whether the last write of a command was."""
    state = core.p_state
    if state == IDLE:
        if accepted:
            core.p_command = core.q_head[POST]
            core.p_state = _CHECK
        return False
    counts.POST_BUSY += 1
    if (asks and not read) or (core.p_out != 0 and not written):
        counts.POST_STALL += 1
    command = commands[core.p_command]
    walk = core.p_walk
    if state == _CHECK:
        core.p_state = _BEGIN
    elif state == _BEGIN:
        core.p_state = _RUN
        core.p_walk = _FILLING
        core.p_pw = core.p_ph = core.p_group = core.p_wo = core.p_ho = core.p_n = 0
    # Results that arrive, and places that are given out.
    arrives = core.p_due & 1
    core.p_due >>= 1
    step = core.p_payload
    done = _write(core, sizes, command, written, state == _BEGIN)
    if arrives:
        core.p_results += 1
    if read and step & _WINDOW_LAST:
        push(core.p_places, step)
        core.p_due |= 1 << (_latency(sizes, command) - 1)
    if read and command.pool == _SUM:
        core.p_wait = sizes.sum_interval - 1
    elif core.p_wait != 0:
        core.p_wait -= 1
    # Steps: one that waits, one behind it.
    spare = core.p_spare != 0
    shown = walk == _VALID
    made = 0
    if shown and not spare:
        made = _next_step(core, sizes, command)
    elif walk == _FILLING:
        core.p_walk = _VALID
    if read or core.p_valid == 0:
        core.p_valid = 1 if shown or spare else 0
        core.p_payload = core.p_second if spare else made
        core.p_spare, core.p_second = 0, 0
    elif shown and not spare:
        core.p_spare, core.p_second = 1, made
    if done:
        core.p_state = IDLE
    return done


@inline
def _latency(sizes, command):
    sums = command.pool == _SUM and command.pw_count * command.ph_count > 1
    if command.wide != 0:
        return sizes.post_sum_wide if sums else sizes.post_wide
    return sizes.post_sum_result if sums else sizes.post_result


@inline
def _next_step(core, sizes, command):
    """The step that is shown; the walk goes on."""
    width = sizes.post_groups
    steps = (command.group_count + width - 1) // width
    last_group = core.p_group == steps - 1
    wo_last, ho_last = core.p_wo == command.wo_count - 1, core.p_ho == command.ho_count - 1
    step = (((command.group_count - 1) % width + 1) if last_group else width) << _GROUPS
    step |= (_OUTPUT_LAST if last_group else 0) | (_WO_LAST if wo_last else 0)
    step |= _HO_LAST if ho_last else 0
    core.p_pw += 1
    if core.p_pw < command.pw_count:
        return step
    core.p_pw = 0
    core.p_ph += 1
    if core.p_ph < command.ph_count:
        return step
    core.p_ph = 0
    step |= _WINDOW_LAST
    core.p_group += 1
    if not last_group:
        return step
    core.p_group = 0
    core.p_wo += 1
    if not wo_last:
        return step
    core.p_wo = 0
    core.p_ho += 1
    if not ho_last:
        return step
    core.p_ho = 0
    core.p_n += 1
    if core.p_n == command.n_count:
        core.p_n = 0
        core.p_walk = 0
        step |= _FINAL
    return step


@inline
def _write(core, sizes, command, written, starts):
    """The write register; whether the last word of the command is accepted."""
    done = core.p_out != 0 and core.p_out_final != 0 and written
    if core.p_results != 0 and (core.p_out == 0 or written):
        step = core.p_places[1]
        groups = step >> _GROUPS
        width, slots = sizes.post_groups, sizes.groups
        pieces = (groups * sizes.chunks if command.wide != 0 else groups) - core.p_piece
        count, whole = width, pieces <= width
        for less in range(1, width):
            if pieces == less or core.p_slot == slots - less:
                count, whole = less, pieces == less
        word_end = core.p_slot + count == slots
        output_ends = whole and step & _OUTPUT_LAST != 0
        core.p_out = 1 if word_end or output_ends else 0
        core.p_out_final = 1 if whole and step & _FINAL else 0
        core.p_out_address = core.p_address
        core.p_piece = 0 if whole else core.p_piece + count
        if output_ends:
            _next_output(core, command, step)
        elif word_end:
            core.p_address = (core.p_address + 1) & 0xFFFFFF
            core.p_slot = 0
        else:
            core.p_slot += count
        if whole:
            core.p_results -= 1
            pop(core.p_places)
    elif written:
        core.p_out = 0
    if starts:
        core.p_origin0 = core.p_origin1 = core.p_origin2 = command.out_address
        core.p_address, core.p_slot = command.out_address, command.out_group
        core.p_piece = 0
    return done


@inline
def _next_output(core, command, step):
    """Where the next output begins."""
    if not step & _WO_LAST:
        following = core.p_origin0 + command.out_wo_stride
    elif not step & _HO_LAST:
        following = core.p_origin1 + command.out_ho_stride
    else:
        following = core.p_origin2 + command.out_n_stride
    following &= 0xFFFFFF
    core.p_address, core.p_slot = following, command.out_group
    core.p_origin0 = following
    if step & _WO_LAST:
        core.p_origin1 = following
        if step & _HO_LAST:
            core.p_origin2 = following
