"""One core: PE array, accumulators, buffer, post-processing, DMA channels and their queues."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .buffer import Buffer
from .bus import ErrorReportSignature, ReadChannelSignature, WriteChannelSignature
from .commands import Opcode
from .dma_load import LoadEngine
from .dma_store import StoreEngine
from .errors import ErrorCode
from .matrix_unit import MATMUL_EVENTS, MatrixUnit
from .post import PostEngine
from .queue import CHUNK_WIDTH, CommandQueue
from .registers import Unit
from .sequencer import QUEUE_OPCODES

__all__ = ["CORE_EVENTS", "Core"]

#: Events that a core reports to the performance counters.
CORE_EVENTS = (*MATMUL_EVENTS, "post_busy", "post_stall", "load_busy", "store_busy")

_READERS = ("weights", "x", "store")
_WRITERS = ("load", "post")
#: Channels of the buffer: vectors have one of their own, what comes now and then shares.
_READ_CHANNELS = (0, 1, 0)
_WRITE_CHANNELS = (0, 0)


class Core(wiring.Component):
    """A PE array with everything that keeps it fed; ``max`` has two instances of this class.

    LOAD fills the buffer from DRAM, WEIGHTS brings tiles of it into the array, MATMUL streams
    vectors through them into the accumulators, POST turns sums into operands in the buffer, STORE
    writes them to DRAM; the five work at the same time. Weights are read before vectors before
    stores where they meet in a buffer bank, and weights before stores in any case; loads are
    written before post-processed results.

    Reset and the sequencer's clear make all queues empty and all engines idle; buffer and
    accumulator contents survive.

    Members
    -------
    push0 ... push4 : ``In(stream of CHUNK_WIDTH bits)``, in the order of ``QUEUE_OPCODES``
    take, give : arrays of ``Out(stream of masks)``, to the semaphores
    empty, blocked : Out, one bit per queue
    memory_base, memory_size : In, memory window in bytes
    stop : In(1), no new bus requests
    read, write : bus channels
    bus_busy : Out(1), something is outstanding on the bus
    error : ``Out(ErrorReportSignature())``
    flags : Out(4), float flags raised in this cycle
    events : Out, one bit per member of ``CORE_EVENTS``
    """

    def __init__(self, config, core):
        self.config = config
        self.core = core
        masks = stream.Signature(config.semaphore_count)
        super().__init__(
            {
                **{
                    f"push{n}": In(stream.Signature(CHUNK_WIDTH)) for n in range(len(QUEUE_OPCODES))
                },
                "take": Out(masks).array(len(QUEUE_OPCODES)),
                "give": Out(masks).array(len(QUEUE_OPCODES)),
                "empty": Out(len(QUEUE_OPCODES)),
                "blocked": Out(len(QUEUE_OPCODES)),
                "memory_base": In(config.axi_address_width),
                "memory_size": In(32),
                "stop": In(1),
                "read": Out(ReadChannelSignature(config)),
                "write": Out(WriteChannelSignature(config)),
                "bus_busy": Out(1),
                "error": Out(ErrorReportSignature()),
                "flags": Out(4),
                **{event: Out(1) for event in CORE_EVENTS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, core = self.config, self.core

        m.submodules.buffer = buffer = Buffer(
            config, core, readers=_READ_CHANNELS, writers=_WRITE_CHANNELS
        )
        m.submodules.load = load = LoadEngine(config, core)
        m.submodules.matrix = matrix = MatrixUnit(config, core)
        m.submodules.post = post = PostEngine(config, core)
        m.submodules.store = store = StoreEngine(config, core)

        engines = {
            Opcode.LOAD: (load.command, load.done),
            Opcode.WEIGHTS: (matrix.weights, matrix.weights_done),
            Opcode.MATMUL: (matrix.command, matrix.done),
            Opcode.POST: (post.command, post.done),
            Opcode.STORE: (store.command, store.done),
        }
        queues = {}
        for number, opcode in enumerate(QUEUE_OPCODES):
            command, done = engines[opcode]
            queues[opcode] = queue = CommandQueue(config, opcode)
            m.submodules[f"{opcode.name.lower()}_queue"] = queue
            connect(m, flipped(getattr(self, f"push{number}")), queue.push)
            connect(m, queue.take, flipped(self.take[number]))
            connect(m, queue.give, flipped(self.give[number]))
            connect(m, queue.command, command)
            m.d.comb += [
                queue.done.eq(done),
                self.empty[number].eq(queue.empty),
                self.blocked[number].eq(queue.blocked),
            ]
        # Weights go on by themselves when their command is done, and must be taken by somebody.
        # That MATMUL is starved may be over before its last sums are in place, but not for long.
        number = QUEUE_OPCODES.index(Opcode.WEIGHTS)
        weights = queues[Opcode.WEIGHTS]
        m.d.comb += [
            weights.starved.eq(matrix.weights_quiet),
            self.empty[number].eq(weights.empty & ~matrix.weights_held),
            self.blocked[number].eq(weights.blocked & matrix.weights_quiet),
            queues[Opcode.MATMUL].starved.eq(matrix.starved),
        ]

        for engine in (load, store):
            m.d.comb += [
                engine.memory_base.eq(self.memory_base),
                engine.memory_size.eq(self.memory_size),
            ]
        for engine in (load, store, post):
            m.d.comb += engine.stop.eq(self.stop)
        m.d.comb += self.bus_busy.eq(load.busy | store.busy)
        connect(m, load.read, flipped(self.read))
        connect(m, store.write, flipped(self.write))

        # Memory ports
        connect(m, matrix.w_read, buffer.read[_READERS.index("weights")])
        connect(m, matrix.x_read, buffer.read[_READERS.index("x")])
        connect(m, store.read, buffer.read[_READERS.index("store")])
        connect(m, load.write, buffer.write[_WRITERS.index("load")])
        connect(m, post.write, buffer.write[_WRITERS.index("post")])
        connect(m, post.accumulator, matrix.sums)

        m.d.sync += self.flags.eq(matrix.flags | post.flags)

        # Errors, in the cycle after they are found
        reads, writes = buffer.outside_read, buffer.outside_write
        unit = {opcode: Unit[f"CORE{core.index}_{opcode.name}"] for opcode in QUEUE_OPCODES}
        sources = [
            (engine.error.valid, engine.error.code, engine.error.address, opcode)
            for engine, opcode in (
                (load, Opcode.LOAD), (store, Opcode.STORE), (post, Opcode.POST),
            )
        ]  # fmt: skip
        for valid, opcode in (
            (reads[_READERS.index("weights")], Opcode.WEIGHTS),
            (reads[_READERS.index("x")], Opcode.MATMUL),
            (reads[_READERS.index("store")], Opcode.STORE),
            (writes[_WRITERS.index("load")], Opcode.LOAD),
            (writes[_WRITERS.index("post")], Opcode.POST),
        ):
            sources.append((valid, ErrorCode.BUFFER_ADDRESS, buffer.outside_address, opcode))
        for valid, opcode in (
            (matrix.outside_write, Opcode.MATMUL),
            (matrix.outside_read, Opcode.POST),
        ):
            sources.append((valid, ErrorCode.ACCUMULATOR_ADDRESS, matrix.outside_address, opcode))
        m.d.sync += self.error.valid.eq(0)
        for valid, code, address, opcode in reversed(sources):
            with m.If(valid):
                m.d.sync += [
                    self.error.valid.eq(1),
                    self.error.code.eq(code),
                    self.error.unit.eq(unit[opcode]),
                    self.error.address.eq(address),
                ]

        m.d.comb += [
            *(getattr(self, event).eq(getattr(matrix, event)) for event in MATMUL_EVENTS),
            self.post_busy.eq(post.busy),
            self.post_stall.eq(post.stall),
            self.load_busy.eq(load.busy),
            self.store_busy.eq(store.busy),
        ]
        return m
