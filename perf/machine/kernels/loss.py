"""LOSS, a cycle at a time (hw/engines/loss/)."""

from typing import Any

import numpy as np

from hw.arithmetic.convert import FloatConverter
from hw.arithmetic.float_add import FloatAdder
from hw.arithmetic.float_multiply import FloatMultiplier
from hw.arithmetic.float_special import FloatSpecial, SpecialOperation
from hw.engines.loss.microcode import ENTRIES, PROGRAM, Control, Operation, Register
from hw.isa.loss import Loss

from .compilation import inline
from .queues import LOSS

__all__ = ["loss_reads", "loss_ready", "step_loss"]

IDLE, _CHECK, _FETCH, _RUN = range(4)


def _codes(kind: Any, *names: str) -> list[int]:
    return [kind[name].value for name in names]


_READ_X, _READ_TARGET, _READ_LABEL = _codes(Operation, "READ_X", "READ_TARGET", "READ_LABEL")
_ROUND, _EMIT, _FLUSH = _codes(Operation, "ROUND", "EMIT", "FLUSH")
_NUMBERS, _SUMS, _IF_CLOSING = _codes(Control, "NUMBERS", "SUMS", "IF_CLOSING")
_ENTER, _ROWS, _SEEK, _END = _codes(Control, "ENTER", "ROWS", "SEEK", "END")
_ROW_SUM, _ALL_SUM = int(Register.ROW_SUM), int(Register.ALL_SUM)
_BATCH_ENTRY, _CROSS_ENTROPY_ENTRY, _SQUARED_ERROR_ENTRY = (
    ENTRIES[name] for name in ("batch", "cross_entropy", "squared_error")
)
_CROSS_ENTROPY = int(Loss.CROSS_ENTROPY)
#: Stages of an instruction.
_FIRST, _A, _B, _LAUNCH, _WAIT = range(5)
_SUMS_LAST = 7


def _waits(operation):
    """Cycles in WAIT at least, for what has a fixed latency."""
    latency = {
        Operation.ADD: FloatAdder.LATENCY,
        Operation.SUBTRACT: FloatAdder.LATENCY,
        Operation.MAXIMUM: FloatAdder.LATENCY,
        Operation.MULTIPLY: FloatMultiplier.LATENCY,
        Operation.ROUND: FloatConverter.LATENCY,
        Operation.DIVIDE: FloatSpecial.LATENCY[SpecialOperation.DIVIDE],
        Operation.EXPONENTIAL: FloatSpecial.LATENCY[SpecialOperation.EXPONENTIAL],
    }
    return latency.get(operation, 1)


#: Operation, destination, control, target, cycles of each instruction.
_PROGRAM = np.array(
    [
        (
            line["operation"].value, line["r"], line["control"].value, line["target"],
            _waits(line["operation"]),
        )
        for line in PROGRAM
    ],
    np.int64,
)  # fmt: skip


@inline
def loss_ready(core):
    return core.o_state == IDLE


@inline
def loss_reads(core):
    """Address of the word that is asked for, or -1."""
    if core.o_left == 0:
        return -1
    return core.o_target_address if core.o_is_target != 0 else core.o_x_address


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
    arrives = core.o_arriving >> 2 & 1
    final = 1 if served and core.o_left == 1 else 0
    core.o_arriving = (core.o_arriving << 1 | final) & 7
    _read(core, sizes, served)
    if state == _CHECK:
        _load(core, command)
        core.o_state = _FETCH
        return False
    if state == _FETCH:
        core.o_instruction = core.o_place
        core.o_stage = _FIRST
        core.o_state = _RUN
        return False
    operation, target_register = _PROGRAM[core.o_instruction, 0], _PROGRAM[core.o_instruction, 1]
    control, target = _PROGRAM[core.o_instruction, 2], _PROGRAM[core.o_instruction, 3]
    reads = operation == _READ_X or operation == _READ_TARGET or operation == _READ_LABEL
    stage = core.o_stage
    step, offers, flushes = False, False, operation == _FLUSH and stage != _FIRST
    full, idle = core.o_full != 0, core.o_full == 0 and core.o_lane == 0
    if stage == _LAUNCH:
        _sequence(core, command, target_register, control, target)
        core.o_wait = _PROGRAM[core.o_instruction, 4] - 1
        core.o_piece = 0
    if stage < _WAIT:
        core.o_stage = stage + 1
    elif core.o_wait != 0:
        core.o_wait -= 1
    elif reads:
        step = arrives != 0
    elif operation == _FLUSH:
        step = idle
    elif operation == _ROUND or operation == _EMIT:
        offers = True
        if not full:
            if operation == _ROUND or core.o_piece == sizes.chunks - 1:
                step = True
            core.o_piece += 1
    else:
        step = True
    if stage == _FIRST and reads:
        wide = command.x_wide
        if operation == _READ_LABEL:
            wide = 1
        elif operation == _READ_TARGET:
            wide = command.target_wide
        core.o_left = sizes.chunks if wide != 0 else 1
        core.o_is_target = 0 if operation == _READ_X else 1
    # The word that is written.
    if full and written:
        core.o_full = 0
        core.o_address = (core.o_address + 1) & 0xFFFFFF
    if not full and (offers or (flushes and core.o_lane != 0)):
        if core.o_lane == sizes.rows - 1:
            core.o_lane, core.o_full = 0, 1
        else:
            core.o_lane += 1
    if not step:
        return False
    return _end_instruction(core, command, target_register, control)


