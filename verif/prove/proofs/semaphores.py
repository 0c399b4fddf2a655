"""A semaphore never goes below 0, nor above 15 without the error."""

from amaranth.hdl import Array, Cat, Mux, Signal

from hw.config import make_config
from hw.isa.encoding import queue_opcodes
from hw.isa.error_codes import ErrorCode
from verif.prove.proof import Mutant, Proof

__all__ = ["SEMAPHORES"]


def _build(harness, module, *, count, queues):
    m = harness.m
    semaphores = harness.add(module.Semaphores(count=count, queues=queues))
    takes = [semaphores.take[n] for n in range(queues)]
    gives = [semaphores.give[n] for n in range(queues)]
    most = (1 << semaphores.WIDTH) - 1
    counters = [harness.inner(f"dut.counter{n}", semaphores.WIDTH) for n in range(count)]
    wanted, given = harness.inner("dut.wanted", count), harness.inner("dut.given", count)
    asking, turn = harness.inner("dut.asking", queues), harness.inner("dut.turn", max(queues, 2))

    for number, port in enumerate(takes):
        held = harness.delayed(f"take_held{number}", port.valid & ~port.ready)
        before = harness.delayed(f"take_before{number}", port.payload)
        harness.assume(
            f"take {number} stays until it is granted",
            ~held | (port.valid & (port.payload == before)),
        )

    # One semaphore, any, and its tokens by the ports alone: what was given, and has had its cycle,
    # less what was taken. Up to the first overflow, which ends a run.
    index = harness.constant("index", range(max(count, 2)))
    harness.assume("the index is that of a semaphore", index < count)

    def passes(ports):
        """Whether a token of the semaphore passes one of the ports."""
        return Cat(
            port.valid & port.ready & port.payload.bit_select(index, 1) for port in ports
        ).any()

    tokens, arriving = Signal(semaphores.WIDTH + 1), Signal()
    taken, overflow, overflowed = Signal(), Signal(), Signal()
    counter = Signal(semaphores.WIDTH)
    shown = {
        "tokens": tokens, "arriving": arriving, "taken": taken, "overflow": overflow,
        "overflowed": overflowed, "counter": counter,
    }  # fmt: skip
    for name, signal in shown.items():
        harness.watch(f"check_{name}", signal)
    m.d.comb += [
        counter.eq(Array(counters)[index]),
        taken.eq(passes(takes)),
        overflow.eq((tokens == most) & arriving & ~taken),
    ]
    m.d.sync += [
        tokens.eq(tokens + arriving - taken),
        arriving.eq(passes(gives)),
        overflowed.eq(overflowed | overflow),
    ]
    harness.claim("a token is only taken where there is one", overflowed | ~taken | (tokens != 0))
    harness.claim(f"there are at most {most} tokens", overflowed | (tokens <= most))
    harness.claim("the counter is the number of tokens", overflowed | (counter == tokens))
    harness.invariant("a given token arrives", given.bit_select(index, 1) == arriving)

    error = semaphores.error
    over_before = harness.delayed("over_before", overflow & ~overflowed)
    harness.claim(
        "a token too many is an error that names the semaphore, or one before it",
        ~over_before
        | error.valid & (error.code == ErrorCode.SEMAPHORE_OVERFLOW) & (error.address <= index),
    )
    harness.claim(
        "there is no other error",
        ~error.valid | (error.address != index) | overflowed,
    )
    harness.claim("who is about to fail says so", ~(overflow & ~overflowed) | semaphores.fails)
    harness.claim("who has failed says so", ~error.valid | semaphores.fails)
    harness.claim("an error names a semaphore", error.address < count)
    grants = Cat(port.valid & port.ready for port in takes)
    harness.claim("at most one take is granted in a cycle", (grants & (grants - 1)) == 0)
    accepted = Cat(port.valid & port.ready for port in gives)
    harness.claim(
        "one give, and only one, is accepted where any is offered",
        ((accepted & (accepted - 1)) == 0)
        & (accepted.any() == Cat(port.valid for port in gives).any()),
    )

    harness.invariant("one port has its turn", turn.any() & ((turn & (turn - 1)) == 0))
    harness.invariant("the turn has moved on", asking & ~turn.rotate_right(1)[:queues] == 0)
    for number, port in enumerate(takes):
        harness.invariant(
            f"what port {number} asks for is what it offers",
            ~asking[number] | port.valid & (wanted == port.payload),
        )
    _add_wait(harness, takes, counters, asking, turn)
    harness.cover("a take of two semaphores", grants[0] & takes[0].payload[:2].all())
    harness.cover("two tokens in one semaphore", tokens == 2)


def _add_wait(harness, takes, counters, asking, turn):
    """How long a take, any, waits while its tokens are all there."""
    m, turns = harness.m, len(turn)
    place = harness.constant("place", range(turns))
    harness.assume("the place is that of a port", place < len(takes))
    above = Cat(counter.any() for counter in counters)
    waits = Cat(port.valid & ~port.ready & (port.payload & ~above == 0) for port in takes)
    waited = Signal(range(2 * turns + 2))
    harness.watch("check_waited", waited)
    with m.If(waits.bit_select(place, 1)):
        m.d.sync += waited.eq(waited + 1)
    with m.Else():
        m.d.sync += waited.eq(0)
    harness.claim(f"a take waits at most {turns} cycles for its turn", waited <= turns)
    # It asks in the cycle behind its turn and is granted there. Who has waited for longer than
    # since that cycle would not wait any more.
    asks = asking.bit_select(place, 1)
    after_turn = []
    for step in range(turns):
        had = Cat(turn[(number + 1 + step) % turns] for number in range(turns))
        longest = Mux(asks, turns, 0) if step == 0 else step
        after_turn.append(had.bit_select(place, 1) & (waited <= longest))
    harness.invariant("who waits came behind its turn", Cat(after_turn).any())


def _of(config):
    queues = sum(len(queue_opcodes(core)) for core in config.cores)
    return {"count": config.semaphore_count, "queues": queues}


SEMAPHORES = Proof(
    name="semaphores",
    what="never below 0, never above 15 without the error, one grant per cycle",
    module="hw.control.command_queue",
    build=_build,
    configurations={
        "3, 4 queues": {"count": 3, "queues": 4},
        "2, 1 queue": {"count": 2, "queues": 1},
        "baseline": _of(make_config(variant="baseline")),
        "paper": _of(make_config()),
    },
    mutants=(
        Mutant(
            name="a take does not look at its tokens",
            old="able.eq(wanted & ~above == 0)",
            new="able.eq(1)",
            cycles=2,
        ),
        Mutant(
            name="the counter wraps without an error",
            old="overflow[index].eq(full[index] & ~taken[index])",
            new="overflow[index].eq(0)",
            cycles=18,
        ),
        Mutant(
            name="a take in the cycle of a give is not counted",
            old="with m.If(given[index] & ~taken[index]):",
            new="with m.If(given[index]):",
            cycles=4,
        ),
        Mutant(
            name="with one turn too few a port is looked at twice",
            old="turn = Signal(max(self.queues, 2), init=1)",
            new="turn = Signal(max(self.queues, 2), init=3)",
            cycles=2,
        ),
        Mutant(
            name="two gives in one cycle",
            old="m.d.comb += port.ready.eq(~busy)",
            new="m.d.comb += port.ready.eq(1)",
            cycles=1,
        ),
    ),
)
