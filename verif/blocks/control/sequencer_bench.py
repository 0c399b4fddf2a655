"""A sequencer with queues and engines played by Python, for Amaranth's simulator."""

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator

from hw.control.batch_control import BATCH_UPDATES, BatchControl, connect_batches
from hw.control.command_queue import CHUNK_WIDTH, command_chunks
from hw.control.fetch import CommandFetch
from hw.control.loop_control import LoopControl, connect_loops
from hw.control.sequencer import Sequencer
from hw.isa.encoding import COMMANDS, HEADER, HEADER_LAYOUT, Opcode
from hw.isa.field import field_places
from hw.registers.map import Unit

__all__ = ["ADDRESS", "SOURCES", "Control", "SequencerBench", "patched", "simulate", "values_of"]

#: Ports of the bench's sequencer that report errors.
SOURCES = 3
#: Where the bench says that its commands lie.
ADDRESS = 0x4000


def values_of(opcode, rng=None):
    """Legal values for all fields of ``opcode``: the least ones, or random ones."""
    values = {}
    for field in COMMANDS[opcode]:
        low, high = field.range
        if field.enum is not None:
            values[field.name] = rng.choice(list(field.enum)) if rng else min(field.enum)
        else:
            values[field.name] = rng.randint(low, high) if rng else max(low, 0)
    return values


def patched(command, field, value):
    """``command`` with raw ``value`` in a field, legal or not."""
    word = int.from_bytes(command, "little")
    place = field_places((*HEADER, *COMMANDS[Opcode(word & 0xFF)]))[field]
    word &= ~(place.mask << place.position)
    return (word | value << place.position).to_bytes(64, "little")


class SequencerBench:
    """A sequencer whose fetch, queues and engines are played by the bench.

    ``pushed`` collects ``(queue, wait, signal, body)`` of every dispatched command, put together
    from its chunks; ``errors`` what the sequencer reported; ``reset``: the Signal that resets it.
    """

    def __init__(self, config):
        self.config = config
        self.dut = Sequencer(config, sources=SOURCES)
        self.reset = Signal()
        self.queues = len(self.dut.queues)
        self.all = (1 << self.queues) - 1
        self.ready = lambda cycle: self.all
        self.pushed, self.errors, self.trace = [], [], []
        self.program, self.cycle = [], 0
        self.chunks = []

    def simulate(self, process):
        simulator = Simulator(ResetInserter(self.reset)(self.dut))
        simulator.add_clock(1e-6)

        async def testbench(ctx):
            self.ctx = ctx
            ctx.set(self.dut.empty, self.all)
            ctx.set(self.dut.blocked, self.all)
            await process(self)

        simulator.add_testbench(testbench)
        simulator.run()

    async def step(self):
        """One cycle; returns what happened in it as a dictionary."""
        ctx, dut = self.ctx, self.dut
        ctx.set(dut.command.valid, bool(self.program))
        if self.program:
            command = int.from_bytes(self.program[0], "little")
            ctx.set(dut.command.payload, command >> (CHUNK_WIDTH * len(self.chunks)))
            ctx.set(dut.address, ADDRESS + 64 * self.position)
        ready = self.ready(self.cycle)
        for number in range(self.queues):
            push = getattr(dut, f"push{number}")
            ctx.set(push.ready, ready >> number & 1)
            if ctx.get(push.valid) and ready >> number & 1:
                assert ctx.get(dut.shift)
                self._chunk(number, ctx.get(push.payload))
        event = {
            name: ctx.get(getattr(dut, name))
            for name in ("clear", "begin", "stop", "finish", "dispatched", "stopped", "draining")
        }
        event["taken"] = bool(self.program) and ctx.get(dut.command.ready)
        event["wants"] = ctx.get(dut.command.ready)
        if ctx.get(dut.error.valid):
            error = dut.error
            self.errors.append(
                tuple(ctx.get(item) for item in (error.code, error.unit, error.address))
            )
        await ctx.tick()
        self.cycle += 1
        if event["taken"]:
            self.program.pop(0)
            self.position += 1
        self.trace.append(event)
        return event

    def _chunk(self, number, bits):
        """A chunk of a command has entered a queue."""
        self.chunks.append(bits)
        _, opcode = self.dut.queues[number]
        if len(self.chunks) < command_chunks(opcode):
            return
        word = sum(chunk << (CHUNK_WIDTH * n) for n, chunk in enumerate(self.chunks))
        header = HEADER_LAYOUT.from_bits(word & ((1 << HEADER_LAYOUT.size) - 1))
        self.pushed.append((number, header.wait, header.signal, word >> HEADER_LAYOUT.size))
        self.chunks.clear()

    async def start(self, program):
        """Start a run and check how it begins: one cycle of clear, then begin."""
        self.program, self.position = [], 0
        self.pushed, self.errors = [], []
        self.chunks.clear()
        self.ctx.set(self.dut.start, 1)
        await self.step()
        self.ctx.set(self.dut.start, 0)
        event = await self.step()
        assert event["clear"] and not event["begin"]
        event = await self.step()
        assert event["begin"] and not event["clear"]
        self.program = list(program)

    async def until(self, name, limit=60):
        """Steps to the first cycle with ``name`` (included); their number."""
        for count in range(1, limit + 1):
            if (await self.step())[name]:
                return count
        raise AssertionError(f"no {name} in {limit} cycles")

    async def run(self, program):
        """A whole run; returns its errors."""
        await self.start(program)
        await self.until("finish", limit=60 + 12 * len(program))
        return self.errors


