"""Multipliers between registers: the form that FPGA multiplier blocks have, and one of LUTs."""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Mux, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["LutMultiplier", "RegisteredMultiplier"]

_ECP5_WIDTH = 18


class RegisteredMultiplier(wiring.Component):
    """``o = a * b``, 2 cycles later: registered operands, registered product.

    ``is_signed`` says whether all three are two's complement.

    Throughput 1 per cycle. The registers are not reset.

    Most tools find both registers inside the FPGA's multiplier block by themselves. Yosys does not
    for ECP5, which costs a fifth of the clock frequency of an array; elaborated for the technology
    ``"ecp5"`` (see :func:`hw.primitives.shared_module.emit_verilog`) the block is instantiated with
    its registers.

    Members
    -------
    a, b : In
    o : Out, as wide as both together
    """

    LATENCY = 2

    def __init__(self, a_width: int, b_width: int, *, is_signed: bool):
        shape = signed if is_signed else unsigned
        self._is_signed = is_signed
        super().__init__(
            {
                "a": In(shape(a_width)),
                "b": In(shape(b_width)),
                "o": Out(shape(a_width + b_width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        fits = max(len(self.a), len(self.b)) <= _ECP5_WIDTH
        if getattr(platform, "technology", None) == "ecp5" and fits:
            m.submodules.block = self._ecp5_block()
            return m
        a = Signal.like(self.a, name="a_1", reset_less=True)
        b = Signal.like(self.b, name="b_1", reset_less=True)
        product = Signal.like(self.o, name="product", reset_less=True)
        m.d.sync += [a.eq(self.a), b.eq(self.b), product.eq(a * b)]
        m.d.comb += self.o.eq(product)
        return m

    def _ecp5_block(self):
        ports = {
            "i_CLK0": ClockSignal(),
            "i_CE0": Const(1, 1),
            "i_RST0": Const(0, 1),
            "i_SIGNEDA": Const(self._is_signed, 1),
            "i_SIGNEDB": Const(self._is_signed, 1),
            "i_SOURCEA": Const(0, 1),
            "i_SOURCEB": Const(0, 1),
        }
        for side, operand in (("A", self.a), ("B", self.b)):
            for bit in range(_ECP5_WIDTH):
                top = operand[-1] if self._is_signed else Const(0, 1)
                ports[f"i_{side}{bit}"] = operand[bit] if bit < len(operand) else top
        for bit in range(len(self.o)):
            ports[f"o_P{bit}"] = self.o[bit]
        registers = {
            f"p_REG_{name}_{pin}": f"{pin}0"
            for name in ("INPUTA", "INPUTB", "OUTPUT")
            for pin in ("CLK", "CE", "RST")
        }
        return Instance("MULT18X18D", **registers, **ports)


class LutMultiplier(wiring.Component):
    """``o = (a * b) << shift`` of unsigned operands, 2 cycles later, without a multiplier block.

    For devices with fewer blocks than multiplications. The product is a tree of adders, so that no
    tool infers a block from it; cycle 1 multiplies, cycle 2 shifts. Throughput 1 per cycle. The
    registers are not reset. Elaborated for the technology ``"ecp5"``, carry cells are instantiated
    whose look-up tables form the partial products as well: 94 look-up tables for 9 x 9 bits.

    Parameters
    ----------
    steps : amounts that bit 0, 1, ... of ``shift`` shift by; any number of them together

    Members
    -------
    a, b : In
    shift : In, 1 cycle after ``a`` and ``b``
    o : Out, as wide as the largest shifted product
    """

    LATENCY = 2

    def __init__(self, a_width: int, b_width: int, *, steps: tuple[int, ...]):
        self._steps = steps
        super().__init__(
            {
                "a": In(a_width),
                "b": In(b_width),
                "shift": In(len(steps)),
                "o": Out(a_width + b_width + sum(steps)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        add = _add_ecp5 if getattr(platform, "technology", None) == "ecp5" else _add
        # Terms: bits, each with the bit of ``b`` that lets it through, and their place.
        terms = [([(bit, gate) for bit in self.a], at) for at, gate in enumerate(self.b)]
        while len(terms) > 1:
            sums = []
            for index, ((low, low_at), (high, high_at)) in enumerate(
                zip(terms[::2], terms[1::2], strict=False)
            ):
                name = f"{len(terms)}_{index}"
                split = high_at - low_at
                rest = add(m, name, low[split:], high)
                sums.append((low[:split] + [(bit, None) for bit in rest], low_at))
            terms = sums + terms[len(terms) // 2 * 2 :]
        product = Signal(len(self.a) + len(self.b), reset_less=True)
        m.d.sync += product.eq(_value(terms[0][0]))
        value = product
        for select, amount in zip(self.shift, self._steps, strict=True):
            value = Mux(select, value.shift_left(amount), value)
        shifted = Signal.like(self.o, name="shifted", reset_less=True)
        m.d.sync += shifted.eq(value)
        m.d.comb += self.o.eq(shifted)
        return m


def _value(term):
    """The bits of a term that their gates let through."""
    return Cat(bit if gate is None else bit & gate for bit, gate in term)


def _add(m, name, a, b):
    """Bits of the sum of two terms."""
    total = Signal(max(len(a), len(b)) + 1, name=f"sum_{name}")
    m.d.comb += total.eq(_value(a) + _value(b))
    return list(total)


def _add_ecp5(m, name, a, b):
    """The same in CCU2C cells: two bits each, with the gates in their look-up tables."""
    width = max(len(a), len(b)) + 1
    total = Signal(width + width % 2, name=f"sum_{name}")
    carry = Const(0, 1)
    for low in range(0, width, 2):
        ports = {}
        for half in range(2):
            pins = []
            for term in (a, b):
                bit, gate = term[low + half] if low + half < len(term) else (Const(0, 1), None)
                pins += [bit, Const(1, 1) if gate is None else gate]
            for pin, value in zip("ABCD", pins, strict=True):
                ports[f"i_{pin}{half}"] = value
        following = Signal(name=f"carry_{name}_{low}")
        m.submodules[f"add_{name}_{low}"] = Instance(
            "CCU2C",
            # (A & B) ^ (C & D), and A & B for the carry where both are the same.
            p_INIT0=Const(0x7888, 16),
            p_INIT1=Const(0x7888, 16),
            p_INJECT1_0="NO",
            p_INJECT1_1="NO",
            i_CIN=carry,
            o_S0=total[low],
            o_S1=total[low + 1],
            o_COUT=following,
            **ports,
        )
        carry = following
    return list(total[:width])
