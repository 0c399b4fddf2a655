"""What a case consists of, as numbers: in memory, on the pipe to the simulator, in a file."""

import dataclasses
import enum
import struct
from dataclasses import dataclass, field

from hw.isa.encoding import COMMAND_BYTES

__all__ = ["CASE_FIELDS", "Case", "Fill", "Order", "Sabotage", "Slave", "case_from_json"]

#: No register access in this direction, in :attr:`Case.script`.
NOTHING = 0xFFFF


class Order(enum.IntEnum):
    """When the slave takes a write burst's data: whenever, or only behind or before its address."""

    ANY = 0
    ADDRESS_FIRST = 1
    DATA_FIRST = 2


class Fill(enum.IntEnum):
    """What is in memory where nothing was written: anything, zeros, numbers near one, 0xA5."""

    RANDOM = 0
    ZEROS = 1
    MODERATE = 2
    A5 = 3


class Sabotage(enum.IntEnum):
    """What the checker is told instead of the truth, to see that it notices."""

    NONE = 0
    AWVALID = 1
    WDATA = 2
    ARADDR = 3
    WLAST = 4
    ARLEN = 5
    AWSIZE = 6
    ARBURST = 7
    WSTRB = 8
    AWADDR = 9
    ARID = 10
    RREADY = 11
    BREADY = 12
    BUSY = 13
    RDATA = 14
    LITE = 15
    IRQ = 16
    WINDOW = 17


@dataclass(frozen=True, kw_only=True)
class Slave:
    """A memory behind the bus; with the defaults the fastest that there is.

    Members
    -------
    seed : of its random numbers
    ready_aw, ready_w, ready_ar : how often it is ready, of 256 cycles
    gap_r, gap_b : how often it has nothing to answer although it could, of 256 cycles
    read_low ... write_high : latency of a burst in cycles, from ... to
    interleave : beats of different read IDs mix
    order : an :class:`Order`
    late_writes : data is in memory when the response comes, and not before
    early_reads : data is that of the time of the request, not of the answer
    read_errors, write_errors : bursts not answered with OKAY, of 65536; not when the good program
        runs
    strays : answers that nobody has asked for, with any ID that waits for none, of 65536 cycles;
        not when the good program runs
    """

    seed: int = 0
    ready_aw: int = 256
    ready_w: int = 256
    ready_ar: int = 256
    gap_r: int = 0
    gap_b: int = 0
    read_low: int = 0
    read_high: int = 0
    write_low: int = 0
    write_high: int = 0
    interleave: int = 0
    order: int = Order.ANY
    late_writes: int = 0
    early_reads: int = 0
    read_errors: int = 0
    write_errors: int = 0
    strays: int = 0


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program that may be anything, then a good one, without a reset in between.

    Members
    -------
    fresh : the accelerator is switched on first; otherwise it is as the case before has left it
    base, size : memory window; program, program_size : the program in it, as the registers say
    commands : 512 bits each, at ``program``; none: only the good program runs
    fill, fill_seed : what else is in memory
    registers : ((offset, value), ...) written before the start, the window among them
    script : ((cycle, offset, value, strobe, read offset), ...), register accesses during the run:
        a write (strobe below 16), a read (offset not :data:`NOTHING`) or both at the same time
    pauses : longest pause of the host in its handshakes, in cycles
    stop_at : cycle of the run in which CONTROL.STOP is written
    watchdog : the register, 0 if it is off
    dead_at, dead_cycles : the slave does nothing for so long; never if dead_at is 0
    restart : the good program is started while the dead slave still owes answers, which it gives so
        many cycles later; 0: it is started when nothing is outstanding
    reset_at, reset_cycles : a reset in the middle, of so many cycles; never if reset_at is 0
    reset_slave : the slave is reset, too; reset_wait : the next start waits for what is outstanding
    good, good_base : number of the good program, and where its window is
    sabotage, sabotage_from : a :class:`Sabotage` from this cycle of the case on
    """

    fresh: int = 1
    base: int = 0
    size: int = 0
    program: int = 0
    program_size: int = 0
    fill: int = Fill.MODERATE
    fill_seed: int = 0
    pauses: int = 0
    stop_at: int = 500
    watchdog: int = 0
    dead_at: int = 0
    dead_cycles: int = 0
    restart: int = 0
    reset_at: int = 0
    reset_cycles: int = 0
    reset_slave: int = 1
    reset_wait: int = 1
    good: int = 0
    good_base: int = 0x3000
    sabotage: int = Sabotage.NONE
    sabotage_from: int = 0
    slave: Slave = field(default_factory=Slave)
    registers: tuple = ()
    script: tuple = ()
    commands: tuple = ()

    def packed(self) -> bytes:
        """What goes through the pipe; verif/fuzz/cpp/main.cpp reads it."""
        numbers = [getattr(self, name) for name in CASE_FIELDS]
        numbers += [getattr(self.slave, name) for name in SLAVE_FIELDS]
        flat = [number for pair in self.registers for number in pair]
        actions = [number for action in self.script for number in action]
        return b"".join(
            (
                struct.pack(f"<{len(numbers) + 1}Q", *numbers, len(self.registers)),
                struct.pack(f"<{len(flat)}IQ", *flat, len(self.script)),
                struct.pack(f"<{len(actions)}IQ", *actions, COMMAND_BYTES * len(self.commands)),
                *(command.to_bytes(COMMAND_BYTES, "little") for command in self.commands),
            )
        )

    def as_json(self) -> dict:
        """What differs from the defaults, commands in hexadecimal digits, bit 0 last."""
        values = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name == "slave":
                values["slave"] = {
                    name: int(getattr(value, name))
                    for name in SLAVE_FIELDS
                    if getattr(value, name) != getattr(Slave, name)
                }
            elif item.name == "commands":
                values["commands"] = [f"{command:0{2 * COMMAND_BYTES}x}" for command in value]
            elif item.name in ("registers", "script"):
                values[item.name] = [list(map(int, entry)) for entry in value]
            elif value != item.default:
                values[item.name] = int(value)
        return values


CASE_FIELDS = tuple(item.name for item in dataclasses.fields(Case) if item.type is int)
SLAVE_FIELDS = tuple(item.name for item in dataclasses.fields(Slave))


def case_from_json(values: dict) -> Case:
    """The case that :meth:`Case.as_json` has written.

    Raises
    ------
    ValueError
        for a key that there is not, or a value of the wrong kind.
    """
    values = dict(values)
    if unknown := set(values) - {item.name for item in dataclasses.fields(Case)}:
        raise ValueError(f"a case has no {', '.join(sorted(unknown))}")
    slave = values.pop("slave", {})
    if unknown := set(slave) - set(SLAVE_FIELDS):
        raise ValueError(f"a slave has no {', '.join(sorted(unknown))}")
    commands = tuple(int(text, 16) for text in values.pop("commands", ()))
    lists = {
        name: tuple(tuple(map(int, entry)) for entry in values.pop(name, ()))
        for name in ("registers", "script")
    }
    numbers = {name: int(value) for name, value in values.items()}
    return Case(
        slave=Slave(**{name: int(value) for name, value in slave.items()}),
        commands=commands, **lists, **numbers,
    )  # fmt: skip
