"""A command leaves its queue as it came, in order, and behind its semaphores."""

from amaranth.hdl import Array, Cat, Mux, Signal

from hw.config import make_config
from hw.isa.encoding import HEADER_LAYOUT, Opcode, engine_layout, queue_opcodes
from verif.prove.proof import Mutant, Proof
from verif.prove.streams import add_hold_claims

__all__ = ["COMMAND_QUEUE"]


def _build(harness, module, *, config, opcode):
    m = harness.m
    width = module.CHUNK_WIDTH
    queue = harness.add(module.CommandQueue(config, opcode))
    chunks, depth = queue.chunks, queue.depth
    words = chunks * depth

    def inner(name, bits=1):
        return harness.inner(f"dut.{name}", bits)

    def bits(most):
        return max(most.bit_length(), 1)

    arriving, place = inner("arriving", bits(chunks - 1)), inner("place", bits(words - 1))
    origin, leaving = inner("origin", bits(words - 1)), inner("leaving", bits(chunks - 1))
    reserved, whole = inner("reserved", bits(depth)), inner("whole", bits(depth))
    waiting, granted, shift = inner("waiting"), inner("granted"), inner("shift")
    head, read_data = inner("head", chunks * width), inner("commands.read_data", width)
    reads, writes = inner("commands.read_en"), inner("commands.write_en")
    memory = [inner(f"commands.memory[{index}]", width) for index in range(max(words, 2))]
    signals_level = inner("signals.level", bits(module.IN_FLIGHT))

    pushed = queue.push.valid & queue.push.ready
    started = queue.command.valid & queue.command.ready
    first, last = pushed & (arriving == 0), pushed & (arriving == chunks - 1)

    # The commands inside, and one of them, any: its chunks, its place and what is in front of it.
    level, ahead = Signal(range(depth + 3)), Signal(range(depth + 2))
    tracked, arrived = Signal(), Signal(range(chunks + 1))
    slot, write_slot, read_slot = (Signal(range(depth + 1)) for _ in range(3))
    record = [Signal(width, name=f"chunk{index}") for index in range(chunks)]
    shown = {
        "level": level, "ahead": ahead, "tracked": tracked, "arrived": arrived, "slot": slot,
        "write_slot": write_slot, "read_slot": read_slot,
    }  # fmt: skip
    for name, signal in shown.items():
        harness.watch(f"check_{name}", signal)
    pick = harness.free("pick")

    def behind(place):
        return Mux(place == depth - 1, 0, place + 1)

    m.d.sync += level.eq(level + first - started)
    with m.If(last):
        m.d.sync += write_slot.eq(behind(write_slot))
    with m.If(reads & ((leaving == 1) | (chunks == 1))):
        m.d.sync += read_slot.eq(behind(read_slot))
    with m.If(tracked & started):
        m.d.sync += [ahead.eq(ahead - 1), tracked.eq(ahead != 0)]
    with m.If(first & pick & ~tracked):
        m.d.sync += [
            tracked.eq(1), ahead.eq(level - started), slot.eq(write_slot), arrived.eq(1),
            record[0].eq(queue.push.payload),
        ]  # fmt: skip
    with m.Elif(tracked & (arrived != chunks) & pushed):
        m.d.sync += [arrived.eq(arrived + 1), Array(record)[arrived].eq(queue.push.payload)]

    # The engine: it ends what it has begun.
    working = Signal(range(module.IN_FLIGHT + 2))
    harness.watch("check_working", working)
    m.d.sync += working.eq(working + started - queue.done)
    harness.assume("the engine ends what it has begun", ~queue.done | (working != 0))

    command = Cat(record)
    mine = tracked & (ahead == 0)
    fields = command[HEADER_LAYOUT.size :][: engine_layout(opcode).size]
    harness.claim(
        "a command comes out as it went in, in its turn",
        ~(mine & queue.command.valid) | (queue.command.payload.as_value() == fields),
    )
    wait = HEADER_LAYOUT["wait"]
    mask = command[wait.offset :][: wait.width][: len(queue.take.payload)]
    harness.claim(
        "it takes its own semaphores", ~(mine & queue.take.valid) | (queue.take.payload == mask)
    )
    taken = Signal()  # the oldest command has its semaphores
    harness.watch("check_taken", taken)
    with m.If(queue.take.valid & queue.take.ready):
        m.d.sync += taken.eq(1)
    with m.Elif(started):
        m.d.sync += taken.eq(0)
    harness.claim("it starts behind its semaphores", ~queue.command.valid | taken)
    harness.claim("it takes them once", ~queue.take.valid | ~taken)
    harness.claim("nothing comes out that has not gone in", ~queue.command.valid | (level != 0))
    harness.claim("a word is not read while it is written", ~(reads & writes) | (origin != place))
    harness.claim("it is ready for the whole of a command", ~(arriving != 0) | queue.push.ready)
    harness.claim(
        "it signals for a command that has ended", ~queue.give.valid | (signals_level != 0)
    )
    harness.claim(
        "it is empty when nothing is inside or with the engine",
        queue.empty == ((level == 0) & (signals_level == 0)),
    )
    add_hold_claims(
        harness, offered=queue.take.valid, taken=queue.take.ready & queue.take.valid,
        output=queue.take.payload, name=" (take)",
    )  # fmt: skip
    add_hold_claims(
        harness, offered=queue.command.valid, taken=started,
        output=queue.command.payload.as_value(), name=" (command)",
    )  # fmt: skip

    reading = shift | (leaving != 0)
    harness.invariant("places are in the memory", (place < words) & (origin < words))
    harness.invariant(
        "slots are in the memory", (write_slot < depth) & (read_slot < depth) & (slot < depth)
    )
    harness.invariant("counts are those of a command", (arriving < chunks) & (leaving < chunks))
    harness.invariant("chunks are written in turn", place == write_slot * chunks + arriving)
    harness.invariant(
        "chunks are read in turn",
        origin == read_slot * chunks + Mux(leaving == 0, 0, chunks - leaving),
    )
    harness.invariant("one command is being read, or waits", ~(reading & waiting))
    harness.invariant("a chunk is read after another", (leaving == 0) | shift)
    harness.invariant("room is counted", reserved == whole + (arriving != 0) + reading)
    harness.invariant("there is room", reserved <= depth)
    harness.invariant("room is known", queue.push.ready == ((arriving != 0) | (reserved != depth)))
    harness.invariant("what is inside is counted", level == reserved + waiting)
    harness.invariant(
        "the places follow each other", _same(write_slot, read_slot + (leaving != 0) + whole, depth)
    )
    harness.invariant("semaphores are taken by what waits", (taken == (waiting & granted)))

    # Where the command is.
    harness.invariant("it is inside", ~tracked | (ahead < level))
    in_head = mine & waiting
    in_reading = mine & reading
    in_memory = tracked & ~in_head & ~in_reading
    before = (ahead - waiting - reading)[: len(ahead)]
    harness.invariant(
        "it has arrived as far as chunks", ~tracked | (arrived != 0) & (arrived <= chunks)
    )
    harness.invariant(
        "waiting, it is in the head", ~in_head | (head == command) & (arrived == chunks)
    )
    harness.invariant(
        "in memory, it has its place",
        ~in_memory | _same(slot, read_slot + (leaving != 0) + before, depth),
    )
    harness.invariant(
        "in memory, it is whole or arriving",
        ~in_memory
        | Mux(
            before < whole,
            arrived == chunks,
            (before == whole) & (arriving == arrived) & (arrived != chunks) & (arriving != 0),
        ),
    )
    harness.invariant(
        "being read, it has its place",
        ~in_reading
        | (arrived == chunks) & Mux(leaving != 0, slot == read_slot, behind(slot) == read_slot),
    )
    for index in range(chunks):
        stored = Array(memory)[slot * chunks + index]
        harness.invariant(
            f"chunk {index} is in the memory",
            ~(in_memory | in_reading) | (index >= arrived) | (stored == record[index]),
        )
        harness.invariant(
            f"chunk {index} has been read",
            ~(in_reading & shift & (leaving == chunks - 1 - index)) | (read_data == record[index]),
        )
        if index:
            # As many chunks are in the head, at its top.
            top = head[(chunks - index) * width :]
            count = chunks - leaving - shift
            harness.invariant(
                f"{index} chunks are in the head",
                ~(in_reading & (count == index)) | (top == Cat(record[:index])),
            )
    finished = inner("finished", bits(module.IN_FLIGHT))
    harness.invariant(
        "signals are those of commands under way", signals_level == working + finished
    )
    harness.invariant("there are not too many", signals_level <= module.IN_FLIGHT)
    harness.cover("a command starts behind another", started & mine & (level == 2))


