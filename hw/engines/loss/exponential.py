"""The exponential of numbers that are not positive, one every four cycles."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.arithmetic.float_exponential import exponential_constants
from hw.arithmetic.float_round import FloatPacker, classify
from hw.arithmetic.multiplier import RegisteredMultiplier
from hw.formats import FLOAT32

__all__ = ["ExponentialPipeline"]

_FRACTION_BITS = 34
_POWER_WIDTH = _FRACTION_BITS + 1
_MAGNITUDE_WIDTH = 41
_INTEGERS = 7
_PER_STAGE = 3
_STAGES = 8
#: Stage whose digits are the last integer one and the first two factors.
_FIRST_FACTORS = 2


class ExponentialPipeline(wiring.Component):
    """e to the power of ``a``, a float32 number that is not positive, or NaN.

    Bit for bit what :class:`~hw.arithmetic.float_special.FloatSpecial` gives, flags included: the
    digits of :class:`~hw.arithmetic.float_exponential.ExponentialRecurrence`, three in each of
    eight stages. A stage loads in ``step`` 0 and finds a digit in each of the other steps; the
    product follows a cycle later. As ``a`` is not positive, 256 ln 2 + a, where it counts, is at
    least 128 ln 2: the first digit is 1, or the result is too small for float32.

    No handshake, no reset: what comes out belongs to the operand of :attr:`LATENCY` cycles before.

    Attributes
    ----------
    LATENCY : int
        43 cycles, from the ``step`` 0 of the operand to the first of two cycles of the result.

    Members
    -------
    step : In(2) -- counts up
    a : In(32) -- taken in step 0
    o : Out(32)
    flags : Out(4) -- invalid, overflow, underflow, inexact from bit 0 up
    """

    #: Operand, distance, two shifts; the stages; product and sum.
    LATENCY = 4 + 4 * _STAGES + 2 + RegisteredMultiplier.LATENCY + 1 + FloatPacker.LATENCY

    step: In(2)
    a: In(32)
    o: Out(32)
    flags: Out(4)

    def elaborate(self, platform):
        m = Module()
        top, constants = exponential_constants()
        load = self.step == 0
        kind, magnitude = self._align(m, load)

        # 256 ln 2 + a less the first digit's 128 ln 2; negative: too small for float32.
        start = Signal(_MAGNITUDE_WIDTH + 1)
        difference = Cat(magnitude, Const(0, 1)) ^ ((1 << len(start)) - 1)
        m.d.comb += start.eq(Const(top - constants[0], len(start)) + difference)
        one, zero, nan, huge = kind
        rest = start[:_MAGNITUDE_WIDTH] & (~one).replicate(_MAGNITUDE_WIDTH)
        following = Cat(one, zero, nan, huge | start[-1])
        constants = constants[1:]
        digits, product = Const(0, 0), None
        for stage in range(_STAGES):
            chosen = constants[_PER_STAGE * stage : _PER_STAGE * (stage + 1)]
            rest, digit = self._digits(m, stage, chosen, rest, load)
            integers = min(max(_INTEGERS - _PER_STAGE * stage, 0), _PER_STAGE)
            digits = self._integers(m, stage, integers, digits, digit, load)
            if stage == _FIRST_FACTORS:
                product = self._first_factors(m, digit)
            elif stage > _FIRST_FACTORS:
                least = _PER_STAGE * stage - _INTEGERS + 1
                product = self._multiply(m, stage, least, len(chosen), product, digit)
            loaded = Signal.like(following, name=f"kind{stage}", reset_less=True)
            with m.If(load):
                m.d.sync += loaded.eq(following)
            following = loaded
        self._finish(m, (rest, digits, product, following), load)
        return m

    def _align(self, m, load):
        """Kind of the operand and its magnitude with 34 fraction bits, four cycles after it."""
        operand = Signal(32, reset_less=True)
        with m.If(load):
            m.d.sync += operand.eq(self.a)
        code = operand[23:31]
        distance = Signal(9, reset_less=True)
        coarse = Signal(_MAGNITUDE_WIDTH, reset_less=True)
        magnitude = Signal(_MAGNITUDE_WIDTH, reset_less=True)
        significand = Cat(Const(0, _MAGNITUDE_WIDTH - 24), operand[:23], Const(1, 1))
        m.d.sync += [
            distance.eq(FLOAT32.bias + 6 - code),
            coarse.eq(Mux(distance[6:8].any(), 0, significand >> (distance[4:6] << 4))),
            magnitude.eq(coarse >> distance[:4]),
        ]
        kind = Signal(4, reset_less=True)
        found = classify(operand)
        m.d.sync += kind.eq(Cat(found.zero, found.infinite, found.nan, distance[-1]))
        return kind, magnitude

    def _digits(self, m, stage, constants, before, load):
        """A stage's digits: what is left, and the digit of the cycle before."""
        width = (2 * constants[0]).bit_length()
        rest = Signal(width, name=f"rest{stage}", reset_less=True)
        table = [constants[0], *constants]
        table += [1 << width] * (4 - len(table))
        difference = Signal(width + 1, name=f"difference{stage}")
        operand = Array(Const(value, width + 1) for value in table)[self.step]
        m.d.comb += difference.eq(rest - operand)
        digit = Signal(name=f"digit{stage}", reset_less=True)
        m.d.sync += digit.eq(~difference[-1])
        with m.If(load | ~difference[-1]):
            m.d.sync += rest.eq(Mux(load, before, difference))
        return rest, digit

    def _integers(self, m, stage, count, before, digit, load):
        """The exponent's digits up to this stage; valid in step 0."""
        if not count:
            found = Signal(len(before), name=f"digits{stage}", reset_less=True)
            with m.If(load):
                m.d.sync += found.eq(before)
            return found
        kept = Signal(len(before), name=f"digits{stage}", reset_less=True)
        with m.If(load):
            m.d.sync += kept.eq(before)
        found = [kept]
        for index in range(count):
            # Known a cycle after its step, index + 1.
            late = Signal(name=f"digit{stage}_{index}", reset_less=True)
            with m.If(self.step == (index + 2) % 4):
                m.d.sync += late.eq(digit)
            found.insert(0, digit if (index + 2) % 4 == 0 else late)
        return Cat(found)

    def _first_factors(self, m, digit):
        """1, 3/2, 5/4 or 15/8 from the digits of 1 + 1/2 and 1 + 1/4; valid in step 1."""
        half, quarter = Signal(reset_less=True), Signal(reset_less=True)
        with m.If(self.step == 3):
            m.d.sync += half.eq(digit)
        with m.If(self.step == 0):
            m.d.sync += quarter.eq(digit)
        eighths = Cat(half & quarter, quarter, half, Const(1, 1))
        return Cat(Const(0, _POWER_WIDTH - 4), eighths)

    def _multiply(self, m, stage, least, count, before, digit):
        """The product with a stage's factors 1 + 2**-k, k from ``least`` on; valid in step 1."""
        power = Signal(_POWER_WIDTH, name=f"power{stage}", reset_less=True)
        shifts = [least + index for index in range(count)]
        shifts += [shifts[-1]] * (3 - count)
        # Steps 2, 3 and 0.
        table = [shifts[2], shifts[0], shifts[0], shifts[1]]
        addend = Array((power >> shift)[: _POWER_WIDTH - least] for shift in table)[self.step]
        load = self.step == 1
        steps = [2, 3, 0][:count]
        moves = Cat(self.step == step for step in steps).any()
        with m.If(load | (moves & digit)):
            m.d.sync += power.eq(Mux(load, before, power + addend))
        return power

    def _finish(self, m, last, load):
        """The last factor is 1 + the rest; then the result is rounded."""
        m.submodules.multiplier = multiplier = RegisteredMultiplier(18, 18, is_signed=False)
        m.submodules.packer = packer = FloatPacker()
        rest, digits, product, kind = last
        final_rest = Signal(18, reset_less=True)
        final_power = Signal(_POWER_WIDTH, reset_less=True)
        final_digits, digits_now = (Signal(_INTEGERS, reset_less=True) for _ in range(2))
        final_kind, kind_now = (Signal(4, reset_less=True) for _ in range(2))
        with m.If(load):
            m.d.sync += [final_rest.eq(rest), final_digits.eq(digits), final_kind.eq(kind)]
            m.d.sync += [digits_now.eq(final_digits), kind_now.eq(final_kind)]
        with m.If(self.step == 1):
            m.d.sync += final_power.eq(product)
        m.d.comb += [multiplier.a.eq(final_power[17:]), multiplier.b.eq(final_rest)]
        power = Signal(_POWER_WIDTH, reset_less=True)
        m.d.sync += power.eq(final_power + multiplier.o[17:])
        one, zero, nan, tiny = kind_now
        exponent = (Cat(digits_now, one) + (FLOAT32.bias - 128)).as_signed()
        m.d.comb += [
            packer.significand.eq(power[10:]),
            packer.sticky.eq(~one),
            packer.exponent.eq(Mux(tiny & ~one, -1, exponent)),
            packer.zero.eq(zero),
            packer.nan.eq(nan),
            self.o.eq(packer.o),
            self.flags.eq(packer.flags),
        ]
