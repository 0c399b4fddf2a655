"""LOSS: softmax cross-entropy or squared error, and their gradients."""

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import BufferReadSignature, BufferWriteSignature, ErrorSignature
from hw.isa.encoding import Opcode, command_layout
from hw.isa.error_codes import ErrorCode
from hw.isa.loss import Loss

from .datapath import IN_FLIGHT, LossDatapath
from .reader import LossReader
from .rows import LossRows
from .writer import LossWriter

__all__ = ["LossEngine"]


class LossEngine(wiring.Component):
    """Executes LOSS commands (docs/loss.md): loss, its gradient and the number of correct answers.

    Four rows are under way at a time, with a number of each in every slot of eight cycles: the
    maximum of one is sought, the powers of the next are added up, the sum of the one before them is
    finished, and the gradient of the one before that is made; meanwhile a program for each of them
    makes its loss. Without stalls and with numbers that do not cross words, cross-entropy of R rows
    of N classes takes (R + 3) * max(N, 10) slots and a constant; squared error one slot per number.

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
        m = Module()
        m.submodules.datapath = datapath = LossDatapath(self._format)
        m.submodules.reader = reader = LossReader(self._format, self._core)
        m.submodules.rows = rows = LossRows()
        m.submodules.writer = writer = LossWriter(self._core)
        wiring.connect(m, reader.read, wiring.flipped(self.read))
        wiring.connect(m, writer.write, wiring.flipped(self.write))

        command = Signal(command_layout(Opcode.LOSS), reset_less=True)
        load, begin, seek = Signal(), Signal(), Signal()
        squared = command.loss == Loss.SQUARED_ERROR
        room, written = self._write(m)
        power = Signal(32, reset_less=True)
        with m.If(rows.go):
            m.d.sync += power.eq(reader.power)
        m.d.comb += [
            rows.load.eq(begin),
            rows.first.eq(command.first),
            rows.squared.eq(squared),
            rows.row_count.eq(command.row_count),
            rows.row_length.eq(command.row_length),
            rows.ready.eq(reader.fetched & room & (datapath.phase == 7)),
            rows.label.eq(reader.label),
            rows.value.eq(reader.largest),
            rows.clear.eq(self.stop),
            reader.clear.eq(self.stop),
            reader.load.eq(load),
            reader.x_address.eq(command.x_address),
            reader.x_stride.eq(command.x_stride),
            reader.target_address.eq(command.target_address),
            reader.x_wide.eq(command.x_wide),
            reader.target_wide.eq(command.target_wide),
            reader.squared.eq(squared),
            reader.start.eq(rows.start),
            reader.wanted.eq(rows.wanted),
            reader.row_end.eq(rows.row_end),
            reader.next_row.eq(rows.next_row),
            datapath.squared.eq(squared),
            datapath.gradient_scale.eq(command.gradient_scale),
            datapath.value_scale.eq(command.value_scale),
            datapath.restart.eq(begin & command.first),
            datapath.slot.eq(rows.slot),
            datapath.largest.eq(rows.largest),
            datapath.power.eq(power),
            datapath.gradient.eq(reader.gradient),
            datapath.correct.eq(rows.correct),
            datapath.clear.eq(self.stop),
            writer.clear.eq(self.stop),
            writer.seek.eq(load | seek),
            writer.address.eq(Mux(load, command.gradient_address, command.value_address)),
            self.flags.eq(datapath.flags),
        ]
        busy = Cat(rows.busy, datapath.busy, ~written, datapath.flags).any()
        self._control(m, command, (load, begin, seek), busy)
        m.d.sync += self.stall.eq(
            (self.read.valid & ~self.read.ready) | (self.write.valid & ~self.write.ready)
        )
        return m

    def _write(self, m):
        """Gradients wait for the buffer in a queue with room for all that may be under way. Returns
        whether there is room for another slot, and whether everything is written."""
        datapath, writer = m.submodules.datapath, m.submodules.writer
        payload = datapath.o.payload
        queue = SyncFIFO(width=len(payload.as_value()), depth=16)
        m.submodules.queue = ResetInserter(self.stop)(queue)
        front = data.View(payload.shape(), queue.r_data)
        flush = Signal()
        m.d.comb += [
            queue.w_en.eq(datapath.o.valid),
            queue.w_data.eq(payload.as_value()),
            writer.i.valid.eq(queue.r_rdy & ~flush),
            writer.i.payload.eq(front.code),
            writer.flush.eq(flush),
            queue.r_en.eq(writer.i.ready & ~flush),
        ]
        with m.If(writer.i.valid & writer.i.ready & front.last):
            m.d.sync += flush.eq(1)
        with m.Elif(writer.idle):
            m.d.sync += flush.eq(0)
        with m.If(self.stop):
            m.d.sync += flush.eq(0)
        room = Signal()
        m.d.sync += room.eq(queue.level <= queue.depth - IN_FLIGHT)
        return room, writer.idle & ~queue.r_rdy & ~flush

    def _control(self, m, command, strobes, busy):
        """Accepts, checks and finishes commands: IDLE, CHECK its fields, RUN until all is quiet
        for two slots, once more for the value row."""
        load, begin, seek = strobes
        datapath, rows = m.submodules.datapath, m.submodules.rows
        phase = Signal(3)
        closed, quiet = Signal(), Signal(2)
        m.d.sync += [self.done.eq(0), self.error.valid.eq(0), phase.eq(phase + 1)]
        m.d.comb += [self.busy.eq(1), datapath.phase.eq(phase)]
        m.d.comb += self.error.address.eq(m.submodules.reader.place)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.busy.eq(0), self.command.ready.eq(~self.stop)]
                m.d.sync += command.eq(self.command.payload)
                with m.If(self.command.valid & ~self.stop):
                    m.next = "CHECK"
            with m.State("CHECK"):
                legal = (command.row_count != 0) & (command.row_length != 0)
                m.d.comb += [load.eq(1), begin.eq(legal)]
                m.d.sync += [phase.eq(0), closed.eq(0), quiet.eq(0)]
                m.d.sync += self.error.code.eq(ErrorCode.ILLEGAL_FIELD)
                m.next = "RUN"
                with m.If(~legal):
                    m.d.sync += self.error.valid.eq(~self.stop)
                    m.next = "IDLE"
                with m.If(self.stop):
                    m.next = "IDLE"
            with m.State("RUN"):
                with m.If(phase == 7):
                    m.d.sync += quiet.eq(quiet + 1)
                with m.If(busy):
                    m.d.sync += quiet.eq(0)
                with m.If(quiet == 2):
                    with m.If(rows.failed):
                        m.d.sync += self.error.code.eq(ErrorCode.ILLEGAL_LABEL)
                        m.d.sync += self.error.valid.eq(~self.stop)
                        m.next = "IDLE"
                    with m.Elif(command.last & ~closed):
                        m.d.comb += [seek.eq(1), datapath.close.eq(1)]
                        m.d.sync += [closed.eq(1), quiet.eq(0)]
                    with m.Else():
                        m.d.sync += self.done.eq(~self.stop)
                        m.next = "IDLE"
                with m.If(self.stop):
                    m.next = "IDLE"
