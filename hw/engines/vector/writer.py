"""Collects results of the vector engine into words and writes them to the buffer."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import BufferWriteSignature
from hw.config import BUFFER_ADDRESS_WIDTH

__all__ = ["VectorWriter"]


class VectorWriter(wiring.Component):
    """Gives out places for results, takes the results, and writes whole words.

    A result is ``post_lanes`` values; ``groups_per_word`` results in a row belong to one step and
    fill one word with operands, or ``chunks_per_wide`` consecutive words with float32 numbers, from
    the step's address on. A place is reserved (only with ``room``) before a result is computed, so
    nothing is lost however long the buffer stalls.

    One result per cycle, except that wide ones take ``chunks_per_wide`` cycles where that does
    not divide ``groups_per_word``. A word is offered to the buffer in the cycle after its last
    result was taken from the queue. Empty after reset.

    Parameters
    ----------
    core : CoreConfig

    Attributes
    ----------
    DEPTH : int
        Results that may be reserved and not yet in a word: enough for one per cycle through the
        lanes.

    Members
    -------
    wide : In(1) -- constant while in use
    steps : ``In(stream)`` of the address of each step and whether it is the last of the command
    room, reserve : Out(1), In(1)
    valid : In(1), data : In(32 * post_lanes) -- a result; operands in the low bits of each 32
    write : Out(BufferWriteSignature(core))
    done : Out(1) -- the last write of the command is accepted in this cycle
    """

    DEPTH = 32

    def __init__(self, core):
        self._core = core
        super().__init__(
            {
                "wide": In(1),
                "steps": In(stream.Signature(BUFFER_ADDRESS_WIDTH + 1)),
                "room": Out(1),
                "reserve": In(1),
                "valid": In(1),
                "data": In(32 * core.post_lanes),
                "write": Out(BufferWriteSignature(core)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        core = self._core
        groups, chunks, width = core.groups_per_word, core.chunks_per_wide, core.group_width
        m.submodules.results = results = SyncFIFOBuffered(width=len(self.data), depth=self.DEPTH)
        # Steps under way: those of all reserved results, and a few that wait for operands.
        m.submodules.steps = steps = SyncFIFOBuffered(
            width=len(self.steps.payload), depth=max(8, 2 * self.DEPTH // groups)
        )
        m.d.comb += [
            steps.w_en.eq(self.steps.valid),
            steps.w_data.eq(self.steps.payload),
            self.steps.ready.eq(steps.w_rdy),
            results.w_en.eq(self.valid),
            results.w_data.eq(self.data),
        ]
        reserved = Signal(range(self.DEPTH + 1))
        m.d.sync += [
            reserved.eq(reserved + self.reserve - results.r_en),
            # A cycle late, so one place is kept for a reservation in between.
            self.room.eq(reserved < self.DEPTH - 1),
        ]

        # A step gives its result to the word in pieces: all of it, or one group at a time.
        whole = groups % chunks == 0
        slot, chunk, part = (
            Signal(range(max(2, groups))),
            Signal(range(chunks)),
            Signal(range(chunks)),
        )
        load, result_end, word_end = Signal(), Signal(), Signal()
        narrow = Cat(
            results.r_data[32 * lane : 32 * lane + core.operand_width]
            for lane in range(core.post_lanes)
        )
        slices = [results.r_data[width * n : width * (n + 1)] for n in range(chunks)]
        piece = Signal(width)
        with m.Switch(chunk):
            for number, bits in enumerate(slices):
                with m.Case(number):
                    m.d.comb += piece.eq(bits)
        word = Signal(core.word_width, reset_less=True)
        full, final = Signal(), Signal(reset_less=True)
        address = Signal(BUFFER_ADDRESS_WIDTH, reset_less=True)
        step_address, step_final = steps.r_data[:-1], steps.r_data[-1]
        write = self.write
        m.d.comb += [
            load.eq(results.r_rdy & steps.r_rdy & (~full | write.ready)),
            results.r_en.eq(load & result_end),
            result_end.eq(1),
            word_end.eq(slot == groups - 1),
        ]
        advance = Mux(self.wide, chunks if whole else 1, 1)
        if whole:
            with m.If(self.wide):
                m.d.comb += word_end.eq(slot == groups - chunks)
        else:
            with m.If(self.wide):
                m.d.comb += result_end.eq(chunk == chunks - 1)
        step_end = Mux(self.wide, part == chunks - 1, 1)
        m.d.comb += steps.r_en.eq(load & word_end & step_end)
        with m.If(load):
            m.d.sync += [
                slot.eq(Mux(word_end, 0, slot + advance)),
                full.eq(word_end),
                address.eq(step_address + part),
                final.eq(step_final & step_end),
                chunk.eq(Mux(result_end, 0, chunk + 1)),
            ]
            with m.If(word_end):
                m.d.sync += part.eq(Mux(step_end, 0, part + 1))
            for number in range(groups):
                target = word[width * number : width * (number + 1)]
                first = Mux(self.wide, number - number % chunks, number) if whole else number
                with m.If(slot == first):
                    other = slices[number % chunks] if whole else piece
                    m.d.sync += target.eq(Mux(self.wide, other, narrow))
        with m.Elif(write.ready):
            m.d.sync += full.eq(0)
        m.d.comb += [
            write.valid.eq(full),
            write.address.eq(address),
            write.data.eq(word),
            write.enable.eq((1 << groups) - 1),
            self.done.eq(full & final & write.ready),
        ]
        return m
