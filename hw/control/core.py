"""One core: PE array, accumulators, buffer, engines, DMA channels and their queues."""

from amaranth.hdl import Cat, Const, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.bus.signatures import ErrorReportSignature, ReadChannelSignature, WriteChannelSignature
from hw.dma.load import LoadEngine
from hw.dma.store import StoreEngine
from hw.engines.loss.engine import LossEngine
from hw.engines.matmul.matrix_unit import MATMUL_EVENTS, MatrixUnit
from hw.engines.post.engine import PostEngine
from hw.engines.vector.engine import VectorEngine
from hw.isa.encoding import MEMORY_SIZE_WIDTH, Opcode, queue_opcodes
from hw.isa.error_codes import ErrorCode
from hw.isa.vector import COEFFICIENTS
from hw.memory.buffer import Buffer
from hw.registers.map import Unit

from .command_queue import CHUNK_WIDTH, CommandQueue
from .row_list import ROW_RESULT

__all__ = ["CORE_EVENTS", "Core", "buffer_channels"]

#: Events that a core reports to the performance counters; those of engines that it does not have
#: never happen.
CORE_EVENTS = (
    *MATMUL_EVENTS,
    "post_busy",
    "post_stall",
    "load_busy",
    "store_busy",
    "vector_busy",
    "vector_stall",
    "vector_rejected",
    "loss_busy",
)


def buffer_channels(core):
    """Clients of the buffer, first come first: (reader -> channel, writer -> channel).

    Vectors have a channel of their own, and so have the streams of VECTOR. These share one where a
    word has several groups, of which a cycle takes one; LOSS reads now and then. LOAD and STORE
    come behind VECTOR: they would take every cycle, and VECTOR leaves them those that it has no
    word for.
    """
    readers, writers = {"weights": 0, "x": 1}, {"post": 0}
    if core.has_vector:
        own = core.groups_per_word == 1
        readers |= {f"vector_{name}": 2 + own * number for number, name in enumerate("xyz")}
        writers["vector"] = 0
    readers["store"] = writers["load"] = 0
    if core.has_loss:
        readers["loss"] = 2
        writers["loss"] = 0
    return readers, writers


