"""VECTOR, a cycle at a time (hw/engines/vector/)."""

from hw.engines.vector.address_generator import VectorWalker
from hw.engines.vector.reduction import PARTIAL_SUMS, VectorReduction
from hw.engines.vector.writer import VectorWriter
from hw.isa.vector import Operation, Source

from .compilation import inline
from .fifo import pop, push
from .queues import VECTOR
from .vector_reader import reader_takes_address, step_reader

__all__ = ["step_vector", "vector_ready"]

IDLE, _CHECK, _BEGIN, _RUN = range(4)
_FILLING, _VALID = 2, 3
_CHAIN, _EXPONENTIAL = int(Operation.CHAIN), int(Operation.EXPONENTIAL)
_WIDE = int(Source.WIDE)
_STEPS = VectorWalker.DEPTH
_RESULTS = VectorWriter.DEPTH
_PAIRS = PARTIAL_SUMS // 2
_SUM_WAIT = VectorReduction.WAIT
#: A reduction: elements come, it waits, it adds.
_ELEMENTS, _WAITS, _ADDS = range(3)


@inline
def vector_ready(core):
    return core.v_state == IDLE


@inline
def _source(command, number):
    if number == 0:
        return command.x_source
    return command.y_source if number == 1 else command.z_source


@inline
def _stands(command, number):
    """Whether the stream has no stride but that of ``cb``."""
    if number == 0:
        return command.x_i0_stride == 0 and command.x_i1_stride == 0 and command.x_i2_stride == 0
    if number == 1:
        return command.y_i0_stride == 0 and command.y_i1_stride == 0 and command.y_i2_stride == 0
    return command.z_i0_stride == 0 and command.z_i1_stride == 0 and command.z_i2_stride == 0


@inline
def _held(command, number):
    """Whether the words of a stream stay for all steps of a ``cb``."""
    repeats = command.i0_count != 1 or command.i1_count != 1 or command.i2_count != 1
    return _source(command, number) <= _WIDE and repeats and _stands(command, number)


