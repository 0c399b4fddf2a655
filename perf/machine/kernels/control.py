"""Fetch, sequencer, loops and batches, a cycle at a time (hw/control/)."""

from hw.control.command_queue import CHUNK_WIDTH
from hw.control.fetch import AHEAD, KEPT
from hw.isa.encoding import COMMAND_WIDTH, Opcode
from hw.isa.loops import LOOP_LEVELS
from hw.isa.packing import LINE_BYTES, WORD_BYTES
from hw.isa.rows import RowAction

from .compilation import inline
from .queues import all_empty

__all__ = ["BATCHES", "ENDED", "loop_address", "step_control"]

_AHEAD, _KEPT = AHEAD, KEPT
_LEVELS = LOOP_LEVELS
#: Of a line; chunks of a command.
_WORDS = LINE_BYTES // WORD_BYTES
_CHUNKS = COMMAND_WIDTH // CHUNK_WIDTH
_HALT, _BATCH, _REPEAT = int(Opcode.HALT), int(Opcode.BATCH), int(Opcode.REPEAT)
_ROWS, _PICK = int(Opcode.ROWS), int(RowAction.PICK)
_BRANCH = int(RowAction.BRANCH)
_LOAD, _STORE = int(Opcode.LOAD), int(Opcode.STORE)
#: States of the sequencer; and of a BATCH.
IDLE, CLEAR, BEGIN, RUN, STOP, CLEAR_END, END, ENDED = range(8)
_B_IDLE, _B_CHECK, _B_DRAIN, _B_COUNTED, _B_WAIT, _B_JUMP = range(6)
#: Columns of the list of batches: the phase is one of Phase GP; cycles that the schedule needs
#: behind it for the next one.
BATCHES = 2


@inline
def step_control(shared, cores, sizes, commands, batches, counts, requested, received):
    """One cycle of fetch and sequencer.

    ``requested``, ``received``: a burst of commands was accepted, has ended. Returns the number of
    the command of which a chunk enters a queue, or -1, the offset of its address in a block, and
    the number of a REPEAT that went back, or -1.
    """
    state = shared.state
    pushed, address, repeated = -1, 0, -1
    taken, jump, restart, start = False, -1, False, False
    valid = shared.f_whole != 0 and shared.f_running != 0
    stop = shared.stop != 0
    if state == RUN:
        if shared.checked == 0:
            if valid:
                _check(shared, commands)
        else:
            place = shared.f_place
            code = commands[place].opcode
            if code == _HALT:
                if all_empty(cores):
                    counts.COMMANDS += 1
                    shared.state, shared.quiet, shared.stop = STOP, 0, 1
            elif code == _REPEAT:
                if shared.r_step == 2:
                    shared.r_step = 0
                    taken = True
                    shared.checked = 0
                    counts.COMMANDS += 1
                    level = commands[place].level
                    if shared.loop[level] + 1 < commands[place].count:
                        shared.loop[level] += 1
                        jump = commands[place].target
                        repeated = place
                    else:
                        shared.loop[level] = 0
                else:
                    shared.r_step += 1
            elif code == _ROWS:
                if shared.r_step == 2:
                    taken, jump = True, _rows(shared, commands[place])
                    counts.COMMANDS += 1
                elif commands[place].action == _PICK or all_empty(cores):
                    shared.r_step += 1
            elif code == _BATCH:
                stop = True
                restart = _batch(shared, cores, commands, batches, counts)
            elif shared.hold > 0:
                shared.hold -= 1
            else:
                core, queue = cores[commands[place].core], commands[place].queue
                if (
                    core.q_arriving[queue] != 0
                    or core.q_reserved[queue] != sizes[commands[place].core].depth
                ):
                    pushed, address = place, shared.moved
                    if shared.chunk == commands[place].chunks - 1:
                        shared.chunk, shared.checked = 0, 0
                        taken = True
                        counts.COMMANDS += 1
                    else:
                        shared.chunk += 1
    elif state == IDLE:
        shared.state = CLEAR
    elif state == CLEAR:
        shared.state = BEGIN
    elif state == BEGIN:
        start = True
        shared.state = RUN
    elif state == STOP:
        # What is still under way on the bus; four cycles without.
        if _bus_busy(shared, cores):
            shared.quiet = 0
        elif shared.quiet == 3:
            shared.state, shared.stop = CLEAR_END, 0
        else:
            shared.quiet += 1
    elif state == CLEAR_END:
        shared.state = END
    elif state == END:
        shared.state = ENDED
    if shared.b_restarted != 0:
        start = True
        shared.b_restarted = 0
    _fetch(shared, commands, requested, received, taken, jump, start, stop)
    if restart:
        shared.b_restarted = 1
        _reset_fetch(shared)
        shared.f_place = shared.b_target
        shared.f_word = commands[shared.b_target].begin
        shared.f_offset = shared.f_word * shared.f_beats // _WORDS
    if shared.schedule > 0:
        shared.schedule -= 1
    return pushed, address, repeated


