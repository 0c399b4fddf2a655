"""WEIGHTS, a cycle at a time (hw/engines/matmul/weight_loader.py)."""

from .compilation import inline
from .queues import WEIGHTS

__all__ = ["step_weights", "weights_request"]

_IDLE, _BIAS, _WORDS = range(3)
#: States of a walk through loops: it begins, its first point is computed, it shows a point.
_START, _FILLING, _VALID = 1, 2, 3


@inline
def _possible(core, past):
    """Whether a column may leave now."""
    first = core.w_place == 0 and (past or core.w_filling != 0 or core.w_held != 0)
    return not first or core.w_free != 0


@inline
def _past(core, commands):
    return (
        core.w_state == _WORDS
        and commands[core.w_command].transpose == 0
        and core.w_point != 0
        and core.w_held == 0
        and core.w_filling == 0
    )


@inline
def _enters(core, commands):
    return (
        core.w_state == _WORDS
        and commands[core.w_command].transpose != 0
        and core.w_point != 0
        and core.w_flushing == 0
        and core.w_filling == 0
    )


@inline
def weights_request(core, commands):
    """Address of the word that is asked for, or -1."""
    if core.w_state == _BIAS:
        if commands[core.w_command].bias != 0 and not (
            core.w_bias_word == 0 and core.w_bias_held != 0
        ):
            return (commands[core.w_command].bias_address + core.w_bias_word) & 0xFFFFFF
    elif core.w_state == _WORDS and core.w_exists != 0:
        past = _past(core, commands)
        if (past or _enters(core, commands)) and _possible(core, past):
            return core.w_address
    return -1


@inline
def step_weights(core, sizes, commands, accepted, served, tile_used, bias_used):
    """One cycle; ``accepted``: a command is, ``served``: the request is. Returns whether the last
    word of a command was read."""
    if (
        core.w_state == _IDLE
        and not accepted
        and core.w_held == 0
        and core.w_filling == 0
        and core.w_loaded == 0
    ):
        # Only the array may do something.
        if tile_used:
            core.w_free = 1
        if bias_used:
            core.w_bias_held = 0
        return False
    state, bias_held = core.w_state, core.w_bias_held != 0
    command = commands[core.w_command]
    past, enters = _past(core, commands), _enters(core, commands)
    possible = _possible(core, past)
    word = (past or enters) and possible and (core.w_exists == 0 or served)
    flushing, filling, held = core.w_flushing != 0, core.w_filling != 0, core.w_held != 0
    place, line = core.w_place, core.w_line
    shift = (flushing and possible) or (enters and word)
    column = False
    if place >= 0 and place != sizes.columns and (past or filling or held):
        column = possible if filling else (word if past else shift)
    last = column and place == sizes.columns - 1
    if column and place == 0:
        core.w_free = 0
    elif tile_used:
        core.w_free = 1
    following = place if place == sizes.columns else place + 1
    if shift:
        block_end = line == sizes.rows - 1
        core.w_line = 0 if block_end else line + 1
        if held:
            core.w_place = following
        if block_end:
            if held and core.w_held_last != 0 and following != sizes.columns:
                core.w_filling = 1
            elif flushing:
                core.w_place = 0
            elif core.w_block_first != 0:
                core.w_place = -command.skip
            core.w_held = 0 if flushing else 1
            core.w_held_last = core.w_block_last
            core.w_held_skip = command.skip
            core.w_flushing = 0
    elif filling and possible:
        core.w_place = following
        if following == sizes.columns:
            core.w_filling = 0
            core.w_place = -core.w_held_skip if held else 0
    elif past and word:
        core.w_place = 0 if last else following
    if bias_used:
        core.w_bias_held = 0
    # What comes next.
    alone, done = False, False
    walk = core.w_walk
    advance = walk == _VALID and (core.w_point == 0 or word)
    if state == _IDLE:
        alone = not accepted
        if accepted:
            core.w_command = core.q_head[WEIGHTS]
            core.w_state = _BIAS
    elif state == _BIAS:
        if command.bias == 0:
            core.w_state = _WORDS
        else:
            alone = core.w_bias_word == 0 and bias_held
            if served:
                if core.w_bias_word == sizes.bias_words - 1:
                    core.w_bias_word, core.w_bias_held = 0, 1
                    core.w_state = _WORDS
                else:
                    core.w_bias_word += 1
    else:
        alone = command.transpose == 0
        if word and core.w_final != 0:
            done = True
            core.w_state = _IDLE
    if alone and held and not flushing and not filling and line == 0:
        core.w_flushing = 1
    # The walk through the words.
    if advance:
        core.w_point = 1
        _take_point(core, sizes, command)
    elif word:
        core.w_point = 0
    if walk == _START:
        core.w_walk = _FILLING
    elif walk == _FILLING:
        core.w_walk = _VALID
    if state == _IDLE and accepted:
        _begin_walk(core)
    # The last column reaches the array two cycles later.
    core.w_loaded = (core.w_loaded << 1 | (1 if last else 0)) & 3
    return done


@inline
def _begin_walk(core):
    core.w_walk = _START
    core.w_row = core.w_block = core.w_kw = core.w_kh = core.w_cb = 0


@inline
def _take_point(core, sizes, command):
    """The point that is shown goes on, and the next one is shown, if there is one."""
    transposed = command.transpose != 0
    rows = sizes.rows if transposed else sizes.columns
    blocks = command.block_count if transposed else 1
    core.w_address = (
        command.address
        + core.w_row * command.row_stride
        + core.w_block
        + core.w_kw * command.kw_stride
        + core.w_kh * command.kh_stride
        + core.w_cb * command.cb_stride
    ) & 0xFFFFFF
    row = core.w_row + (core.w_cb * sizes.rows if transposed else 0)
    core.w_exists = 1 if row < command.row_limit else 0
    core.w_block_first = 1 if core.w_block == 0 else 0
    core.w_block_last = 1 if core.w_block == blocks - 1 else 0
    core.w_final = 0
    core.w_row += 1
    if core.w_row == rows:
        core.w_row = 0
        core.w_block += 1
        if core.w_block == blocks:
            core.w_block = 0
            core.w_kw += 1
            if core.w_kw == command.kw_count:
                core.w_kw = 0
                core.w_kh += 1
                if core.w_kh == command.kh_count:
                    core.w_kh = 0
                    core.w_cb += 1
                    if core.w_cb == command.cb_count:
                        core.w_cb = 0
                        core.w_final = 1
                        core.w_walk = 0
