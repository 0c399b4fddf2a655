"""Test bench of the DMA engines: LOAD and STORE of one core, a buffer model, one AXI4 port."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.bus.axi_mux import ReadMux, WriteMux, axi_id_width, connect_axi_half
from hw.bus.signatures import AXI4Signature, BufferReadSignature, BufferWriteSignature
from hw.dma.load import LoadEngine
from hw.dma.store import OUTSTANDING_WRITES, StoreEngine
from hw.isa.encoding import BUFFER_ADDRESS_WIDTH, MEMORY_SIZE_WIDTH, Opcode, engine_layout

__all__ = ["REQUESTERS", "DmaBench", "StallingBuffer"]

#: Requesters on each multiplexer; the engines are the last ones, the others stay silent.
REQUESTERS = 2


class StallingBuffer(wiring.Component):
    """One memory with the read and write ports of a core's buffer, which refuse at random.

    Members
    -------
    read, write : ports of one client each
    stall : probability of refusing, in 1/256, for each port and cycle
    access, access_write, access_address, access_data, access_result : back door; the result of
        ``access_address`` comes one cycle later
    """

    def __init__(self, core, *, depth):
        self.core = core
        self.depth = depth
        super().__init__(
            {
                "read": In(BufferReadSignature(core)),
                "write": In(BufferWriteSignature(core)),
                "stall": In(8),
                "access_write": In(1),
                "access_address": In(BUFFER_ADDRESS_WIDTH),
                "access_data": In(core.word_width),
                "access_result": Out(core.word_width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=self.core.word_width, depth=self.depth, init=[])
        write, read, back = memory.write_port(), memory.read_port(), memory.read_port()
        random = Signal(32, init=0x2545F491)
        feedback = random[31] ^ random[21] ^ random[1] ^ random[0]
        m.d.sync += random.eq(Cat(feedback, random[:31]))
        m.d.comb += [
            self.write.ready.eq(random[3:11] >= self.stall),
            self.read.ready.eq(random[17:25] >= self.stall),
            write.en.eq((self.write.valid & self.write.ready) | self.access_write),
            write.addr.eq(self.write.address),
            write.data.eq(self.write.data),
            read.addr.eq(self.read.address),
            back.addr.eq(self.access_address),
            self.access_result.eq(back.data),
        ]
        with m.If(self.access_write):
            m.d.comb += [write.addr.eq(self.access_address), write.data.eq(self.access_data)]
        # The word is on the port in its one cycle only; noise in all others.
        asked = Signal()
        fetched = Signal()
        word = Signal(self.core.word_width)
        m.d.sync += [
            asked.eq(self.read.valid & self.read.ready),
            fetched.eq(asked),
            word.eq(read.data),
        ]
        m.d.comb += self.read.data.eq(~word)
        with m.If(fetched):
            m.d.comb += self.read.data.eq(word)
        return m


class DmaBench(wiring.Component):
    """The engines' command ports, status and AXI port, and what their errors and ``done`` left.

    ``load_done`` and ``store_done`` count commands; ``*_failed``, ``*_code`` and ``*_address``
    keep an error until reset. ``beats`` counts LOAD's and STORE's beats together.
    """

    def __init__(self, config, *, depth=4096):
        self.config = config
        self.core = config.cores[0]
        self.depth = depth
        command = engine_layout(Opcode.LOAD)
        members = {
            "axi": Out(
                AXI4Signature(
                    address_width=config.axi_address_width,
                    data_width=config.axi_data_width,
                    id_width=axi_id_width(REQUESTERS),
                )
            ),
            "memory_base": In(config.axi_address_width),
            "memory_size": In(MEMORY_SIZE_WIDTH),
            "stop": In(1),
            "stall": In(8),
            "access_write": In(1),
            "access_address": In(BUFFER_ADDRESS_WIDTH),
            "access_data": In(self.core.word_width),
            "access_result": Out(self.core.word_width),
            "beats": Out(32),
        }
        for name in ("load", "store"):
            members |= {
                name: In(stream.Signature(command)),
                f"{name}_done": Out(16),
                f"{name}_busy": Out(1),
                f"{name}_failed": Out(1),
                f"{name}_errors": Out(4),
                f"{name}_code": Out(8),
                f"{name}_address": Out(64),
            }
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        config, core = self.config, self.core
        m.submodules.load_engine = load = LoadEngine(config, core)
        m.submodules.store_engine = store = StoreEngine(config, core)
        m.submodules.buffer = buffer = StallingBuffer(core, depth=self.depth)
        m.submodules.reads = reads = ReadMux(
            config, REQUESTERS, outstanding=config.axi_outstanding_reads
        )
        m.submodules.writes = writes = WriteMux(config, REQUESTERS, outstanding=OUTSTANDING_WRITES)
        wiring.connect(m, load.read, reads.requesters[REQUESTERS - 1])
        wiring.connect(m, store.write, writes.requesters[REQUESTERS - 1])
        wiring.connect(m, load.write, buffer.write)
        wiring.connect(m, store.read, buffer.read)
        connect_axi_half(m, reads.axi, self.axi)
        connect_axi_half(m, writes.axi, self.axi)
        m.d.comb += [
            buffer.stall.eq(self.stall),
            buffer.access_write.eq(self.access_write),
            buffer.access_address.eq(self.access_address),
            buffer.access_data.eq(self.access_data),
            self.access_result.eq(buffer.access_result),
        ]
        m.d.sync += self.beats.eq(self.beats + load.beat + store.beat)
        for name, engine in (("load", load), ("store", store)):
            port = getattr(self, name)
            done, errors = getattr(self, f"{name}_done"), getattr(self, f"{name}_errors")
            m.d.comb += [
                engine.command.payload.eq(port.payload),
                engine.command.valid.eq(port.valid),
                port.ready.eq(engine.command.ready),
                engine.stop.eq(self.stop),
                engine.memory_base.eq(self.memory_base),
                engine.memory_size.eq(self.memory_size),
                getattr(self, f"{name}_busy").eq(engine.busy),
            ]
            m.d.sync += done.eq(done + engine.done)
            with m.If(engine.error.valid):
                m.d.sync += [
                    errors.eq(errors + 1),
                    getattr(self, f"{name}_failed").eq(1),
                    getattr(self, f"{name}_code").eq(engine.error.code),
                    getattr(self, f"{name}_address").eq(engine.error.address),
                ]
        return m
