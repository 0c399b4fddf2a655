"""Between AXI beats and buffer words of any two sizes: one packs rows into words, one cuts them.

Everything here counts in granules, the largest unit that divides a beat and a word; a beat has a
power of two of them.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Packer", "RowCounter", "Unpacker"]


def _select(choices, index):
    """Element ``index`` of ``choices``, a power of two of them, as a tree of 2:1 multiplexers."""
    for bit in index:
        choices = [
            Mux(bit, upper, lower) for lower, upper in zip(choices[::2], choices[1::2], strict=True)
        ]
    return choices[0]


class RowCounter(wiring.Component):
    """Counts a row of granules down word by word.

    ``start`` takes ``row`` (granules minus one); each ``advance`` after that steps to the next
    word, beginning a new row when the last one is complete: the outputs are valid after the first
    ``advance``.

    Members
    -------
    top : granules in the current word, minus one
    row_end : the current word is the last of its row
    """

    def __init__(self, *, word_granules, row_width):
        self.word_granules = word_granules
        super().__init__(
            {
                "start": In(1),
                "row": In(row_width),
                "advance": In(1),
                "top": Out(range(word_granules)),
                "row_end": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        if self.word_granules == 1:  # every word is full whatever the row
            m.d.comb += self.row_end.eq(1)
            return m
        row = Signal.like(self.row)
        left = Signal.like(self.row)  # granules behind the current word, minus one
        source = Mux(self.row_end, row, left)
        rest = Signal(len(row) + 1)
        m.d.comb += rest.eq(source - self.word_granules)
        with m.If(self.start):
            m.d.sync += [row.eq(self.row), self.row_end.eq(1)]
        with m.Elif(self.advance):
            m.d.sync += [
                left.eq(rest),
                self.row_end.eq(rest[-1]),
                self.top.eq(Mux(rest[-1], source[: len(self.top)], self.word_granules - 1)),
            ]
        return m


class Packer(wiring.Component):
    """Pack the bytes of a run into words, each row beginning a new word.

    The last word of a row is filled up with zeros. Takes a beat and gives a word in the same
    cycle, so that the slower side sets the pace: one beat per cycle where words are at least as
    long as beats (and rows as words), else one word per cycle, also from run to run. A word comes
    one cycle after the beat that completes it. ``o.valid`` and ``i.ready`` depend on ``o.ready``
    without a register.

    Members
    -------
    row : length of the rows, in granules minus one; taken once per command. Unused where a word
        is one granule
    i : beats; only in the ``first`` of a run ``offset`` is not 0, only in its ``last`` ``end`` is
        not the top granule; ``final`` is set together with ``last`` at the end of the command
    o : words; ``final`` marks the command's last
    cut_row : the run ended inside a row (stays up, no word follows until reset); always 0 where a
        word is one granule
    """

    def __init__(self, *, granule_width, beat_granules, word_granules, row_width):
        self.granule_width = granule_width
        self.beat_granules = beat_granules
        self.word_granules = word_granules
        beat = data.StructLayout(
            {
                "data": beat_granules * granule_width,
                "offset": range(beat_granules),
                "end": range(beat_granules),
                "first": 1,
                "last": 1,
                "final": 1,
            }
        )
        word = data.StructLayout({"data": word_granules * granule_width, "final": 1})
        super().__init__(
            {
                "row": In(stream.Signature(row_width)),
                "i": In(stream.Signature(beat)),
                "o": Out(stream.Signature(word)),
                "cut_row": Out(1),
            }
        )

    def elaborate(self, platform):
        # What says where the packer is:
        #
        # state     meaning                                 set by                    cleared by
        # --------  --------------------------------------  ------------------------  --------------
        # prime     the row counter steps to its first      a row length is taken     the next cycle
        #           word
        # active    a command is being packed               prime                     its last word
        # used      slots in use; level: granules from      a beat is taken: up       a word leaves:
        #           ``position`` on                                                   down
        # position  of the current word in slot 0           a word leaves, a run's    the run's end
        #                                                   first beat
        # ending    the run's last beat is here             that beat                 its last word
        # final     the command's last beat is here         a beat is taken           the next one
        # emit      a word leaves; enough: it is complete; run_end: it is the run's last
        m = Module()
        width, beat, word = self.granule_width, self.beat_granules, self.word_granules
        beat_bits = beat.bit_length() - 1
        # Beats that a word may touch, and so the slots that hold them.
        slot_count = -(-(beat - 1 + word) // beat)

        m.submodules.rows = rows = RowCounter(word_granules=word, row_width=len(self.row.payload))
        active = Signal()
        prime = Signal()
        slots = [
            Signal(beat * width, name=f"slot{index}", reset_less=True)
            for index in range(slot_count)
        ]
        used = Signal(range(slot_count + 1))  # slots in use
        level = Signal(range(slot_count * beat + 1))  # granules from the position on
        position = Signal(range(beat))  # of the current word in slot 0
        ending = Signal()  # the run's last beat is here
        final = Signal()

        emit = Signal()
        enough = Signal()
        run_end = Signal()
        m.d.comb += [
            enough.eq(level > rows.top),
            self.o.valid.eq(active & enough),
            emit.eq(self.o.valid & self.o.ready),
            run_end.eq(ending & rows.row_end & (level == rows.top + 1)),
            self.cut_row.eq(active & ending & ~enough),
            self.o.payload.final.eq(run_end & final),
        ]

        # One row length per command.
        m.d.comb += [
            self.row.ready.eq(~active & ~prime),
            rows.start.eq(self.row.ready),
            rows.row.eq(self.row.payload),
            rows.advance.eq(prime | emit),
        ]
        with m.If(self.row.ready & self.row.valid):
            m.d.sync += prime.eq(1)
        with m.If(prime):
            m.d.sync += [prime.eq(0), active.eq(1)]
        with m.If(emit & self.o.payload.final):
            m.d.sync += active.eq(0)

        self._cut_word(m, slots, position)

        # What an emitted word leaves: nothing, part of the top slot, or (if it ended inside slot
        # 0) everything. Beats are taken only while too little is here or at most one slot stays.
        step = Signal(range(beat + word))
        kept = Signal(range(slot_count + 1))
        next_level = Signal.like(level)
        m.d.comb += [
            step.eq(position + rows.top + 1),
            kept.eq(Mux(run_end, 0, used - (step >> beat_bits))),
            next_level.eq(level),
        ]
        room = Signal()
        m.d.comb += [
            room.eq(Mux(emit, kept < min(2, slot_count), ~enough)),
            self.i.ready.eq(active & room & Mux(ending, emit & run_end & ~final, 1)),
        ]
        place = Signal.like(used)
        m.d.comb += place.eq(Mux(emit, kept, used))
        m.d.sync += used.eq(place)
        with m.If(emit):
            m.d.comb += next_level.eq(level - rows.top - 1)
            m.d.sync += position.eq(Mux(run_end, 0, step[:beat_bits]))
            with m.If(run_end):
                m.d.sync += ending.eq(0)
        m.d.sync += level.eq(next_level)
        beat_in = self.i.payload
        with m.If(self.i.valid & self.i.ready):
            begin = Mux(beat_in.first, beat_in.offset, 0)
            m.d.sync += [
                used.eq(place + 1),
                level.eq(next_level + beat_in.end + 1 - begin),
                ending.eq(beat_in.last),
                final.eq(beat_in.final),
            ]
            with m.If(beat_in.first):
                m.d.sync += position.eq(beat_in.offset)

        self._fill_slots(m, slots, used, place, (emit, step))
        return m

    def _cut_word(self, m, slots, position):
        """The word: granules from ``position`` on, zeros behind the row's end."""
        width, beat, word = self.granule_width, self.beat_granules, self.word_granules
        rows = m.submodules.rows
        window = Cat(*slots)
        for index in range(word):
            choices = [
                window.word_select(index + shift, width) if index + shift < len(slots) * beat else 0
                for shift in range(beat)
            ]
            granule = self.o.payload.data.word_select(index, width)
            with m.If(index <= rows.top):
                m.d.comb += granule.eq(_select(choices, position))

    def _fill_slots(self, m, slots, used, place, leaving):
        """Slots: a beat goes to the first free one, what stays moves down to slot 0."""
        beat, slot_count, beat_in = self.beat_granules, len(slots), self.i.payload
        emit, step = leaving
        moves = Signal()
        moved = beat_in.data
        if slot_count > 1 and beat > 1:
            m.d.comb += moves.eq(emit & (step >= beat))
            moved = slots[-1]
            for index in range(2, slot_count):
                moved = Mux(used == index, slots[index - 1], moved)
        for index, slot in enumerate(slots):
            here = Signal(name=f"into_{index}")
            m.d.comb += here.eq(self.i.valid & self.i.ready & (place == index))
            if index == 0:
                with m.If(here | moves):
                    m.d.sync += slot.eq(Mux(place == 0, beat_in.data, moved))
            else:
                with m.If(here):
                    m.d.sync += slot.eq(beat_in.data)