@inline
def step_vector(core, sizes, commands, counts, accepted, served, stalled, written):
    """One cycle; ``served``: bit n says that the read of stream n is; ``stalled``: one is not;
    ``written``: the word offered is accepted. Returns whether a command is over."""
    state = core.v_state
    if state == IDLE:
        if accepted:
            core.v_command = core.q_head[VECTOR]
            core.v_state = _CHECK
            for number in range(3):
                # Empty; only the differences of the pointers mean something.
                core.r_asked[number] = core.r_base[number] = 0
                core.r_place[number] = core.r_filled[number] = 0
        return False
    counts.VECTOR_BUSY += 1
    if stalled or (core.v_out != 0 and not written):
        counts.VECTOR_STALL += 1
    command = commands[core.v_command]
    begin = state == _BEGIN
    if state == _CHECK:
        core.v_state = _BEGIN
    elif begin:
        core.v_state = _RUN
    groups = sizes.groups
    chain, reduce = command.operation == _CHAIN, command.reduce != 0
    sample = command.sample != 0
    last = core.v_group == groups - 1
    operands = core.r_full[0] != 0 and core.r_full[1] != 0 and core.r_full[2] != 0
    drawn = not sample or (core.v_asked != 0 and core.v_drawing == 0)
    steps_ready = core.v_steps_out != 0
    issue = (
        steps_ready and operands and (reduce or core.v_room != 0) and drawn and core.v_blocked == 0
    )
    # A division ends.
    special = core.v_special == 1
    take = (issue and chain) or special
    lanes = core.v_steps[1] >> 1
    closes = take and last and core.v_steps[1] & 1 != 0
    release = core.v_release != 0
    # The tree of a reduction.
    result, finished = _reduce(core, sizes)
    # Results: when they reach the writer.
    arrives = core.v_due & 1
    core.v_due >>= 1
    whole = sizes.vector_wide if command.wide != 0 else sizes.vector_narrow
    if issue and chain and not reduce:
        core.v_due |= 1 << (whole - 1)
    if result:
        core.v_due |= 1 << (whole - sizes.partial - 1)
    if special:
        core.v_due |= 1 << (whole - sizes.vector_wide)
    used, done = _write(core, sizes, command, written)
    # Places.
    reserved = core.v_reserved
    core.v_room = 1 if reserved < _RESULTS - 1 else 0
    core.v_reserved = reserved + (1 if (issue and not reduce) or result else 0) - (1 if used else 0)
    # The walk, which fills the queues.
    walk = core.v_walk
    served_x, served_y, served_z = served & 1, served >> 1 & 1, served >> 2 & 1
    room = (
        core.v_steps_in != _STEPS - 1
        and core.v_places_in != core.v_places_depth - 1
        and core.a_spare[0] == 0
        and core.a_spare[1] == 0
        and core.a_spare[2] == 0
    )
    moves = walk == _VALID and room
    _advance_queues(core, take and last and steps_ready, arrives != 0, used, moves, sizes, command)
    takes_pixel = sample and take and last
    for number in range(3):
        served_here = served_x if number == 0 else (served_y if number == 1 else served_z)
        source, held = _source(command, number), _held(command, number)
        pixels = number == 2 and sample
        ready = takes_pixel if pixels else reader_takes_address(core, number, served_here != 0)
        first = core.v_i0 == 0 and core.v_i1 == 0 and core.v_i2 == 0
        sends = moves and (source <= _WIDE or pixels) and (not held or first)
        address = -1
        if core.a_valid[number] != 0 and ready and not pixels:
            address = core.a_address[number]
        started = core.a_valid[number] != 0 and pixels and core.v_asked == 0
        _pass_address(core, sizes, command, number, ready, sends)
        step_reader(
            core, number, sizes, source, held, served_here != 0, address, take, release, begin
        )
        if pixels:
            if core.v_drawing != 0:
                core.v_drawing -= 1
            if started:
                core.v_asked, core.v_drawing = 1, sizes.sampled
    if take or begin:
        core.v_asked = 0
    if moves:
        _next_step(core, sizes, command)
    if begin:
        core.v_walk = _FILLING
        core.v_i0 = core.v_i1 = core.v_i2 = core.v_cb = 0
        core.v_places_depth = max(8, 2 * _RESULTS // groups)
    elif walk == _FILLING:
        core.v_walk = _VALID
    # Division.
    starts = issue and not chain
    if core.v_special != 0:
        core.v_special -= 1
    if starts:
        here = min(max(lanes - core.v_group * sizes.post_lanes, 0), sizes.post_lanes)
        each = sizes.exponential if command.operation == _EXPONENTIAL else sizes.divide
        core.v_special = here * each + sizes.post_lanes - here
    any_held = _held(command, 0) or _held(command, 1) or _held(command, 2)
    if (closes and (reduce or any_held)) or starts:
        core.v_blocked = 1
    elif finished if reduce else core.v_special == 0:
        core.v_blocked = 0
    if take:
        core.v_group = 0 if last else core.v_group + 1
    core.v_release = 1 if closes else 0
    core.v_close = 1 if closes and reduce else 0
    if done:
        core.v_state = IDLE
    return done


@inline
def _reduce(core, sizes):
    """One cycle of the reduction: whether a sum is a result, and whether it was the last one."""
    if core.v_sum_state == _ELEMENTS:
        if core.v_close != 0:
            core.v_sum_wait, core.v_level, core.v_pair = _SUM_WAIT, 0, 0
            core.v_sum_state = _WAITS
        return False, False
    if core.v_sum_state == _WAITS:
        if core.v_sum_wait == 0:
            core.v_sum_state = _ADDS
        else:
            core.v_sum_wait -= 1
        return False, False
    result = core.v_level == 2
    if result and core.v_room == 0:
        return False, False
    last_group = core.v_sum_group == sizes.groups - 1
    last = last_group and core.v_pair == (_PAIRS >> core.v_level) - 1
    core.v_sum_group = 0 if last_group else core.v_sum_group + 1
    if last:
        core.v_pair = 0
        core.v_level += 1
        core.v_sum_wait, core.v_sum_state = sizes.stored - 2, _WAITS
        if result:
            core.v_level = core.v_sum_wait = 0
            core.v_sum_state = _ELEMENTS
            return True, True
    elif last_group:
        core.v_pair += 1
    return result, False


@inline
def _write(core, sizes, command, written):
    """The write register: whether a result has been used up, and whether the last word of the
    command is accepted."""
    done = core.v_out != 0 and core.v_out_final != 0 and written
    used = False
    if core.v_results_out != 0 and core.v_places_out != 0 and (core.v_out == 0 or written):
        groups, chunks, wide = sizes.groups, sizes.chunks, command.wide != 0
        whole = groups % chunks == 0
        used = True
        if wide and not whole:
            used = core.v_chunk == chunks - 1
        advance = chunks if wide and whole else 1
        word_end = core.v_slot == groups - advance
        step_end = not wide or core.v_part == chunks - 1
        place = core.v_places[1]
        core.v_out_address = ((place >> 1) + core.v_part) & 0xFFFFFF
        core.v_out_final = 1 if step_end and place & 1 else 0
        core.v_slot = 0 if word_end else core.v_slot + advance
        core.v_out = 1 if word_end else 0
        core.v_chunk = 0 if used else core.v_chunk + 1
        if word_end:
            core.v_part = 0 if step_end else core.v_part + 1
        core.v_place_used = 1 if word_end and step_end else 0
    else:
        core.v_place_used = 0
        if written:
            core.v_out = 0
    return used, done


@inline
def _advance_queues(core, step_used, arrives, result_used, moves, sizes, command):
    """The queues of steps, of places and of results: a register behind a memory each."""
    inner, out = core.v_steps_in, core.v_steps_out
    loads = inner != 0 and (out == 0 or step_used)
    last = (
        core.v_i0 == command.i0_count - 1
        and core.v_i1 == command.i1_count - 1
        and core.v_i2 == command.i2_count - 1
    )
    if step_used:
        pop(core.v_steps)
    core.v_steps_in = inner + (1 if moves else 0) - (1 if loads else 0)
    core.v_steps_out = 1 if loads or (out != 0 and not step_used) else 0
    if moves:
        push(core.v_steps, _lanes(core, sizes, command) << 1 | (1 if last else 0))
    place_used = core.v_place_used != 0
    placed = moves and (command.reduce == 0 or last)
    inner, out = core.v_places_in, core.v_places_out
    loads = inner != 0 and (out == 0 or place_used)
    if place_used:
        pop(core.v_places)
    core.v_places_in = inner + (1 if placed else 0) - (1 if loads else 0)
    core.v_places_out = 1 if loads or (out != 0 and not place_used) else 0
    if placed:
        final = 1 if last and core.v_cb == command.cb_count - 1 else 0
        push(core.v_places, _result_address(core, sizes, command) << 1 | final)
    inner, out = core.v_results_in, core.v_results_out
    loads = inner != 0 and (out == 0 or result_used)
    core.v_results_in = inner + (1 if arrives else 0) - (1 if loads else 0)
    core.v_results_out = 1 if loads or (out != 0 and not result_used) else 0


@inline
def _lanes(core, sizes, command):
    """Valid lanes of the step that is shown."""
    return min(max(command.channels - core.v_cb * sizes.rows, 0), sizes.rows)


@inline
def _result_address(core, sizes, command):
    words = sizes.chunks if command.wide != 0 else 1
    return (
        command.o_address
        + core.v_cb * words
        + core.v_i0 * command.o_i0_stride
        + core.v_i1 * command.o_i1_stride
        + core.v_i2 * command.o_i2_stride
    ) & 0xFFFFFF


@inline
def _operand_address(core, sizes, command, number):
    """Of the step that is shown."""
    words = sizes.chunks if _source(command, number) == _WIDE else 1
    if number == 0:
        place = command.x_address + core.v_i0 * command.x_i0_stride
        place += core.v_i1 * command.x_i1_stride + core.v_i2 * command.x_i2_stride
    elif number == 1:
        place = command.y_address + core.v_i0 * command.y_i0_stride
        place += core.v_i1 * command.y_i1_stride + core.v_i2 * command.y_i2_stride
    else:
        place = command.z_address + core.v_i0 * command.z_i0_stride
        place += core.v_i1 * command.z_i1_stride + core.v_i2 * command.z_i2_stride
    return (place + core.v_cb * words) & 0xFFFFFF


@inline
def _pass_address(core, sizes, command, number, taken, sends):
    """The stream register between the walk and a reader."""
    made = _operand_address(core, sizes, command, number) if sends else 0
    spare = core.a_spare[number] != 0
    if taken or core.a_valid[number] == 0:
        core.a_valid[number] = 1 if sends or spare else 0
        core.a_address[number] = core.a_second[number] if spare else made
        core.a_spare[number] = core.a_second[number] = 0
    elif sends:
        core.a_spare[number], core.a_second[number] = 1, made


@inline
def _next_step(core, sizes, command):
    """The walk goes on."""
    core.v_i0 += 1
    if core.v_i0 < command.i0_count:
        return
    core.v_i0 = 0
    core.v_i1 += 1
    if core.v_i1 < command.i1_count:
        return
    core.v_i1 = 0
    core.v_i2 += 1
    if core.v_i2 < command.i2_count:
        return
    core.v_i2 = 0
    core.v_cb += 1
    if core.v_cb == command.cb_count:
        core.v_cb = core.v_walk = 0
