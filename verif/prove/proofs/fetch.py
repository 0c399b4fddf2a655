"""The command fetch reads nothing outside the program, has room for what it asks for, and goes on
where a jump says."""

from amaranth.hdl import Cat, Const, Mux, Signal

from hw.config import make_config
from hw.isa.packing import LINE_BYTES, WORD_BYTES
from hw.registers.map import MEMORY_BASE_ALIGNMENT_BITS
from verif.prove.proof import Mutant, Proof

from .fetch_parts import Memory, add_errors, add_jumps

__all__ = ["FETCH"]

_WORD = (WORD_BYTES - 1).bit_length()
_LINE = (LINE_BYTES - 1).bit_length()


def _build(harness, module, *, config):
    m = harness.m
    width, beats = config.axi_address_width, 8 * LINE_BYTES // config.axi_data_width
    beat_bytes, low = config.beat_bytes, (config.beat_bytes - 1).bit_length()
    ahead, most = module.AHEAD, module.KEPT * beats
    most_passed = (module.KEPT - ahead) * beats
    fetch = harness.add(module.CommandFetch(config), hide=("command__payload",))
    harness.cut("dut.ring.o__payload")
    request = fetch.read.request
    base, size = fetch.memory_base, fetch.memory_size

    def inner(name, bits=1):
        return harness.inner(f"dut.{name}", bits)

    running, fresh, more = inner("running"), inner("fresh"), inner("more")
    starting, checking = inner("starting"), inner("checking")
    offset, end = inner("offset", 33), inner("end", 33)
    behind, start_address = inner("behind", width + 2), inner("start_address", width)
    unread, passed = inner("unread", most.bit_length()), inner("passed", most_passed.bit_length())
    outstanding = inner("outstanding", ahead.bit_length())
    stale = inner("stale", ahead.bit_length())
    level, held = inner("ring.level", most.bit_length()), inner("ring.held")
    writes = inner("ring.i__valid")
    refused, near, far = inner("refused"), inner("near"), inner("far")
    jump_address, back = inner("jump_address", width), inner("back", 33 - low)
    kept = inner("kept")
    place, open_, whole = inner("reader.place", width), inner("reader.open_"), inner("reader.whole")

    def beat_of(value):
        return Cat(Const(0, low), value[low:])

    # The surroundings: one start behind a reset, registers that stay, a memory that answers what
    # was asked.
    started = Signal()
    harness.watch("started", started)
    m.d.sync += started.eq(started | fetch.start)
    lines = fetch.program_size[_LINE:]  # of the program, whole ones

    def in_program(value):
        distance = (value - fetch.program_address)[:32]
        return (distance[:_WORD] == 0) & (distance[_LINE:] < lines)

    harness.assume("it is started once behind a reset", ~(started & fetch.start))
    harness.assume(
        "it is started at the begin of the program or another word of it",
        ~fetch.start | (fetch.first == fetch.program_address) | in_program(fetch.first),
    )
    harness.assume("the window is aligned", base[:MEMORY_BASE_ALIGNMENT_BITS] == 0)
    harness.assume("it has 4 GiB at most", size <= 1 << 32)
    for name in ("memory_base", "memory_size", "program_address", "program_size"):
        value = getattr(fetch, name)
        before = harness.delayed(f"{name}_before", value)
        harness.assume(f"{name} is stable from the start on", ~started | (value == before))
    memory = Memory(harness, fetch, ahead=ahead, beats=beats)
    owed, bursts = memory.owed, memory.bursts
    requested = request.valid & request.ready
    # A jump comes with a command that has been offered for three cycles, as has its target, which
    # is a word of the program.
    taken = fetch.command.valid & fetch.command.ready
    offered, targets = [fetch.command.valid], [fetch.jump_target]
    for number in range(1, 4):
        offered.append(harness.delayed(f"offered_{number}", offered[-1]))
        targets.append(harness.delayed(f"target_{number}", targets[-1]))
    still = offered[1] & offered[2] & offered[3]
    for before in targets[1:]:
        still = still & (before == fetch.jump_target)
    harness.assume(
        "a jump goes to a word of the program, whose place is known in time",
        ~(taken & fetch.jump) | still & in_program(fetch.jump_target),
    )

    program_end = fetch.program_address + fetch.program_size
    address = request.payload.address
    request_end = address + (request.payload.length + 1) * beat_bytes
    harness.claim(
        "a request begins inside the program",
        ~request.valid | (address >= base + fetch.program_address),
    )
    harness.claim("it ends inside the window", ~request.valid | (request_end <= base + size))
    harness.claim("it ends inside the address space", ~request.valid | (request_end <= 1 << width))
    harness.claim(
        "it ends inside the program",
        ~request.valid | (request_end <= base + program_end),
    )
    harness.claim(
        "it begins at a beat and ends with its line, so it stays within 4 KiB",
        ~request.valid
        | (address[:low] == 0) & (request_end[:_LINE] == 0) & (request.payload.length < beats),
    )
    # All beats from the oldest one kept to what has come are still there.
    there = level + held
    harness.claim(
        "no beat is written over one that is still kept", ~writes | (passed + there < most)
    )
    waited = harness.delayed(
        "waited", request.valid & ~request.ready & ~fetch.stop & ~(taken & fetch.jump)
    )
    address_before = harness.delayed("address_before", address)
    harness.claim(
        "a request stays until it is taken, but for a stop, a jump, a beat that cannot be read",
        ~waited | ~running | refused | request.valid & (address == address_before),
    )
    harness.claim("it is busy while a beat is owed", fetch.busy == ((owed != 0) | request.valid))
    wanted = Signal(width)
    harness.watch("check_wanted", wanted)
    with m.If(fetch.start):
        m.d.sync += wanted.eq(beat_of(base + fetch.first))
    with m.Elif(far):
        m.d.sync += wanted.eq(beat_of(base + fetch.jump_target))
    with m.Elif(requested):
        m.d.sync += wanted.eq(request_end)
    harness.claim(
        "every beat is requested once, in order, from that of the last far jump on",
        ~request.valid | (address == wanted),
    )
    # The address that goes with a command.
    expected = Signal(width)
    harness.watch("check_expected", expected)
    with m.If(fetch.start):
        m.d.sync += expected.eq(base + fetch.first)
    with m.Elif(taken):
        m.d.sync += expected.eq(Mux(fetch.jump, (base + fetch.jump_target)[:width], place))
    harness.claim(
        "the address is where the jump went, or where the command before ended",
        ~fetch.command.valid | (fetch.address == expected),
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
        | (beat_of(start_address) == (base + offset)[:width]) & (expected == start_address),
    )
    unaligned = fetch.program_address[:_LINE].any()
    first = (offset - fetch.program_address)[:32]
    harness.invariant(
        "it is one of the program, if that is aligned",
        ~(starting | checking)
        | unaligned
        | ~offset[32] & ((first == 0) | (first[_LINE:] < lines)) & (start_address[:_WORD] == 0),
    )
    harness.invariant("what is checked is the program's end", ~checking | (behind == base + end))
    harness.invariant(
        "the next request is that of the offset", ~started | (wanted == (base + offset)[:width])
    )
    here = checking | running
    harness.invariant(
        "the address is that of the next command", ~here | (fetch.address == expected)
    )
    harness.invariant("a command is being made, or it is offered", ~(open_ & whole))
    harness.invariant("both in a run only", started | ~(open_ | whole))
    harness.invariant("nothing is made yet", ~(starting | checking) | ~(open_ | whole))
    harness.invariant(
        "between two, the place is the address", ~here | open_ | whole | (place == fetch.address)
    )
    harness.invariant(
        "a program that runs is inside the window and the address space",
        ~running | (end <= size) & (base + end <= 1 << width),
    )
    harness.invariant("a program that runs is aligned", ~(running & unaligned))
    program_lines = Cat(Const(0, _LINE), lines)
    harness.invariant(
        "offsets are those of beats, in the program or behind its last line",
        ~running
        | (offset[:low] == 0)
        & (offset >= fetch.program_address)
        & (offset - fetch.program_address <= program_lines),
    )
    harness.invariant(
        "behind the first, offsets are those of lines",
        ~running | (unread + passed == 0) | (offset[:_LINE] == 0),
    )
    harness.invariant(
        "a fresh target belongs to the offset",
        ~(running & fresh)
        | (address == (base + offset)[:width])
        & (more == (offset - fetch.program_address < program_lines)),
    )
    harness.invariant(
        "started, it has asked for nothing yet", ~(starting | checking) | (unread + passed == 0)
    )
    harness.invariant("before, there are no beats", started | (unread + passed == 0))
    harness.invariant("so many beats are kept", (unread + passed <= most) & (passed <= most_passed))
    harness.invariant("bursts are counted", outstanding == bursts)
    coming = memory.behind(stale)
    harness.invariant("bursts to be dropped are some of them", stale <= bursts)
    harness.invariant("what was asked for has its place", ~running | (there + coming <= unread))
    harness.invariant(
        "while everything could be read, that is all there is",
        ~running | refused | (there + coming == unread),
    )
    harness.invariant("words are read one by one", ~here | unaligned | (place[:_WORD] == 0))
    harness.invariant(
        "behind the beats that are there comes what is requested next",
        ~here | (wanted == (beat_of(place) + beat_bytes * unread)[:width]),
    )
    nothing = (there + owed + stale == 0) & ~refused
    harness.invariant("before, there is nothing", running | started | nothing)
    harness.invariant("starting, there is nothing", ~(starting | checking) | nothing)
    harness.invariant(
        "commands are offered in a run only",
        started | ~(offered[0] | offered[1] | offered[2] | offered[3]),
    )
    add_jumps(
        harness, fetch, list(zip(offered, targets, strict=True)),
        place=place, jump_address=jump_address, back=back, passed=passed, kept=kept, taken=taken,
    )  # fmt: skip
    add_errors(
        harness, fetch, running=running, refused=refused, checking=checking, lines=program_lines,
        expected=expected, next_beat=beat_of(place), unread=unread, coming=coming, there=there,
        stale=stale,
    )  # fmt: skip
    harness.cover("a jump to what is kept", near, within=18)
    harness.cover("a jump to what is not", far, within=18)
    harness.cover("the last line of the address space", request.valid & (request_end == 1 << width))
    harness.cover("a command is offered", fetch.command.valid, within=15)


