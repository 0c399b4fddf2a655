"""Executes the instructions of the loss unit: registers and float32 units."""

from functools import partial

from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.arithmetic.convert import FloatConverter
from hw.arithmetic.float_add import FloatAdder
from hw.arithmetic.float_multiply import FloatMultiplier
from hw.arithmetic.float_special import FloatSpecial, SpecialOperation
from hw.formats import FLOAT32
from hw.primitives.pipeline import register
from hw.primitives.ram import add_ram

from .microcode import CONSTANTS, Instruction, Operation, Register

__all__ = ["LossArithmetic", "LossState"]

_SIGN = FLOAT32.width - 1
#: Fraction of the square root of 2, cut.
_ROOT_FRACTION = 0x3504F3


class LossState(data.Struct):
    """What registers and constants depend on beyond their number.

    ``first`` : the number is the first one of its row; ``hot``: it is the label's; ``correct``: so
    is the largest one; ``closing``: all rows are finished; ``row_index``, ``all_index``: the next
    partial sum over a row and over the rows.
    """

    first: 1
    hot: 1
    correct: 1
    closing: 1
    row_index: 3
    all_index: 3


class LossArithmetic(wiring.Component):
    """One instruction at a time, on 32 registers of 32 bits in a RAM.

    An instruction takes :attr:`OVERHEAD` cycles and those of its unit: 6 for adder and multiplier,
    2 for the rounding, the latency of :class:`FloatSpecial`, 1 if there is none; instructions with
    an operation outside last until ``outside``. The next one begins in the cycle after ``done``.

    Parameters
    ----------
    fmt : FloatFormat

    Members
    -------
    enable : In(1) -- execute ``instruction``; constant until ``done``, like ``state``
    instruction : In(Instruction)
    state : In(LossState)
    gradient_scale, value_scale : In(32)
    begin : Out(1) -- the first cycle of an instruction
    launch : Out(1) -- a cycle in its middle, before ``done``
    done : Out(1) -- its last cycle
    replace : Out(1) -- with ``done``, of MAXIMUM: the register has been replaced
    outside : In(1) -- READ: ``read_value`` is there, 4 cycles after ``begin`` at the earliest;
        FLUSH: it is done
    read_value : In(32)
    o : Out(stream.Signature(fmt.width)) -- of ROUND and EMIT
    flags : Out(4) -- float flags, one cycle after they were raised
    clear : In(1) -- drop the instruction; ``o.valid`` is low from the next cycle on
    """

    OVERHEAD = 4

    def __init__(self, fmt):
        self._format = fmt
        super().__init__(
            {
                "enable": In(1),
                "instruction": In(Instruction),
                "state": In(LossState),
                "gradient_scale": In(32),
                "value_scale": In(32),
                "begin": Out(1),
                "launch": Out(1),
                "done": Out(1),
                "replace": Out(1),
                "outside": In(1),
                "read_value": In(32),
                "o": Out(stream.Signature(fmt.width)),
                "flags": Out(4),
                "clear": In(1),
            }
        )

    def elaborate(self, platform):
        # What says where the unit is:
        #
        # state            meaning                            set by               cleared by
        # ---------------  ---------------------------------  -------------------  --------------
        # BEGIN, A, B      operand a, then b, is read         enable               the next cycle
        # LAUNCH           a and b are there, units begin     B                    the next cycle
        # WAIT             for the units                      LAUNCH               done, clear
        # wait             cycles until a result, if its      LAUNCH               counts down,
        #                  unit has a fixed latency                                clear
        # fixed            wait is 0
        # piece            of a result of 32 bits that goes   LAUNCH: 0            counts up
        #                  out
        # sends, is_...    kind of the operation, registered: known long before it matters
        # finished         what has no fixed latency is over
        m = Module()
        m.submodules.adder = adder = FloatAdder()
        m.submodules.multiplier = multiplier = FloatMultiplier()
        m.submodules.special = special = ResetInserter(self.clear)(FloatSpecial())
        m.submodules.converter = converter = FloatConverter(self._format)
        ram = add_ram(m, platform, name="registers", width=32, depth=32)
        operation = self.instruction.operation

        read, operand, (a, b), subtract = self._add_operands(m, ram)

        # What an operation is, is known some cycles before its result.
        one_of = partial(self._one_of, m)
        sends, is_emit = one_of(Operation.ROUND, Operation.EMIT), one_of(Operation.EMIT)
        is_divide, is_exponential = one_of(Operation.DIVIDE), one_of(Operation.EXPONENTIAL)
        m.d.comb += special.i.payload.operation.eq(
            Mux(is_divide, SpecialOperation.DIVIDE, SpecialOperation.EXPONENTIAL)
        )

        # Course of an instruction.
        wait = Signal(range(max(adder.LATENCY, multiplier.LATENCY, converter.LATENCY)))
        piece = Signal(range(32 // self._format.width))
        fixed, finished = Signal(), Signal()
        with m.FSM():
            with m.State("BEGIN"):
                m.d.comb += [self.begin.eq(self.enable), ram.read_en.eq(1)]
                with m.If(self.enable & ~self.clear):
                    m.next = "A"
            with m.State("A"):
                m.d.comb += [read.eq(self.instruction.b), ram.read_en.eq(1)]
                m.d.sync += a.eq(operand)
                m.next = "B"
                with m.If(self.clear):
                    m.next = "BEGIN"
            with m.State("B"):
                m.d.sync += b.eq(operand ^ Cat(Const(0, _SIGN), subtract))
                m.next = "LAUNCH"
                with m.If(self.clear):
                    m.next = "BEGIN"
            with m.State("LAUNCH"):
                m.d.comb += [self.launch.eq(1), special.i.valid.eq(is_divide | is_exponential)]
                m.d.sync += piece.eq(0)
                with m.Switch(operation):
                    with m.Case(Operation.ADD, Operation.SUBTRACT, Operation.MAXIMUM):
                        m.d.sync += wait.eq(adder.LATENCY - 1)
                    with m.Case(Operation.MULTIPLY):
                        m.d.sync += wait.eq(multiplier.LATENCY - 1)
                    with m.Case(Operation.ROUND):
                        m.d.sync += wait.eq(converter.LATENCY - 1)
                m.next = "WAIT"
                with m.If(self.clear):
                    m.next = "BEGIN"
            with m.State("WAIT"):
                with m.If(~fixed):
                    m.d.sync += wait.eq(wait - 1)
                m.d.comb += self.done.eq(fixed & finished)
                with m.If(self.done | self.clear):
                    m.next = "BEGIN"
                m.d.comb += self.o.valid.eq(fixed & sends)
                with m.If(self.o.valid & self.o.ready):
                    m.d.sync += piece.eq(piece + 1)
        # Pieces of a result of 32 bits go out one after the other.
        parts = a.word_select(piece, len(converter.o))
        m.d.comb += [
            self.o.payload.eq(Mux(is_emit, parts, converter.o)),
            fixed.eq(wait == 0),
            special.o.ready.eq(self.done),
        ]
        with m.If(self.clear):
            m.d.sync += wait.eq(0)

        is_special = is_divide | is_exponential
        self._finish(m, ram, a, is_special, (sends, is_emit), piece, finished)
        return m

    def _add_operands(self, m, ram):
        """Operands: registers are read and constants looked up in one cycle and used in the next.

        Returns the number of the one that is read, what was read, where a and b are kept, and
        whether b changes its sign.
        """
        operation = self.instruction.operation
        adder, multiplier = m.submodules.adder, m.submodules.multiplier
        special, converter = m.submodules.special, m.submodules.converter
        read = Signal.like(self.instruction.a)
        constant = register(m, self._constant(read), name="constant")
        operand = Mux(register(m, read[5], name="is_constant"), constant, ram.read_data)
        m.d.comb += [read.eq(self.instruction.a), ram.read_address.eq(self._address(read))]
        a, b = Signal(32, reset_less=True), Signal(32, reset_less=True)
        subtract = (operation == Operation.SUBTRACT) | (operation == Operation.MAXIMUM)
        m.d.comb += [
            adder.a.eq(a),
            adder.b.eq(b),
            multiplier.a.eq(a),
            multiplier.b.eq(b),
            converter.i.eq(a),
            special.i.payload.a.eq(a),
            special.i.payload.b.eq(b),
        ]
        return read, operand, (a, b), subtract

    def _one_of(self, m, *operations):
        """Whether the operation is one of these, a cycle later."""
        chosen = Signal(name=f"is_{operations[0].name.lower()}", reset_less=True)
        operation = self.instruction.operation
        m.d.sync += chosen.eq(Cat(operation == item for item in operations).any())
        return chosen

    def _finish(self, m, ram, a, is_special, sending, piece, finished):
        """Results: what goes into the registers, flags, and when it is there."""
        adder, multiplier = m.submodules.adder, m.submodules.multiplier
        special, converter = m.submodules.special, m.submodules.converter
        sends, is_emit = sending
        one_of = partial(self._one_of, m)
        exponent = a[23:31]
        large = register(m, a[:23] > _ROOT_FRACTION, name="large")
        nan = register(m, exponent.all() & a[:23].any(), name="nan")
        is_maximum = one_of(Operation.MAXIMUM)
        is_mantissa, is_exponent = one_of(Operation.MANTISSA), one_of(Operation.EXPONENT)
        is_read = one_of(Operation.READ_X, Operation.READ_TARGET)
        sources = [
            (one_of(Operation.ADD, Operation.SUBTRACT), adder.o, adder.flags),
            (one_of(Operation.MULTIPLY), multiplier.o, multiplier.flags),
            (is_special, special.o.payload.bits, special.o.payload.flags),
            (one_of(Operation.ROUND), Const(0, 32), converter.flags),
            (is_read, self.read_value, Const(0, 4)),
            (is_maximum, a, Const(0, 4)),
            (is_mantissa, Cat(a[:23], Mux(nan, 0xFF, FLOAT32.bias - large)[:8]), Const(0, 4)),
            (
                is_exponent,
                Cat(
                    (exponent - FLOAT32.bias + large)[:8],
                    Const(CONSTANTS[Register.EXPONENT_OFFSET] >> 8, 24),
                ),
                Const(0, 4),
            ),
        ]
        result, raised = Const(0, 32), Const(0, 4)
        for chosen, bits, flags in sources:
            result |= bits & chosen.replicate(32)
            raised |= flags & chosen.replicate(4)
        # The sign of the distance tells; one that is too small for float32 is no zero.
        larger = ~adder.o[31] & (adder.o[23:31].any() | adder.flags[2])
        larger &= ~(adder.o[23:31].all() & adder.o[:23].any())
        is_outside = one_of(
            Operation.READ_X, Operation.READ_TARGET, Operation.READ_LABEL, Operation.FLUSH
        )
        keep = one_of(Operation.READ_LABEL, Operation.ROUND, Operation.EMIT, Operation.FLUSH)
        last_piece = piece.all() | ~is_emit
        m.d.comb += [
            finished.eq(
                Mux(is_special, special.o.valid, Mux(is_outside, self.outside, 1))
                & (~sends | (self.o.ready & last_piece))
            ),
            self.replace.eq(self.state.first | nan | larger),
            ram.write_address.eq(self._address(self.instruction.r)),
            ram.write_data.eq(result),
            ram.write_en.eq(self.done & ~keep & (self.replace | ~is_maximum)),
        ]
        m.d.sync += self.flags.eq(raised & (self.done & ~self.clear).replicate(4))

    def _address(self, number):
        """Place of a register in the RAM."""
        state = self.state
        distance = number[1:4].all()
        low = Mux(number[0], state.all_index, state.row_index)
        sums = Mux(number[3], Cat(low, number[0]), Cat(number[:3], state.closing))[:4]
        plain = Cat(number[0] | (distance & state.hot), number[1:4])
        return Cat(Mux(number[4], plain, sums)[:4], number[4])

    def _constant(self, number):
        """Value of the constant ``number``."""
        base = Register.HOT
        values = [0] * 16
        values[:2] = [CONSTANTS[Register.ONE]] * 2
        for constant, bits in CONSTANTS.items():
            values[constant - base] = bits
        zero = ((number[:4] == Register.HOT - base) & ~self.state.hot) | (
            (number[:4] == Register.CORRECT_NOW - base) & ~self.state.correct
        )
        index = number[:4] | zero.replicate(4)
        table = Array(Const(value, 32) for value in values)[index]
        scale = Mux(index[0], self.value_scale, self.gradient_scale)
        is_scale = (index | 1) == (Register.VALUE_SCALE - base)
        return Mux(is_scale, scale, table)