@inline
def _load(core, command):
    """A command begins."""
    entry = _CROSS_ENTROPY_ENTRY if command.loss == _CROSS_ENTROPY else _SQUARED_ERROR_ENTRY
    core.o_place = _BATCH_ENTRY if command.first != 0 else entry
    core.o_number = core.o_closing = core.o_row_index = 0
    core.o_rows_left = command.row_count
    if command.first != 0:
        core.o_all_index = 0
    core.o_x_row = core.o_x_address = command.x_address
    core.o_target_address = command.target_address
    core.o_x_lane = core.o_target_lane = core.o_lane = core.o_full = 0
    core.o_address = command.gradient_address


@inline
def _read(core, sizes, served):
    """A lane is read."""
    if not served:
        return
    core.o_left -= 1
    if core.o_is_target != 0:
        core.o_target_lane += 1
        if core.o_target_lane == sizes.rows:
            core.o_target_lane = 0
            core.o_target_address += 1
    else:
        core.o_x_lane += 1
        if core.o_x_lane == sizes.rows:
            core.o_x_lane = 0
            core.o_x_address += 1


@inline
def _sequence(core, command, target_register, control, target):
    """Where the instruction leads."""
    entry = _CROSS_ENTROPY_ENTRY if command.loss == _CROSS_ENTROPY else _SQUARED_ERROR_ENTRY
    following = core.o_instruction + 1
    if control == _NUMBERS:
        if core.o_number + 1 != command.row_length:
            following = target
    elif control == _SUMS:
        index = core.o_all_index if target_register & 1 else core.o_row_index
        if index != _SUMS_LAST:
            following = target
    elif control == _IF_CLOSING:
        if core.o_closing != 0:
            following = target
    elif control == _ENTER:
        following = entry
    elif control == _ROWS:
        following = target if core.o_rows_left == 1 else entry
    core.o_place = following


@inline
def _end_instruction(core, command, target_register, control):
    """Whether the command is over, too."""
    core.o_instruction, core.o_stage = core.o_place, _FIRST
    if target_register == _ROW_SUM:
        core.o_row_index = (core.o_row_index + 1) & 7
    elif target_register == _ALL_SUM:
        core.o_all_index = (core.o_all_index + 1) & 7
    if control == _NUMBERS:
        core.o_number += 1
        if core.o_number == command.row_length:
            core.o_number = core.o_x_lane = 0
            core.o_x_address = core.o_x_row
    elif control == _ROWS:
        last = core.o_rows_left == 1
        core.o_rows_left -= 1
        core.o_closing, core.o_row_index = 1 if last else 0, 0
        if core.o_target_lane != 0:
            core.o_target_lane = 0
            core.o_target_address += 1
        core.o_x_row += command.x_stride
        core.o_x_address, core.o_x_lane = core.o_x_row, 0
        if last and command.last == 0:
            core.o_state = IDLE
            return True
    elif control == _SEEK:
        core.o_address = command.value_address
    elif control == _END:
        core.o_state = IDLE
        return True
    return False
