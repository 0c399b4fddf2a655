"""What a host finds on a board, and how it asks for it over a serial line.

Memory, the registers of the accelerator and those of the board have addresses in one space of
4 GiB. The protocol is the one that LiteX calls UARTBone: a command is a byte, then the number of
words (0 for 256), then the address of the first word in words, then the words of a write. Numbers
of four bytes begin with the highest. A read is answered with its words, a write with nothing::

    01 nn aa aa aa aa (dd dd dd dd) × nn    write, to rising addresses
    02 nn aa aa aa aa                       read, from rising addresses
    03, 04                                  the same, always at the same address
"""

from enum import IntEnum

__all__ = [
    "ACCELERATOR_BASE", "COMMANDS", "MAGIC", "MOST_WORDS", "SYSTEM_BASE", "Control", "Status",
    "System",
]  # fmt: skip

#: Commands: name -> first byte.
COMMANDS = {"write": 1, "read": 2, "write_fixed": 3, "read_fixed": 4}
#: Words of one command.
MOST_WORDS = 256

#: Byte addresses: the memory is from 0 on, below these.
ACCELERATOR_BASE = 0x8000_0000
SYSTEM_BASE = 0x9000_0000
#: "ADGP", in the order of a hexadecimal number.
MAGIC = 0x41444750


class System(IntEnum):
    """Registers of the board: their words from :data:`SYSTEM_BASE` on."""

    MAGIC = 0
    #: Bits of :class:`Status`.
    STATUS = 1
    MEMORY_BYTES = 2
    CLOCK_HZ = 3
    #: Written: bits of :class:`Control`.
    CONTROL = 4


class Status(IntEnum):
    """Bits of :attr:`System.STATUS`."""

    #: The memory is initialised.
    MEMORY_READY = 0
    #: The accelerator's interrupt.
    INTERRUPT = 1
    #: Bytes from the host were lost, since :attr:`Control.CLEAR`.
    OVERRUN = 2


class Control(IntEnum):
    """Bits of :attr:`System.CONTROL`."""

    #: Reset the accelerator; only while it is idle, see docs/architecture.md.
    RESET = 0
    #: Clear what :class:`Status` keeps.
    CLEAR = 1
