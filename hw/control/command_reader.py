"""Words of a program to commands: packed ones are put together from what is kept and what comes."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.isa.encoding import COMMAND_WIDTH
from hw.isa.field import fields_layout
from hw.isa.packing import PACKED, PACKED_CODE, SLOTS, WORD_BYTES, WORDS
from hw.primitives.ram import add_ram

from .command_queue import CHUNK_WIDTH

__all__ = ["CommandReader"]

_CHUNKS = COMMAND_WIDTH // CHUNK_WIDTH
_WORD = 8 * WORD_BYTES


class CommandReader(wiring.Component):
    """Makes commands of a stream of beats (hw/isa/packing.py).

    A command is put together chunk by chunk, each from its slot and the words that come for it:
    one word per cycle, and a cycle for a chunk without one. Behind the command before, a packed one
    is offered after ``1 + 8 + (chunks with two words)`` cycles, a whole one after 17. Nothing is
    taken while a command is offered. After reset all slots are empty, and nothing is offered.

    Members
    -------
    i : ``In(stream of beats)``, aligned
    running : In(1); otherwise nothing is taken
    locate : In(1), the next word is that at ``target``, in the beat that comes next; not while a
        command is being put together
    target : In, DRAM address
    command : ``Out(stream of 512 bits)``
    shift : In(1), move the command offered down by CHUNK_WIDTH bits
    address : Out, DRAM address of the command that is offered, or else comes next
    place : Out, of the next word
    wants : Out(1), nothing goes on without another word
    """

    def __init__(self, config):
        self.config = config
        width = config.axi_address_width
        super().__init__(
            {
                "i": In(stream.Signature(config.axi_data_width)),
                "running": In(1),
                "locate": In(1),
                "target": In(width),
                "command": Out(stream.Signature(COMMAND_WIDTH)),
                "shift": In(1),
                "address": Out(width),
                "place": Out(width),
                "wants": Out(1),
            }
        )

    def elaborate(self, platform):
        # What says where the reader is:
        #
        # state      meaning                                    set by         cleared by
        # ---------  -----------------------------------------  -------------  ----------------
        # open       a command is being put together            begin          its last chunk
        # whole      a command is offered                       its last chunk taken
        # chunk      of the command, counts up                  emit           the last one
        # mask       words that follow, from this chunk on      begin          emit: moves down
        # low, half  the chunk's first word; it is there        take           emit
        # base, slot of the command                             begin
        # blank      its base is zeros                          begin
        # filled     slots with a command                       its last chunk
        m = Module()
        slots = add_ram(m, platform, name="slots", width=CHUNK_WIDTH, depth=SLOTS * _CHUNKS)
        beat_bits = (self.config.beat_bytes - 1).bit_length()
        count = beat_bits - (WORD_BYTES - 1).bit_length()  # bits of a word's number in its beat
        number = self.place[beat_bits - count : beat_bits]
        word = Signal(_WORD)
        open_ = Signal()
        whole = Signal()
        take = Signal()
        begin = Signal()
        emit = Signal()
        m.d.comb += [
            word.eq(self.i.payload.word_select(number, _WORD) if count else self.i.payload),
            begin.eq(self.running & self.i.valid & ~open_ & ~whole),
            self.i.ready.eq(take & number.all() if count else take),
        ]

        # The first word: what the command is made of. A whole one follows itself.
        header = data.View(fields_layout(PACKED), word)
        packed = header.code == PACKED_CODE
        chunk = Signal(range(_CHUNKS))
        mask = Signal(WORDS)
        base = Signal(range(SLOTS))
        slot = Signal(range(SLOTS))
        blank = Signal()
        filled = Signal(SLOTS)
        with m.If(begin):
            m.d.sync += [
                open_.eq(1),
                mask.eq(Mux(packed, header.words, -1)),
                base.eq(header.base),
                slot.eq(Mux(packed, header.slot, 0)),
                blank.eq(~packed | ~filled.bit_select(header.base, 1)),
            ]

        # Chunks: each is the base's, with the words that follow.
        low = Signal(_WORD)
        half = Signal()
        needs = Signal()
        first, second = mask[0], mask[1]
        old = Mux(blank, 0, slots.read_data)
        new = Cat(Mux(half, low, Mux(first, word, old[:_WORD])), Mux(second, word, old[_WORD:]))
        both = first & second & ~half
        got = self.running & self.i.valid
        m.d.comb += [
            needs.eq(first | second),
            emit.eq(open_ & Mux(needs, got & ~both, self.running)),
            take.eq((begin & packed) | (open_ & needs & got)),
            slots.read_en.eq(begin | emit),
            slots.read_address.eq(
                Mux(open_, Cat((chunk + 1)[: len(chunk)], base), header.base << len(chunk))
            ),
            slots.write_en.eq(emit & slot.any()),
            slots.write_address.eq(Cat(chunk, slot)),
            slots.write_data.eq(new),
        ]
        with m.If(open_ & both & got):
            m.d.sync += [low.eq(word), half.eq(1)]
        with m.If(emit):
            m.d.sync += [half.eq(0), mask.eq(mask[2:]), chunk.eq(chunk + 1)]
            with m.If(chunk == _CHUNKS - 1):
                m.d.sync += [open_.eq(0), whole.eq(1)]
                with m.If(slot.any()):
                    m.d.sync += filled.bit_select(slot, 1).eq(1)

        # The command, from the top.
        words = Signal(COMMAND_WIDTH)
        taken = self.command.valid & self.command.ready
        m.d.comb += [
            self.command.payload.eq(words),
            self.command.valid.eq(whole & self.running),
            self.wants.eq(~whole & (~open_ | needs)),
        ]
        with m.If(emit | self.shift):
            m.d.sync += words.eq(Cat(words[CHUNK_WIDTH:], new))
        with m.If(take):
            m.d.sync += self.place.eq(self.place + WORD_BYTES)
        with m.If(taken):
            m.d.sync += [whole.eq(0), self.address.eq(self.place)]
        with m.If(self.locate):
            m.d.sync += [self.place.eq(self.target), self.address.eq(self.target)]
        return m
