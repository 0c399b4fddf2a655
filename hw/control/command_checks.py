"""What the sequencer checks of every command before anything becomes of it."""

from amaranth.hdl import Cat, Const
from amaranth.lib import data

from hw.isa.encoding import (
    COMMANDS,
    SEMAPHORE_MASK_WIDTH,
    Opcode,
    command_layout,
    control_opcodes,
)

__all__ = ["command_checks"]


def command_checks(config, queues, header, body):
    """Whether the opcode of a command is undefined, and whether any of its fields is out of range.

    ``queues``: (core, opcode) of each. ``header``, ``body``: the command's header and the bits
    behind it.
    """
    known, illegal = Const(0), Const(0)
    for opcode, fields in COMMANDS.items():
        executing = {core for core, queued in queues if queued == opcode}
        if not executing and opcode not in control_opcodes(config):
            continue
        is_opcode, elsewhere = header.opcode == opcode, Const(0)
        for core in config.cores:
            if executing and core.index not in executing:
                elsewhere = elsewhere | (header.core == core.index)
        known = known | (is_opcode & ~elsewhere)
        if not fields:
            continue
        view = data.View(command_layout(opcode), body[: command_layout(opcode).size])
        for field in fields:
            if field.minimum is not None:
                assert field.minimum == 1
                illegal = illegal | (is_opcode & ~view[field.name].any())
            if field.enum is not None and len(field.enum) < 1 << field.width:
                named = Cat(view[field.name] == value for value in field.enum).any()
                illegal = illegal | (is_opcode & ~named)
    unused = header.core | header.wait.any() | header.signal.any()
    alone = (header.opcode == Opcode.BATCH) | (header.opcode == Opcode.REPEAT)
    if Opcode.ROWS in control_opcodes(config):
        alone = alone | (header.opcode == Opcode.ROWS)
    illegal = illegal | (alone & unused)
    illegal = illegal | (header.core >= len(config.cores))
    count = config.semaphore_count
    if count < SEMAPHORE_MASK_WIDTH:
        illegal = illegal | header.wait[count:].any() | header.signal[count:].any()
    return ~known, illegal
