"""What the fetch has read of the program: commands to come, and the last ones that are over."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.primitives.ram import add_ram

__all__ = ["CommandRing"]


class CommandRing(wiring.Component):
    """A queue of beats whose reader may go back.

    Beats leave in order, from the cycle after they came on, one per cycle, except that none leaves
    in the cycle behind a ``rewind`` of two beats or more. How many are inside and how far one may
    go back is the user's affair: what was written must not have been overwritten, so what is inside
    after a ``rewind`` is at most ``depth``. Empty after reset.

    Parameters
    ----------
    width : int
        bits of a beat
    depth : int
        beats, a power of two

    Members
    -------
    i : ``In(stream of beats)``; always ready
    o : ``Out(stream of beats)``
    rewind : In(1), the beats go on ``distance`` beats in front of the next one; nothing leaves in
        this cycle
    distance : In, 0 to ``depth``
    flush : In(1), nothing is inside, nor can one go back; a beat that comes is dropped
    empty : Out(1), no beat is inside
    """

    def __init__(self, *, width, depth):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"A ring must hold a power of two of beats, not {depth}")
        self.width = width
        self.depth = depth
        super().__init__(
            {
                "i": In(stream.Signature(width, always_ready=True)),
                "o": Out(stream.Signature(width)),
                "rewind": In(1),
                "distance": In(range(depth + 1)),
                "flush": In(1),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform):
        # What says where the ring is:
        #
        # state    meaning                                    set by        cleared by
        # -------  -----------------------------------------  ------------  -------------------
        # write    place of the next beat that comes          i
        # read     place of the next beat that is not held
        # level    beats from read to write                   i: up         leaves, load: down
        # held     the RAM's output is the next beat          load          o, rewind, flush
        # newest   the beat that came last: if there is one   i
        #          and it is not held, this is it
        m = Module()
        ram = add_ram(m, platform, name="ram", width=self.width, depth=self.depth)
        write, read = Signal(range(self.depth)), Signal(range(self.depth))
        level = Signal(range(self.depth + 1))
        held = Signal()
        newest = Signal(self.width, reset_less=True)
        taken, load, single = Signal(), Signal(), Signal()
        m.d.comb += [
            single.eq(~held & (level == 1)),
            self.o.valid.eq(held | single),
            self.o.payload.eq(Mux(held, ram.read_data, newest)),
            self.empty.eq(~held & (level == 0)),
            taken.eq(self.o.valid & self.o.ready),
            load.eq((level != 0) & Mux(held, taken, ~(single & taken))),
            ram.read_en.eq(load),
            ram.read_address.eq(read),
            ram.write_en.eq(self.i.valid),
            ram.write_address.eq(write),
            ram.write_data.eq(self.i.payload),
        ]
        with m.If(self.i.valid):
            m.d.sync += [newest.eq(self.i.payload), write.eq(write + 1)]
        leaves = load | (single & taken)
        m.d.sync += [
            level.eq(level + self.i.valid - leaves),
            read.eq(read + leaves),
            held.eq(Mux(load, 1, held & ~taken)),
        ]
        with m.If(self.rewind):
            m.d.sync += [
                level.eq(level + self.i.valid + held + self.distance),
                read.eq(read - held - self.distance),
                held.eq(0),
            ]
        with m.If(self.flush):
            m.d.sync += [level.eq(0), read.eq(write), write.eq(write), held.eq(0)]
        return m