@inline
def _check(shared, commands):
    """A command has arrived: how long its address takes, and what it is."""
    shared.checked = 1
    place = shared.f_place
    code = commands[place].opcode
    shared.hold, shared.moved = 0, 0
    if code == _LOAD or code == _STORE:
        address, shared.hold = loop_address(commands[place], shared.loop)
        shared.moved = address % shared.block_bytes
    elif code == _REPEAT or code == _ROWS:
        shared.r_step = 0
    elif code == _BATCH:
        shared.b_state = _B_IDLE


@inline
def loop_address(command, loop):
    """The address of a LOAD or STORE with the counters of ``loop``, and the cycles that adding up
    takes: one for each bit of a counter that moves it, and one before the first."""
    address, cycles = command.dram_address, 0
    for level in range(_LEVELS):
        count = loop[level]
        stride = command.loop0_stride
        if level == 1:
            stride = command.loop1_stride
        elif level == 2:
            stride = command.loop2_stride
        elif level == 3:
            stride = command.loop3_stride
        if count != 0 and stride != 0:
            address += count * stride
            if cycles == 0:
                cycles = 1
            while count != 0:
                cycles += 1
                count >>= 1
    return address, cycles


@inline
def _rows(shared, command):
    """A ROWS is over; the command that it goes to, or -1."""
    shared.r_step = shared.checked = 0
    shared.loop[command.level] = command.position if command.action == _PICK else 0
    return command.target if command.action >= _BRANCH else -1


@inline
def _bus_busy(shared, cores):
    if shared.f_outstanding != 0 or _requests(shared):
        return True
    for index in range(len(cores)):
        core = cores[index]
        if core.l_unfinished != 0 or core.s_unfinished != 0:
            return True
    return False


@inline
def _requests(shared):
    """Whether the fetch offers a request."""
    return (
        shared.f_running != 0
        and shared.f_fresh != 0
        and shared.f_more != 0
        and shared.f_unread <= (_AHEAD - 1) * shared.f_beats
        and shared.f_outstanding != _AHEAD
    )


@inline
def _batch(shared, cores, commands, batches, counts):
    """One cycle of a BATCH; whether the fetch begins elsewhere."""
    command = commands[shared.f_place]
    state = shared.b_state
    if state == _B_IDLE:
        shared.b_check = 0
        shared.b_state = _B_CHECK
    elif state == _B_CHECK:
        if shared.b_check == 5:
            shared.b_state = _B_DRAIN
        shared.b_check += 1
    elif state == _B_DRAIN:
        if all_empty(cores) and shared.schedule == 0:
            if command.first != 0:
                shared.b_state = _B_WAIT
            else:
                shared.b_state = _B_COUNTED
                number = shared.batches_done
                shared.batches_done = number + 1
                shared.schedule = batches[number, 1]
                counts.BATCHES_GP += batches[number, 0]
    elif state == _B_COUNTED:
        shared.b_state = _B_WAIT
    elif state == _B_WAIT:
        if shared.batches_done >= len(batches):
            counts.COMMANDS += 1
            shared.state, shared.quiet, shared.stop = STOP, 0, 1
        elif shared.schedule == 0 and shared.f_outstanding == 0 and not _requests(shared):
            shared.b_state = _B_JUMP
    else:
        counts.COMMANDS += 1
        shared.checked = 0
        odd = shared.batches_done & 1
        if batches[shared.batches_done, 0] != 0:
            shared.b_target = command.gp_odd if odd else command.gp_even
        else:
            shared.b_target = command.bp_odd if odd else command.bp_even
        return True
    return False