def _same(place, other, depth):
    """Whether ``other``, up to twice around, is ``place``."""
    return (other == place) | (other == place + depth) | (other == place + 2 * depth)


def _of(opcode, **fields):
    return {"config": make_config(**fields), "opcode": opcode}


COMMAND_QUEUE = Proof(
    name="command-queue",
    what="commands come out as they went in, in order, behind their semaphores",
    module="hw.control.command_queue",
    build=_build,
    configurations={
        "depth 2, LOAD": _of(Opcode.LOAD, command_queue_depth=2),
        "depth 1, STORE": _of(Opcode.STORE, command_queue_depth=1),
        "depth 3, WEIGHTS": _of(Opcode.WEIGHTS, command_queue_depth=3),
        **{
            f"paper, {opcode.name}": _of(opcode) for opcode in queue_opcodes(make_config().cores[0])
        },
    },
    mutants=(
        Mutant(
            name="it is written while it is full",
            old="(remaining != self.depth)",
            new="(remaining <= self.depth)",
            cycles=13,
        ),
        Mutant(
            name="a command waits in the head before all of it is there",
            old="left.eq(shift & (leaving == 0))",
            new="left.eq(shift)",
            cycles=7,
        ),
        Mutant(
            name="a command is read before it is whole",
            old="whole.eq(whole + last - begin)",
            new="whole.eq(whole + first - begin)",
            cycles=3,
        ),
        Mutant(
            name="a command starts with the semaphores of the one before",
            old="m.d.sync += [waiting.eq(1), granted.eq(0)]",
            new="m.d.sync += [waiting.eq(1)]",
        ),
        Mutant(
            name="semaphores are taken twice",
            old="self.take.valid.eq(waiting & ~granted)",
            new="self.take.valid.eq(waiting)",
            cycles=11,
        ),
        Mutant(
            name="a command starts without room for its signals",
            old="self.command.valid.eq(waiting & granted & signals.w_rdy)",
            new="self.command.valid.eq(waiting & granted)",
        ),
    ),
)
