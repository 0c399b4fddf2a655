"""Programs with REPEAT that the accelerator must refuse, and the error that it must report."""

from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, HEADER_LAYOUT, Opcode, command_layout, encode
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit

from .batch_programs import PARTS
from .faulty_programs import HALT, PROGRAM, WINDOW, Fault, dma

__all__ = ["loop_faults"]


def _repeat(first, count=3, level=0, **header) -> bytes:
    """A REPEAT to a command of the program, by its number; it may lie between two words."""
    offset = int(PROGRAM + first * COMMAND_BYTES)
    return encode(Opcode.REPEAT, level=level, count=count, first=offset, **header)


def loop_faults(config: AdaGPConfig) -> list[Fault]:
    """All faulty programs with REPEAT for ``config``."""
    load = dma(Opcode.LOAD, config)
    own = {"unit": Unit.SEQUENCER, "address": PROGRAM + COMMAND_BYTES}
    list_ = []
    for what, place in (
        ("before the program", -1),
        ("behind the program", 3),
        ("between two words", 1 / 32),
    ):
        for count in (1, 2):
            list_.append(
                Fault(name=f"REPEAT {count} times from {what}", code=ErrorCode.REPEAT_TARGET,
                      commands=[load, _repeat(place, count), HALT], **own)
            )  # fmt: skip
    for header in ({"wait": 1}, {"signal": 2}, {"core": 1}):
        list_.append(
            Fault(name=f"REPEAT with {header}", code=ErrorCode.ILLEGAL_FIELD,
                  commands=[load, _repeat(0, **header), HALT], **own)
        )  # fmt: skip
    count = HEADER_LAYOUT.size + command_layout(Opcode.REPEAT)["count"].offset
    never = int.from_bytes(_repeat(0, 1), "little") ^ 1 << count
    list_ += [
        Fault(name="REPEAT no times", code=ErrorCode.ILLEGAL_FIELD,
              commands=[load, never.to_bytes(COMMAND_BYTES, "little"), HALT], **own),
        Fault(name="a loop at the end of the program", code=ErrorCode.PROGRAM_END,
              commands=[load, _repeat(0)], unit=Unit.FETCH, address=PROGRAM + 2 * COMMAND_BYTES),
        Fault(name="deadlock in a loop", code=ErrorCode.DEADLOCK, unit=Unit.SEQUENCER,
              commands=[dma(Opcode.LOAD, config, signal=1), dma(Opcode.LOAD, config, wait=1),
                        _repeat(1, 40), HALT], address=None),
    ]  # fmt: skip
    list_ += [_transfer_fault(config, opcode) for opcode in (Opcode.LOAD, Opcode.STORE)]
    list_.append(
        Fault(name="unaligned in the third time through a loop", code=ErrorCode.UNALIGNED_ADDRESS,
              commands=[dma(Opcode.LOAD, config, loop2_stride=config.granule_bytes // 2),
                        _repeat(0, 9, 2), HALT],
              unit=Unit.CORE0_LOAD, address=None)
    )  # fmt: skip
    if config.has_training_engines:
        batch = encode(Opcode.BATCH, first=1, **dict.fromkeys(PARTS, PROGRAM))
        list_.append(
            Fault(name="BATCH in a loop", code=ErrorCode.OPEN_LOOP,
                  commands=[_repeat(1), batch, HALT], **own)
        )  # fmt: skip
    return list_


def _transfer_fault(config, opcode):
    """A transfer that leaves the window in its fourth time through a loop."""
    size = 4 * config.cores[0].word_bytes
    start = WINDOW - 3 * size
    commands = [
        dma(opcode, config, dram_address=start, loop3_stride=size),
        _repeat(0, 20, 3),
        HALT,
    ]
    return Fault(
        name=f"{opcode.name} behind the window in a loop", code=ErrorCode.MEMORY_WINDOW,
        unit=Unit[f"CORE0_{opcode.name}"], address=WINDOW, commands=commands,
    )  # fmt: skip