FETCH = Proof(
    name="fetch",
    what="requests of commands: window, program, address space; room for every beat; jumps",
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
            name="a line behind the end is requested",
            old="more.eq(offset[line:] < end[line:])",
            new="more.eq(offset[line:] <= end[line:])",
            cycles=4,
        ),
        Mutant(
            name="an old target is requested again",
            old="fresh.eq(~starting & ~self.start & ~requested & ~far)",
            new="fresh.eq(~starting & ~self.start & ~far)",
            cycles=6,
        ),
        Mutant(
            name="a burst is a beat too long",
            old="length.eq(~offset[low:line])",
            new="length.eq(~offset[low:line] + 1)",
            cycles=4,
        ),
        Mutant(
            name="behind such a burst, the rest of a line is left out",
            old="Cat(Const(0, line), (offset[line:] + 1)[: 33 - line])",
            new="offset + LINE_BYTES",
            cycles=6,
        ),
        Mutant(
            name="it asks for more than it has room for",
            old="unread <= (AHEAD - 1) * beats",
            new="unread <= AHEAD * beats",
        ),
        Mutant(
            name="what is asked for counts as a line",
            old="asked = Mux(requested, self.read.request.payload.length + 1, 0)",
            new="asked = Mux(requested, beats, 0)",
        ),
        Mutant(
            name="a jump goes a beat too far back",
            old="ring.distance.eq(distance)",
            new="ring.distance.eq(distance + 1)",
        ),
        Mutant(
            name="a jump to a beat that is no longer kept",
            old="kept.eq(back <= passed)",
            new="kept.eq(back <= passed + 1)",
        ),
        Mutant(
            name="behind a jump, what was kept behind its target counts as in front of it",
            old="Mux(kept, passed - distance, 0)",
            new="Mux(kept, passed, 0)",
        ),
        Mutant(
            name="behind a jump, it goes on with the word behind the command",
            old="reader.locate.eq(1), reader.target",
            new="reader.locate.eq(far), reader.target",
        ),
        Mutant(
            name="what was requested before a jump is taken for what is behind it",
            old="stale.eq(outstanding + requested - received)",
            new="stale.eq(outstanding - received)",
        ),
        Mutant(
            name="a beat that nobody wants is an error",
            old="with m.If((at_refused | at_end) & self.command.ready):",
            new="with m.If(at_refused | at_end & self.command.ready):",
            cycles=7,
        ),
        Mutant(
            name="the end is an error while there are words in front of it",
            old="(unread == 0) & (outstanding == 0) & reader.wants",
            new="(outstanding == 0) & reader.wants",
            cycles=8,
        ),
    ),
)