def simulate(config, process):
    bench = SequencerBench(config)
    bench.simulate(process)
    return bench


class Control(Sequencer):
    """A sequencer, a fetch, a loop control and a batch control with its registers, connected as in
    the accelerator.

    ``registers``: those that the machine writes, as Signals by name; the others are ports of
    ``batches``. ``fails``: the Signal of that name of the semaphores.
    """

    def __init__(self, config):
        super().__init__(config, sources=1)
        self.fetch = CommandFetch(config)
        self.batches = BatchControl()
        self.loops = LoopControl(config.row_list_depth)
        self.fails = Signal()
        self.registers = {
            name.removesuffix("_update"): Signal.like(getattr(self.batches, name).value)
            for name in BATCH_UPDATES
        }

    def elaborate(self, platform):
        m = Module()
        inner = Sequencer(self.config, sources=1)
        m.submodules.sequencer = self.inner = inner
        restart = Signal()
        m.submodules.fetch = ResetInserter(inner.clear | restart)(self.fetch)
        m.submodules.batches = batches = ResetInserter(inner.clear)(self.batches)
        m.submodules.loops = loops = ResetInserter(inner.clear)(self.loops)
        connect(m, self.fetch.command, inner.command)
        m.d.comb += [
            inner.start.eq(self.start),
            inner.empty.eq(self.empty),
            inner.blocked.eq(self.blocked),
            inner.abort.eq(self.abort),
            inner.watchdog.eq(self.watchdog),
            inner.working.eq(self.working),
            inner.progress.eq(self.progress),
            inner.bus_busy.eq(Cat(self.fetch.busy, self.bus_busy[1:])),
            inner.address.eq(self.fetch.address),
            inner.errors[0].valid.eq(self.fetch.error.valid),
            inner.errors[0].code.eq(self.fetch.error.code),
            inner.errors[0].unit.eq(Unit.FETCH),
            inner.errors[0].address.eq(self.fetch.error.address),
            self.fetch.start.eq(inner.begin),
            self.fetch.first.eq(self.fetch.program_address),
            self.fetch.stop.eq(inner.stop),
            self.fetch.shift.eq(inner.shift),
            self.finish.eq(inner.finish),
            self.stopped.eq(inner.stopped),
            self.draining.eq(inner.draining),
            self.error.valid.eq(inner.error.valid),
            self.error.code.eq(inner.error.code),
            self.error.unit.eq(inner.error.unit),
            self.error.address.eq(inner.error.address),
            self.begin.eq(inner.begin),
            self.dispatched.eq(inner.dispatched),
        ]
        connect_loops(m, loops, sequencer=inner, fetch=self.fetch)
        connect_batches(m, batches, sequencer=inner, fetch=self.fetch, restart=restart)
        m.d.comb += batches.fails.eq(inner.error.valid | self.fails)
        for name in ("program_address", "program_size"):
            m.d.comb += getattr(batches, name).eq(getattr(self.fetch, name))
        for name, register in self.registers.items():
            m.d.comb += getattr(batches, name).eq(register)
            update = getattr(batches, f"{name}_update")
            with m.If(update.valid):
                m.d.sync += register.eq(update.value)
        for number in range(len(self.queues)):
            ours, theirs = getattr(self, f"push{number}"), getattr(inner, f"push{number}")
            m.d.comb += [
                ours.payload.eq(theirs.payload),
                ours.valid.eq(theirs.valid),
                theirs.ready.eq(ours.ready),
            ]
        return m
