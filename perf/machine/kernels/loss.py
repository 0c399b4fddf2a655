"""LOSS, a cycle at a time (hw/engines/loss/)."""

from typing import Any

import numpy as np

from hw.engines.loss.datapath import _GRADIENT, _POWER, _SQUARE, IN_FLIGHT
from hw.engines.loss.microcode import CLOSING, PROGRAM, ROW, Operation
from hw.engines.loss.rows import SHORTEST
from hw.isa.loss import Loss

from .compilation import inline
from .fifo import pop, push
from .queues import LOSS

__all__ = ["loss_reads", "loss_ready", "step_loss"]

IDLE, _CHECK, _RUN = range(3)
#: What is wanted of the reader.
_LABEL, _TARGET, _LARGEST, _POWERS, _GRADIENTS = 1, 2, 4, 8, 16
_SQUARED = int(Loss.SQUARED_ERROR)
_SHORTEST, _SLOTS = SHORTEST, IN_FLIGHT
_SQUARE_SLOT, _POWER_SLOT, _GRADIENT_SLOT = _SQUARE, _POWER, _GRADIENT
#: Results that may wait for the buffer.
_QUEUE = 16
_ROW, _CLOSING = ROW, CLOSING


def _code(kind: Any, name: str) -> int:
    return kind[name].value


_EMIT = _code(Operation, "EMIT")
#: Operation, and whether the program ends there.
_PROGRAM = np.array([(word["operation"].value, word["end"]) for word in PROGRAM], np.int64)


@inline
def loss_ready(core):
    return core.o_state == IDLE


@inline
def loss_reads(core):
    """Address of the word that is asked for, or -1."""
    todo = core.o_todo
    if todo == 0:
        return -1
    if todo & (_LABEL | _TARGET):
        return core.o_targets
    if todo & _LARGEST:
        return core.o_at0
    return core.o_at1 if todo & _POWERS else core.o_at3


@inline
def step_loss(core, sizes, commands, counts, accepted, served, written):
    """One cycle; ``served``: the word asked for is, ``written``: the word offered is accepted.
    Returns whether a command is over."""
    state = core.o_state
    if state == IDLE:
        if accepted:
            core.o_command = core.q_head[LOSS]
            core.o_state = _CHECK
        return False
    counts.LOSS_BUSY += 1
    command = commands[core.o_command]
    squared = command.loss == _SQUARED
    phase = core.o_phase
    load, close, done = state == _CHECK, False, False
    fetched = core.o_todo == 0 and core.o_arriving == 0
    rows_busy = core.o_there != 0
    go = fetched and core.o_room != 0 and phase == 7 and rows_busy and not load
    waits = core.o_queue[0] != 0
    idle = core.o_full == 0 and core.o_lane == 0
    all_written = idle and not waits and core.o_flushing == 0
    busy = rows_busy or not all_written or _computes(core)
    # The course of the command.
    if load:
        core.o_state = _RUN
        core.o_closed = core.o_quiet = 0
    else:
        quiet = core.o_quiet
        if phase == 7:
            core.o_quiet = quiet + 1
        if busy:
            core.o_quiet = 0
        if quiet == 2:
            if command.last != 0 and core.o_closed == 0:
                close = True
                core.o_closed, core.o_quiet = 1, 0
            else:
                done = True
                core.o_state = IDLE
    # Gradients on their way out.
    core.o_room = 1 if core.o_queue[0] <= _QUEUE - _SLOTS else 0
    _write(core, sizes, written, idle, waits)
    place = _SQUARE_SLOT if squared else _GRADIENT_SLOT
    if core.o_pieces != 0:
        push(core.o_queue, 2 if core.o_pieces_end != 0 and core.o_pieces == 1 else 1)
        core.o_pieces -= 1
    elif phase == 3 and core.o_gradients >> place & 1:
        push(core.o_queue, 2 if core.o_last_gradients >> place & 1 else 1)
    if phase & 1 == 0 and core.o_entry0 == _EMIT:
        core.o_pieces, core.o_pieces_end = sizes.chunks, core.o_entry0_end
    _threads(core, phase, phase == 5 and core.o_last_powers >> _POWER_SLOT & 1 != 0, close)
    _rows(core, sizes, command, squared, load, go, phase, served)
    if load:
        core.o_phase, core.o_address = 0, command.gradient_address
    else:
        core.o_phase = (phase + 1) & 7
    if close:
        core.o_address = command.value_address
    return done


