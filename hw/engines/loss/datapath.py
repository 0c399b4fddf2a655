"""The arithmetic of the loss unit: one adder, one multiplier, in a schedule of eight cycles."""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.arithmetic.convert import FloatConverter
from hw.arithmetic.float_add import FloatAdder
from hw.arithmetic.float_multiply import FloatMultiplier
from hw.formats import FLOAT32

from .exponential import ExponentialPipeline
from .microcode import CONSTANTS, Constant, Operation, Register
from .operands import SlopeDivider, ThreadOperands
from .quotient import QuotientPipeline
from .registers import ADDRESS_WIDTH, LossRegisters
from .threads import LossThreads

__all__ = ["IN_FLIGHT", "LossDatapath", "Slot"]

_SIGN = Const(1 << (FLOAT32.width - 1), FLOAT32.width)
_ONE = CONSTANTS[Constant.ONE]

# Slots from the operands to ...
_POWER = 7  # ... the power, and the partial sum that it is added to;
_SHARE = 11  # ... the quotient; a difference and a product follow.
_GRADIENT = 13  # ... the rounded gradient;
_SQUARE = 2  # ... the square of a difference, and its rounded gradient.
#: Slots that may be between an output and its gradient.
IN_FLIGHT = _GRADIENT + 1


class Slot(data.Struct):
    """What is done in a slot.

    ``largest``: the row ``largest_page`` has found its maximum. ``power``: an output of
    ``power_row`` becomes a power; ``hot``: it is the label's; ``last_power``: all have. ``sums``:
    the power, +0 without one, or a square is added to partial sum ``index``, which is +0 if
    ``fresh``. ``gradient``: an output of ``gradient_page`` becomes its gradient; ``gradient_hot``:
    it is the label's; ``last_gradient``: it is the last of its row.
    """

    largest: 1
    largest_page: 2
    power: 1
    power_row: 3
    hot: 1
    last_power: 1
    sums: 1
    fresh: 1
    index: 3
    gradient: 1
    gradient_page: 2
    gradient_hot: 1
    last_gradient: 1