class Core(wiring.Component):
    """A PE array with everything that keeps it fed; ``max`` has two instances of this class.

    LOAD fills the buffer from DRAM, WEIGHTS brings tiles of it into the array, MATMUL streams
    vectors through them into the accumulators, POST turns sums into operands in the buffer, STORE
    writes them to DRAM; VECTOR and LOSS compute on what is in the buffer. All work at the same
    time. Where they meet in a buffer bank, weights are read before vectors before stores before
    VECTOR before LOSS, and weights before stores in any case; results of POST, for which the
    array may wait, are written before loads, and these before results of VECTOR and LOSS.

    Reset and the sequencer's clear make all queues empty and all engines idle; buffer and
    accumulator contents survive.

    Members
    -------
    push0 ... : ``In(stream of CHUNK_WIDTH bits)``, in the order of ``queue_opcodes(core)``
    take, give : arrays of ``Out(stream of masks)``, to the semaphores
    empty, blocked, working : Out, one bit per queue
    progress : Out(1), a command has ended in the cycle before
    memory_base, memory_size : In, memory window in bytes
    stop : In(1), no new bus requests
    read, write : bus channels
    bus_busy : Out(2), LOAD and STORE: it has something outstanding on the bus
    error : ``Out(ErrorReportSignature())``
    flags : Out(5), float flags raised in this cycle, and in bit 4 that VECTOR rejected numbers
    coefficients, sample_seed, guard : In, registers for VECTOR; the seed is that of the batch
    row : ``Out(ROW_RESULT)``, in the main core where there are lists of rows: VECTOR's results
    events : Out, one bit per member of ``CORE_EVENTS``
    """

    def __init__(self, config, core):
        self.config = config
        self.core = core
        self.opcodes = queue_opcodes(core)
        masks = stream.Signature(config.semaphore_count)
        queues = len(self.opcodes)
        self.lists = core.index == 0 and config.row_list_depth > 0
        super().__init__(
            {
                **{f"push{n}": In(stream.Signature(CHUNK_WIDTH)) for n in range(queues)},
                "take": Out(masks).array(queues),
                "give": Out(masks).array(queues),
                "empty": Out(queues),
                "blocked": Out(queues),
                "working": Out(queues),
                "progress": Out(1),
                "memory_base": In(config.axi_address_width),
                "memory_size": In(MEMORY_SIZE_WIDTH),
                "stop": In(1),
                "read": Out(ReadChannelSignature(config)),
                "write": Out(WriteChannelSignature(config)),
                "bus_busy": Out(2),
                "error": Out(ErrorReportSignature()),
                "flags": Out(5),
                "coefficients": In(data.ArrayLayout(32, COEFFICIENTS)),
                "sample_seed": In(32),
                "guard": In(1),
                **({"row": Out(ROW_RESULT)} if self.lists else {}),
                **{event: Out(1) for event in CORE_EVENTS},
            }
        )

    def elaborate(self, platform):
        # A core has no state of its own but the registers of its error port and flags, which are
        # set for the cycle after their event. Who tells a queue what:
        #
        # signal   meaning                                   from                      to
        # -------  ----------------------------------------  ------------------------  -------------
        # done     a command is over                         its engine                its queue
        # starved  it waits for weights or for their use     matrix                    WEIGHTS and
        #                                                                              MATMUL
        # empty    no command is in the queue, and no        queues; WEIGHTS: not      sequencer
        #          weights are left over                     weights_held
        # blocked  the queue waits for a semaphore           queues; WEIGHTS: and      sequencer
        #                                                    weights_quiet
        # working  the engine is at work                     queues                    sequencer
        m = Module()
        config, core = self.config, self.core

        readers, writers = buffer_channels(core)
        m.submodules.buffer = buffer = Buffer(
            config, core, readers=readers.values(), writers=writers.values()
        )
        m.submodules.load = load = LoadEngine(config, core)
        m.submodules.matrix = matrix = MatrixUnit(config, core)
        m.submodules.post = post = PostEngine(config, core)
        m.submodules.store = store = StoreEngine(config, core)
        engines = {Opcode.LOAD: load, Opcode.POST: post, Opcode.STORE: store}
        # The ports of the buffer, and who uses them.
        reads = {
            "weights": (matrix.w_read, Opcode.WEIGHTS),
            "x": (matrix.x_read, Opcode.MATMUL),
            "store": (store.read, Opcode.STORE),
        }
        writes = {"load": (load.write, Opcode.LOAD), "post": (post.write, Opcode.POST)}
        events = {
            **{event: getattr(matrix, event) for event in MATMUL_EVENTS},
            "post_busy": post.busy,
            "post_stall": post.stall,
            "load_busy": load.busy,
            "store_busy": store.busy,
        }
        float_flags, rejected = matrix.flags | post.flags, Const(0)
        if core.has_vector:
            m.submodules.vector = vector = VectorEngine(config, core)
            engines[Opcode.VECTOR] = vector
            for name in "xyz":
                reads[f"vector_{name}"] = (getattr(vector, f"{name}_read"), Opcode.VECTOR)
            writes["vector"] = (vector.write, Opcode.VECTOR)
            for event in ("busy", "stall", "rejected"):
                events[f"vector_{event}"] = getattr(vector, event)
            m.d.comb += [
                vector.coefficients.eq(self.coefficients),
                vector.sample_seed.eq(self.sample_seed),
                vector.guard.eq(self.guard),
            ]
            float_flags, rejected = float_flags | vector.flags, vector.rejected
            if self.lists:
                written, fmt = vector.write, config.format
                first = written.data[: fmt.width]
                m.d.sync += [
                    self.row.valid.eq(written.valid & written.ready),
                    self.row.kept.eq(~first[-1] & first[fmt.mantissa_bits : -1].any()),
                    self.row.over.eq(vector.done),
                ]
        if core.has_loss:
            m.submodules.loss = loss = LossEngine(config, core)
            engines[Opcode.LOSS] = loss
            reads["loss"], writes["loss"] = (loss.read, Opcode.LOSS), (loss.write, Opcode.LOSS)
            events["loss_busy"] = loss.busy
            float_flags = float_flags | loss.flags
        m.d.sync += self.flags.eq(Cat(float_flags, rejected))
        m.d.comb += [getattr(self, event).eq(value) for event, value in events.items()]

        self._add_queues(m, engines)
        for engine in (load, store):
            m.d.comb += [
                engine.memory_base.eq(self.memory_base),
                engine.memory_size.eq(self.memory_size),
            ]
        m.d.comb += [engine.stop.eq(self.stop) for engine in engines.values()]
        m.d.comb += self.bus_busy.eq(Cat(load.busy, store.busy))
        connect(m, load.read, flipped(self.read))
        connect(m, store.write, flipped(self.write))

        # Memory ports
        for position, name in enumerate(readers):
            connect(m, reads[name][0], buffer.read[position])
        for position, name in enumerate(writers):
            connect(m, writes[name][0], buffer.write[position])
        connect(m, post.accumulator, matrix.sums)

        self._report(m, engines, (readers, reads), (writers, writes))
        return m

    def _add_queues(self, m, engines):
        """A queue for every opcode, in front of its engine."""
        config, matrix = self.config, m.submodules.matrix
        ends = {opcode: (engine.command, engine.done) for opcode, engine in engines.items()}
        ends[Opcode.WEIGHTS] = (matrix.weights, matrix.weights_done)
        ends[Opcode.MATMUL] = (matrix.command, matrix.done)
        queues = {}
        for number, opcode in enumerate(self.opcodes):
            command, done = ends[opcode]
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
                self.working[number].eq(queue.working),
            ]
        m.d.sync += self.progress.eq(Cat(done for _, done in ends.values()).any())
        # Weights go on by themselves when their command is done, and must be taken by somebody.
        # That MATMUL is starved may be over before its last sums are in place, but not for long.
        number = self.opcodes.index(Opcode.WEIGHTS)
        weights = queues[Opcode.WEIGHTS]
        m.d.comb += [
            weights.starved.eq(matrix.weights_quiet),
            self.empty[number].eq(weights.empty & ~matrix.weights_held),
            self.blocked[number].eq(weights.blocked & matrix.weights_quiet),
            queues[Opcode.MATMUL].starved.eq(matrix.starved),
        ]

    def _report(self, m, engines, reading, writing):
        """Errors, in the cycle after they are found; of several the first in this order."""
        core, buffer, matrix = self.core, m.submodules.buffer, m.submodules.matrix
        readers, reads = reading
        writers, writes = writing
        sources = [
            (engine.error.valid, engine.error.code, engine.error.address, opcode)
            for opcode, engine in engines.items()
        ]
        outside = zip(readers, buffer.outside_read, strict=True)
        clients = [(valid, reads[name][1]) for name, valid in outside]
        outside = zip(writers, buffer.outside_write, strict=True)
        clients += [(valid, writes[name][1]) for name, valid in outside]
        for valid, opcode in clients:
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
                    self.error.unit.eq(Unit[f"CORE{core.index}_{opcode.name}"]),
                    self.error.address.eq(address),
                ]
