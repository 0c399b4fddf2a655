"""Float column of the array: R products and a partial sum, added at once, rounded once."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.formats import FLAGS_LAYOUT, FloatFormat
from hw.primitives.pipeline import delay
from hw.primitives.reduction_tree import reduce_pairs, tree_depth
from hw.primitives.shared_module import add_shared

from .operand_decoder import exponent_layout, significand_layout
from .pe import WINDOW_BITS, FloatPE, grid_width
from .psum_align import PartialSum
from .sum_round import SumRounder

__all__ = ["DotProductColumn"]

_LEVELS_PER_CYCLE = 2  # of the adder tree
_PSUM_OFFSET = 77  # the grid exponent of float32 exponent code 1 is 1 - 77


@dataclass(frozen=True, kw_only=True)
class FloatTiming:
    """Cycle counts of a float column with ``rows`` products, from its ``x_exponent``."""

    rows: int

    @property
    def top_delay(self) -> int:
        """From the products' grid exponents to the largest of all: a level per cycle, then psum."""
        return tree_depth(self.rows) + 1

    @property
    def skew(self) -> int:
        return self.top_delay + 2

    @property
    def psum_offset(self) -> int:
        return self.top_delay - 1

    @property
    def adder_levels(self) -> list[int]:
        """Nodes entering each level of the adder tree; psum joins the first odd one."""
        levels, nodes, joined = [], self.rows, False
        while nodes > 1 or not joined:
            if nodes % 2 and not joined:
                nodes, joined = nodes + 1, True
            levels.append(nodes)
            nodes = -(-nodes // 2)
        return levels

    @property
    def latency(self) -> int:
        levels = len(self.adder_levels)
        adders = sum(self.is_registered(level, levels) for level in range(levels))
        return 1 + self.top_delay + FloatPE.LATENCY + adders + SumRounder.LATENCY

    @staticmethod
    def is_registered(level: int, levels: int) -> bool:
        """Whether registers follow a level of the adder tree."""
        return level % _LEVELS_PER_CYCLE == _LEVELS_PER_CYCLE - 1 or level == levels - 1


class DotProductColumn(wiring.Component):
    """Fused dot product of float operands with a float32 partial sum.

    Operands arrive decoded (:class:`~hw.array.operand_decoder.OperandDecoder`), the significands
    ``SKEW`` cycles after the exponents. Numerics: docs/numerics.md. Throughput: one result per
    cycle. Nothing is reset; results are meaningless until weights have been swapped in. The first
    ``lut_rows`` rows multiply in LUTs instead of a multiplier block, with the same results in the
    same cycles.

    Members
    -------
    x_exponent, w_exponent : In, one per row
    x_nan : In, some operand of the vector is NaN; with ``x_exponent``
    w_nan : In, some weight of the column is NaN; with ``w_exponent``
    x_significand, w_significand : In, one per row
    load_exponent, load_significand : In
        Take the weights on the bus into the waiting registers of this column.
    swap_exponent, swap_significand : In
        Make the waiting weights the active ones, from the next cycle on.
    psum : In, float32, ``PSUM_OFFSET`` cycles after ``x_exponent``
    o, flags : Out, float32 and its exceptions, ``LATENCY`` cycles after ``x_exponent``

    Raises
    ------
    ValueError : the products of the format do not fit the alignment window
    """

    def __init__(self, fmt: FloatFormat, rows: int, *, lut_rows: int = 0):
        if 2 * fmt.significand_bits + 2 > WINDOW_BITS:
            raise ValueError(
                f"Mantissa width of an operand must be at most {WINDOW_BITS // 2 - 2}, "
                f"not {fmt.mantissa_bits}"
            )
        self.fmt = fmt
        self.rows = rows
        self.lut_rows = lut_rows
        self.timing = FloatTiming(rows=rows)
        exponents = data.ArrayLayout(exponent_layout(fmt), rows)
        significands = data.ArrayLayout(significand_layout(fmt), rows)
        super().__init__(
            {
                "x_exponent": In(exponents),
                "x_nan": In(1),
                "x_significand": In(significands),
                "w_exponent": In(exponents),
                "w_nan": In(1),
                "w_significand": In(significands),
                "load_exponent": In(1),
                "load_significand": In(1),
                "swap_exponent": In(1),
                "swap_significand": In(1),
                "psum": In(32),
                "o": Out(32),
                "flags": Out(FLAGS_LAYOUT),
            }
        )

    @property
    def SKEW(self) -> int:
        """Cycles from the exponents of a vector to its significands."""
        return self.timing.skew

    @property
    def PSUM_OFFSET(self) -> int:
        """Cycles from ``x_exponent`` to ``psum``."""
        return self.timing.psum_offset

    @property
    def LATENCY(self) -> int:
        """Cycles from ``x_exponent`` to ``o``."""
        return self.timing.latency

    def elaborate(self, platform):
        m = Module()
        fmt, rows = self.fmt, self.rows
        lanes = []
        for row in range(rows):
            in_luts = row < self.lut_rows
            pe = FloatPE(fmt, top_delay=self.timing.top_delay, lut_multiplier=in_luts)
            module_name = f"adagp_pe_{fmt.name}_d{self.timing.top_delay}{'_lut' * in_luts}"
            lanes.append(add_shared(m, platform, pe, name=f"pe{row}", module_name=module_name))
            m.d.comb += [
                pe.x_exponent.eq(self.x_exponent[row]),
                pe.w_exponent.eq(self.w_exponent[row]),
                pe.x_significand.eq(self.x_significand[row]),
                pe.w_significand.eq(self.w_significand[row]),
                pe.load_exponent.eq(self.load_exponent),
                pe.load_significand.eq(self.load_significand),
                pe.swap_exponent.eq(self.swap_exponent),
                pe.swap_significand.eq(self.swap_significand),
            ]

        # Grid of the window: one level of comparison per cycle, then the partial sum.
        product_base = max(0, 65 - fmt.bias)
        psum_base = max(0, fmt.bias - 65)
        grids = [pe.grid for pe in lanes]
        for level in range(tree_depth(rows)):
            grids = reduce_pairs(grids, lambda a, b: Mux(a > b, a, b))
            grids = [
                delay(m, g, 1, name=f"grid_{level}_{i}", reset=False) for i, g in enumerate(grids)
            ]
        some = delay(
            m,
            Cat(pe.nonzero for pe in lanes).any(),
            self.timing.top_delay - 1,
            name="some",
            reset=False,
        )

        addend = PartialSum(grid_base=psum_base, width=grid_width(fmt))
        m.submodules.addend = addend
        window = Signal(grid_width(fmt), reset_less=True)
        products = Signal(grid_width(fmt))
        m.d.comb += [
            products.eq(Mux(some, grids[0] + product_base, 0) if product_base else grids[0]),
            addend.psum.eq(self.psum),
            addend.window.eq(window),
        ]
        m.d.sync += window.eq(Mux(products > addend.grid, products, addend.grid))
        for pe in lanes:
            m.d.comb += pe.top.eq(window - product_base)

        # The sum, times the sign of the partial sum: that one then needs no complement.
        for pe in lanes:
            m.d.comb += pe.flip.eq(addend.negative)
        total, extra = self._add(m, lanes, addend)

        # Special values and cut bits travel beside the tree.
        def any_of(name, values):
            return delay(m, Cat(values).any(), extra, name=name, reset=False)

        w_nan = [Signal(name=f"w_nan_{n}", reset_less=True) for n in ("waiting", "active")]
        with m.If(self.load_exponent):
            m.d.sync += w_nan[0].eq(self.w_nan)
        with m.If(self.swap_exponent):
            m.d.sync += w_nan[1].eq(w_nan[0])
        nan_delay = 1 + self.timing.top_delay + FloatPE.LATENCY
        nan = delay(m, self.x_nan | w_nan[1], nan_delay, name="nan", reset=False)
        plus = any_of("plus", [addend.infinite, *(pe.plus_infinity for pe in lanes)])
        minus = any_of("minus", [pe.minus_infinity for pe in lanes])
        negate = delay(m, addend.negative, 3 + extra, name="negate", reset=False)
        rounder = SumRounder(
            total_width=len(total),
            grid_width=len(window),
            grid_offset=_PSUM_OFFSET + psum_base,
        )
        m.submodules.rounder = rounder
        m.d.comb += [
            rounder.total.eq(total),
            rounder.grid.eq(delay(m, window, FloatPE.LATENCY + extra, name="window", reset=False)),
            rounder.negate.eq(negate),
            rounder.lost.eq(any_of("lost", [addend.lost, *(pe.lost for pe in lanes)])),
            rounder.nan.eq(any_of("nan_sum", [nan, addend.nan])),
            rounder.plus_infinity.eq(Mux(negate, minus, plus)),
            rounder.minus_infinity.eq(Mux(negate, plus, minus)),
            self.o.eq(rounder.o),
            self.flags.eq(rounder.flags),
        ]
        return m

    def _add(self, m, lanes, addend):
        """Adder tree over ``lanes`` and ``addend``: total and the cycles it takes.

        The partial sum joins the first level with an odd number of nodes. There are as many adders
        as lanes, hence a carry input for every complemented term.
        """
        terms = [(pe.term, 1) for pe in lanes]
        carries = [pe.carry for pe in lanes]
        cycles = 0
        levels = self.timing.adder_levels
        for level, count in enumerate(levels):
            if count > len(terms):
                value = delay(m, addend.term, cycles, name="addend", reset=False)
                terms.append((Cat(value, Const(0, 1)).as_signed(), 1))
            pairs = list(zip(terms[::2], terms[1::2], strict=False))
            rest = terms[2 * len(pairs) :]
            terms = []
            for index, ((a, size_a), (b, size_b)) in enumerate(pairs):
                size = size_a + size_b
                node = Signal(
                    signed(WINDOW_BITS + 1 + tree_depth(size)), name=f"sum_{level}_{index}"
                )
                total = Cat(Const(1, 1), a).as_signed() + Cat(carries[index], b).as_signed()
                m.d.comb += node.eq(total >> 1)
                terms.append((node, size))
            terms, carries = terms + rest, carries[len(pairs) :]
            if FloatTiming.is_registered(level, len(levels)):
                terms = [
                    (delay(m, value, 1, name=f"term_{level}_{index}", reset=False), size)
                    for index, (value, size) in enumerate(terms)
                ]
                carries = [
                    delay(m, carry, 1, name=f"carry_{level}_{index}", reset=False)
                    for index, carry in enumerate(carries)
                ]
                cycles += 1
        return terms[0][0], cycles
