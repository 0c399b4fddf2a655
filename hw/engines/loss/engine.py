"""LOSS: softmax cross-entropy or squared error, and their gradients."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import BufferReadSignature, BufferWriteSignature, ErrorSignature
from hw.isa.encoding import Opcode, command_layout
from hw.isa.error_codes import ErrorCode
from hw.isa.loss import Loss
from hw.primitives.pipeline import register

from .alu import LossArithmetic, LossState
from .microcode import ENTRIES, PROGRAM, TARGET_WIDTH, Control, Instruction, Operation, Register
from .reader import LossReader
from .writer import LossWriter

__all__ = ["LossEngine"]


class LossEngine(wiring.Component):
    """Executes LOSS commands (docs/loss.md): loss, its gradient and the number of correct answers.

    One instruction of :mod:`hw.engines.loss.microcode` after the other on one adder, one multiplier
    and one :class:`~hw.arithmetic.float_special.FloatSpecial`. Without stalls, with operands of 16
    bits, cross-entropy takes 257 cycles per class and 374 or more per image; squared error 58 per
    number.

    Commands are executed one after the other; the next one is accepted when the last write of the
    one before has been. What a batch has added up so far stays from one command to the next, until
    one with ``first``. A command with a zero count is reported and dropped without ``done``, before
    any access; a label that is no class drops the command when it is met, after the gradients of
    the images before it.

    Parameters
    ----------
    config : AdaGPConfig
        with a float format whose width divides 32
    core : CoreConfig

    Members
    -------
    command : ``In(stream of LOSS)``
    done : Out(1) -- a command is complete, its last write accepted
    busy : Out(1) -- a command is being executed
    stop : In(1) -- drop what is being executed; idle from the next cycle on. The next command must
        have ``first``
    error : ``Out(ErrorSignature())`` -- ``ILLEGAL_FIELD``, address 0: a zero count;
        ``ILLEGAL_LABEL``, the label's word
    read : ``Out(BufferReadSignature(core))``
    write : ``Out(BufferWriteSignature(core))`` -- whole words
    flags : Out(4) -- float flags raised in this cycle (before the write they belong to)
    stall : Out(1) -- event: a read or a write was not accepted in the cycle before

    Raises
    ------
    ValueError
        for an operand format that is no float, or whose width does not divide 32.
    """

    def __init__(self, config, core):
        fmt = config.format
        if not fmt.is_float or 32 % fmt.width:
            raise ValueError(f"Losses need a float format of 8 or 16 bits, not {fmt.name}")
        self._format = fmt
        self._core = core
        super().__init__(
            {
                "command": In(stream.Signature(command_layout(Opcode.LOSS))),
                "done": Out(1),
                "busy": Out(1),
                "stop": In(1),
                "error": Out(ErrorSignature()),
                "read": Out(BufferReadSignature(core)),
                "write": Out(BufferWriteSignature(core)),
                "flags": Out(4),
                "stall": Out(1),
            }
        )

    def elaborate(self, platform):
        # What says where the engine is:
        #
        # state          meaning                           set by                 cleared by
        # -------------  --------------------------------  ---------------------  ----------------
        # load           a command begins (one cycle)      CHECK                  the next cycle
        # fetch          the first instruction is read     FETCH                  the next cycle
        # step           an instruction ends (one cycle)   RUN, arithmetic.done   the next cycle
        # number         of the row, counts up             every NUMBERS          load, end of row
        # last_number    it is the row's last
        # rows_left      rows of the command to do         load                   counts down to 1
        # last_row       the current one is the last
        # state.first    number is 0
        # state.closing  all rows are done                 the last ROWS          load, other ROWS
        # state.hot      the number is the label's
        # state.correct  the largest so far is the label's  every new maximum     a later one
        # labelled       a label was read a cycle ago      READ_LABEL             the next cycle
        # bad_label      it is no class                    labelled               the next cycle
        m = Module()
        m.submodules.arithmetic = arithmetic = LossArithmetic(self._format)
        m.submodules.reader = reader = LossReader(self._format, self._core)
        m.submodules.writer = writer = LossWriter(self._core)
        wiring.connect(m, reader.read, wiring.flipped(self.read))
        wiring.connect(m, writer.write, wiring.flipped(self.write))
        wiring.connect(m, arithmetic.o, writer.i)

        command = Signal(command_layout(Opcode.LOSS), reset_less=True)
        instruction = Signal(Instruction, reset_less=True)
        state = Signal(LossState, reset_less=True)
        load, fetch, step = Signal(), Signal(), Signal()
        operation, control = instruction.operation, instruction.control

        number, rows_done = self._count(m, command, instruction, state, load, step)
        bad_label = self._check_label(m, command, operation, state, step, number)
        self._sequence(m, command, instruction, state, (load, fetch | step), rows_done)
        self._control(m, command, control, (load, fetch, step), rows_done, bad_label)
        # Memory ----------------
        numbers, last_number, rows, _last_row = rows_done
        is_label = operation == Operation.READ_LABEL
        is_target = operation == Operation.READ_TARGET
        reads = is_label | is_target | (operation == Operation.READ_X)
        flushes = register(m, operation == Operation.FLUSH, name="flushes")
        m.d.comb += [
            arithmetic.instruction.eq(instruction),
            arithmetic.state.eq(state),
            arithmetic.gradient_scale.eq(command.gradient_scale),
            arithmetic.value_scale.eq(command.value_scale),
            arithmetic.clear.eq(self.stop | bad_label),
            arithmetic.outside.eq(Mux(flushes, writer.idle, reader.done)),
            arithmetic.read_value.eq(reader.value),
            reader.clear.eq(self.stop),
            reader.load.eq(load),
            reader.x_address.eq(command.x_address),
            reader.x_stride.eq(command.x_stride),
            reader.target_address.eq(command.target_address),
            reader.start.eq(arithmetic.begin & reads),
            reader.target.eq(is_label | is_target),
            reader.wide.eq(is_label | Mux(is_target, command.target_wide, command.x_wide)),
            reader.rewind.eq(step & numbers & last_number),
            reader.next_row.eq(step & rows),
            writer.clear.eq(self.stop),
            writer.seek.eq(load | (step & (control == Control.SEEK))),
            writer.address.eq(Mux(load, command.gradient_address, command.value_address)),
            writer.flush.eq(arithmetic.enable & flushes),
            self.flags.eq(arithmetic.flags),
            self.error.address.eq(reader.place),
        ]
        m.d.sync += self.stall.eq(
            (self.read.valid & ~self.read.ready) | (self.write.valid & ~self.write.ready)
        )
        return m

    def _count(self, m, command, instruction, state, load, step):
        """Numbers of the row, rows of the command. Returns the number, and whether the instruction
        is NUMBERS, whether that was the row's last, and the same of ROWS."""
        control = instruction.control
        number, rows_left = Signal(16, reset_less=True), Signal(16, reset_less=True)
        last_number, last_row = Signal(), Signal()
        next_number = Signal(16)
        m.d.comb += next_number.eq(number + 1)
        numbers, rows = control == Control.NUMBERS, control == Control.ROWS
        m.d.sync += [
            last_number.eq(next_number == command.row_length),
            last_row.eq(rows_left == 1),
            state.first.eq(number == 0),
        ]
        with m.If(step & numbers):
            m.d.sync += number.eq(Mux(last_number, 0, next_number))
        with m.If(step & rows):
            m.d.sync += [
                rows_left.eq(rows_left - 1),
                state.closing.eq(last_row),
                state.row_index.eq(0),
            ]
        with m.If(step & (instruction.r == Register.ROW_SUM)):
            m.d.sync += state.row_index.eq(state.row_index + 1)
        with m.If(step & (instruction.r == Register.ALL_SUM)):
            m.d.sync += state.all_index.eq(state.all_index + 1)
        with m.If(load):
            m.d.sync += [
                number.eq(0),
                rows_left.eq(command.row_count),
                state.closing.eq(0),
                state.row_index.eq(0),
            ]
            with m.If(command.first):
                m.d.sync += state.all_index.eq(0)
        return number, (numbers, last_number, rows, last_row)

    def _check_label(self, m, command, operation, state, step, number):
        """Keeps the row's label; returns the strobe that says that it is no class."""
        arithmetic, reader = m.submodules.arithmetic, m.submodules.reader
        label = Signal(32, reset_less=True)
        labelled, bad_label = Signal(), Signal()
        with m.If(step & (operation == Operation.READ_LABEL)):
            m.d.sync += label.eq(reader.value)
        with m.If(step & (operation == Operation.MAXIMUM) & arithmetic.replace):
            m.d.sync += state.correct.eq(state.hot)
        m.d.sync += [
            state.hot.eq(number == label[:16]),
            labelled.eq(step & (operation == Operation.READ_LABEL)),
        ]
        beyond = (label[:16] >= command.row_length) | label[16:].any()
        m.d.sync += bad_label.eq(labelled & beyond)
        return bad_label

    def _sequence(self, m, command, instruction, state, strobes, rows_done):
        """Brings the instructions of the program, one after the other."""
        load, advance = strobes
        control, arithmetic = instruction.control, m.submodules.arithmetic
        _numbers, last_number, _rows, last_row = rows_done
        program = Array(Instruction.const(word).as_value() for word in PROGRAM)
        place = Signal(TARGET_WIDTH, reset_less=True)
        following = Signal(TARGET_WIDTH)
        entry = Mux(
            command.loss == Loss.CROSS_ENTROPY,
            ENTRIES["cross_entropy"],
            ENTRIES["squared_error"],
        )
        sum_index = Mux(instruction.r[0], state.all_index, state.row_index)
        m.d.comb += following.eq(place + 1)
        with m.Switch(control):
            with m.Case(Control.NUMBERS):
                with m.If(~last_number):
                    m.d.comb += following.eq(instruction.target)
            with m.Case(Control.SUMS):
                with m.If(~sum_index.all()):
                    m.d.comb += following.eq(instruction.target)
            with m.Case(Control.IF_CLOSING):
                with m.If(state.closing):
                    m.d.comb += following.eq(instruction.target)
            with m.Case(Control.ENTER):
                m.d.comb += following.eq(entry)
            with m.Case(Control.ROWS):
                m.d.comb += following.eq(Mux(last_row, instruction.target, entry))
        with m.If(load):
            m.d.sync += place.eq(Mux(command.first, ENTRIES["batch"], entry))
        with m.If(arithmetic.launch):
            m.d.sync += place.eq(following)
        with m.If(advance):
            m.d.sync += instruction.as_value().eq(program[place])

    def _control(self, m, command, control, strobes, rows_done, bad_label):
        """Accepts, checks and finishes commands: IDLE, CHECK its fields, FETCH the first
        instruction, RUN the program."""
        load, fetch, step = strobes
        _numbers, _last_number, rows, last_row = rows_done
        arithmetic = m.submodules.arithmetic
        m.d.sync += [self.done.eq(0), self.error.valid.eq(0)]
        m.d.comb += self.busy.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.busy.eq(0), self.command.ready.eq(~self.stop)]
                m.d.sync += command.eq(self.command.payload)
                with m.If(self.command.valid & ~self.stop):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += load.eq(1)
                m.d.sync += self.error.code.eq(ErrorCode.ILLEGAL_FIELD)
                m.next = "FETCH"
                with m.If((command.row_count == 0) | (command.row_length == 0)):
                    m.d.sync += self.error.valid.eq(~self.stop)
                    m.next = "IDLE"
                with m.If(self.stop):
                    m.next = "IDLE"
            with m.State("FETCH"):
                m.d.comb += fetch.eq(1)
                m.next = "RUN"
                with m.If(self.stop):
                    m.next = "IDLE"
            with m.State("RUN"):
                m.d.comb += arithmetic.enable.eq(1)
                m.d.comb += step.eq(arithmetic.done)
                with m.If(step & ((control == Control.END) | (rows & last_row & ~command.last))):
                    m.d.sync += self.done.eq(~self.stop)
                    m.next = "IDLE"
                with m.If(bad_label):
                    m.d.sync += self.error.code.eq(ErrorCode.ILLEGAL_LABEL)
                    m.d.sync += self.error.valid.eq(~self.stop)
                    m.next = "IDLE"
                with m.If(self.stop):
                    m.next = "IDLE"
