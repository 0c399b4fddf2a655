"""On-chip operand memory: banks with one read and one write port each, shared by several clients.

The global buffer and the predictor memory are both made of this.
"""

from amaranth.hdl import Array, Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .bus import BufferReadSignature, BufferWriteSignature
from .config import BUFFER_ADDRESS_WIDTH
from .ram import add_ram

__all__ = ["Buffer"]


class Buffer(wiring.Component):
    """Banked memory that holds one operand per PE-array row in each word.

    A client is served in the cycle in which it asks unless a client with a lower port number asks
    for the same bank; reads and writes do not disturb each other. Throughput: one read and one
    write per bank and cycle. Read latency: :data:`~hw.bus.BUFFER_READ_LATENCY` cycles. Contents
    are undefined after reset and survive it.

    Addresses with bit 23 clear select the global buffer, with bit 23 set the predictor memory. An
    access outside the banks that exist is accepted, reads anything or is dropped, and is reported
    in the next cycle: a bit per port in ``outside`` and the word address.

    Parameters
    ----------
    config : AdaGPConfig
    core : CoreConfig
        whose memories these are
    readers, writers : int
        number of ports

    Members
    -------
    read : array of ``In(BufferReadSignature(core))``
    write : array of ``In(BufferWriteSignature(core))``
    outside_read, outside_write : Out, one bit per port
    outside_address : Out
    """

    def __init__(self, config, core, *, readers, writers):
        self.core = core
        self.global_banks = config.buffer_banks if 0 in core.memories else 0
        self.bank_depth = config.buffer_bank_depth
        self.predictor_depth = config.predictor_memory_depth if 1 in core.memories else 0
        super().__init__(
            {
                "read": In(BufferReadSignature(core)).array(readers),
                "write": In(BufferWriteSignature(core)).array(writers),
                "outside_read": Out(readers),
                "outside_write": Out(writers),
                "outside_address": Out(BUFFER_ADDRESS_WIDTH),
            }
        )

    def _decode(self, m, address, name):
        """Bank number of ``address``, and whether it exists."""
        offset_width = (self.bank_depth - 1).bit_length()
        predictor = address[BUFFER_ADDRESS_WIDTH - 1]
        hits = []
        number = address[offset_width : BUFFER_ADDRESS_WIDTH - 1]
        for index in range(self.global_banks):
            hits.append(~predictor & (number == index))
        if self.predictor_depth:
            hits.append(predictor & (address[: BUFFER_ADDRESS_WIDTH - 1] < self.predictor_depth))
        hit = Signal(len(hits), name=f"{name}_hit")
        m.d.comb += hit.eq(Cat(hits))
        return hit

    def elaborate(self, platform):
        m = Module()
        depths = [self.bank_depth] * self.global_banks
        if self.predictor_depth:
            depths.append(self.predictor_depth)

        reads = [self.read[i] for i in range(len(self.read))]
        writes = [self.write[i] for i in range(len(self.write))]
        read_hits = [self._decode(m, port.address, f"read{i}") for i, port in enumerate(reads)]
        write_hits = [self._decode(m, port.address, f"write{i}") for i, port in enumerate(writes)]

        outputs = []
        read_grants = [[] for _ in reads]
        write_grants = [[] for _ in writes]
        for bank, depth in enumerate(depths):
            ram = add_ram(
                m,
                platform,
                name=f"bank{bank}",
                width=self.core.word_width,
                depth=depth,
                granularity=self.core.group_width,
            )
            outputs.append(ram.read_data)

            taken = Const(0)
            for port, hits, grants in zip(reads, read_hits, read_grants, strict=True):
                grants.append(hits[bank] & ~taken)
                with m.If(port.valid & grants[-1]):
                    m.d.comb += [ram.read_address.eq(port.address), ram.read_en.eq(1)]
                taken = taken | (port.valid & hits[bank])
            taken = Const(0)
            for port, hits, grants in zip(writes, write_hits, write_grants, strict=True):
                grants.append(hits[bank] & ~taken)
                with m.If(port.valid & grants[-1]):
                    m.d.comb += [
                        ram.write_address.eq(port.address),
                        ram.write_data.eq(port.data),
                        ram.write_en.eq(port.enable),
                    ]
                taken = taken | (port.valid & hits[bank])

        ports, hits = reads + writes, read_hits + write_hits
        for port, hit, grants in zip(ports, hits, read_grants + write_grants, strict=True):
            m.d.comb += port.ready.eq(Cat(grants).any() | ~hit.any())
            with m.If(port.valid & ~hit.any()):
                m.d.sync += self.outside_address.eq(port.address)
        m.d.sync += Cat(self.outside_read, self.outside_write).eq(
            Cat(port.valid & ~hit.any() for port, hit in zip(ports, hits, strict=True))
        )

        for index, port in enumerate(reads):
            select = Signal(range(max(len(depths), 2)), name=f"read{index}_select")
            for bank in range(len(depths)):
                with m.If(read_hits[index][bank]):
                    m.d.sync += select.eq(bank)
            if len(depths) == 1:
                m.d.sync += port.data.eq(outputs[0])
            else:
                m.d.sync += port.data.eq(Array(outputs)[select])
        return m
