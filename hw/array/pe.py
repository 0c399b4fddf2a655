"""Processing element: one multiply lane of a column with its double-buffered weight."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.arithmetic.multiplier import LutMultiplier, RegisteredMultiplier
from hw.formats import FloatFormat, IntFormat
from hw.primitives.pipeline import delay, register

from .operand_decoder import exponent_layout, significand_layout

__all__ = ["DROP_DISTANCE", "WINDOW_BITS", "FloatPE", "IntegerPE", "grid_width"]

#: Magnitude bits of an aligned term; see docs/numerics.md.
WINDOW_BITS = 28
#: Grid steps (powers of 4) below the largest term at which a term is dropped.
DROP_DISTANCE = 16

#: Operand bits of one hardware multiplier (ECP5 MULT18X18D; DSP48 takes more).
_MULTIPLIER_WIDTH = 18


def grid_width(fmt: FloatFormat) -> int:
    """Bits of the grid exponent of a product or of the window of a column."""
    return max(fmt.exponent_bits, 7)


class _Plan:
    """Which alignment shifts a lane does before the multiplier, and which after it.

    A right shift by 2, 4, 8 or 16 that stays within 18-bit operands is made a left shift of an
    operand where it is not wanted: those bits cost one narrow multiplexer, or the synchronous reset
    of a flip-flop. The others shift the product.
    """

    def __init__(self, fmt: FloatFormat):
        decoded = fmt.significand_bits + 1
        budget = {"w": _MULTIPLIER_WIDTH - decoded, "x": _MULTIPLIER_WIDTH - decoded}
        self.before = {"w": [], "x": []}
        self.after = []
        for bit in range(4):
            amount = 2 << bit
            for side in ("w", "x"):
                if amount <= budget[side]:
                    self.before[side].append(bit)
                    budget[side] -= amount
                    break
            else:
                self.after.append(bit)
        lift = sum(2 << bit for bits in self.before.values() for bit in bits)
        #: Low product bits beyond the window (negative: zero bits to append).
        self.excess = 2 * fmt.significand_bits + 2 + lift - WINDOW_BITS


class FloatPE(wiring.Component):
    """Exact float product, aligned to the window of its column.

    Two passes: the exponents (``x_exponent``, ``w_exponent``) give ``grid``; the column finds the
    largest and returns ``top`` while the significands arrive. Throughput: one product per cycle.
    Latency: 1 cycle from the exponents to ``grid``, ``LATENCY`` = 4 from ``top`` to ``term``.
    Nothing is reset: outputs are meaningless until weights have been swapped in.
    ``lut_multiplier`` builds the multiplication of LUTs instead of a multiplier block; outputs are
    the same in every cycle.

    Members
    -------
    x_exponent, w_exponent, load_exponent, swap_exponent : In
        Exponent half of the operand, of the weight to load and the strobes that load the waiting
        weight register and copy it to the active one. A weight that is loaded or swapped in cycle
        t counts from cycle t + 1 on.
    x_significand, w_significand, load_significand, swap_significand : In
        The same for the significand half; those of a vector come 1 cycle after its ``top``.
    top : In
        Grid exponent of the window, ``top_delay`` cycles after ``grid``.
    grid : Out
        Grid exponent of the product, 0 if the product is zero.
    nonzero : Out
        The product is not zero; with ``grid``.
    flip : In
        The column wants the term with the opposite sign; with ``x_significand``.
    term, carry : Out
        ``term + carry`` is the product in units of the window's last bit, cut towards zero: a
        negative magnitude is only complemented here, adders have room for the carry.
    lost : Out
        ``term`` is not exact.
    plus_infinity, minus_infinity : Out
        The product is that infinity; both for infinity times zero. With ``term``.
    """

    LATENCY = 4

    def __init__(self, fmt: FloatFormat, *, top_delay: int, lut_multiplier: bool = False):
        self._fmt = fmt
        self._lut_multiplier = lut_multiplier
        self._top_delay = top_delay
        strobes = {
            f"{verb}_{half}": In(1)
            for verb in ("load", "swap")
            for half in ("exponent", "significand")
        }
        super().__init__(
            {
                "x_exponent": In(exponent_layout(fmt)),
                "w_exponent": In(exponent_layout(fmt)),
                "x_significand": In(significand_layout(fmt)),
                "w_significand": In(significand_layout(fmt)),
                **strobes,
                "top": In(grid_width(fmt)),
                "flip": In(1),
                "grid": Out(grid_width(fmt)),
                "nonzero": Out(1),
                "term": Out(signed(WINDOW_BITS + 1)),
                "carry": Out(1),
                "lost": Out(1),
                "plus_infinity": Out(1),
                "minus_infinity": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        plan = _Plan(self._fmt)

        # Weights: waiting and active register of either half.
        active = {}
        for half in ("exponent", "significand"):
            bus = getattr(self, f"w_{half}")
            waiting = Signal.like(bus, name=f"waiting_{half}", reset_less=True)
            active[half] = Signal.like(bus, name=f"active_{half}", reset_less=True)
            with m.If(getattr(self, f"load_{half}")):
                m.d.sync += waiting.eq(bus)
            with m.If(getattr(self, f"swap_{half}")):
                m.d.sync += active[half].eq(waiting)

        # Grid exponent of the product.
        x_exponent, w_exponent = self.x_exponent, active["exponent"]
        zero = x_exponent.zero | w_exponent.zero
        grid = Signal(grid_width(self._fmt), reset_less=True)
        nonzero = Signal(reset_less=True)
        m.d.sync += [
            grid.eq(Mux(zero, 0, x_exponent.grid + w_exponent.grid)),
            nonzero.eq(~zero),
        ]
        m.d.comb += [self.grid.eq(grid), self.nonzero.eq(nonzero)]
        grid = delay(m, grid, self._top_delay, name="grid", reset=False)

        # Distance to the window.
        difference = Signal.like(grid, name="difference")
        distance = Signal(4, reset_less=True)
        far = Signal(reset_less=True)
        m.d.comb += difference.eq(self.top - grid)
        m.d.sync += [distance.eq(difference), far.eq(difference[4:].any())]

        x, w = self.x_significand, active["significand"]
        infinite = Signal(reset_less=True)
        undefined = Signal(reset_less=True)
        drop = Signal(reset_less=True)
        sign = Signal(reset_less=True)
        m.d.sync += [
            sign.eq(x.sign ^ w.sign ^ self.flip),
            infinite.eq(x.infinite | w.infinite),
            undefined.eq((x.infinite | w.infinite) & (x.zero | w.zero)),
            drop.eq(far & ~(x.zero | w.zero)),
        ]
        late = [Signal(reset_less=True, name=f"after_{bit}") for bit in plan.after]
        m.d.sync += [late[i].eq(distance[bit]) for i, bit in enumerate(plan.after)]

        scaled = self._multiply(m, plan, x.value, w.value, distance)
        infinite, undefined, drop, sign, *late = (
            register(m, signal, name=f"{signal.name}_1")
            for signal in (infinite, undefined, drop, sign, *late)
        )

        # Shifts after the multiplier.
        value = scaled[: WINDOW_BITS + plan.excess]
        if plan.excess < 0:
            value = Cat(Const(0, -plan.excess), scaled)[:WINDOW_BITS]
        losses = []
        for select, bit in zip(late, plan.after, strict=True):
            amount = 2 << bit
            losses.append(select & value[:amount].any())
            value = Mux(select, value.shift_right(amount), value)
        if plan.excess > 0:
            losses.append(value[: plan.excess].any())
            value = value.shift_right(plan.excess)
        term = Signal.like(self.term, reset_less=True)
        carry, lost, plus, minus = (
            Signal(name=n, reset_less=True) for n in ("negative", "cut", "plus", "minus")
        )
        m.d.sync += [
            term.eq(Mux(drop, 0, Cat(value ^ sign.replicate(WINDOW_BITS), sign))),
            carry.eq(sign & ~drop),
            lost.eq(drop | Cat(losses).any()),
            plus.eq(infinite & (~sign | undefined)),
            minus.eq(infinite & (sign | undefined)),
        ]
        m.d.comb += [
            self.term.eq(term),
            self.carry.eq(carry),
            self.lost.eq(lost),
            self.plus_infinity.eq(plus),
            self.minus_infinity.eq(minus),
        ]
        return m

    def _multiply(self, m, plan, x, w, distance):
        """``x * w`` after the shifts that come first, in units of 4 ** -(steps of those shifts)."""
        if self._lut_multiplier:
            # The same shifts, behind a small multiplier instead of in front of a large one.
            bits = [*plan.before["x"], *plan.before["w"]]
            m.submodules.multiplier = multiplier = LutMultiplier(
                len(x), len(w), steps=tuple(2 << bit for bit in bits)
            )
            shift = Signal(len(bits), reset_less=True)
            m.d.sync += shift.eq(Cat(~distance[bit] for bit in bits))
            m.d.comb += [multiplier.a.eq(x), multiplier.b.eq(w), multiplier.shift.eq(shift)]
            return multiplier.o
        factors = []
        for side, value in (("x", x), ("w", w)):
            for bit in plan.before[side]:
                value = Mux(distance[bit], value, value.shift_left(2 << bit))
            factors.append(value)
        m.submodules.multiplier = multiplier = RegisteredMultiplier(
            *map(len, factors), is_signed=False
        )
        m.d.comb += [multiplier.a.eq(factors[0]), multiplier.b.eq(factors[1])]
        return multiplier.o


class IntegerPE(wiring.Component):
    """Exact product of two's complement operands, 1 cycle after ``x``. Throughput 1 per cycle.

    Members
    -------
    x, w : In, operand and weight to load
    load, swap : In, load the waiting weight register; copy it to the active one
    product : Out, signed, 1 cycle after ``x``
    """

    LATENCY = 1

    def __init__(self, fmt: IntFormat):
        super().__init__(
            {
                "x": In(signed(fmt.width)),
                "w": In(signed(fmt.width)),
                "load": In(1),
                "swap": In(1),
                "product": Out(signed(2 * fmt.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        waiting = Signal.like(self.w, reset_less=True)
        active = Signal.like(self.w, reset_less=True)
        product = Signal.like(self.product, reset_less=True)
        with m.If(self.load):
            m.d.sync += waiting.eq(self.w)
        with m.If(self.swap):
            m.d.sync += active.eq(waiting)
        m.d.sync += product.eq(self.x * active)
        m.d.comb += self.product.eq(product)
        return m