class LossDatapath(wiring.Component):
    """All of the arithmetic, on rows of outputs and on what remains of them.

    Every number of a row has its cycles of a slot of eight; the even cycles of adder and
    multiplier are those of the threads, the odd ones those of the numbers:

    ===== =============================================== =======================================
    phase adder                                           multiplier
    ===== =============================================== =======================================
    1     partial sum + power or square                   difference squared
    3     output - maximum or target, for the gradient    gradient, scaled
    5     quotient - 1 at the label, - 0 elsewhere
    7     output - maximum, for the sum
    ===== =============================================== =======================================

    Parameters
    ----------
    fmt : FloatFormat

    Members
    -------
    phase : In(3)
    squared : In(1) -- squared error, not cross-entropy
    gradient_scale, value_scale : In(32)
    restart : In(1) -- a batch begins: sums and count are +0
    slot : In(Slot) -- in phase 7: what is done in the next slot, 0 for nothing
    largest, power, gradient : In(32) -- of the slot under way: the maximum in phase 3, an output
        in phase 6, an output in phase 2; with ``squared`` power is the target, in phase 2
    correct : In(1) -- of the row whose last power was seven slots ago
    close : In(1) -- write the value row; only while not ``busy``
    o : Out(stream.Signature(Output)) -- gradients and value row; taken at once
    busy : Out(1) -- something is under way
    flags : Out(4) -- float flags, a cycle after they were raised
    clear : In(1) -- drop everything; ``o.valid`` and ``flags`` are 0 from the next cycle on
    """

    def __init__(self, fmt):
        self._format = fmt
        output = data.StructLayout({"code": fmt.width, "last": 1})
        super().__init__(
            {
                "phase": In(3),
                "squared": In(1),
                "gradient_scale": In(32),
                "value_scale": In(32),
                "restart": In(1),
                "slot": In(Slot),
                "largest": In(32),
                "power": In(32),
                "gradient": In(32),
                "correct": In(1),
                "close": In(1),
                "o": Out(stream.Signature(output, always_ready=True)),
                "busy": Out(1),
                "flags": Out(4),
                "clear": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.adder = FloatAdder()
        m.submodules.multiplier = FloatMultiplier()
        m.submodules.converter = FloatConverter(self._format)
        m.submodules.exponential = exponential = ExponentialPipeline()
        m.submodules.quotient = quotient = QuotientPipeline()
        m.submodules.threads = threads = self._threads = LossThreads()
        self._a, self._b = (Signal(32, name=name, reset_less=True) for name in "ab")
        m.submodules.registers = registers = LossRegisters()
        m.submodules.thread_operands = ThreadOperands()
        m.submodules.divider = SlopeDivider()

        slots = self._slots(m)
        total = Signal(32, reset_less=True)
        m.d.comb += [
            threads.phase.eq(self.phase),
            threads.start.eq((self.phase == 5) & slots[_POWER].last_power),
            threads.close.eq(self.close),
            threads.row.eq(slots[_POWER].power_row),
            threads.correct.eq(self.correct),
            threads.clear.eq(self.clear),
            exponential.step.eq(self.phase - 1),
            exponential.a.eq(m.submodules.adder.o),
            quotient.step.eq(self.phase ^ 4),
            quotient.a.eq(exponential.o),
            quotient.b.eq(total),
            registers.restart.eq(self.restart),
        ]
        with m.If(self.phase == 2):
            m.d.sync += total.eq(registers.a)
        entries = self._entries(m)
        done, last = self._results(m, slots, entries)
        self._operands(m, slots, done, last)
        self._multiply(m)
        emits = self._outputs(m, slots, entries)
        self._flags(m, slots, done)
        under_way = Cat(Cat(slot.gradient, slot.sums) for slot in slots).any()
        m.d.comb += self.busy.eq(
            under_way | threads.busy | emits | Cat(entry.operation for entry in entries).any()
        )
        return m

    def _slots(self, m):
        """What is done in the slot, and in those before it."""
        slots = [Signal(Slot, name=f"slot{index}") for index in range(IN_FLIGHT)]
        with m.If(self.phase == 7):
            m.d.sync += slots[0].eq(self.slot)
            m.d.sync += [later.eq(slot) for slot, later in pairwise(slots)]
            # A square is through.
            with m.If(self.squared):
                m.d.sync += [slots[_SQUARE + 1].gradient.eq(0), slots[_SQUARE + 1].sums.eq(0)]
        with m.If(self.clear):
            for slot in slots:
                m.d.sync += [getattr(slot, name).eq(0) for name in _EVENTS]
        return slots

    def _entries(self, m):
        """Instructions whose operands are in a and b, and those before them, thread by thread."""
        threads = m.submodules.threads
        layout = data.StructLayout({"operation": Operation, "address": ADDRESS_WIDTH, "end": 1})
        entries = [Signal(layout, name=f"entry{index}") for index in range(4)]
        with m.If(self.phase[0]):
            m.d.sync += [
                entries[0].operation.eq(threads.instruction.operation),
                entries[0].address.eq(self._address(threads.instruction.r, Const(0, 2))),
                entries[0].end.eq(threads.instruction.end),
            ]
            m.d.sync += [later.eq(entry) for entry, later in pairwise(entries)]
        with m.If(self.clear):
            m.d.sync += [entry.operation.eq(Operation.NOTHING) for entry in entries]
        return entries

    def _address(self, number, page):
        """Place of a register of the thread whose instruction it is."""
        threads = self._threads
        which = number[3] & (number[1] ^ number[2]) & threads.odd
        page = (page ^ threads.page) & (~number.all()).replicate(2)
        return Cat(number[0] ^ which, number[1:], page)

    def _results(self, m, slots, entries):
        """What goes into the registers. Returns the instruction that is done in an even phase, and
        the result of the one before it, which may not be in its register yet."""
        adder, multiplier = m.submodules.adder, m.submodules.multiplier
        done = entries[-1]
        divider, registers = m.submodules.divider, m.submodules.registers
        m.d.comb += [
            divider.start.eq(~self.phase[0] & (entries[0].operation == Operation.DIVIDE)),
            divider.a.eq(self._a),
            divider.b.eq(self._b),
        ]
        result, last = Signal(32), Signal(32, reset_less=True)
        m.d.comb += result.eq(adder.o)
        with m.Switch(done.operation):
            with m.Case(Operation.MULTIPLY):
                m.d.comb += result.eq(multiplier.o)
            with m.Case(Operation.QUOTIENT):
                m.d.comb += result.eq(divider.o)
        with m.If(~self.phase[0]):
            m.d.sync += last.eq(result)
        writes = Cat(
            done.operation == operation
            for operation in (Operation.ADD, Operation.MULTIPLY, Operation.QUOTIENT)
        )
        enable, address, write = Signal(), Signal(ADDRESS_WIDTH), Signal(32)
        m.d.comb += [enable.eq(writes.any()), address.eq(done.address), write.eq(result)]
        square, power = slots[_SQUARE], slots[_POWER]
        with m.Switch(self.phase):
            with m.Case(1):
                m.d.comb += enable.eq(0)
            with m.Case(3):
                place = Cat(Const(Register.LARGEST, 4), slots[0].largest_page)
                m.d.comb += [enable.eq(slots[0].largest), address.eq(place)]
                m.d.comb += write.eq(self.largest)
            with m.Case(5):
                row = slots[1].power_row
                place = Cat(row[2], Const(Register.DISTANCE >> 1, 3), row[:2])
                m.d.comb += [enable.eq(slots[1].hot), address.eq(place), write.eq(adder.o)]
            with m.Case(7):
                m.d.comb += enable.eq(Mux(self.squared, square.sums, power.sums))
                m.d.comb += address.eq(self._partial(square, power))
                m.d.comb += write.eq(adder.o)
        m.d.comb += [
            registers.enable.eq(enable & ~self.clear),
            registers.address.eq(address),
            registers.value.eq(write),
        ]
        return done, last

    def _partial(self, square, power):
        """Where the partial sum of a slot is."""
        index = square.index
        batch = Cat(index[2], Const(Register.ALL_SUM >> 1, 3), index[:2])
        row = Cat(power.index, Const(0, 1), power.power_row[:2])
        return Mux(self.squared, batch, row)

    def _operands(self, m, slots, done, last):
        """Registers are read in one cycle; in the next the operands of the one after are chosen."""
        threads, adder = m.submodules.threads, m.submodules.adder
        registers, operands = m.submodules.registers, m.submodules.thread_operands
        word = threads.instruction
        share, power = slots[_SHARE], slots[_POWER]
        addresses = [
            self._address(number, page)
            for number, page in ((word.a, word.page_a), (word.b, word.page_b))
        ]
        before = self._partial(slots[_SQUARE - 1], slots[_POWER - 1])
        total = Cat(Const(Register.TOTAL, 4), slots[_POWER - 1].gradient_page)
        maximum = Const(Register.LARGEST, 4)
        read_a, read_b = registers.read_a, registers.read_b
        m.d.comb += [
            place.eq(number) for place, number in zip((read_a, read_b), addresses, strict=True)
        ]
        fresh, is_total = Signal(reset_less=True), Signal(reset_less=True)
        with m.If(~self.phase[0]):
            m.d.sync += is_total.eq(done.address[:4] == Register.TOTAL)
        m.d.sync += fresh.eq(slots[_POWER - 1].fresh & ~self.squared)
        with m.Switch(self.phase):
            with m.Case(1):
                m.d.comb += read_a.eq(total)
                m.d.comb += read_b.eq(Cat(maximum, slots[0].gradient_page))
            with m.Case(5):
                m.d.comb += read_b.eq(Cat(maximum, slots[0].power_row[:2]))
            with m.Case(7):
                m.d.comb += read_a.eq(before)

        term = Signal(32, reset_less=True)
        with m.If(self.phase == 7):
            m.d.sync += term.eq(m.submodules.multiplier.o)
        a, b = Signal(32), Signal(32)
        m.d.comb += [
            operands.instruction.eq(word),
            operands.register_a.eq(registers.a),
            operands.register_b.eq(registers.b),
            operands.page.eq(threads.page),
            operands.last.eq(last),
            operands.is_total.eq(self.phase[0] & is_total),
            operands.correct.eq(threads.is_correct),
            operands.value_scale.eq(self.value_scale),
            a.eq(operands.a),
            b.eq(operands.b),
        ]
        with m.Switch(self.phase):
            with m.Case(0):
                m.d.comb += a.eq(registers.a & (~fresh).replicate(32))
                raised = m.submodules.exponential.o & power.power.replicate(32)
                m.d.comb += b.eq(Mux(self.squared, term, raised))
            with m.Case(2):
                m.d.comb += a.eq(self.gradient)
                m.d.comb += b.eq(Mux(self.squared, self.power, registers.b) ^ _SIGN)
            with m.Case(4):
                m.d.comb += a.eq(m.submodules.quotient.o)
                m.d.comb += b.eq(Cat(Const(_ONE, 31) & share.gradient_hot.replicate(31), 1))
            with m.Case(6):
                m.d.comb += [a.eq(self.power), b.eq(registers.b ^ _SIGN)]
        m.d.sync += [self._a.eq(a), self._b.eq(b)]
        m.d.comb += [adder.a.eq(self._a), adder.b.eq(self._b)]

    def _multiply(self, m):
        adder, multiplier = m.submodules.adder, m.submodules.multiplier
        held = Signal(32, reset_less=True)
        with m.If(self.phase == 1):
            m.d.sync += held.eq(adder.o)
        m.d.comb += [multiplier.a.eq(self._a), multiplier.b.eq(self._b)]
        with m.If(self.phase[0]):
            m.d.comb += [multiplier.a.eq(adder.o), multiplier.b.eq(adder.o)]
            with m.If(self.phase[1]):
                m.d.comb += multiplier.b.eq(self.gradient_scale)
                with m.If(self.squared):
                    m.d.comb += multiplier.a.eq(held)
        m.d.comb += m.submodules.converter.i.eq(multiplier.o)

    def _outputs(self, m, slots, entries):
        """Gradients, and the value row in pieces. Returns whether there are such pieces."""
        converter, entry = m.submodules.converter, entries[0]
        width = self._format.width
        pieces = 32 // width
        value, end = Signal(32, reset_less=True), Signal(reset_less=True)
        left = Signal(range(pieces + 1))
        square, gradient = slots[_SQUARE], slots[_GRADIENT]
        made = Mux(self.squared, square.gradient, gradient.gradient)
        last = Mux(self.squared, square.last_gradient, gradient.last_gradient)
        m.d.comb += [
            self.o.valid.eq((left != 0) | ((self.phase == 3) & made)),
            self.o.payload.code.eq(converter.o),
            self.o.payload.last.eq(last),
        ]
        with m.If(left != 0):
            m.d.comb += [
                self.o.payload.code.eq(value),
                self.o.payload.last.eq(end & (left == 1)),
            ]
            m.d.sync += [left.eq(left - 1), value.eq(value >> width)]
        with m.If(~self.phase[0] & (entry.operation == Operation.EMIT)):
            m.d.sync += [value.eq(self._a), left.eq(pieces), end.eq(entry.end)]
        with m.If(self.clear):
            m.d.sync += left.eq(0)
        return left != 0

    def _flags(self, m, slots, done):
        """Flags of what was there."""
        submodules = m.submodules
        plain = ~self.squared
        first, square, power = slots[1], slots[_SQUARE], slots[_POWER]
        made = Mux(self.squared, square.gradient, slots[_GRADIENT].gradient)
        adder, multiplier = submodules.adder.flags, submodules.multiplier.flags
        exponential, quotient = submodules.exponential.flags, submodules.quotient.flags
        raised = Signal(4)
        with m.Switch(self.phase):
            with m.Case(1):
                m.d.comb += raised.eq(_only(first.gradient, adder) | _only(made, multiplier))
            with m.Case(3):
                m.d.comb += raised.eq(
                    _only(plain & slots[_SHARE + 1].gradient, adder)
                    | _only(made, submodules.converter.flags)
                )
            with m.Case(5):
                m.d.comb += raised.eq(_only(first.power, adder))
            with m.Case(7):
                m.d.comb += raised.eq(
                    _only(Mux(plain, power.power, square.sums), adder)
                    | _only(self.squared & first.gradient, multiplier)
                )
            with m.Default():
                operation = done.operation
                m.d.comb += raised.eq(
                    _only(operation == Operation.ADD, adder)
                    | _only(operation == Operation.MULTIPLY, multiplier)
                    | _only(operation == Operation.QUOTIENT, submodules.divider.flags)
                    | _only((self.phase == 0) & power.power, exponential)
                    | _only((self.phase == 4) & slots[_POWER - 1].gradient, exponential)
                    | _only((self.phase == 4) & slots[_SHARE].gradient, quotient)
                )
        m.d.sync += self.flags.eq(raised & (~self.clear).replicate(4))


_EVENTS = ("largest", "power", "hot", "last_power", "sums", "gradient")


def _only(condition, flags):
    return flags & condition.replicate(4)
