"""The registers of the loss unit's threads."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.primitives.ram import add_ram

from .microcode import Register
from .threads import THREADS

__all__ = ["ADDRESS_WIDTH", "LossRegisters"]

#: Bits of the place of a register: its number and its thread.
ADDRESS_WIDTH = 6


class LossRegisters(wiring.Component):
    """16 registers of 32 bits for each thread, with two read ports and a write port.

    A batch's partial sums and its count of correct answers are +0 until they are written. Read
    latency 1 cycle; what a register gives in the cycle in which it is written has no meaning.

    Members
    -------
    read_a, read_b : In -- number in the low four bits, then the thread
    a, b : Out(32)
    enable : In(1), address : In, value : In(32) -- what is written
    restart : In(1) -- a batch begins
    """

    def __init__(self):
        place = In(ADDRESS_WIDTH)
        super().__init__(
            {
                **dict.fromkeys(("read_a", "read_b", "address"), place),
                "a": Out(32),
                "b": Out(32),
                "enable": In(1),
                "value": In(32),
                "restart": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        filled, counted = Signal(2 * THREADS), Signal()
        is_sum, sum_index, is_count = _which(self.address)
        with m.If(self.enable & is_sum):
            m.d.sync += filled.bit_select(sum_index, 1).eq(1)
        with m.If(self.enable & is_count):
            m.d.sync += counted.eq(1)
        with m.If(self.restart):
            m.d.sync += [filled.eq(0), counted.eq(0)]
        for name, read, output in (("a", self.read_a, self.a), ("b", self.read_b, self.b)):
            ram = add_ram(m, platform, name=f"registers_{name}", width=32, depth=16 * THREADS)
            is_sum, sum_index, is_count = _which(read)
            missing = Signal(name=f"missing_{name}", reset_less=True)
            m.d.sync += missing.eq(
                (is_sum & ~filled.bit_select(sum_index, 1)) | (is_count & ~counted)
            )
            m.d.comb += [
                ram.read_en.eq(1),
                ram.read_address.eq(read),
                ram.write_en.eq(self.enable),
                ram.write_address.eq(self.address),
                ram.write_data.eq(self.value),
                output.eq(ram.read_data & (~missing).replicate(32)),
            ]
        return m


def _which(address):
    """Whether a register is one of the batch's partial sums, which one; whether it is the count."""
    number, thread = address[:4], address[4:]
    return number[1:] == Register.ALL_SUM >> 1, Cat(thread, number[0]), number.all()