@inline
def _reset_fetch(shared):
    shared.f_running = shared.f_fresh = shared.f_more = shared.f_unread = shared.f_stale = 0
    shared.f_outstanding = shared.f_passed = shared.f_phase = 0
    shared.f_open = shared.f_whole = shared.f_half = shared.f_chunk = 0
    shared.ring_level = shared.ring_held = 0


@inline
def _fetch(shared, commands, requested, received, taken, jump, start, stop):
    """Registers of the fetch behind this cycle; ``received``: 0 no beat, 1 a beat, 2 the last of
    its burst; ``jump``: a command or -1."""
    beats = shared.f_beats
    ends = received == 2
    more = shared.f_offset // beats < shared.f_lines
    ours = received != 0 and shared.f_running != 0 and shared.f_stale == 0
    # The ring and the reader in front of the sequencer.
    level, held = shared.ring_level, shared.ring_held != 0
    single = not held and level == 1
    leaves = _read(shared, commands, held or single)
    load = level != 0 and (leaves if held else not (single and leaves))
    shared.ring_level += (1 if ours else 0) - (1 if load or (single and leaves) else 0)
    shared.ring_held = 1 if load or (held and not leaves) else 0
    fresh = not start and shared.f_phase != 1 and not requested
    unread = shared.f_unread - (1 if leaves else 0)
    outstanding = shared.f_outstanding + (1 if requested else 0) - (1 if ends else 0)
    if leaves:
        shared.f_passed = min(shared.f_passed + 1, (_KEPT - _AHEAD) * beats)
    if requested:
        unread += beats - shared.f_offset % beats
        shared.f_offset = (shared.f_offset // beats + 1) * beats
    if shared.f_stale != 0 and ends:
        shared.f_stale -= 1
    if taken:
        shared.f_whole = 0
        shared.f_place += 1
        if jump >= 0:
            beat = commands[jump].begin * beats // _WORDS
            back = shared.f_word * beats // _WORDS - beat
            shared.f_place, shared.f_word = jump, commands[jump].begin
            if 0 <= back <= shared.f_passed:
                unread += back
                shared.f_passed -= back
                shared.ring_level = level + (1 if ours else 0) + (1 if held else 0) + back
                shared.ring_held = 0
            else:
                shared.f_passed, unread = 0, 0
                shared.f_offset, shared.f_stale = beat, outstanding
                shared.ring_level = shared.ring_held = 0
                fresh = False
    shared.f_fresh = 1 if fresh else 0
    shared.f_more = 1 if more else 0
    shared.f_unread, shared.f_outstanding = unread, outstanding
    if shared.f_phase == 2:
        shared.f_phase, shared.f_running = 0, 1
    elif shared.f_phase == 1:
        shared.f_phase = 2
    if start:
        shared.f_phase = 1
    if stop:
        shared.f_running = 0


@inline
def _read(shared, commands, there):
    """One cycle of the reader; whether a beat leaves the ring, where ``there`` is one."""
    if shared.f_running == 0 or shared.f_whole != 0:
        return False
    takes = False
    if shared.f_open == 0:
        if there and shared.f_place < len(commands):
            shared.f_open = 1
            takes = commands[shared.f_place].packed != 0
    else:
        words = commands[shared.f_place].words >> 2 * shared.f_chunk & 3
        takes = words != 0 and there
        if takes and words == 3 and shared.f_half == 0:
            shared.f_half = 1
        elif takes or words == 0:
            shared.f_half = 0
            shared.f_chunk += 1
            if shared.f_chunk == _CHUNKS:
                shared.f_open, shared.f_whole, shared.f_chunk = 0, 1, 0
    if not takes:
        return False
    shared.f_word += 1
    return shared.f_word * shared.f_beats % _WORDS == 0
