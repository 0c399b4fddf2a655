"""The command fetch reads nothing outside the memory window, has room for what it asks for, and
goes on where a jump says."""

from amaranth.hdl import Mux, Signal

from hw.config import make_config
from hw.isa.encoding import COMMAND_BYTES, COMMAND_WIDTH
from verif.prove.proof import Mutant, Proof

__all__ = ["FETCH"]


def _build(harness, module, *, config):
    m = harness.m
    width, beats = config.axi_address_width, COMMAND_WIDTH // config.axi_data_width
    ahead, most = module.AHEAD, module.KEPT
    low = COMMAND_BYTES.bit_length() - 1
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
    unread, passed = (
        inner("unread", most.bit_length()),
        inner("passed", (most - ahead).bit_length()),
    )
    outstanding = inner("outstanding", ahead.bit_length())
    stale = inner("stale", ahead.bit_length())
    count, level = (
        inner("count", beats.bit_length()),
        inner("ring.level", (most * beats).bit_length()),
    )
    held, writes = inner("ring.held"), inner("ring.i__valid")
    refused, near, far = inner("refused"), inner("near"), inner("far")
    jump_address, back = inner("jump_address", width), inner("back", 33 - low)
    kept = inner("kept")

    # The surroundings: one start behind a reset, registers that stay, a memory that answers what
    # was asked.
    started = Signal()
    harness.watch("started", started)
    m.d.sync += started.eq(started | fetch.start)
    harness.assume("it is started once behind a reset", ~(started & fetch.start))
    harness.assume(
        "it is started at a command of the program",
        ~fetch.start | ((fetch.first - fetch.program_address)[:low] == 0),
    )
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
    # A jump comes with a command that has been offered for three cycles, as has its target, which
    # is a command of the program.
    taken = fetch.command.valid & fetch.command.ready
    offered, targets = [fetch.command.valid], [fetch.jump_target]
    for number in range(1, 4):
        offered.append(harness.delayed(f"offered_{number}", offered[-1]))
        targets.append(harness.delayed(f"target_{number}", targets[-1]))
    still = offered[1] & offered[2] & offered[3]
    for before in targets[1:]:
        still = still & (before == fetch.jump_target)
    place_of_target = (fetch.jump_target - fetch.program_address)[:32]
    harness.assume(
        "a jump goes to a command of the program, whose place is known in time",
        ~(taken & fetch.jump)
        | still & (place_of_target[:low] == 0) & (place_of_target[low:] < fetch.program_size[low:]),
    )
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
    # All beats from the oldest command kept to what has come are still there.
    room = most * beats - passed * beats - count - held - level
    harness.claim("no beat is written over one that is still kept", ~writes | (room > 0))
    waited = harness.delayed(
        "waited", request.valid & ~request.ready & ~fetch.stop & ~(taken & fetch.jump)
    )
    address_before = harness.delayed("address_before", address)
    harness.claim(
        "a request stays until it is taken, but for a stop, a jump, a command that cannot be read",
        ~waited | ~running | refused | request.valid & (address == address_before),
    )
    harness.claim("it is busy while a beat is owed", fetch.busy == ((owed != 0) | request.valid))
    wanted = Signal(width)
    harness.watch("check_wanted", wanted)
    with m.If(fetch.start):
        m.d.sync += wanted.eq(base + fetch.first)
    with m.Elif(far):
        m.d.sync += wanted.eq(base + fetch.jump_target)
    with m.Elif(requested):
        m.d.sync += wanted.eq(wanted + COMMAND_BYTES)
    harness.claim(
        "every command is requested once, in order, from the last far jump on",
        ~request.valid | (address == wanted),
    )
    # The address that goes with a command.
    expected = Signal(width)
    harness.watch("check_expected", expected)
    with m.If(fetch.start):
        m.d.sync += expected.eq(base + fetch.first)
    with m.Elif(taken):
        m.d.sync += expected.eq(
            Mux(fetch.jump, base + fetch.jump_target, expected + COMMAND_BYTES)[:width]
        )
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
        "offsets are those of commands", ~started | ((offset - fetch.program_address)[:low] == 0)
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
        "started, it has asked for nothing yet", ~(starting | checking) | (unread == 0)
    )
    harness.invariant("before, there are no commands", started | (unread + passed == 0))
    harness.invariant(
        "so many commands are kept", (unread + passed <= most) & (passed <= most - ahead)
    )
    bursts = (owed + beats - 1) // beats
    harness.invariant("bursts are counted", outstanding == bursts)
    harness.invariant("so many bursts are outstanding", outstanding <= ahead)
    harness.invariant("a command has so many beats", count <= beats)
    harness.invariant("the place in a burst is counted", place == ((beats - owed % beats) % beats))
    dropped = Mux(stale == 0, 0, stale * beats - place)
    harness.invariant("bursts to be dropped are some of them", (stale <= bursts))
    there = level + held + count
    harness.invariant(
        "what was asked for has its place", ~running | (there + owed - dropped <= unread * beats)
    )
    harness.invariant(
        "while everything could be read, that is all there is",
        ~running | refused | (there + owed - dropped == unread * beats),
    )
    harness.invariant(
        "behind the commands that are there comes what is requested next",
        ~running | (wanted == (fetch.address + COMMAND_BYTES * unread)[:width]),
    )
    nothing = there + owed + stale == 0
    harness.invariant("before, there is nothing", running | started | nothing)
    harness.invariant("starting, there is nothing", ~(starting | checking) | nothing)
    harness.invariant(
        "commands are offered in a run only",
        started | ~(offered[0] | offered[1] | offered[2] | offered[3]),
    )
    _add_jump(
        harness, fetch, list(zip(offered, targets, strict=True)),
        jump_address=jump_address, back=back, passed=passed, kept=kept, taken=taken,
    )  # fmt: skip
    harness.cover("a jump to what is kept", near)
    harness.cover("a jump to what is not", far)
    harness.cover(
        "the last command of the address space", request.valid & (request_end == 1 << width)
    )
    harness.cover("a command is offered", fetch.command.valid)


