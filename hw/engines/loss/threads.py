"""Four programs at a time, an instruction of each in every slot."""

from itertools import pairwise

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .microcode import CLOSING, PC_WIDTH, PROGRAM, ROW, Instruction, Operation

__all__ = ["THREADS", "LossThreads", "ThreadState"]

#: Programs at a time.
THREADS = 4


class ThreadState(data.Struct):
    """``pc``: place of the next instruction, 0 when idle; ``odd``: the row is an odd one of the
    thread's rows; ``correct``: its largest output is the label's."""

    pc: PC_WIDTH
    odd: 1
    correct: 1


class LossThreads(wiring.Component):
    """Instructions of :mod:`hw.engines.loss.microcode`.

    A slot is eight cycles, in which ``phase`` counts up; thread i has the cycles 2 i and 2 i + 1.
    Idle after reset.

    Members
    -------
    phase : In(3)
    start : In(1) -- start the program of a row on ``row[:2]``; for a cycle, at most once a slot,
        not while that thread is busy. Its first instruction is in the next slot at the latest
    close : In(1) -- the same for that of the batch's end, on thread 0
    row : In(3), correct : In(1)
    instruction : Out(Instruction) -- of the thread ``page``, whose row is ``odd`` and ``correct``
    busy : Out(1) -- a program is being executed; the last result is late by a slot
    clear : In(1) -- forget all programs
    """

    phase: In(3)
    start: In(1)
    close: In(1)
    row: In(3)
    correct: In(1)
    instruction: Out(Instruction)
    page: Out(2)
    odd: Out(1)
    is_correct: Out(1)
    busy: Out(1)
    clear: In(1)

    def elaborate(self, platform):
        m = Module()
        program = Array(Instruction.const(word).as_value() for word in PROGRAM)
        # In front of an instruction's first cycle its thread comes from the front and goes to the
        # back; what follows is known a cycle later.
        waiting = [Signal(ThreadState, name=f"thread{index}") for index in range(THREADS)]
        request, asked = Signal(ThreadState), Signal(2)
        current = Signal(ThreadState)
        coming = (self.phase[1:] + 1)[:2]
        hit = request.pc.any() & (asked == coming)
        back = waiting[-1]
        m.d.comb += current.as_value().eq(Mux(hit, request.as_value(), waiting[0].as_value()))
        with m.If(self.phase[0]):
            m.d.sync += [front.eq(behind) for front, behind in pairwise(waiting)]
            m.d.sync += [
                back.eq(current),
                self.instruction.as_value().eq(program[current.pc]),
                self.page.eq(coming),
                self.odd.eq(current.odd),
                self.is_correct.eq(current.correct),
            ]
            with m.If(hit):
                m.d.sync += request.pc.eq(0)
        with m.Else():
            m.d.sync += back.pc.eq(Mux(back.pc.any() & ~self.instruction.end, back.pc + 1, 0))
        with m.If(self.start):
            m.d.sync += [
                request.pc.eq(ROW),
                request.odd.eq(self.row[2]),
                request.correct.eq(self.correct),
                asked.eq(self.row),
            ]
        with m.If(self.close):
            m.d.sync += [request.pc.eq(CLOSING), request.odd.eq(0), asked.eq(0)]
        with m.If(self.clear):
            m.d.sync += [thread.pc.eq(0) for thread in (*waiting, request)]
            m.d.sync += self.instruction.operation.eq(Operation.NOTHING)
        pcs = Cat(thread.pc for thread in (*waiting, request))
        m.d.comb += self.busy.eq(pcs.any() | (self.instruction.operation != Operation.NOTHING))
        return m
