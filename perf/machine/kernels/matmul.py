"""MATMUL, a cycle at a time (hw/engines/matmul/engine.py, address_generator.py)."""

from hw.isa.encoding import Init

from .compilation import inline
from .queues import MATMUL

__all__ = ["array_reads", "matmul_ready", "matmul_step", "step_matmul"]

_BIAS, _ACCUMULATOR = int(Init.BIAS), int(Init.ACCUMULATOR)
_START, _FILLING, _VALID = 1, 2, 3
#: Bits of a step; its address lies from the last one on.
_VECTOR, _SHIFT, _BANK, _INIT_BIAS, _READS_SUMS, _OTHER_SUMS = 1, 2, 4, 8, 16, 32
_TILE_START, _TILE_END, _FINAL, _READS = 64, 128, 256, 512
_ADDRESS = 10


@inline
def matmul_step(core):
    """(whether the step that waits may be issued, the address it reads or -1)."""
    if core.m_valid == 0:
        return False, -1
    step = core.m_payload
    if step & _VECTOR and step & _TILE_START:
        if core.m_loaded == 0:
            return False, -1
        if step & _READS_SUMS:
            waits = core.m_drain if step & _OTHER_SUMS else core.m_settle
            if waits != 0:
                return False, -1
    return True, (step >> _ADDRESS if step & _READS else -1)


@inline
def array_reads(core, sizes):
    """The accumulator bank that the array reads in this cycle, or -1."""
    at = sizes.sums_read - 1
    if core.m_vectors_ago >> at & 1:
        return core.m_banks_ago >> at & 1
    return -1


@inline
def matmul_ready(core, sizes, commands):
    """Whether a command is accepted in this cycle: there is none, or its last step is made."""
    if core.m_active == 0:
        return True
    if core.m_walk != _VALID or (core.m_out != 0 and core.m_spare != 0):
        return False
    command = commands[core.m_command]
    if command.transpose == 0:
        return _last_pixel(core, command) and _last_tap(core, command)
    if core.m_ended_any != 0:
        return core.m_ended_final != 0
    return core.m_flushing != 0 and core.m_line == sizes.rows - 1 and command.ones == 0


@inline
def _last_pixel(core, command):
    return (
        core.m_wo == command.wo_count - 1
        and core.m_ho == command.ho_count - 1
        and core.m_n == command.n_count - 1
    )


@inline
def _last_tap(core, command):
    return (
        core.m_kw == command.kw_count - 1
        and core.m_kh == command.kh_count - 1
        and core.m_cb == command.cb_count - 1
    )


