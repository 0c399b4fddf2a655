"""Programs at the end of the address space, and the error that the accelerator must report."""

from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit

from .faulty_programs import Fault, dma

__all__ = ["address_space_faults"]

HALT = encode(Opcode.HALT)


def address_space_faults(config: AdaGPConfig, *, base: int) -> list[Fault]:
    """Accesses at the end of an address space of 32 bits, in a window of 4 GiB from ``base`` on.
    Its last byte may be used: the memory, which has none there, answers DECERR."""
    top = 1 << 32
    if config.axi_address_width != 32:
        raise ValueError(f"axi_address_width must be 32, not {config.axi_address_width}")
    end = top - base
    common = {"window": 1 << 32, "in_window": False}
    result = [
        Fault(name="program at the end of the address space", commands=[HALT],
              program=end - COMMAND_BYTES, code=ErrorCode.READ_DECERR, unit=Unit.FETCH,
              address=top - COMMAND_BYTES, **common),
        Fault(name="program across the end of the address space", commands=[HALT],
              program=end - COMMAND_BYTES, size=COMMAND_BYTES + 1, code=ErrorCode.MEMORY_WINDOW,
              unit=Unit.FETCH, address=top + 1, **common),
    ]  # fmt: skip
    for core in config.cores:
        size, granule = 4 * core.word_bytes, config.granule_bytes
        for opcode, answer in (
            (Opcode.LOAD, ErrorCode.READ_DECERR),
            (Opcode.STORE, ErrorCode.WRITE_DECERR),
        ):
            for title, behind, code in (
                ("at", 0, answer),
                ("a granule across", granule, ErrorCode.MEMORY_WINDOW),
                ("behind", size, ErrorCode.MEMORY_WINDOW),
            ):
                start = top - size + behind
                place = start // config.beat_bytes * config.beat_bytes if not behind else start
                command = dma(opcode, config, core.index, dram_address=start - base)
                result.append(
                    Fault(name=f"core {core.index} {opcode.name} {title} the end of the address "
                          "space", commands=[command, HALT], code=code,
                          unit=Unit[f"CORE{core.index}_{opcode.name}"], address=place % top,
                          **common)
                )  # fmt: skip
    return result
