"""Collects post-processed results and writes them to the buffer."""

from amaranth.hdl import Array, Cat, Module, Mux, ResetInserter, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import BufferWriteSignature
from hw.config import BUFFER_ADDRESS_WIDTH
from hw.isa.encoding import POST_OUTPUT_LOOPS

__all__ = ["PostWriter"]

_STRIDE = signed(BUFFER_ADDRESS_WIDTH)


class PostWriter(wiring.Component):
    """Gives out places for results, takes the results, and writes each where it belongs.

    A result is up to ``post_groups`` groups of ``post_lanes`` values. Before its elements are read,
    a place is reserved (``reserve``, only with ``room``); so nothing is lost however long the
    buffer stalls. Results arrive in the order of their reservations. A narrow group is one group
    of the buffer, a wide one ``chunks_per_wide`` groups, least significant first. Groups of an
    output go to consecutive positions, from ``out_group`` of its first word, which moves from
    ``out_address`` on by the stride of the loop that advances.

    Groups of a result go to the write register ``post_groups`` at a time, fewer where a word ends;
    a word is written when it is full or its output ends. :attr:`LATENCY` cycles from the result
    that completes a word to its write.

    Parameters
    ----------
    core : CoreConfig

    Attributes
    ----------
    DEPTH : int
        Results that may be reserved and not written: enough for one result per cycle through
        the longest pipeline that works at that rate.

    Members
    -------
    start : In(1) -- begin at ``out_address`` and ``out_group``
    out_address, out_group, out_wo_stride, out_ho_stride, out_n_stride, wide : In -- fields of the
        command, constant while in use
    room : Out(1)
    reserve : In(1)
    reserve_groups : In -- how many groups the result has
    reserve_last : In(1) -- the result is the last one of its output
    reserve_wo_last, reserve_ho_last : In(1) -- in the last iteration of that loop
    reserve_final : In(1) -- it is the last one of the command
    valid : In(1), data : In(32 * post_lanes * post_groups) -- a result; narrow values in the low
        bits of each 32
    clear : In(1) -- forget everything; ``write.valid`` is low from the next cycle on
    write : Out(BufferWriteSignature(core))
    done : Out(1) -- the last write of the command is accepted in this cycle
    """

    LATENCY = 2
    DEPTH = 16

    def __init__(self, core):
        self._core = core
        super().__init__(
            {
                "start": In(1),
                "out_address": In(BUFFER_ADDRESS_WIDTH),
                "out_group": In(8),
                **{f"out_{n}_stride": In(_STRIDE) for n in POST_OUTPUT_LOOPS},
                "wide": In(1),
                "room": Out(1),
                "reserve": In(1),
                "reserve_groups": In(range(core.post_groups + 1)),
                "reserve_last": In(1),
                "reserve_wo_last": In(1),
                "reserve_ho_last": In(1),
                "reserve_final": In(1),
                "valid": In(1),
                "data": In(32 * core.post_lanes * core.post_groups),
                "clear": In(1),
                "write": Out(BufferWriteSignature(core)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        # What says where the writer is:
        #
        # state        meaning                                 set by              cleared by
        # -----------  --------------------------------------  ------------------  --------------
        # places       results that are reserved, and what     reserve             whole, loaded
        #              they end
        # results      those of them that have come            valid               whole, loaded
        # piece        of the result at the head that goes     load: counts up     whole, start
        #              next
        # slot         of the word that it goes to             load: counts up     word_end; an
        #                                                                          output's end,
        #                                                                          start: out_group
        # whole        the rest of the result goes now
        # word_end     the word is full then
        # address      of the word; origins: of outputs        load, start
        # out_valid    a word is offered                       load                write.ready,
        #                                                                          clear
        # out_open     a word is begun and not offered         load                load, start
        # out_final    the word is the command's last          load                load
        m = Module()
        core = self._core
        m.submodules.places = places = ResetInserter(self.clear)(
            SyncFIFO(width=4 + len(self.reserve_groups), depth=self.DEPTH)
        )
        m.submodules.results = results = ResetInserter(self.clear)(
            SyncFIFO(width=len(self.data), depth=self.DEPTH)
        )
        m.d.comb += [
            self.room.eq(places.w_rdy),
            places.w_en.eq(self.reserve),
            places.w_data.eq(
                Cat(
                    self.reserve_last,
                    self.reserve_wo_last,
                    self.reserve_ho_last,
                    self.reserve_final,
                    self.reserve_groups,
                )
            ),
            results.w_en.eq(self.valid),
            results.w_data.eq(self.data),
        ]
        last, wo_last, ho_last, final = places.r_data[:4]
        groups = places.r_data[4:]

        slot, piece, pieces, window = self._pieces(m, results, groups)
        # They end with the result, or with the word.
        width, slots = core.post_groups, core.groups_per_word
        count = Signal(range(width + 1))
        whole, word_end = Signal(), Signal()
        m.d.comb += [count.eq(width), whole.eq(pieces <= width)]
        for less in range(1, width):
            with m.If((pieces == less) | (slot == slots - less)):
                m.d.comb += [count.eq(less), whole.eq(pieces == less)]
        m.d.comb += word_end.eq(slot + count == slots)

        ends = last, wo_last, ho_last, final
        self._write(m, window, (slot, piece), (count, whole, word_end), ends)
        return m

    def _pieces(self, m, results, groups):
        """Pieces of the result at the head, from ``piece`` on: as many as go in a cycle. Returns
        the slot of the first one, its number, how many are left, and the pieces."""
        core = self._core
        width, chunks, slots = core.post_groups, core.chunks_per_wide, core.groups_per_word
        slot = Signal(range(slots))
        piece = Signal(range(width * chunks))
        pieces = Signal(range(width * chunks + 1))
        m.d.comb += pieces.eq(Mux(self.wide, groups * chunks, groups) - piece)
        wide = [
            results.r_data[core.group_width * index : core.group_width * (index + 1)]
            for index in range(width * chunks)
        ]
        narrow = [
            Cat(
                results.r_data[32 * lane : 32 * lane + core.operand_width]
                for lane in range(group * core.post_lanes, (group + 1) * core.post_lanes)
            )
            for group in range(width)
        ]
        window = [Signal(core.group_width, name=f"window{index}") for index in range(width)]
        for index, group in enumerate(window):
            with m.Switch(Cat(self.wide, piece)):
                for first in range(width * chunks):
                    if first + index < width * chunks:
                        with m.Case(2 * first + 1):
                            m.d.comb += group.eq(wide[first + index])
                    if first + index < width:
                        with m.Case(2 * first):
                            m.d.comb += group.eq(narrow[first + index])
        return slot, piece, pieces, window

    def _write(self, m, window, at, go, ends):
        """The write register: pieces are put together until a word, or an output, ends."""
        core = self._core
        width, slots = core.post_groups, core.groups_per_word
        places, results = m.submodules.places, m.submodules.results
        slot, piece = at
        count, whole, word_end = go
        last, wo_last, ho_last, final = ends
        address = Signal(BUFFER_ADDRESS_WIDTH, reset_less=True)
        following = Signal(BUFFER_ADDRESS_WIDTH)
        # First words of the current output, of the first one with its ho, with its n.
        origins = [
            Signal(BUFFER_ADDRESS_WIDTH, name=f"origin_{loop}", reset_less=True)
            for loop in POST_OUTPUT_LOOPS
        ]
        # Where the pieces go: position ``slot`` and those behind it.
        enable = Signal(slots)
        placed = [Signal(core.group_width, name=f"placed{number}") for number in range(slots)]
        for number, group in enumerate(placed):
            m.d.comb += group.eq(window[0])
            for index in range(width):
                with m.If((slot + index == number) & (index < count)):
                    m.d.comb += [group.eq(window[index]), enable[number].eq(1)]
        level = Mux(wo_last, 1 + ho_last, 0)
        write = self.write
        out_valid, out_open, out_final, load = Signal(), Signal(), Signal(), Signal()
        out_address = Signal(BUFFER_ADDRESS_WIDTH, reset_less=True)
        out_data = Signal(core.word_width, reset_less=True)
        out_enable = Signal(slots, reset_less=True)
        m.d.comb += [
            load.eq(results.r_rdy & (~out_valid | write.ready)),
            following.eq(
                Array(origins)[level]
                + Array(getattr(self, f"out_{n}_stride") for n in POST_OUTPUT_LOOPS)[level]
            ),
            results.r_en.eq(load & whole),
            places.r_en.eq(load & whole),
            write.valid.eq(out_valid),
            write.address.eq(out_address),
            write.data.eq(out_data),
            write.enable.eq(out_enable),
            self.done.eq(out_valid & out_final & write.ready),
        ]
        with m.If(load):
            m.d.sync += [
                out_valid.eq(word_end | (whole & last)),
                out_open.eq(~word_end & ~(whole & last)),
                out_final.eq(final & whole),
                out_address.eq(address),
                out_enable.eq(Mux(out_open, out_enable, 0) | enable),
                piece.eq(Mux(whole, 0, piece + count)),
            ]
            for number in range(slots):
                with m.If(enable[number]):
                    m.d.sync += out_data.word_select(number, core.group_width).eq(placed[number])
            with m.If(whole & last):
                m.d.sync += [address.eq(following), slot.eq(self.out_group)]
                m.d.sync += origins[0].eq(following)
                for number, origin in enumerate(origins[1:], 1):
                    with m.If(level >= number):
                        m.d.sync += origin.eq(following)
            with m.Elif(word_end):
                m.d.sync += [address.eq(address + 1), slot.eq(0)]
            with m.Else():
                m.d.sync += slot.eq(slot + count)
        with m.Elif(write.ready):
            m.d.sync += out_valid.eq(0)
        with m.If(self.start):
            m.d.sync += [
                *(origin.eq(self.out_address) for origin in origins),
                address.eq(self.out_address),
                slot.eq(self.out_group),
                piece.eq(0),
                out_open.eq(0),
            ]
        with m.If(self.clear):
            m.d.sync += out_valid.eq(0)
