"""Accumulator memory: two banks of partial sums, one filled by the array while one is drained."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .bus import ACCUMULATOR_READ_LATENCY, AccumulatorReadSignature, ErrorSignature
from .errors import ErrorCode

__all__ = ["AccumulatorMemory"]


class AccumulatorMemory(wiring.Component):
    """Two banks of ``accumulator_depth`` vectors of ``columns`` 32-bit partial sums.

    The array reads and writes one vector per cycle; post-processing reads the other bank at the
    same time. When both read one bank, post-processing waits. Read latency on both sides:
    :data:`~hw.bus.ACCUMULATOR_READ_LATENCY` cycles. A vector written in one cycle is read from
    the next cycle on. Contents are undefined after reset and survive it.

    An entry outside the memory is reported on ``error`` (code ``ACCUMULATOR_ADDRESS``, the entry)
    and not written.

    Members
    -------
    array_read : ``en``, ``bank``, ``address`` In; the sums leave on ``psum``
    init_zero, init_bias : In(1), sampled one cycle after ``array_read_en``: replace the sums read
    bias : In(32 * columns)
    psum : Out(32 * columns), two cycles after ``array_read_en``
    write : ``en``, ``bank``, ``address``, ``data`` In
    post : ``In(AccumulatorReadSignature(core))``
    error : ``Out(ErrorSignature())``
    """

    def __init__(self, core):
        self.core = core
        width = 32 * core.columns
        super().__init__(
            {
                "read_en": In(1),
                "read_bank": In(1),
                "read_address": In(16),
                "init_zero": In(1),
                "init_bias": In(1),
                "bias": In(width),
                "psum": Out(width),
                "write_en": In(1),
                "write_bank": In(1),
                "write_address": In(16),
                "write_data": In(width),
                "post": In(AccumulatorReadSignature(core)),
                "error": Out(ErrorSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = self.core.accumulator_depth
        outputs = []
        for bank in range(2):
            memory = Memory(shape=32 * self.core.columns, depth=depth, init=[])
            m.submodules[f"bank{bank}"] = memory
            reader = memory.read_port(domain="sync")
            writer = memory.write_port()
            by_array = Signal(name=f"by_array{bank}")
            m.d.comb += [
                by_array.eq(self.read_en & (self.read_bank == bank)),
                reader.addr.eq(Mux(by_array, self.read_address, self.post.address)),
                reader.en.eq(by_array | (self.post.valid & (self.post.bank == bank))),
                writer.addr.eq(self.write_address),
                writer.data.eq(self.write_data),
                writer.en.eq(
                    self.write_en & (self.write_bank == bank) & (self.write_address < depth)
                ),
            ]
            outputs.append(reader.data)
        m.d.comb += self.post.ready.eq(~(self.read_en & (self.read_bank == self.post.bank)))

        array_bank, post_bank = Signal(), Signal()
        m.d.sync += [array_bank.eq(self.read_bank), post_bank.eq(self.post.bank)]
        sums = Mux(array_bank, outputs[1], outputs[0])
        m.d.sync += [
            self.psum.eq(Mux(self.init_bias, self.bias, Mux(self.init_zero, 0, sums))),
            self.post.data.eq(Mux(post_bank, outputs[1], outputs[0])),
        ]

        post_outside = self.post.valid & (self.post.address >= depth)
        write_outside = self.write_en & (self.write_address >= depth)
        m.d.sync += [
            self.error.valid.eq(post_outside | write_outside),
            self.error.address.eq(Mux(write_outside, self.write_address, self.post.address)),
        ]
        m.d.comb += self.error.code.eq(ErrorCode.ACCUMULATOR_ADDRESS)
        return m


assert ACCUMULATOR_READ_LATENCY == 2
