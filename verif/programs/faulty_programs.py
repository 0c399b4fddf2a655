"""Programs that the accelerator must refuse, and the error that it must report."""

from dataclasses import dataclass, field

from golden.commands.vector import Source
from hw.config import AdaGPConfig
from hw.isa.encoding import (
    COMMAND_BYTES,
    HEADER_LAYOUT,
    POST_OUTPUT_LOOPS,
    Opcode,
    command_layout,
    encode,
    queue_opcodes,
)
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit

__all__ = ["PROGRAM", "WINDOW", "Fault", "dma", "faults"]

#: Offset of the program and size of the memory window of all faulty programs, in bytes.
PROGRAM, WINDOW = 0x1000, 0x8000
#: Offset of what they load and store.
_DATA = 0x4000

HALT = encode(Opcode.HALT)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A faulty program and what the error registers must say.

    Members
    -------
    code, unit, address : expected error; the address counts from the memory window's start if
        ``in_window``, and is any if None
    response : what the memory answers accesses to ``_DATA`` with (2 SLVERR, 3 DECERR), or 0
    fetch_response : the same for the program's second command
    registers : what the host writes before the start
    program : offset of the program
    size : bytes of the program; None: all of it
    window : bytes of the memory window
    """

    name: str
    commands: list
    code: ErrorCode
    unit: Unit
    address: int | None
    in_window: bool = True
    response: int = 0
    fetch_response: int = 0
    registers: dict = field(default_factory=dict)
    program: int = PROGRAM
    size: int | None = None
    window: int = WINDOW

    @property
    def bytes(self) -> bytes:
        """The program."""
        return b"".join(self.commands)

    @property
    def error_window(self) -> tuple[int, int]:
        """(offset, response) of the beats that the memory refuses."""
        if self.fetch_response:
            return PROGRAM + COMMAND_BYTES, self.fetch_response
        return _DATA, self.response


def dma(opcode, config, core=0, *, words=4, wait=0, signal=0, **fields) -> bytes:
    """A LOAD or STORE of whole buffer words."""
    size = config.cores[core].word_bytes
    values = {
        "buffer_address": _own_memory(config, core),
        "dram_address": _DATA,
        "run_bytes": words * size,
        "row_bytes": size,
        **fields,
    }
    return encode(opcode, core=core, wait=wait, signal=signal, **values)


def weights(config, core=0, *, tiles=1, wait=0, signal=0, **fields) -> bytes:
    """A WEIGHTS of ``tiles`` tiles of one word at the start of the buffer."""
    values = {
        "address": _own_memory(config, core),
        "row_stride": 0,
        "row_limit": 1,
        "transpose": 1,
        "kw_count": tiles,
        **fields,
    }
    return encode(Opcode.WEIGHTS, core=core, wait=wait, signal=signal, **values)


def matmul(config, core=0, *, vectors=1, wait=0, signal=0, **fields) -> bytes:
    """A MATMUL of ``vectors`` vectors and one K tile at the start of the buffer."""
    first = _own_memory(config, core)
    values = {
        "accumulator_bank": 0,
        "channels": 1,
        "x_address": first,
        "h_origin": 0,
        "w_origin": 0,
        "h_limit": 1,
        "w_limit": 1,
        "wo_count": vectors,
        **fields,
    }
    return encode(Opcode.MATMUL, core=core, wait=wait, signal=signal, **values)


def post(config, core=0, *, outputs=1, wait=0, signal=0, **fields) -> bytes:
    """A POST of ``outputs`` outputs of one group."""
    values = {
        "accumulator_bank": 0,
        "channels": 1,
        "out_address": _own_memory(config, core),
        "out_group": 0,
        **{f"out_{name}_stride": 1 for name in POST_OUTPUT_LOOPS},
        "scale": 0x3F800000,
        "wo_count": outputs,
        **fields,
    }
    return encode(Opcode.POST, core=core, wait=wait, signal=signal, **values)


def vector(config, core=0, *, steps=1, wait=0, signal=0, **fields) -> bytes:
    """A VECTOR that copies ``steps`` words at the start of the buffer to themselves."""
    first = _own_memory(config, core)
    values = {
        "x_address": first,
        "x_i0_stride": 1,
        "o_address": first,
        "o_i0_stride": 1,
        "i0_count": steps,
        **fields,
    }
    return encode(Opcode.VECTOR, core=core, wait=wait, signal=signal, **values)


def loss(config, *, wait=0, signal=0, **fields) -> bytes:
    """A LOSS of one image and one class, the label 8 words behind the start of the buffer."""
    first = _own_memory(config, 0)
    values = {
        "loss": 0,
        "first": 1,
        "last": 1,
        "x_wide": 0,
        "target_wide": 0,
        "row_count": 1,
        "row_length": 1,
        "x_address": first,
        "x_stride": 1,
        "target_address": first + 8,
        "gradient_address": first + 16,
        "value_address": first + 24,
        "gradient_scale": 0x3F800000,
        "value_scale": 0x3F800000,
        **fields,
    }
    return encode(Opcode.LOSS, wait=wait, signal=signal, **values)


def _own_memory(config, core):
    return config.cores[core].memories[0] << 23


def _raw(command: bytes, position: int, width: int, value: int) -> bytes:
    """``command`` with some bits replaced, also by what :func:`encode` refuses."""
    word = int.from_bytes(command, "little")
    word &= ~(((1 << width) - 1) << position)
    return (word | value << position).to_bytes(COMMAND_BYTES, "little")


def faults(config: AdaGPConfig) -> list[Fault]:
    """All faulty programs for ``config``."""
    list_ = [*_sequencer_faults(config), *_fetch_faults(config)]
    for core in config.cores:
        list_ += _bus_faults(config, core.index) + _memory_faults(config, core.index)
        list_ += _field_faults(config, core.index)
        if core.has_vector:
            list_ += _vector_faults(config, core.index)
        if core.has_loss:
            list_ += _loss_faults(config)
    return list_


def _sequencer_faults(config):
    load = dma(Opcode.LOAD, config)
    waits = dma(Opcode.LOAD, config, wait=1)
    queue = config.command_queue_depth + 8
    common = {"unit": Unit.SEQUENCER}
    header = HEADER_LAYOUT.size
    run_count = header + command_layout(Opcode.LOAD)["run_count"].offset
    others = []
    if config.has_training_engines:
        others = [vector(config, wait=32), loss(config, wait=64)]
    return [
        Fault(name="opcode 0", commands=[load, bytes(COMMAND_BYTES), HALT],
              code=ErrorCode.UNDEFINED_COMMAND, address=PROGRAM + COMMAND_BYTES, **common),
        Fault(name="opcode 200", commands=[_raw(load, 0, 8, 200), HALT],
              code=ErrorCode.UNDEFINED_COMMAND, address=PROGRAM, **common),
        Fault(name="run_count 0", commands=[load, load, _raw(load, run_count, 16, 0), HALT],
              code=ErrorCode.ILLEGAL_FIELD, address=PROGRAM + 2 * COMMAND_BYTES, **common),
        Fault(name="init 3", commands=[_raw(matmul(config), header + 1, 2, 3), HALT],
              code=ErrorCode.ILLEGAL_FIELD, address=PROGRAM, **common),
        Fault(name="deadlock at HALT", commands=[load, waits, HALT],
              code=ErrorCode.DEADLOCK, address=None, **common),
        Fault(name="deadlock with a full queue", commands=[waits] * queue + [HALT],
              code=ErrorCode.DEADLOCK, address=None, **common),
        Fault(name="deadlock of all queues", code=ErrorCode.DEADLOCK, address=None,
              commands=[waits, matmul(config, wait=2), post(config, wait=4),
                        weights(config, wait=16), dma(Opcode.STORE, config, wait=8), *others,
                        HALT],
              **common),
        Fault(name="MATMUL without weights", code=ErrorCode.DEADLOCK, address=None,
              commands=[load, weights(config), matmul(config), matmul(config), HALT], **common),
        Fault(name="MATMUL with too few weights", code=ErrorCode.DEADLOCK, address=None,
              commands=[load, weights(config, tiles=2), matmul(config, kh_count=3), HALT],
              **common),
        Fault(name="weights that nobody takes", code=ErrorCode.DEADLOCK, address=None,
              commands=[load, weights(config, tiles=2), matmul(config), HALT], **common),
        Fault(name="weights that wait for nobody", code=ErrorCode.DEADLOCK, address=None,
              commands=[load, weights(config, tiles=9, transpose=0), *[waits] * queue, HALT],
              **common),
        Fault(name="biases that nobody takes", code=ErrorCode.DEADLOCK, address=None,
              commands=[load, weights(config, bias=1), matmul(config), HALT], **common),
        Fault(name="semaphore overflow", code=ErrorCode.SEMAPHORE_OVERFLOW, address=5,
              in_window=False,
              commands=[*[dma(Opcode.LOAD, config, words=1, signal=1 << 5)] * 16, HALT],
              **common),
    ]  # fmt: skip


def _fetch_faults(config):
    load = dma(Opcode.LOAD, config)
    common = {"unit": Unit.FETCH}
    # A program that leaves the window is reported with its end.
    return [
        Fault(name="no HALT", commands=[load, load], code=ErrorCode.PROGRAM_END,
              address=PROGRAM + 2 * COMMAND_BYTES, **common),
        Fault(name="empty program", commands=[HALT], size=0, code=ErrorCode.PROGRAM_END,
              address=PROGRAM, **common),
        Fault(name="unaligned program", commands=[HALT], program=PROGRAM + 4,
              code=ErrorCode.UNALIGNED_ADDRESS, address=PROGRAM + 4, **common),
        Fault(name="program outside the window", commands=[HALT], program=WINDOW,
              code=ErrorCode.MEMORY_WINDOW, address=WINDOW + COMMAND_BYTES, **common),
        Fault(name="SLVERR on the program", commands=[load, load, HALT], fetch_response=2,
              code=ErrorCode.READ_SLVERR, address=PROGRAM + COMMAND_BYTES, **common),
        Fault(name="DECERR on the program", commands=[load, load, HALT], fetch_response=3,
              code=ErrorCode.READ_DECERR, address=PROGRAM + COMMAND_BYTES, **common),
    ]  # fmt: skip


def _bus_faults(config, core):
    result = []
    responses = {
        Opcode.LOAD: {2: ErrorCode.READ_SLVERR, 3: ErrorCode.READ_DECERR},
        Opcode.STORE: {2: ErrorCode.WRITE_SLVERR, 3: ErrorCode.WRITE_DECERR},
    }
    for opcode, codes in responses.items():
        unit = Unit[f"CORE{core}_{opcode.name}"]
        name = f"core {core} {opcode.name}"
        for response, code in codes.items():
            commands = [dma(opcode, config, core, words=40), HALT]
            result.append(
                Fault(name=f"{name} {code.name}", commands=commands, code=code, unit=unit,
                      address=_DATA, response=response)
            )  # fmt: skip
        words = 4 * config.cores[core].word_bytes
        for title, address, code in (
            ("behind the window", WINDOW, ErrorCode.MEMORY_WINDOW),
            ("across the window's end", WINDOW - words // 2, ErrorCode.MEMORY_WINDOW),
            ("unaligned", _DATA + config.granule_bytes // 2, ErrorCode.UNALIGNED_ADDRESS),
        ):
            commands = [dma(opcode, config, core, dram_address=address), HALT]
            result.append(
                Fault(name=f"{name} {title}", commands=commands, code=code, unit=unit,
                      address=address)
            )  # fmt: skip
        word, granule = config.cores[core].word_bytes, config.granule_bytes
        if granule < word:  # else nobody sees where a row ends
            command = dma(opcode, config, core, run_bytes=word + granule)
            result.append(
                Fault(name=f"{name} of a run that ends inside a row", commands=[command, HALT],
                      code=ErrorCode.ILLEGAL_FIELD, unit=unit, address=None)
            )  # fmt: skip
    return result


def _memory_faults(config, core):
    memory = config.cores[core].memories[0]
    end = _own_memory(config, core) + config.memory_depth[memory]
    depth = config.cores[core].accumulator_depth
    buffer = {"code": ErrorCode.BUFFER_ADDRESS, "address": end, "in_window": False}
    entry = {"code": ErrorCode.ACCUMULATOR_ADDRESS, "address": depth, "in_window": False}
    units = {
        opcode: Unit[f"CORE{core}_{opcode.name}"] for opcode in queue_opcodes(config.cores[core])
    }
    last = end - 1
    return [
        Fault(name=f"core {core} LOAD behind the buffer", unit=units[Opcode.LOAD], **buffer,
              commands=[dma(Opcode.LOAD, config, core, buffer_address=last), HALT]),
        Fault(name=f"core {core} STORE from behind the buffer", unit=units[Opcode.STORE], **buffer,
              commands=[dma(Opcode.STORE, config, core, buffer_address=last), HALT]),
        Fault(name=f"core {core} MATMUL behind the buffer", unit=units[Opcode.MATMUL],
              commands=[weights(config, core),
                        matmul(config, core, vectors=2, x_address=last, wo_stride=1), HALT],
              **buffer),
        *(Fault(name=f"core {core} WEIGHTS behind the buffer, transpose {transpose}",
                unit=units[Opcode.WEIGHTS],
                commands=[weights(config, core, address=last, row_limit=2, row_stride=1,
                                  transpose=transpose), HALT], **buffer)
          for transpose in (0, 1)),
        Fault(name=f"core {core} POST behind the buffer", unit=units[Opcode.POST],
              commands=[post(config, core, outputs=2, out_address=last), HALT], **buffer),
        Fault(name=f"core {core} MATMUL behind the accumulators", unit=units[Opcode.MATMUL],
              commands=[weights(config, core),
                        matmul(config, core, vectors=2, accumulator_address=depth - 1), HALT],
              **entry),
        Fault(name=f"core {core} POST behind the accumulators", unit=units[Opcode.POST],
              commands=[post(config, core, outputs=2, accumulator_address=depth - 1,
                             wo_stride=1), HALT], **entry),
    ]  # fmt: skip


def _field_faults(config, core):
    """A field whose range depends on the core, so that its engine checks it."""
    commands = [post(config, core, out_group=config.cores[core].groups_per_word), HALT]
    return [
        Fault(name=f"core {core} POST to a group that no word has", commands=commands,
              code=ErrorCode.ILLEGAL_FIELD, unit=Unit[f"CORE{core}_POST"], address=0,
              in_window=False)
    ]  # fmt: skip


def _vector_faults(config, core):
    memory = config.cores[core].memories[0]
    end = _own_memory(config, core) + config.memory_depth[memory]
    unit = Unit[f"CORE{core}_VECTOR"]
    list_ = []
    for stream in "xyzo":
        fields = {f"{stream}_address": end - 2, f"{stream}_i0_stride": 1}
        if stream != "o":
            fields |= {"x_source": Source.IMMEDIATE, f"{stream}_source": Source.NARROW}
        command = vector(config, core, steps=3, **fields)
        list_.append(
            Fault(name=f"core {core} VECTOR behind the buffer, {stream}", commands=[command, HALT],
                  code=ErrorCode.BUFFER_ADDRESS, unit=unit, address=end, in_window=False)
        )  # fmt: skip
    for name, fields in (
        ("adds behind a reduction", {"reduce": 1, "add": 1}),
        ("watches a division", {"operation": 1, "watch": 1}),
    ):
        commands = [vector(config, core), vector(config, core, **fields), HALT]
        list_.append(
            Fault(name=f"core {core} VECTOR {name}", commands=commands, in_window=False,
                  code=ErrorCode.ILLEGAL_FIELD, unit=unit, address=0)
        )  # fmt: skip
    return list_


def _loss_faults(config):
    first = _own_memory(config, 0)
    end = first + config.memory_depth[config.cores[0].memories[0]]
    load = dma(Opcode.LOAD, config, words=32, signal=1)
    common = {"unit": Unit.CORE0_LOSS, "in_window": False}
    list_ = [
        Fault(name=f"LOSS behind the buffer, {name}", code=ErrorCode.BUFFER_ADDRESS, address=end,
              commands=[load, loss(config, wait=1, **{f"{name}_address": end}), HALT], **common)
        for name in ("x", "target", "gradient", "value")
    ]  # fmt: skip
    # The opcode of the program's first command is taken for a label.
    load = dma(Opcode.LOAD, config, words=32, dram_address=PROGRAM, buffer_address=first + 8,
               signal=1)  # fmt: skip
    wrong = [load, loss(config, wait=1, row_length=int(Opcode.LOAD)), HALT]
    list_.append(Fault(name="a label that is no class", code=ErrorCode.ILLEGAL_LABEL,
                       commands=wrong, address=first + 8, **common))  # fmt: skip
    return list_