class Unpacker(wiring.Component):
    """Lay the valid granules of words one behind the other into beats.

    The inverse of :class:`Packer`. A beat comes one cycle after the word that completes it; one
    word per cycle where words are at most as long as beats, else one beat per cycle; one idle
    cycle from run to run. Where both are one granule the streams are connected straight.

    Members
    -------
    offset : granule of the first beat where a run begins; one per run
    i : words; ``top`` is the number of valid granules minus one, ``last`` ends the run
    o : beats; bit g of ``enable`` says that granule g is valid
    """

    def __init__(self, *, granule_width, beat_granules, word_granules):
        self.granule_width = granule_width
        self.beat_granules = beat_granules
        self.word_granules = word_granules
        word = data.StructLayout(
            {"data": word_granules * granule_width, "top": range(word_granules), "last": 1}
        )
        beat = data.StructLayout({"data": beat_granules * granule_width, "enable": beat_granules})
        super().__init__(
            {
                "offset": In(stream.Signature(range(beat_granules))),
                "i": In(stream.Signature(word)),
                "o": Out(stream.Signature(beat)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width, beat, word = self.granule_width, self.beat_granules, self.word_granules
        beat_bits = beat.bit_length() - 1
        if beat == 1 and word == 1:
            m.d.comb += [
                self.offset.ready.eq(1),
                self.o.payload.data.eq(self.i.payload.data),
                self.o.payload.enable.eq(1),
                self.o.valid.eq(self.i.valid),
                self.i.ready.eq(self.o.ready),
            ]
            return m

        size = -(-(beat - 1 + word) // beat) * beat
        window = Signal(size * width)  # zero from ``level`` on, so that words can be ORed in
        level = Signal(range(size + 1))
        head = Signal(range(beat))  # granules of the current beat in front of the run
        active = Signal()
        flush = Signal()  # the run's last word is in

        full = Signal()
        emit = Signal()
        m.d.comb += [
            full.eq(level >= beat),
            self.o.valid.eq(full | (flush & (level != 0))),
            emit.eq(self.o.valid & self.o.ready),
            self.o.payload.data.eq(window[: beat * width]),
        ]
        for index in range(beat):
            m.d.comb += self.o.payload.enable[index].eq((index >= head) & (index < level))

        rest = Signal(range(size + 1))
        shifted = Signal.like(window)
        m.d.comb += [rest.eq(level), shifted.eq(window)]
        with m.If(emit):
            m.d.comb += [rest.eq(Mux(full, level - beat, 0)), shifted.eq(window >> (beat * width))]
            m.d.sync += head.eq(0)
        m.d.sync += [level.eq(rest), window.eq(shifted)]

        # The word, its invalid tail cleared, moved to where the kept granules end.
        masked = Cat(
            Mux(index <= self.i.payload.top, self.i.payload.data.word_select(index, width), 0)
            for index in range(word)
        )
        inserted = _select(
            [Cat(Const(0, shift * width), masked) for shift in range(beat)],
            level[:beat_bits],  # the same as of ``rest``
        )
        m.d.comb += self.i.ready.eq(active & ~flush & Mux(full, emit & (level < 2 * beat), 1))
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                window.eq(shifted | inserted),
                level.eq(rest + self.i.payload.top + 1),
                flush.eq(self.i.payload.last),
            ]

        idle = Signal()
        m.d.comb += [idle.eq(~active | (flush & (rest == 0))), self.offset.ready.eq(idle)]
        with m.If(idle):
            m.d.sync += [
                active.eq(self.offset.valid),
                flush.eq(0),
                level.eq(self.offset.payload),
                head.eq(self.offset.payload),
            ]
        return m
