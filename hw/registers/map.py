"""The one description of the control and status registers.

The hardware (:mod:`hw.registers.file`), the reference documentation, the SystemRDL text, the C
header and the drivers are all made from what :func:`register_map` returns. Adding a register or a
field is one entry in this file, a counter one in :mod:`hw.registers.counter_list`.

Rules that hold for every register:

- 32 bits wide, little endian; 64-bit values are a pair ``NAME_LO``, ``NAME_HI`` at the next word;
- bits without a field read as zero and ignore writes; byte strobes are honoured;
- a *locked* register refuses writes (SLVERR, no effect) while STATUS.BUSY is set, one with a field
  that is ``idle_only`` those that write 1 to it;
- a write to a read-only register answers SLVERR, an undefined address DECERR (reads give 0);
- an offset means the same in all configurations: registers of a core that does not exist, and
  those for VECTOR and BATCH where these do not exist, are undefined addresses; a counter of
  something that does not exist stays 0.
"""

import dataclasses
import enum

from hw.config import AdaGPConfig
from hw.formats import FORMATS
from hw.isa.batch import EPOCH_BATCH_WIDTH, EPOCH_WIDTH, STAGE_LAYOUT, STAGES, PhaseCode
from hw.isa.encoding import MEMORY_SIZE_WIDTH
from hw.isa.error_codes import ErrorCode
from hw.isa.vector import COEFFICIENTS

from .builder import Builder, constants, flags, value
from .counter_list import counter_list
from .model import Access, RegisterField, RegisterMap

__all__ = [
    "ADDRESS_WIDTH",
    "COUNTER_BASE",
    "MAGIC",
    "PhaseCode",
    "VERSION",
    "ErrorCode",
    "FormatCode",
    "Unit",
    "VariantCode",
    "register_map",
]

#: Bits of a register's byte address: the registers take one 4 KiB page.
ADDRESS_WIDTH = 12
#: Value of the ID register: "ADAG" in ASCII.
MAGIC = 0x41444147
#: Version of this register interface and of the command encoding: major, minor.
VERSION = (5, 1)
#: Byte offset of the first register of control and status; the constants lie below.
CONTROL_BASE = 0x40
#: Byte offset of WATCHDOG, behind the registers of as many cores as there may be.
WATCHDOG_OFFSET = 0x7C
#: Byte offset of the first register for VECTOR.
VECTOR_BASE = 0x80
#: Byte offset of the first register for BATCH.
BATCH_BASE = 0xB0
#: Byte offset of the register with what MEM_SIZE has no room for.
WINDOW_BASE = 0xE0
#: Byte offset of the first counter; the other registers lie below.
COUNTER_BASE = 0x100
#: The memory window starts at a multiple of this many bytes.
MEMORY_BASE_ALIGNMENT_BITS = 12

_RO, _RW = Access.READ_ONLY, Access.READ_WRITE
_SHARED, _W1C = Access.SHARED, Access.WRITE_ONE_TO_CLEAR


class Unit(enum.IntEnum):
    """Part of the accelerator that reported an error; core c's units start at ``8 + 8 * c``, in
    the order of :data:`~hw.isa.encoding.QUEUE_OPCODES`."""

    NONE = 0
    FETCH = 1
    SEQUENCER = 2
    READ_BUS = 3
    WRITE_BUS = 4
    CORE0_LOAD = 8
    CORE0_WEIGHTS = 9
    CORE0_MATMUL = 10
    CORE0_POST = 11
    CORE0_STORE = 12
    CORE0_VECTOR = 13
    CORE0_LOSS = 14
    CORE1_LOAD = 16
    CORE1_WEIGHTS = 17
    CORE1_MATMUL = 18
    CORE1_POST = 19
    CORE1_STORE = 20
    CORE1_VECTOR = 21


class VariantCode(enum.IntEnum):
    """Codes of the variants in CAPABILITIES."""

    BASELINE = 0
    LOW = 1
    EFFICIENT = 2
    MAX = 3


#: Codes of the operand formats in CAPABILITIES.
FormatCode = enum.IntEnum("FormatCode", [name.upper() for name in FORMATS], start=0)