def _add_jump(harness, fetch, history, *, jump_address, back, passed, kept, taken):
    """What is known of a target, one cycle after the other, from what went in. ``history``: for
    each of some cycles, the latest first, whether a command was offered, and the target."""
    low, width = COMMAND_BYTES.bit_length() - 1, len(fetch.address)
    signals = {
        "address": fetch.address, "jump_address": jump_address, "back": back, "passed": passed,
    }  # fmt: skip
    older = {name: [signal] for name, signal in signals.items()}
    ready, quiet = [harness.after_reset()], [~taken]
    for number in range(1, 4):
        ready.append(harness.delayed(f"ready_{number}", ready[-1]))
        quiet.append(harness.delayed(f"quiet_{number}", quiet[-1]))
        for values, name in ((values, name) for name, values in older.items()):
            values.append(harness.delayed(f"{name}_{number}", values[-1]))
    for age in range(3):
        now = {name: values[age] for name, values in older.items()}
        before = {name: values[age + 1] for name, values in older.items()}
        offered, _ = history[age]
        harness.invariant(
            f"nothing is offered before the first cycle, {age} cycles ago", ready[age] | ~offered
        )
        was_offered, target = history[age + 1]
        harness.invariant(
            f"the address that a jump goes to, {age} cycles ago",
            ~offered | (now["jump_address"] == (fetch.memory_base + target)[:width]),
        )
        distance = (before["address"] - before["jump_address"])[low:33]
        harness.invariant(
            f"how far back that is, {age} cycles ago", ~ready[age] | (now["back"] == distance)
        )
        harness.invariant(
            f"a command that stays has its address, {age} cycles ago",
            ~(was_offered & quiet[age + 1])
            | (now["address"] == before["address"]) & (now["passed"] == before["passed"]),
        )
        harness.invariant(
            f"a command that is taken is over, {age} cycles ago",
            ~(offered & was_offered) | quiet[age + 1],
        )
    harness.invariant(
        "whether that is kept",
        ~ready[0] | (kept == (older["back"][1] <= older["passed"][1])),
    )


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
            name="a command behind the end is requested",
            old="more.eq(offset + COMMAND_BYTES <= end)",
            new="more.eq(offset <= end)",
            cycles=4,
        ),
        Mutant(
            name="an old target is requested again",
            old="fresh.eq(~starting & ~self.start & ~requested & ~far)",
            new="fresh.eq(~starting & ~self.start & ~far)",
            cycles=6,
        ),
        Mutant(
            name="it asks for more than it has room for",
            old="(unread < AHEAD)",
            new="(unread <= AHEAD)",
        ),
        Mutant(
            name="a jump goes a command too far back",
            old="(distance + 1) * beats",
            new="(distance + 2) * beats",
        ),
        Mutant(
            name="a jump to a command that is no longer kept",
            old="kept.eq(back <= passed)",
            new="kept.eq(back <= passed + 1)",
        ),
        Mutant(
            name="what was requested before a jump is taken for what is behind it",
            old="stale.eq(outstanding + requested - received)",
            new="stale.eq(outstanding - received)",
        ),
    ),
)
