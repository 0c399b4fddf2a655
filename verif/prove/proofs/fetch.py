"""The command fetch reads nothing outside the memory window, and has room for what it asks for."""

from amaranth.hdl import Signal

from hw.config import make_config
from hw.isa.encoding import COMMAND_BYTES, COMMAND_WIDTH
from verif.prove.proof import Mutant, Proof

__all__ = ["FETCH"]


def _build(harness, module, *, config):
    m = harness.m
    width, beats = config.axi_address_width, COMMAND_WIDTH // config.axi_data_width
    ahead = module.AHEAD
    fetch = harness.add(module.CommandFetch(config), hide=("command__payload",))
    request, beat = fetch.read.request, fetch.read.data
    base, size = fetch.memory_base, fetch.memory_size

    def inner(name, bits=1):
        return harness.inner(f"dut.{name}", bits)

    running, fresh, more = inner("running"), inner("fresh"), inner("more")
    starting, checking = inner("starting"), inner("checking")
    offset, end = inner("offset", 33), inner("end", 33)
    target, behind = inner("target", width), inner("behind", width + 2)
    start_address = inner("start_address", width)
    room, outstanding = inner("room", ahead.bit_length()), inner("outstanding", ahead.bit_length())
    count, level = (
        inner("count", beats.bit_length()),
        inner("fifo.level", (ahead * beats).bit_length()),
    )
    writes, ready = inner("fifo.w_en"), inner("fifo.w_rdy")

    # The surroundings: one start behind a reset, registers that stay, a memory that answers what
    # was asked.
    started = Signal()
    harness.watch("started", started)
    m.d.sync += started.eq(started | fetch.start)
    harness.assume("it is started once behind a reset", ~(started & fetch.start))
    for name in ("memory_base", "memory_size", "program_address", "program_size"):
        value = getattr(fetch, name)
        before = harness.delayed(f"{name}_before", value)
        harness.assume(f"{name} is stable from the start on", ~started | (value == before))
    owed = Signal(range(ahead * beats + 1))
    place = Signal(range(max(beats, 2)))
    harness.watch("check_owed", owed)
    harness.watch("check_place", place)
    requested = request.valid & request.ready
    m.d.sync += owed.eq(owed + (beats * requested) - beat.valid)
    last = place == beats - 1
    with m.If(beat.valid):
        m.d.sync += place.eq(place + 1)
        with m.If(last):
            m.d.sync += place.eq(0)
    harness.assume("beats come for what was requested", ~beat.valid | (owed != 0))
    harness.assume("the last beat of a burst is marked", ~beat.valid | (beat.payload.last == last))

    program_end = fetch.program_address + fetch.program_size
    address = request.payload.address
    request_end = address + (request.payload.length + 1) * config.beat_bytes
    harness.claim("a request begins inside the window", ~request.valid | (address >= base))
    harness.claim("it ends inside the window", ~request.valid | (request_end <= base + size))
    harness.claim("it ends inside the address space", ~request.valid | (request_end <= 1 << width))
    harness.claim(
        "it ends inside the program",
        ~request.valid | (request_end <= base + program_end),
    )
    harness.claim(
        "it is one aligned command, so it stays within 4 KiB",
        ~request.valid | (request_end == address + COMMAND_BYTES) & (address % COMMAND_BYTES == 0),
    )
    harness.claim("there is room for every beat", ~writes | ready)
    held = harness.delayed("held", request.valid & ~request.ready & ~fetch.stop)
    address_before = harness.delayed("address_before", address)
    harness.claim(
        "a request stays until it is taken, unless it is stopped, or a command cannot be read",
        ~held | ~running | inner("refused") | request.valid & (address == address_before),
    )
    harness.claim("it is busy while a beat is owed", fetch.busy == ((owed != 0) | request.valid))
    wanted = Signal(width)
    harness.watch("check_wanted", wanted)
    with m.If(fetch.start):
        m.d.sync += wanted.eq(base + fetch.first)
    with m.Elif(requested):
        m.d.sync += wanted.eq(wanted + COMMAND_BYTES)
    harness.claim("every command is requested once, in order", ~request.valid | (address == wanted))
    # The address that goes with a command.
    expected = Signal(width)
    harness.watch("check_expected", expected)
    with m.If(fetch.start):
        m.d.sync += expected.eq(base + fetch.first)
    with m.Elif(fetch.command.valid & fetch.command.ready):
        m.d.sync += expected.eq(expected + COMMAND_BYTES)
    harness.claim(
        "the address is that of the command", ~fetch.command.valid | (fetch.address == expected)
    )

    harness.invariant(
        "one thing at a time",
        ~(starting & checking) & ~(starting & running) & ~(checking & running),
    )
    harness.invariant(
        "it does not begin before the start", started | ~(starting | checking | running)
    )
    harness.invariant("nothing is asked for before it runs", running | ~request.valid)
    harness.invariant("the end is that of the program", ~started | (end == program_end))
    harness.invariant(
        "the first command is where it was said to be",
        ~(starting | checking)
        | (start_address == (base + offset)[:width]) & (expected == start_address),
    )
    harness.invariant("what is checked is the program's end", ~checking | (behind == base + end))
    harness.invariant(
        "the next request is that of the offset", ~started | (wanted == (base + offset)[:width])
    )
    harness.invariant("checking, the address is the first", ~checking | (fetch.address == expected))
    harness.invariant("running, the address is the next", ~running | (fetch.address == expected))
    harness.invariant(
        "a program that runs is inside the window and the address space",
        ~running | (end <= size) & (base + end <= 1 << width),
    )
    harness.invariant(
        "offsets are aligned with the window",
        ~running | ((base + offset)[: COMMAND_BYTES.bit_length() - 1] == 0),
    )
    harness.invariant(
        "a fresh target belongs to the offset",
        ~(running & fresh)
        | (target == (base + offset)[:width]) & (more == (offset + COMMAND_BYTES <= end)),
    )
    harness.invariant(
        "started, it has asked for nothing yet", ~(starting | checking) | (room == ahead)
    )
    harness.invariant("room is counted", (room <= ahead) & (started | (room == ahead)))
    bursts = (owed + beats - 1) // beats
    harness.invariant("bursts are counted", outstanding == bursts)
    harness.invariant("the place in a burst is counted", place == ((beats - owed % beats) % beats))
    harness.invariant(
        "what was asked for has its place",
        ~running | (level + owed + count <= (ahead - room) * beats),
    )
    harness.invariant("before, there is nothing", running | started | (level + owed + count == 0))
    harness.invariant(
        "starting, there is nothing", ~(starting | checking) | (level + owed + count == 0)
    )
    harness.cover(
        "the last command of the address space", request.valid & (request_end == 1 << width)
    )
    harness.cover("a command is offered", fetch.command.valid)