@inline
def step_matmul(core, sizes, commands, counts, accepted, issues, served, tile_loaded):
    """One cycle; ``issues``: the step that waits may be issued, ``served``: its read is accepted.

    Returns whether the array begins with a tile, whether a step of a command has left that frees
    biases, and whether a command is done.
    """
    step = core.m_payload
    issue = issues and (step & _READS == 0 or served)
    vector = issue and step & _VECTOR != 0
    starts, ends = vector and step & _TILE_START != 0, vector and step & _TILE_END != 0
    # What is counted.
    if core.m_valid == 0:
        counts.STALL_COMMAND += 1
    elif vector:
        counts.VECTORS += 1
        if ends:
            counts.TILES += 1
    elif issue:
        counts.STALL_COMMAND += 1
    elif issues:
        counts.STALL_BUFFER += 1
    elif step & _TILE_START and core.m_loaded == 0:
        counts.STALL_WEIGHTS += 1
    else:
        counts.STALL_HAZARD += 1
    # Interlocks.
    if vector:
        left = sizes.hazard if starts else core.m_left
        left = left - 1 if left > 0 else 0
        core.m_left = left
        if ends:
            core.m_settle, core.m_drain = left, sizes.hazard
    if not ends:
        if core.m_settle != 0:
            core.m_settle -= 1
        if core.m_drain != 0:
            core.m_drain -= 1
    if tile_loaded:
        core.m_loaded = 1
    elif starts:
        core.m_loaded = 0
    # What follows behind the issue.
    at_write = sizes.sums_written
    bias_used = core.m_biases_ago >> (at_write - 1) & 1
    done = core.m_finals_ago >> (at_write - 1) & 1
    mask = (1 << at_write) - 1
    core.m_vectors_ago = (core.m_vectors_ago << 1 | (1 if vector else 0)) & mask
    bank = 1 if vector and step & _BANK else 0
    core.m_banks_ago = (core.m_banks_ago << 1 | bank) & mask
    final = 1 if vector and step & _FINAL else 0
    core.m_finals_ago = (core.m_finals_ago << 1 | final) & mask
    biases = 1 if ends and step & _INIT_BIAS else 0
    core.m_biases_ago = (core.m_biases_ago << 1 | biases) & mask
    # Steps on their way: one made, one that waits, one behind it.
    room = core.m_out == 0 or core.m_spare == 0
    spare = core.m_spare != 0
    if issue or core.m_valid == 0:
        core.m_valid = 1 if core.m_out != 0 or spare else 0
        core.m_payload = core.m_second if spare else core.m_made
        core.m_spare, core.m_second = 0, 0
        if core.m_valid == 0:
            core.m_payload = 0
    elif core.m_out != 0 and not spare:
        core.m_spare, core.m_second = 1, core.m_made
    go = core.m_active != 0 and core.m_walk == _VALID and room
    end = False
    if room:
        core.m_out, core.m_made = 0, 0
    if go:
        core.m_out = 1
        command = commands[core.m_command]
        if command.transpose == 0:
            core.m_made, end = _straight(core, command)
        else:
            core.m_made, end = _transposed(core, sizes, command)
    if core.m_walk == _START:
        core.m_walk = _FILLING
    elif core.m_walk == _FILLING:
        core.m_walk = _VALID
    if end:
        core.m_active = 0
    if accepted:
        _begin(core, commands)
    return starts, bias_used != 0, done != 0


@inline
def _begin(core, commands):
    """A command is accepted."""
    command = commands[core.q_head[MATMUL]]
    same = (
        command.accumulator_address == core.m_sums and command.accumulator_bank == core.m_sums_bank
    )
    core.m_continues = 1 if same else 0
    core.m_sums, core.m_sums_bank = command.accumulator_address, command.accumulator_bank
    core.m_command = core.q_head[MATMUL]
    core.m_active, core.m_walk = 1, _START
    core.m_wo = core.m_ho = core.m_n = core.m_kw = core.m_kh = core.m_cb = 0
    core.m_line = 0
    core.m_outside = core.m_flushing = core.m_held_any = core.m_ended_any = 0
    core.m_initial = 1


@inline
def _straight(core, command):
    """A step of a command without ``transpose``, and whether it is the last one."""
    first_pixel = core.m_wo == 0 and core.m_ho == 0 and core.m_n == 0
    first_tap = core.m_kw == 0 and core.m_kh == 0 and core.m_cb == 0
    last_pixel, last_tap = _last_pixel(core, command), _last_tap(core, command)
    step = _VECTOR | _about(core, command, first_tap) | _word(core, command)
    if first_pixel:
        step |= _TILE_START
    if last_pixel:
        step |= _TILE_END
        if last_tap:
            step |= _FINAL
    _next_pixel(core, command)
    if last_pixel:
        _next_tap(core, command)
    return step, last_pixel and last_tap


@inline
def _about(core, command, first_tile):
    """Bits of a step that its sums decide."""
    bits = _BANK if command.accumulator_bank != 0 else 0
    if not first_tile:
        return bits | _READS_SUMS
    if command.init == _ACCUMULATOR:
        bits |= _READS_SUMS
    elif command.init == _BIAS:
        bits |= _INIT_BIAS
    return bits if core.m_continues != 0 else bits | _OTHER_SUMS