def _identification(build, config):
    build.add(
        "ID",
        constants(("VALUE", 32, MAGIC, "always the same")),
        "identifies the accelerator; ADAG in ASCII",
    )
    build.add(
        "VERSION",
        constants(
            ("MINOR", 8, VERSION[1], "grows with compatible changes"),
            ("MAJOR", 8, VERSION[0], "grows with all others"),
        ),
        "version of the registers and of the command encoding",
    )
    build.add(
        "CONFIG_HASH",
        constants(("VALUE", 32, int(config.hash[:8], 16), "first eight hexadecimal digits")),
        "identifies the configuration; the manifest has the whole hash",
    )
    build.add(
        "CAPABILITIES",
        constants(
            ("VARIANT", 4, VariantCode[config.variant.upper()], "design variant", VariantCode),
            ("FORMAT", 4, FormatCode[config.operand_format.upper()], "operands", FormatCode),
            ("CORES", 4, len(config.cores), "number of cores"),
            ("MEMORIES", 4, len(config.memory_banks), "number of on-chip memories"),
            ("SEMAPHORES", 8, config.semaphore_count, "number of semaphores"),
            ("TRAINING", 1, config.has_training_engines, "VECTOR, LOSS and BATCH exist"),
        ),
        "what this accelerator has",
    )
    build.add(
        "GRANULE",
        constants(
            ("BYTES", 16, config.granule_bytes, "alignment of addresses and lengths in DRAM"),
            ("BEAT_BYTES", 16, config.beat_bytes, "one beat of the memory bus"),
        ),
        "units of memory accesses",
        unit="bytes",
    )
    for core in config.cores:
        build.add(
            f"CORE{core.index}_ARRAY",
            constants(
                ("ROWS", 10, core.rows, "rows: input channels per step"),
                ("COLUMNS", 10, core.columns, "columns: output channels per step"),
                ("POST_LANES", 10, core.post_lanes, "channels in a group"),
            ),
            f"size of the PE array of core {core.index}",
        )


def _control(build, config):
    trains = config.has_training_engines
    start, stop = flags(
        Access.STROBE,
        START="writing 1 starts the program; refused (SLVERR) during a run",
        STOP="writing 1 during a run ends it, a second time without waiting for the bus",
    )
    build.add(
        "CONTROL",
        [dataclasses.replace(start, idle_only=True), stop],
        "starts a run, which clears STATUS, the error registers and all counters first; stops one",
    )
    build.add(
        "STATUS",
        flags(
            _RO,
            BUSY="a program runs",
            DONE="the last program has ended, with or without an error",
            ERROR="the last program was stopped by an error",
            WAITING="BATCH waits for BATCHES_READY" if trains else None,
            STOPPED="the last program was ended by CONTROL.STOP",
            DRAINING="the bus still owes answers to a program that has ended; a start waits",
        ),
        "state of the run",
    )
    causes = {
        "DONE": "a program ended by itself without error",
        "ERROR": "an error stopped a program",
        "BATCH": "a batch is done, all it stores is in memory" if trains else None,
        "STOPPED": "CONTROL.STOP ended a program",
    }
    build.add("INTERRUPT_STATUS", flags(_W1C, **causes), "causes of the interrupt that happened")
    build.add(
        "INTERRUPT_ENABLE",
        flags(_RW, **causes),
        "causes that raise the interrupt line, which stays high until they are cleared",
    )
    build.add(
        "ERROR_CODE", value(_RO, 8, names=ErrorCode), "reason of the first error since the start"
    )
    build.add("ERROR_UNIT", value(_RO, 8, names=Unit), "unit that reported the error")
    build.add_pair("ERROR_ADDRESS", _RO, "address that the error concerns, see ERROR_CODE")
    build.add_pair(
        "MEM_BASE",
        _RW,
        "start of the memory window in DRAM, a multiple of 4096",
        width=config.axi_address_width,
        lsb=MEMORY_BASE_ALIGNMENT_BITS,
        unit="bytes",
        locked=True,
    )
    build.add(
        "MEM_SIZE",
        value(_RW),
        "length of the memory window; bit 32 is in MEM_SIZE_HI",
        unit="bytes",
        locked=True,
    )
    build.add(
        "PROGRAM_ADDRESS",
        value(_RW),
        "offset of the first command in the memory window, a multiple of 64",
        unit="bytes",
        locked=True,
    )
    build.add("PROGRAM_SIZE", value(_RW), "length of the program", unit="bytes", locked=True)
    for core in config.cores:
        build.add(
            f"CORE{core.index}_FLAGS",
            flags(
                _W1C,
                INVALID="an operation without a meaningful result gave NaN",
                OVERFLOW="a result too large for its format became infinity",
                UNDERFLOW="a result too small for a normal number became zero",
                INEXACT="a result was rounded",
                REJECTED="the guard has found an infinity or NaN",
            ),
            f"sticky flags of core {core.index}; a start does not clear them",
        )
    build.skip_to(WATCHDOG_OFFSET)
    build.add(
        "WATCHDOG",
        value(_RW),
        "a run ends with an error when so long no command ends and no beat moves; 0: never",
        unit="cycles",
        locked=True,
    )