FETCH = Proof(
    name="fetch",
    what="requests of commands: window, program, address space; room for every beat",
    module="hw.control.fetch",
    build=_build,
    configurations={
        "paper": {"config": make_config()},
        "tiny": {"config": make_config(preset="tiny")},
        "512-bit bus, 64 address bits": {
            "config": make_config(axi_data_width=512, axi_address_width=64)
        },
        "32-bit bus": {"config": make_config(preset="tiny", axi_data_width=32)},
    },
    mutants=(
        Mutant(
            name="the program's end is not checked against the window",
            old="(end > self.memory_size) | (behind > 1 << width)",
            new="behind > 1 << width",
            cycles=4,
        ),
        Mutant(
            name="no check against the end of the address space",
            old="(end > self.memory_size) | (behind > 1 << width)",
            new="end > self.memory_size",
            cycles=4,
        ),
        Mutant(
            name="a command behind the end is requested",
            old="more.eq(offset + COMMAND_BYTES <= end)",
            new="more.eq(offset <= end)",
            cycles=4,
        ),
        Mutant(
            name="an old target is requested again",
            old="fresh.eq(~starting & ~self.start & ~requested)",
            new="fresh.eq(~starting & ~self.start)",
            cycles=6,
        ),
        Mutant(
            name="it asks for more than it has room for",
            old="request.valid.eq(running & fresh & more & (room != 0)",
            new="request.valid.eq(running & fresh & more",
        ),
    ),
)
