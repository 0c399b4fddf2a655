"""Programs with BATCH that the accelerator must refuse, and the error that it must report."""

from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit

from .batch_programs import PARTS
from .faulty_programs import HALT, PROGRAM, Fault, dma

__all__ = ["batch_faults"]

#: All batches are Phase BP, their inputs are in place.
_REGISTERS = {
    **dict.fromkeys(("WARM_UP", "EPOCH", "EPOCH_BATCH"), 0),
    "EPOCH_BATCHES": 10,
    "STAGE0": 1 << 8,
    "BATCHES": 4,
    "BATCHES_READY": 4,
}


def _batch(first=0, **places) -> bytes:
    """A BATCH whose targets are numbers of commands, the second unless ``places`` says otherwise;
    a place may lie between two."""
    fields = {name: int(PROGRAM + places.get(name, 1) * COMMAND_BYTES) for name in PARTS}
    return encode(Opcode.BATCH, first=first, **fields)


def batch_faults(config: AdaGPConfig) -> list[Fault]:
    """All faulty programs with BATCH for ``config``."""
    load = dma(Opcode.LOAD, config)
    common = {"unit": Unit.SEQUENCER, "registers": _REGISTERS}
    if not config.has_training_engines:
        return [
            Fault(name="BATCH without training", commands=[_batch(), HALT],
                  code=ErrorCode.UNDEFINED_COMMAND, unit=Unit.SEQUENCER, address=PROGRAM)
        ]  # fmt: skip
    list_ = []
    for part in PARTS:
        for what, place in (
            ("before the program", -1),
            ("behind the program", 3),
            ("between two words", 1.03125),
        ):
            list_.append(
                Fault(name=f"BATCH with {part} {what}", address=PROGRAM + COMMAND_BYTES,
                      code=ErrorCode.BATCH_TARGET,
                      commands=[load, _batch(first=1, **{part: place}), HALT], **common)
            )  # fmt: skip
    waits = encode(Opcode.BATCH, wait=1, first=1, **dict.fromkeys(PARTS, PROGRAM))
    loop = [_batch(first=1), load]
    return [
        *list_,
        Fault(name="BATCH with a semaphore", code=ErrorCode.ILLEGAL_FIELD, address=PROGRAM,
              commands=[waits, HALT], **common),
        Fault(name="BATCH with first in the middle", code=ErrorCode.BATCH_FIRST,
              address=PROGRAM + 2 * COMMAND_BYTES,
              commands=[*loop, _batch(first=1), HALT], **common),
        Fault(name="deadlock at BATCH", code=ErrorCode.DEADLOCK, address=None,
              commands=[*loop, dma(Opcode.LOAD, config, wait=1), _batch()], **common),
        Fault(name="deadlock in the second batch", code=ErrorCode.DEADLOCK, address=None,
              commands=[*loop, _batch(bp_odd=3), dma(Opcode.LOAD, config, wait=1), _batch()],
              **common),
        Fault(name="undefined command in the third batch", code=ErrorCode.UNDEFINED_COMMAND,
              address=PROGRAM + 4 * COMMAND_BYTES,
              commands=[*loop, _batch(bp_even=4), HALT, bytes(COMMAND_BYTES)],
              **{**common, "registers": _REGISTERS | {"EPOCH_BATCH": 9}}),
        Fault(name="a batch without an end", code=ErrorCode.PROGRAM_END, unit=Unit.FETCH,
              address=PROGRAM + 3 * COMMAND_BYTES, commands=[*loop, load], registers=_REGISTERS),
    ]  # fmt: skip
