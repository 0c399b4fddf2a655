"""Transposes blocks of words on their way: rows go in, columns come out."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["BlockTransposer"]


class BlockTransposer(wiring.Component):
    """Turns every ``lanes`` words of ``lanes`` elements into the ``lanes`` words across them.

    The words of one block enter while the columns of the block before leave: a square of registers
    that shifts down during one block and to the left during the next, so that what came in as
    rows leaves as columns. There is one register per element and no second copy.

    One step takes a word and gives a word. At step j of a block, lane k of ``o`` is lane j of word
    k of the block before; during the first block ``o`` has no meaning. To get the last block out,
    make ``lanes`` further steps with any ``i``.

    Latency ``lanes`` steps, throughput one word per cycle. After reset, and after ``clear``, the
    next step is the first of a block; the elements are not reset.

    Parameters
    ----------
    lanes : elements of a word, and words of a block
    width : bits of an element

    Members
    -------
    clear : In(1), the next step begins a block; not together with ``step``
    step : In(1), take ``i`` and move on to the next ``o``
    i : In(array of elements)
    o : Out(array of elements), stands until the next step
    """

    def __init__(self, lanes: int, width: int):
        for name, value in (("Lanes", lanes), ("Width", width)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer, not {value!r}")
        self._lanes = lanes
        self._width = width
        word = data.ArrayLayout(width, lanes)
        super().__init__({"clear": In(1), "step": In(1), "i": In(word), "o": Out(word)})

    def elaborate(self, platform):
        m = Module()
        lanes = range(self._lanes)
        end = self._lanes - 1
        # At [row][column]. Words that come in at the top, lane k in column k, move down; words
        # that come in at the right, lane k in row end - k, move to the left. The first word of a
        # block has then gone farthest, and the lanes of all words line up for the other direction.
        square = [
            [
                Signal(self._width, name=f"element_{row}_{column}", reset_less=True)
                for column in lanes
            ]
            for row in lanes
        ]
        leftwards = Signal()
        position = Signal(range(self._lanes))
        with m.If(self.step):
            m.d.sync += position.eq(position + 1)
            with m.If(position == end):
                m.d.sync += [position.eq(0), leftwards.eq(~leftwards)]
            for row in lanes:
                for column in lanes:
                    above = square[row - 1][column] if row else self.i[column]
                    right = square[row][column + 1] if column < end else self.i[end - row]
                    m.d.sync += square[row][column].eq(Mux(leftwards, right, above))
        with m.If(self.clear):
            m.d.sync += position.eq(0)
        bottom = Cat(square[end][column] for column in lanes)
        left = Cat(square[end - lane][0] for lane in lanes)
        m.d.comb += self.o.as_value().eq(Mux(leftwards, left, bottom))
        return m
