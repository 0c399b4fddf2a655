"""What a register description consists of: plain data, no hardware."""

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Access", "Counter", "Register", "RegisterField", "RegisterMap"]


class Access(enum.Enum):
    """What software may do with a field; the value is the SystemRDL property text. A field that is
    SHARED is written by the hardware, too."""

    CONSTANT = "sw = r; hw = na;"
    READ_ONLY = "sw = r; hw = w;"
    READ_WRITE = "sw = rw; hw = r;"
    SHARED = "sw = rw; hw = rw; we;"
    WRITE_ONE_TO_CLEAR = "sw = rw; hw = w; onwrite = woclr;"
    STROBE = "sw = w; hw = r; singlepulse;"

    @property
    def writable(self) -> bool:
        return self not in (Access.CONSTANT, Access.READ_ONLY)


@dataclass(frozen=True, kw_only=True)
class RegisterField:
    """Bits of a register.

    Members
    -------
    lsb, width : position and size in bits
    reset : value after reset; for a constant, its value
    enum : IntEnum that names the values, or None
    idle_only : writing 1 while the accelerator is busy is refused, the whole write has no effect
    """

    name: str
    lsb: int = 0
    width: int = 1
    access: Access = Access.READ_ONLY
    reset: int = 0
    doc: str = ""
    enum: type[IntEnum] | None = None
    idle_only: bool = False

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.lsb


@dataclass(frozen=True, kw_only=True)
class Register:
    """One 32-bit register.

    Members
    -------
    offset : byte address
    unit : physical unit of the value, or ""
    locked : refuses writes while the accelerator is busy
    between_batches : locked, but not while a BATCH waits for the host
    counter : the :class:`Counter` this is a half of, or None
    """

    name: str
    offset: int
    fields: tuple[RegisterField, ...]
    doc: str
    unit: str = ""
    locked: bool = False
    between_batches: bool = False
    counter: "Counter | None" = None

    @property
    def writable(self) -> bool:
        """Whether a write is accepted; one to a register without any field has no effect."""
        return not self.fields or any(field.access.writable for field in self.fields)

    @property
    def constant(self) -> bool:
        """Whether it always holds the value of :attr:`reset`."""
        return bool(self.fields) and all(f.access is Access.CONSTANT for f in self.fields)

    @property
    def reset(self) -> int:
        """Value that a read after reset returns."""
        return sum(f.reset << f.lsb for f in self.fields if f.access is not Access.STROBE)


@dataclass(frozen=True, kw_only=True)
class Counter:
    """A 64-bit event counter: cleared by a start, counts while busy.

    Members
    -------
    event : name of the event input that increments it, None if the register file knows itself
    width : bits of that input, which gives the increment per cycle
    step : power of two that one increment counts for
    """

    name: str
    unit: str
    doc: str
    event: str | None
    width: int = 1
    step: int = 1

    @property
    def shift(self) -> int:
        return self.step.bit_length() - 1


class RegisterMap:
    """All registers of one configuration.

    Members
    -------
    registers : tuple of :class:`Register` by ascending offset
    counters : tuple of :class:`Counter`; counter i is at ``COUNTER_BASE + 8·i``
    """

    def __init__(self, registers: Iterable[Register], counters: Iterable[Counter]) -> None:
        self.registers = tuple(registers)
        self.counters = tuple(counters)
        self._by_name = {register.name: register for register in self.registers}

    def __getitem__(self, name: str) -> Register:
        return self._by_name[name]

    def __iter__(self) -> Iterator[Register]:
        return iter(self.registers)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    @property
    def events(self) -> dict[str, int]:
        """Event input name -> bits; counters may share an event."""
        return {c.event: c.width for c in self.counters if c.event is not None}
