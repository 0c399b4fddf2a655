"""Accumulator memory: two banks of partial sums, one filled by the array while one is drained."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import ACCUMULATOR_READ_LATENCY, AccumulatorReadSignature
from hw.primitives.ram import add_ram

__all__ = ["AccumulatorMemory"]


class AccumulatorMemory(wiring.Component):
    """Two banks of ``accumulator_depth`` vectors of ``columns`` 32-bit partial sums.

    The array reads and writes one vector per cycle; post-processing reads the other bank at the
    same time. When both read one bank, post-processing waits. Read latency on both sides:
    :data:`~hw.bus.signatures.ACCUMULATOR_READ_LATENCY` cycles. A vector written in one cycle is
    read from the next cycle on. Contents are undefined after reset and survive it.

    An entry outside the memory is not written, and reported in the next cycle.

    Members
    -------
    array_read : ``en``, ``bank``, ``address`` In; the sums leave on ``psum``
    init_zero, init_bias : In(1), sampled one cycle after ``array_read_en``: replace the sums read
    bias : In(32 * columns)
    psum : Out(32 * columns), two cycles after ``array_read_en``
    write : ``en``, ``bank``, ``address``, ``data`` In
    post : ``In(AccumulatorReadSignature(core))``
    outside_write, outside_post, outside_address : Out
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
                "outside_write": Out(1),
                "outside_post": Out(1),
                "outside_address": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = self.core.accumulator_depth
        outputs = []
        for bank in range(2):
            ram = add_ram(
                m, platform, name=f"bank{bank}", width=32 * self.core.columns, depth=depth
            )
            by_array = Signal(name=f"by_array{bank}")
            m.d.comb += [
                by_array.eq(self.read_en & (self.read_bank == bank)),
                ram.read_address.eq(Mux(by_array, self.read_address, self.post.address)),
                ram.read_en.eq(by_array | (self.post.valid & (self.post.bank == bank))),
                ram.write_address.eq(self.write_address),
                ram.write_data.eq(self.write_data),
                ram.write_en.eq(
                    self.write_en & (self.write_bank == bank) & (self.write_address < depth)
                ),
            ]
            outputs.append(ram.read_data)
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
            self.outside_post.eq(post_outside),
            self.outside_write.eq(write_outside),
            self.outside_address.eq(Mux(write_outside, self.write_address, self.post.address)),
        ]
        return m


assert ACCUMULATOR_READ_LATENCY == 2
