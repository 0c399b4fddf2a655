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
    ``"ecp5"`` (see :func:`hw.shared.emit_verilog`) the block is instantiated with its registers.

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

    For devices with fewer blocks than multiplications. The product is an adder tree over pairs of
    partial products, written with additions so that no tool infers a block from it; cycle 1
    multiplies, cycle 2 shifts. Throughput 1 per cycle. The registers are not reset.

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
        partial = [(self.a & bit.replicate(len(self.a)), at) for at, bit in enumerate(self.b)]
        while len(partial) > 1:
            pairs = zip(partial[::2], partial[1::2], strict=False)
            sums = [
                (Cat(low[: high_at - low_at], low[high_at - low_at :] + high), low_at)
                for (low, low_at), (high, high_at) in pairs
            ]
            partial = sums + partial[len(partial) // 2 * 2 :]
        product = Signal(len(self.a) + len(self.b), reset_less=True)
        m.d.sync += product.eq(partial[0][0])
        value = product
        for select, amount in zip(self.shift, self._steps, strict=True):
            value = Mux(select, value.shift_left(amount), value)
        shifted = Signal.like(self.o, name="shifted", reset_less=True)
        m.d.sync += shifted.eq(value)
        m.d.comb += self.o.eq(shifted)
        return m
