"""The FIFOs of Amaranth's library, in the sizes that the hardware uses."""

from functools import partial

from amaranth.hdl import Const

from verif.prove.proof import Mutant, Proof
from verif.prove.sizes import queue_sizes
from verif.prove.streams import QueueCheck

__all__ = ["BUFFERED_FIFO", "FIFO"]


def _queue(harness, fifo, depth):
    harness.add(
        fifo,
        drive={
            "w_data": harness.free("w_data", fifo.width),
            "w_en": harness.free("w_en"),
            "r_en": harness.free("r_en"),
        },
    )
    for name in ("w_rdy", "r_rdy", "r_data"):
        harness.watch(name, getattr(fifo, name))
    return QueueCheck(
        harness,
        entered=fifo.w_en & fifo.w_rdy,
        payload=fifo.w_data,
        offered=fifo.r_rdy,
        taken=fifo.r_rdy & fifo.r_en,
        output=fifo.r_data,
        capacity=depth,
    )


def _ring(harness, check, *, width, depth, inside, passed):
    """Invariants of a memory of ``depth`` words that holds ``inside`` items, the oldest of them at
    ``consume``; ``passed`` items are in front of it already."""
    bits = (depth - 1).bit_length()
    words = [harness.inner(f"dut.storage[{n}]", width) for n in range(depth)]
    produce = harness.inner("dut.produce", bits) if bits else Const(0)
    consume = harness.inner("dut.consume", bits) if bits else Const(0)
    harness.invariant("places are in the memory", (produce < depth) & (consume < depth))
    behind = consume + inside
    harness.invariant(
        "between the places lies what is inside",
        (produce == behind) | (produce + depth == behind),
    )
    in_front = check.ahead < passed
    harness.invariant("the item is in its place", in_front | check.at(words, consume - passed))


def _build(harness, module, *, width, depth):
    fifo = module.SyncFIFO(width=width, depth=depth)
    check = _queue(harness, fifo, depth)
    harness.claim("what is inside is offered", fifo.r_rdy == (check.level != 0))
    harness.claim("it is ready unless it is full", fifo.w_rdy == (check.level != depth))
    harness.claim("the level is what is inside", fifo.level == check.level)
    _ring(harness, check, width=width, depth=depth, inside=check.level, passed=0)


def _build_buffered(harness, module, *, width, depth):
    fifo = module.SyncFIFOBuffered(width=width, depth=depth)
    check = _queue(harness, fifo, depth)
    waiting = harness.delayed("waiting", (check.level != 0) & ~(fifo.r_rdy & fifo.r_en))
    harness.claim("what is inside is offered in the next cycle", ~waiting | fifo.r_rdy)
    harness.claim("it is ready unless it is full", fifo.w_rdy | (check.level >= depth - 1))
    harness.claim("the level is what is inside", fifo.level == check.level)
    inner_level = harness.inner("dut.inner_level", (depth - 1).bit_length())
    harness.invariant("the memory is not too full", inner_level <= depth - 1)
    harness.invariant("the memory holds the rest", check.level == inner_level + fifo.r_rdy)
    harness.invariant(
        "the first item is in front of the memory",
        ~(check.tracked & fifo.r_rdy & (check.ahead == 0)) | (fifo.r_data == check.item),
    )
    _ring(harness, check, width=width, depth=depth - 1, inside=inner_level, passed=fifo.r_rdy)


FIFO = Proof(
    name="fifo",
    what="SyncFIFO in the sizes used: nothing lost or twice, payload stable",
    module="amaranth.lib.fifo",
    build=_build,
    configurations={"5x3": {"width": 5, "depth": 3}},
    derived=partial(queue_sizes, "SyncFIFO"),
    mutants=(
        Mutant(
            name="it is written while it is full",
            old="self.w_rdy.eq(self.level != self.depth)",
            new="self.w_rdy.eq(self.level <= self.depth)",
            cycles=4,
        ),
        Mutant(
            name="the level forgets an item",
            old="with m.If(do_read & ~do_write):",
            new="with m.If(do_read):",
            cycles=3,
        ),
    ),
)

BUFFERED_FIFO = Proof(
    name="buffered-fifo",
    what="SyncFIFOBuffered in the sizes used: nothing lost or twice, payload stable",
    module="amaranth.lib.fifo",
    build=_build_buffered,
    configurations={"5x3": {"width": 5, "depth": 3}},
    derived=partial(queue_sizes, "SyncFIFOBuffered"),
    mutants=(
        Mutant(
            name="the output changes while it waits",
            old="do_inner_read  = inner_r_rdy & (~self.r_rdy | self.r_en)",
            new="do_inner_read  = inner_r_rdy",
            cycles=4,
        ),
        Mutant(
            name="it is written while it is full",
            old="self.w_rdy.eq(inner_level != inner_depth)",
            new="self.w_rdy.eq(1)",
            cycles=5,
        ),
    ),
)
