"""Integer column of the array: R products and an int32 partial sum."""

from dataclasses import dataclass

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.formats import FLAGS_LAYOUT, IntFormat
from hw.primitives.pipeline import delay
from hw.primitives.reduction_tree import reduce_pairs, tree_depth
from hw.primitives.shared_module import add_shared

from .pe import IntegerPE

__all__ = ["IntegerColumn"]


@dataclass(frozen=True, kw_only=True)
class IntegerTiming:
    """Cycle counts of an integer column with ``rows`` products, from its ``x``."""

    rows: int

    @property
    def psum_offset(self) -> int:
        return IntegerPE.LATENCY + tree_depth(self.rows) - 1

    @property
    def latency(self) -> int:
        return self.psum_offset + 2


class IntegerColumn(wiring.Component):
    """Dot product of integers added to a 32-bit partial sum, which wraps.

    Throughput: one result per cycle. Nothing is reset; results are meaningless until weights have
    been swapped in.

    Members
    -------
    x, w : In, one operand per row
    load, swap : In
        Take the weights on the bus into the waiting registers of this column; make the waiting
        weights the active ones, from the next cycle on.
    psum : In, int32, ``PSUM_OFFSET`` cycles after ``x``
    o : Out, int32, ``LATENCY`` cycles after ``x``
    flags : Out, with ``o``; only overflow (the exact sum is not an int32) ever occurs
    """

    def __init__(self, fmt: IntFormat, rows: int):
        self.fmt = fmt
        self.rows = rows
        self.timing = IntegerTiming(rows=rows)
        operands = data.ArrayLayout(signed(fmt.width), rows)
        super().__init__(
            {
                "x": In(operands),
                "w": In(operands),
                "load": In(1),
                "swap": In(1),
                "psum": In(32),
                "o": Out(32),
                "flags": Out(FLAGS_LAYOUT),
            }
        )

    @property
    def PSUM_OFFSET(self) -> int:
        """Cycles from ``x`` to ``psum``."""
        return self.timing.psum_offset

    @property
    def LATENCY(self) -> int:
        """Cycles from ``x`` to ``o``."""
        return self.timing.latency

    def elaborate(self, platform):
        m = Module()
        lanes = []
        for row in range(self.rows):
            pe = IntegerPE(self.fmt)
            add_shared(m, platform, pe, name=f"pe{row}", module_name=f"adagp_pe_{self.fmt.name}")
            m.d.comb += [
                pe.x.eq(self.x[row]),
                pe.w.eq(self.w[row]),
                pe.load.eq(self.load),
                pe.swap.eq(self.swap),
            ]
            lanes.append(pe.product)
        level = 0
        while len(lanes) > 1:
            sums = reduce_pairs(lanes, lambda a, b: a + b)
            lanes = [
                delay(m, s, 1, name=f"sum_{level}_{i}", reset=False) for i, s in enumerate(sums)
            ]
            level += 1
        psum = Signal(signed(32), reset_less=True)
        total = Signal(signed(32))
        o, overflow = Signal(signed(32), reset_less=True), Signal(reset_less=True)
        m.d.comb += [total.eq(lanes[0] + psum), self.o.eq(o), self.flags.overflow.eq(overflow)]
        m.d.sync += [
            psum.eq(self.psum),
            o.eq(total),
            overflow.eq((lanes[0][-1] == psum[-1]) & (total[-1] != psum[-1])),
        ]
        return m