@inline
def _computes(core):
    """Whether something is under way in the arithmetic."""
    return (
        core.o_gradients != 0
        or core.o_sums != 0
        or core.o_pieces != 0
        or core.o_thread0 != 0
        or core.o_thread1 != 0
        or core.o_thread2 != 0
        or core.o_thread3 != 0
        or core.o_request != 0
        or core.o_operation != 0
        or core.o_entry0 != 0
        or core.o_entry1 != 0
        or core.o_entry2 != 0
        or core.o_entry3 != 0
    )


@inline
def _write(core, sizes, written, idle, waits):
    """The queue of results, and the word that is put together."""
    flushing, full = core.o_flushing != 0, core.o_full != 0
    comes = waits and not flushing
    if full and written:
        core.o_full = 0
        core.o_address = (core.o_address + 1) & 0xFFFFFF
    if not full and (comes or (flushing and core.o_lane != 0)):
        if core.o_lane == sizes.rows - 1:
            core.o_lane, core.o_full = 0, 1
        else:
            core.o_lane += 1
    if comes and not full:
        if core.o_queue[1] == 2:
            core.o_flushing = 1
        elif idle:
            core.o_flushing = 0
        pop(core.o_queue)
    elif idle:
        core.o_flushing = 0


@inline
def _threads(core, phase, start, close):
    """Instructions, and those whose results are under way."""
    if phase & 1:
        core.o_entry3, core.o_entry2 = core.o_entry2, core.o_entry1
        core.o_entry1, core.o_entry0 = core.o_entry0, core.o_operation
        core.o_entry0_end = core.o_end
        current = core.o_thread0
        if core.o_request != 0 and core.o_asked == ((phase >> 1) + 1) & 3:
            current = core.o_request
            core.o_request = 0
        core.o_thread0, core.o_thread1 = core.o_thread1, core.o_thread2
        core.o_thread2, core.o_thread3 = core.o_thread3, current
        core.o_operation, core.o_end = _PROGRAM[current, 0], _PROGRAM[current, 1]
    elif core.o_thread3 != 0:
        core.o_thread3 = 0 if core.o_end != 0 else core.o_thread3 + 1
    if start:
        core.o_request = _ROW
        core.o_asked = core.o_power_rows >> 2 * _POWER_SLOT & 3
    if close:
        core.o_request, core.o_asked = _CLOSING, 0