@inline
def _word(core, command):
    """Bits of a step that reads the word of the point that is shown; 0 if that is outside."""
    h = command.h_origin + core.m_ho * command.ho_step + core.m_kh * command.kh_step
    w = command.w_origin + core.m_wo * command.wo_step + core.m_kw * command.kw_step
    if h < 0 or h >= command.h_limit or w < 0 or w >= command.w_limit:
        return 0
    address = (
        command.x_address
        + core.m_wo * command.wo_stride
        + core.m_ho * command.ho_stride
        + core.m_n * command.n_stride
        + core.m_kw * command.kw_stride
        + core.m_kh * command.kh_stride
        + core.m_cb * command.cb_stride
    ) & 0xFFFFFF
    return _READS | address << _ADDRESS


@inline
def _next_pixel(core, command):
    core.m_wo += 1
    if core.m_wo == command.wo_count:
        core.m_wo = 0
        core.m_ho += 1
        if core.m_ho == command.ho_count:
            core.m_ho = 0
            core.m_n += 1
            if core.m_n == command.n_count:
                core.m_n = 0


@inline
def _next_tap(core, command):
    core.m_kw += 1
    if core.m_kw == command.kw_count:
        core.m_kw = 0
        core.m_kh += 1
        if core.m_kh == command.kh_count:
            core.m_kh = 0
            core.m_cb += 1
            if core.m_cb == command.cb_count:
                core.m_cb = 0


@inline
def _transposed(core, sizes, command):
    """A step of a command with ``transpose``, and whether it is the last one."""
    if core.m_ended_any != 0:
        # The vector of ones behind a tile.
        step = _VECTOR | _TILE_END | _about(core, command, core.m_ended_initial != 0)
        final = core.m_ended_final != 0
        core.m_ended_any = 0
        return step | (_FINAL if final else 0), final
    first_tap = core.m_kw == 0 and core.m_kh == 0 and core.m_cb == 0
    last_tap = _last_tap(core, command)
    line_end = core.m_line == sizes.rows - 1
    ones = command.ones != 0
    step = _SHIFT | _about(core, command, core.m_held_initial != 0)
    if core.m_outside == 0:
        step |= _word(core, command)
    if core.m_held_any != 0:
        step |= _VECTOR
        if core.m_held_first != 0 and core.m_line == 0:
            step |= _TILE_START
        if core.m_held_last != 0 and line_end and not ones:
            step |= _TILE_END
            if core.m_held_final != 0:
                step |= _FINAL
    end = core.m_flushing != 0 and line_end and not ones
    last_pixel = _last_pixel(core, command)
    exhausted = core.m_outside != 0 or last_pixel
    if core.m_line == 0 and first_tap:
        core.m_saved_wo, core.m_saved_ho, core.m_saved_n = core.m_wo, core.m_ho, core.m_n
    if core.m_outside == 0:
        _next_pixel(core, command)
    if last_pixel:
        core.m_outside = 1
    core.m_line = 0 if line_end else core.m_line + 1
    if line_end:
        flushing = core.m_flushing != 0
        core.m_ended_any = 1 if core.m_held_any and core.m_held_last and ones else 0
        core.m_ended_initial, core.m_ended_final = core.m_held_initial, core.m_held_final
        core.m_held_any = 0 if flushing else 1
        core.m_held_first = 1 if first_tap else 0
        core.m_held_last = 1 if last_tap else 0
        core.m_held_initial = core.m_initial
        core.m_held_final = 1 if last_tap and exhausted else 0
        if not flushing:
            _next_tap(core, command)
        if not last_tap:
            core.m_wo, core.m_ho, core.m_n = core.m_saved_wo, core.m_saved_ho, core.m_saved_n
            core.m_outside = 0
        else:
            core.m_initial = 0
            core.m_flushing = 1 if exhausted else 0
    return step, end
