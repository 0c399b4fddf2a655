"""What surrounds the command fetch in its proof: a memory, jumps, errors."""

from amaranth.hdl import Mux, Signal

from hw.bus.signatures import RESP_DECERR, RESP_OKAY
from hw.isa.error_codes import ErrorCode
from hw.isa.packing import LINE_BYTES

__all__ = ["Memory", "add_errors", "add_jumps"]


class Memory:
    """Answers what is asked of it, a beat at a time, in order.

    Attributes
    ----------
    owed : beats that are to come
    bursts : of how many bursts they are
    """

    def __init__(self, harness, fetch, *, ahead, beats):
        m, beat, request = harness.m, fetch.read.data, fetch.read.request
        self.rest = [Signal(range(beats + 1), name=f"rest_{n}") for n in range(ahead + 1)]
        for number, rest in enumerate(self.rest):
            harness.watch(f"check_rest_{number}", rest)
        self.owed = sum(self.rest)
        self.bursts = sum(rest.any() for rest in self.rest)
        last = self.rest[0] == 1
        over = beat.valid & last
        asked = Mux(request.valid & request.ready, request.payload.length + 1, 0)
        for number in range(ahead):
            here, behind = self.rest[number : number + 2]
            stays = here - beat.valid if number == 0 else here
            own = self.bursts - over == number
            m.d.sync += here.eq(Mux(own, asked, Mux(over, behind, stays)))
        m.d.sync += self.rest[ahead].eq(Mux(self.bursts - over == ahead, asked, 0))
        harness.assume("beats come for what was requested", ~beat.valid | (self.owed != 0))
        harness.assume(
            "the last beat of a burst is marked", ~beat.valid | (beat.payload.last == last)
        )
        for number in range(ahead):
            here, behind = self.rest[number : number + 2]
            harness.invariant(f"burst {number} is one of the first", here.any() | ~behind.any())
            harness.invariant(f"burst {number} is no longer than a line", here <= beats)
        harness.invariant("so many bursts are outstanding", ~self.rest[ahead].any())

    def behind(self, bursts):
        """Beats that are to come behind the first so many bursts."""
        return sum(Mux(number < bursts, 0, rest) for number, rest in enumerate(self.rest))


def add_jumps(harness, fetch, history, *, place, jump_address, back, passed, kept, taken):
    """What is known of a target, one cycle after the other, from what went in. ``history``: for
    each of some cycles, the latest first, whether a command was offered, and the target."""
    low, width = 33 - len(back), len(fetch.address)
    signals = {"place": place, "jump_address": jump_address, "back": back, "passed": passed}
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
        distance = before["place"][low:33] - before["jump_address"][low:33]
        harness.invariant(
            f"how far back that is, {age} cycles ago",
            ~ready[age] | (now["back"] == distance[: len(back)]),
        )
        harness.invariant(
            f"behind a command that stays, the place is the same, {age} cycles ago",
            ~(was_offered & quiet[age + 1])
            | (now["place"] == before["place"]) & (now["passed"] == before["passed"]),
        )
        harness.invariant(
            f"a command that is taken is over, {age} cycles ago",
            ~(offered & was_offered) | quiet[age + 1],
        )
    harness.invariant(
        "whether that is kept",
        ~ready[0] | (kept == (older["back"][1] <= older["passed"][1])),
    )


def add_errors(
    harness,
    fetch,
    *,
    running,
    refused,
    checking,
    lines,
    expected,
    next_beat,
    unread,
    coming,
    there,
    stale,
):
    """An error says what is wrong, and only when that is in the way."""
    m, beat, error = harness.m, fetch.read.data, fetch.error
    base, width = fetch.memory_base, len(fetch.memory_base)
    requested = fetch.read.request.valid & fetch.read.request.ready
    # Of the first beat that could not be read: how many were requested from it on.
    since = Signal.like(unread)
    answer = Signal.like(beat.payload.resp)
    harness.watch("check_since", since)
    with m.If(running & beat.valid & (stale == 0) & ~refused & (beat.payload.resp != RESP_OKAY)):
        asked = Mux(requested, fetch.read.request.payload.length + 1, 0)
        m.d.sync += [since.eq(coming + asked), answer.eq(beat.payload.resp)]
    harness.invariant(
        "what could not be read is behind the beats that are there",
        ~(running & refused) | (unread == there + since),
    )
    harness.invariant(
        "why is known",
        ~refused | (harness.inner("dut.no_address") == (answer == RESP_DECERR)),
    )

    codes = {code: error.valid & (error.code == code) for code in ErrorCode}
    no_data = codes[ErrorCode.READ_SLVERR] | codes[ErrorCode.READ_DECERR]
    end = codes[ErrorCode.PROGRAM_END]
    lacks = running & fetch.command.ready & ~fetch.command.valid
    lacked = harness.delayed("lacked", lacks)
    harness.claim(
        "no command is whole when a word that is not there is an error", ~(no_data | end) | lacked
    )
    harness.claim(
        "it has the address of that command",
        ~(no_data | end) | (error.address == harness.delayed("expected_before", expected)),
    )
    harness.claim(
        "a beat that could not be read is an error when it is wanted",
        ~no_data | harness.delayed("refused_is_next", unread == since),
    )
    harness.claim(
        "which says whether there is such an address",
        ~no_data | (codes[ErrorCode.READ_DECERR] == (answer == RESP_DECERR)),
    )
    end_beat = (base + fetch.program_address + lines)[:width]
    harness.claim(
        "the program's end is an error when a beat behind its last line is wanted",
        ~end | harness.delayed("end_is_next", next_beat == end_beat),
    )
    unaligned = fetch.program_address[: (LINE_BYTES - 1).bit_length()].any()
    program_end = fetch.program_address + fetch.program_size
    too_long = (program_end > fetch.memory_size) | (base + program_end > 1 << width)
    checked = harness.delayed("checked", checking)
    harness.claim(
        "a program that is not aligned is an error",
        ~codes[ErrorCode.UNALIGNED_ADDRESS] | checked & unaligned,
    )
    harness.claim(
        "so is one that ends outside the window or the address space",
        ~codes[ErrorCode.MEMORY_WINDOW] | checked & too_long,
    )
    others = codes[ErrorCode.UNALIGNED_ADDRESS] | codes[ErrorCode.MEMORY_WINDOW]
    harness.claim("nothing else is", ~error.valid | no_data | end | others)