@inline
def _rows(core, sizes, command, squared, load, go, phase, served):
    """Rows and their numbers, the slots that they take, and what is read for them."""
    limit, number = command.row_length - 1, core.o_number
    final = number == limit
    last = number >= limit and (number >= _SHORTEST - 1 or squared)
    alive, inside, more = core.o_there, core.o_inside != 0, core.o_rows_left != 0
    if phase == 7 and not load:
        gradient = sums = last_power = 0
        if go:
            gradient = alive & 1 if squared else (alive >> 3 & 1 if inside else 0)
            sums = alive & 1 if squared else alive >> 1 & 1
            last_power = alive >> 1 & 1 if last else 0
        mask = (1 << _SLOTS) - 1
        core.o_gradients = (core.o_gradients << 1 | gradient) & mask
        core.o_sums = (core.o_sums << 1 | sums) & mask
        if squared:
            core.o_gradients &= ~(1 << _SQUARE_SLOT + 1)
            core.o_sums &= ~(1 << _SQUARE_SLOT + 1)
        core.o_last_powers = (core.o_last_powers << 1 | last_power) & mask
        ends = 1 if go and final else 0
        core.o_last_gradients = (core.o_last_gradients << 1 | ends) & mask
        row = core.o_sequence1 & 3 if go else 0
        core.o_power_rows = (core.o_power_rows << 2 | row) & (1 << 2 * _SLOTS) - 1
    after, inside_after = alive, inside and not final
    if last:
        inside_after = True
        after = (1 if more else 0) if squared else (alive << 1 & 15 | (1 if more else 0))
    if load:
        after, inside_after = 1, True
    begins = load or last
    wanted = 0
    if after & 1:
        if squared:
            wanted |= _TARGET
        elif begins:
            wanted |= _LABEL
        if inside_after:
            wanted |= _LARGEST
    if inside_after:
        wanted |= (_POWERS if after & 2 else 0) | (_GRADIENTS if after & 8 else 0)
    row_end = command.row_length == 1 if begins else number + 1 == limit
    if go:
        core.o_there, core.o_inside = after, 1 if inside_after else 0
        core.o_number = 0 if last else number + 1
        if last:
            if more:
                core.o_rows_left -= 1
            core.o_sequence3, core.o_sequence2 = core.o_sequence2, core.o_sequence1
            core.o_sequence1 = core.o_sequence0
        if squared or (last and alive & 1):
            core.o_sequence0 = (core.o_sequence0 + 1) & 7
    if load:
        core.o_there, core.o_inside, core.o_number = after, 1, 0
        core.o_rows_left = command.row_count - 1
        if command.first != 0:
            core.o_sequence0 = 0
    _read(core, sizes, command, load, served)
    if go and last:
        core.o_base2, core.o_at3 = core.o_base1, core.o_base2
        core.o_base1 = core.o_at1 = core.o_base0
        core.o_base0 = core.o_at0 = (core.o_base0 + command.x_stride) & 0xFFFFFF
        core.o_x_first = core.o_x_lane = 0
    if go or load:
        core.o_todo = wanted
        core.o_ends = 1 if row_end else 0


@inline
def _read(core, sizes, command, load, served):
    """A word is read, or the rows begin."""
    if load:
        core.o_todo = core.o_part = core.o_arriving = 0
        core.o_base0 = core.o_at0 = command.x_address
        core.o_targets = command.target_address
        core.o_x_first = core.o_x_lane = core.o_t_lane = 0
        return
    core.o_arriving = (core.o_arriving << 1 | (1 if served else 0)) & 7
    if not served:
        return
    todo, chunks = core.o_todo, sizes.chunks
    chosen = todo & -todo
    target = chosen <= _TARGET
    wide = command.x_wide != 0
    if chosen == _LABEL:
        wide = True
    elif chosen == _TARGET:
        wide = command.target_wide != 0
    step, final = 1, True
    if sizes.rows % chunks == 0:
        step = chunks if wide else 1
    else:
        final = not wide or core.o_part == chunks - 1
        core.o_part = 0 if final else core.o_part + 1
    if final:
        core.o_todo = todo & ~chosen
    lane = core.o_t_lane if target else core.o_x_lane
    last_lane = lane + step == sizes.rows
    following = 0 if last_lane else lane + step
    if target:
        ends = final and (core.o_ends != 0 or chosen == _LABEL)
        core.o_t_lane = 0 if ends else following
        if last_lane or ends:
            core.o_targets = (core.o_targets + 1) & 0xFFFFFF
        return
    core.o_x_lane = following
    if final:
        if todo & ~chosen & (_LARGEST | _POWERS | _GRADIENTS):
            core.o_x_lane = core.o_x_first
        else:
            core.o_x_first = following
    if last_lane:
        if chosen == _LARGEST:
            core.o_at0 = (core.o_at0 + 1) & 0xFFFFFF
        elif chosen == _POWERS:
            core.o_at1 = (core.o_at1 + 1) & 0xFFFFFF
        else:
            core.o_at3 = (core.o_at3 + 1) & 0xFFFFFF