def _vector(build, config):
    if not config.has_training_engines:
        return
    build.skip_to(VECTOR_BASE)
    for number in range(COEFFICIENTS):
        build.add(
            f"COEFFICIENT{number}",
            value(_RW),
            f"float32 number {number} for VECTOR; a write counts from the next start or batch on",
            locked=True,
            between_batches=True,
        )
    build.add(
        "GUARD",
        flags(_RW, ENABLE="guarded commands do nothing once an infinity or NaN was found"),
        "what VECTOR does about gradients that are not finite; a write counts from the next start",
        locked=True,
    )
    build.add(
        "SAMPLE_SEED",
        value(_RW),
        "seed of VECTOR's random numbers in the first batch of a run; batch i of it adds i",
        locked=True,
    )


def _batches(build, config):
    if not config.has_training_engines:
        return
    build.skip_to(BATCH_BASE)
    build.add("BATCHES", value(_RW), "a BATCH ends the run when so many are done", unit="batches")
    build.add(
        "BATCHES_READY",
        value(_RW),
        "batches of this run whose inputs are in memory; a batch waits for its own",
        unit="batches",
    )
    build.add("BATCHES_DONE", value(_RO), "batches done in this run or the last", unit="batches")
    build.add(
        "EPOCH_BATCHES",
        value(_RW, EPOCH_BATCH_WIDTH),
        "batches of an epoch; 0 counts as 1",
        unit="batches",
        locked=True,
    )
    build.add(
        "WARM_UP",
        value(_RW, EPOCH_WIDTH),
        "epochs at the beginning whose batches are WARM_UP",
        unit="epochs",
        locked=True,
    )
    for number in range(STAGES):
        docs = {
            "gp": "batches in Phase GP at the beginning of a round",
            "bp": "batches in Phase BP behind them",
            "epochs": "epochs that the stage lasts; 0: to the end",
        }
        fields = [
            RegisterField(name=name.upper(), lsb=place.offset, width=place.width, access=_RW,
                          doc=docs[name])
            for name, place in STAGE_LAYOUT
        ]  # fmt: skip
        build.add(
            f"STAGE{number}",
            fields,
            f"stage {number} behind warm-up; behind the last that ends, batches are BP",
            locked=True,
        )
    build.add(
        "EPOCH",
        value(_SHARED, EPOCH_WIDTH),
        "epoch of the first batch that is not done, which the hardware counts; stays at its limit",
        locked=True,
    )
    build.add(
        "EPOCH_BATCH",
        value(_SHARED, EPOCH_BATCH_WIDTH),
        "number of that batch in its epoch",
        locked=True,
    )
    build.add("PHASE", value(_RO, 2, names=PhaseCode), "phase of the batch under way, or the last")


def _window(build):
    build.skip_to(WINDOW_BASE)
    build.add(
        "MEM_SIZE_HI",
        value(_RW, MEMORY_SIZE_WIDTH - 32),
        "bit 32 of the length of the memory window: 1, and MEM_SIZE 0, for 4 GiB, which is as far "
        "as offsets reach",
        locked=True,
    )


def register_map(config: AdaGPConfig) -> RegisterMap:
    """Return the :class:`~hw.registers.model.RegisterMap` of an :class:`~hw.config.AdaGPConfig`."""
    build = Builder()
    _identification(build, config)
    build.skip_to(CONTROL_BASE)
    _control(build, config)
    _vector(build, config)
    _batches(build, config)
    _window(build)
    build.skip_to(COUNTER_BASE)
    counters = tuple(counter_list(config))
    for counter in counters:
        build.add_pair(
            counter.name,
            _RO,
            f"{counter.doc} (reading LO latches HI)",
            unit=counter.unit,
            counter=counter,
        )
    build.skip_to(1 << ADDRESS_WIDTH)
    return RegisterMap(build.registers, counters)
