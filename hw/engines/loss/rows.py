"""Which rows are under way, and which of their numbers come next."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .datapath import Slot
from .reader import Wanted

__all__ = ["LossRows", "SHORTEST"]

#: Slots that a row of cross-entropy takes at least: as many rows may be under way as there are
#: threads, and no more.
SHORTEST = 10


class LossRows(wiring.Component):
    """Counts rows and their numbers, and looks for the maximum of a row.

    Rows of cross-entropy go through four periods, all of the same number of slots: maximum, powers,
    their sum, gradient. Of squared error there is the last one only.

    Members
    -------
    load : In(1) -- a command begins
    first : In(1), squared : In(1), row_count : In(16), row_length : In(16) -- of the command
    ready : In(1) -- what was wanted is there, and the next slot may begin
    label, value : In(32) -- the row's label; its next number, whose maximum is sought
    start : Out(1), wanted : Out(Wanted), row_end : Out(1) -- what the slot after the next takes
    next_row : Out(1) -- the next slot is the period's last
    go : Out(1) -- the next slot begins
    slot : Out(Slot) -- what is done in it
    largest : Out(32) -- the maximum, from the row's last slot on until the next one's first
    correct : Out(1) -- of the row whose sum is finished
    busy : Out(1) -- there are rows
    failed : Out(1) -- a label was no class
    clear : In(1)
    """

    load: In(1)
    first: In(1)
    squared: In(1)
    row_count: In(16)
    row_length: In(16)
    ready: In(1)
    label: In(32)
    value: In(32)
    start: Out(1)
    wanted: Out(Wanted)
    row_end: Out(1)
    next_row: Out(1)
    go: Out(1)
    slot: Out(Slot)
    largest: Out(32)
    correct: Out(1)
    busy: Out(1)
    failed: Out(1)
    clear: In(1)

    def elaborate(self, platform):
        # What says where the engine is (rows: index 0 to 3, from the maximum to the gradient):
        #
        # there[i]      row i is there                      load, end of a period
        # sequence[i]   its place in the batch, modulo 8    end of a period; 0 counts up
        # number        of the rows' slot, counts up        load, end of a period: 0
        # inside        it is less than the row's length    number
        # rows_left     rows that are still to come         load, counts down
        # largest       the maximum of row 0 so far         go
        # right[i]      it is the label's                   go; moves on with the rows
        m = Module()
        number = Signal(16, reset_less=True)
        limit = Signal(16, reset_less=True)
        rows_left = Signal(16, reset_less=True)
        there, right = Signal(4), Signal(3, reset_less=True)
        sequence = [Signal(3, name=f"sequence{index}", reset_less=True) for index in range(4)]
        labels = [Signal(16, name=f"label{index}", reset_less=True) for index in range(1, 4)]
        inside = Signal()
        # A number stands for eight cycles at least.
        final, last, beyond = (Signal(name=name) for name in ("final", "last", "beyond"))
        hot = Signal(3, reset_less=True)
        first_number = Signal()
        m.d.sync += [
            limit.eq(self.row_length - 1),
            final.eq(number == limit),
            last.eq((number >= limit) & ((number >= SHORTEST - 1) | self.squared)),
            beyond.eq((self.label[:16] > limit) | self.label[16:].any()),
            first_number.eq(number == 0),
            hot[0].eq(number == self.label[:16]),
            hot[1].eq(number == labels[0]),
            hot[2].eq(number == labels[2]),
        ]
        bad = first_number & there[0] & beyond & ~self.squared
        more = (rows_left != 0) & ~bad
        alive = Signal(4)
        m.d.comb += [
            self.go.eq(self.ready & there.any()),
            self.busy.eq(there.any()),
            alive.eq(Cat(there[0] & ~bad, there[1:])),
            self.correct.eq(right[2]),
        ]

        # What comes behind the next slot.
        after = Signal(4)
        inside_after = Signal()
        m.d.comb += [after.eq(alive), inside_after.eq(inside & ~final)]
        with m.If(last):
            m.d.comb += inside_after.eq(1)
            with m.If(self.squared):
                m.d.comb += after.eq(more)
            with m.Else():
                m.d.comb += after.eq(alive << 1)
                m.d.comb += after[0].eq(more)
        with m.If(self.load):
            m.d.comb += [after.eq(1), inside_after.eq(1)]
        begins = self.load | last
        m.d.comb += [
            self.start.eq(self.go | self.load),
            self.wanted.label.eq(begins & after[0] & ~self.squared),
            self.wanted.target.eq(after[0] & self.squared),
            self.wanted.largest.eq(after[0] & inside_after),
            self.wanted.power.eq(after[1] & inside_after),
            self.wanted.gradient.eq(after[3] & inside_after),
            self.next_row.eq(self.go & last),
        ]
        m.d.comb += self.row_end.eq(Mux(begins, self.row_length == 1, number + 1 == limit))
        replace = alive[0] & inside & self._better(first_number)
        best = Mux(replace, hot[0], right[0])
        with m.If(self.go & replace):
            m.d.sync += [self.largest.eq(self.value), right[0].eq(hot[0])]
        with m.If(self.go):
            m.d.sync += [there.eq(after), inside.eq(inside_after), number.eq(number + 1)]
            with m.If(bad):
                m.d.sync += [self.failed.eq(1), rows_left.eq(0)]
            with m.If(last):
                m.d.sync += number.eq(0)
                with m.If(more):
                    m.d.sync += rows_left.eq(rows_left - 1)
                m.d.sync += [
                    later.eq(label)
                    for label, later in zip((self.label[:16], *labels), labels, strict=False)
                ]
                m.d.sync += [later.eq(row) for row, later in pairwise(sequence)]
                m.d.sync += right[1:].eq(Cat(best, right[1]))
            with m.If(self.squared | (last & alive[0])):
                m.d.sync += sequence[0].eq(sequence[0] + 1)
        with m.If(self.load):
            m.d.sync += [
                there.eq(after),
                inside.eq(1),
                number.eq(0),
                rows_left.eq(self.row_count - 1),
                self.failed.eq(0),
            ]
            with m.If(self.first):
                m.d.sync += sequence[0].eq(0)
        with m.If(self.clear):
            m.d.sync += there.eq(0)
        self._describe(m, (alive, inside, final, last), number, sequence, hot)
        return m

    def _better(self, first):
        """Whether the number is a new maximum: of equal numbers the first one is, of NaN the last
        one. Subnormal numbers are zeros."""
        new, old = self.value, self.largest
        new_nan, old_nan = (x[23:31].all() & x[:23].any() for x in (new, old))
        zeros = ~new[23:31].any() & ~old[23:31].any()
        above = Mux(
            new[31] == old[31],
            Mux(new[31], new[:31] < old[:31], new[:31] > old[:31]),
            old[31],
        )
        return first | new_nan | (above & ~zeros & ~old_nan)

    def _describe(self, m, state, number, sequence, hot):
        """What is done in the next slot."""
        alive, inside, final, last = state
        plain = ~self.squared
        with m.If(self.go):
            m.d.comb += [
                self.slot.largest.eq(alive[0] & last & plain),
                self.slot.largest_page.eq(sequence[0]),
                self.slot.power.eq(alive[1] & inside),
                self.slot.power_row.eq(sequence[1]),
                self.slot.hot.eq(alive[1] & inside & hot[1]),
                self.slot.last_power.eq(alive[1] & last),
                self.slot.sums.eq(Mux(plain, alive[1], alive[0])),
                self.slot.fresh.eq(number < 8),
                self.slot.index.eq(Mux(plain, number, sequence[0])),
                self.slot.gradient.eq(Mux(plain, alive[3] & inside, alive[0])),
                self.slot.gradient_page.eq(sequence[3]),
                self.slot.gradient_hot.eq(hot[2]),
                self.slot.last_gradient.eq(final),
            ]
