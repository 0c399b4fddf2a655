"""Packed commands are put together as hw/isa/packing.py says: word by word, from what is kept and
what comes."""

from amaranth.hdl import Array, Const, Mux, Signal
from amaranth.lib import data

from hw.config import make_config
from hw.control.command_queue import CHUNK_WIDTH
from hw.isa.encoding import COMMAND_WIDTH
from hw.isa.field import fields_layout
from hw.isa.packing import PACKED, PACKED_CODE, SLOTS, WORD_BYTES, WORDS
from verif.prove.proof import Mutant, Proof

__all__ = ["COMMAND_READER"]

_WORD = 8 * WORD_BYTES
_CHUNKS = COMMAND_WIDTH // CHUNK_WIDTH
_OF_CHUNK = WORDS // _CHUNKS  # words
_SLOT = 5  # where only one is looked at


def _ones(value):
    return sum(value[number] for number in range(len(value)))


def _build(harness, module, *, config, all_slots=True):
    m = harness.m
    width, beat_words = config.axi_address_width, config.axi_data_width // _WORD
    reader = harness.add(module.CommandReader(config))
    command, place = reader.command, reader.place
    taken = command.valid & command.ready

    def inner(name, bits=1):
        return harness.inner(f"dut.{name}", bits)

    open_, whole, begin, take = inner("open_"), inner("whole"), inner("begin"), inner("take")
    chunk, half = inner("chunk", (_CHUNKS - 1).bit_length()), inner("half")
    left, low, words = inner("mask", WORDS), inner("low", _WORD), inner("words", COMMAND_WIDTH)
    slot_bits = (SLOTS - 1).bit_length()
    base, slot, blank = inner("base", slot_bits), inner("slot", slot_bits), inner("blank")
    filled, read = inner("filled", SLOTS), inner("slots.read_data", CHUNK_WIDTH)

    harness.assume(
        "a place is given between two commands",
        ~reader.locate | taken | ~reader.running & ~open_ & ~whole,
    )
    harness.assume("it is that of a word", reader.target % WORD_BYTES == 0)
    harness.assume("what is moved down is offered", ~reader.shift | command.valid)

    # The words that come.
    number = place[(WORD_BYTES - 1).bit_length() : (config.beat_bytes - 1).bit_length()]
    word = reader.i.payload.word_select(number, _WORD) if beat_words > 1 else reader.i.payload
    last = number.all() if beat_words > 1 else Const(1)
    passed = reader.i.valid & reader.i.ready
    harness.claim("no word is taken that is not there", ~take | reader.i.valid & reader.running)
    harness.claim("nothing is taken while a command is offered", ~(take & command.valid))
    harness.claim("a beat is handed over with its last word", passed == (take & last))
    place_before = harness.delayed("place_before", place)
    took, located = harness.delayed("took", take), harness.delayed("located", reader.locate)
    target_before = harness.delayed("target_before", reader.target)
    harness.claim(
        "words are taken one behind the other, from where it was sent",
        ~harness.after_reset()
        | (place == Mux(located, target_before, place_before + WORD_BYTES * took)[:width]),
    )

    # A command as its first word says, and what has come of it.
    header = data.View(fields_layout(PACKED), word)
    packed, mask = Signal(), Signal(WORDS)
    own_base, own_slot = Signal(slot_bits), Signal(slot_bits)
    count, cycles = Signal(range(WORDS + 1)), Signal(range(2 * WORDS))
    for name, signal in (
        ("packed", packed), ("mask", mask), ("base", own_base), ("slot", own_slot),
        ("count", count), ("cycles", cycles),
    ):  # fmt: skip
        harness.watch(f"check_{name}", signal)
    is_packed = header.code == PACKED_CODE
    goes_on = reader.running & ~whole & (reader.i.valid | ~reader.wants)
    m.d.sync += cycles.eq(Mux(taken, 0, cycles + goes_on))
    with m.If(take & ~begin):
        m.d.sync += count.eq(count + 1)
    with m.If(begin):
        m.d.sync += [
            packed.eq(is_packed),
            mask.eq(Mux(is_packed, header.words, -1)),
            own_base.eq(Mux(is_packed, header.base, 0)),
            own_slot.eq(Mux(is_packed, header.slot, 0)),
            count.eq(0),
        ]
    harness.claim(
        "a command begins as soon as there is a word",
        begin == (reader.running & reader.i.valid & ~open_ & ~whole),
    )
    expected = Signal(width)
    harness.watch("check_expected", expected)
    with m.If(reader.locate):
        m.d.sync += expected.eq(reader.target)
    with m.Elif(taken):
        m.d.sync += expected.eq(place)
    harness.claim(
        "the address is where it was sent, or where the command before ended",
        ~command.valid | (reader.address == expected),
    )
    harness.claim(
        "a command is offered with all its words", ~command.valid | (count == _ones(mask))
    )
    harness.claim(
        "it ends behind them",
        ~command.valid | (place == (reader.address + WORD_BYTES * (count + packed))[:width]),
    )

    def pairs(values):
        return sum(values[n : n + _OF_CHUNK].all() for n in range(0, len(values), _OF_CHUNK))

    harness.claim(
        "that takes a cycle, one for each chunk, and one more for each that comes as a whole",
        ~command.valid | (cycles == 1 + _CHUNKS + pairs(mask)),
    )
    offered = harness.delayed("offered", command.valid & ~command.ready)
    harness.claim("it is offered until it is taken", ~(offered & reader.running) | command.valid)

    # One word of all commands, any, and one slot.
    of_word = harness.constant("of_word", WORDS.bit_length() - 1)
    of_slot = harness.constant("of_slot", slot_bits) if all_slots else Const(_SLOT, slot_bits)
    came, kept = Signal(_WORD, reset_less=True), Signal(_WORD, reset_less=True)
    there, stored, shifted = Signal(), Signal(), Signal()
    for name, signal in (
        ("came", came), ("kept", kept), ("there", there), ("stored", stored), ("shifted", shifted),
    ):  # fmt: skip
        harness.watch(f"check_{name}", signal)
    comes = mask.bit_select(of_word, 1)
    before = sum(mask[n] & (of_word > n) for n in range(WORDS))  # words that come in front of it
    with m.If(take & ~begin & comes & (count == before)):
        m.d.sync += came.eq(word)
    shown = command.payload.word_select(of_word, _WORD)
    m.d.sync += [stored.eq(whole & ~taken), shifted.eq(whole & ~taken & (shifted | reader.shift))]
    with m.If(whole & ~stored & (own_slot == of_slot) & own_slot.any()):
        m.d.sync += [kept.eq(shown), there.eq(1)]
    old = Mux(there & (own_base == of_slot), kept, 0)
    known = comes | (own_base == 0) | (own_base == of_slot)
    right = Mux(comes, came, old)
    harness.claim(
        "a word is that which came for it, or that of the slot it is made of, or 0",
        ~(command.valid & ~shifted & known) | (shown == right),
    )

    # What the registers hold.
    busy = open_ | whole
    done = Mux(whole, _CHUNKS, chunk)  # chunks
    at = of_word // _OF_CHUNK
    harness.invariant("a command is being made, or it is offered", ~(open_ & whole))
    harness.invariant("between two, all is at its begin", open_ | (chunk == 0) & ~half)
    harness.invariant("places are those of words", place % WORD_BYTES == 0)
    harness.invariant("a command has an address", reader.address == expected)
    harness.invariant("between two, that is the place", busy | (place == expected))
    harness.invariant("between two, no time has passed", busy | (cycles == 0))
    harness.invariant(
        "the words that follow are left", ~open_ | (left == mask >> _OF_CHUNK * chunk)
    )
    harness.invariant("what is half there comes as a whole", ~half | left[:_OF_CHUNK].all())
    past = mask & ~(Const(-1, WORDS + 1) << (_OF_CHUNK * done))[:WORDS]
    harness.invariant("words are counted", ~busy | (count == _ones(past) + half))
    harness.invariant(
        "places, too", ~busy | (place == (expected + WORD_BYTES * (count + packed))[:width])
    )
    harness.invariant("and cycles", ~busy | (cycles == 1 + done + pairs(past) + half))
    harness.invariant("a whole command is its own", ~busy | packed | mask.all() & ~own_slot.any())
    harness.invariant("the slot is known", ~busy | (slot == own_slot))
    harness.invariant("so is the base", ~(busy & packed) | (base == own_base))
    new = whole & ~stored & (own_slot == of_slot) & own_slot.any()
    harness.invariant("slots are filled", filled.bit_select(of_slot, 1) == there | new)
    harness.invariant("not that of zeros", ~filled[0])
    harness.invariant("there is none in it", ~there | of_slot.any())
    harness.invariant(
        "what is not filled is zeros",
        ~busy | whole | (blank == ~packed | ~filled.bit_select(own_base, 1)),
    )
    harness.invariant(
        "the first word of a chunk is the one that came",
        ~(half & (of_word == _OF_CHUNK * chunk)) | (low == came),
    )
    harness.invariant("stored is what is whole", ~(stored | shifted) | whole)
    harness.invariant("moved is what is stored", ~shifted | stored)
    at_word = words.word_select((WORDS - _OF_CHUNK * done + of_word)[:5], _WORD)
    made = busy & (at < done) & ~shifted
    harness.invariant("what is made is right", ~(made & known) | (at_word == right))
    cells = Array(inner(f"slots.memory[{n}]", CHUNK_WIDTH) for n in range(SLOTS * _CHUNKS))
    cell = cells[(of_slot * _CHUNKS + at)[:7]].word_select(of_word % _OF_CHUNK, _WORD)
    own = (own_slot == of_slot) & own_slot.any() & ~stored
    harness.invariant("it is kept", ~(made & own) | (cell == at_word))
    harness.invariant("what was kept stays", ~there | busy & own & (at < done) | (cell == kept))
    harness.invariant(
        "what is kept is read in time",
        ~(open_ & there & packed & (own_base == of_slot) & (at == chunk))
        | (read.word_select(of_word % _OF_CHUNK, _WORD) == kept),
    )
    harness.cover("a packed command", command.valid & packed, within=11)
    if all_slots:  # runs that take a while to find
        harness.cover("a whole one", command.valid & ~packed, within=19)
        again = packed & there & (own_base == of_slot)
        harness.cover("one that is made of another", command.valid & again, within=22)


COMMAND_READER = Proof(
    name="command-reader",
    what="packed commands: every word from where it belongs; place, address, cycles of a command",
    module="hw.control.command_reader",
    build=_build,
    configurations={
        f"64-bit bus, slot {_SLOT}": {
            "config": make_config(preset="tiny", axi_data_width=64),
            "all_slots": False,
        },
        "64-bit bus": {"config": make_config(preset="tiny", axi_data_width=64)},
        "paper": {"config": make_config()},
        "512-bit bus, 64 address bits": {
            "config": make_config(axi_data_width=512, axi_address_width=64)
        },
        "32-bit bus": {"config": make_config(preset="tiny", axi_data_width=32)},
    },
    mutants=(
        Mutant(
            name="a whole command is read as a packed one",
            old="mask.eq(Mux(packed, header.words, -1))",
            new="mask.eq(header.words)",
            cycles=11,
        ),
        Mutant(
            name="a whole command is left in a slot",
            old="slot.eq(Mux(packed, header.slot, 0))",
            new="slot.eq(header.slot)",
        ),
        Mutant(
            name="a slot that is not filled is no zeros",
            old="~packed | ~filled.bit_select(header.base, 1)",
            new="~packed | ~filled.any()",
        ),
        Mutant(
            name="slot 0 is filled",
            old="                with m.If(slot.any()):",
            new="                with m.If(1):",
        ),
        Mutant(
            name="the chunk before is read again",
            old="Cat((chunk + 1)[: len(chunk)], base)",
            new="Cat(chunk, base)",
        ),
        Mutant(
            name="the first word of two is lost",
            old="Mux(half, low, Mux(first, word, old[:_WORD]))",
            new="Mux(half & ~second, low, Mux(first, word, old[:_WORD]))",
            cycles=12,
        ),
        Mutant(
            name="a word is taken for two chunks",
            old="mask.eq(mask[2:])",
            new="mask.eq(mask[1:])",
            cycles=11,
        ),
        Mutant(
            name="it goes on while a command is offered",
            old="begin.eq(self.running & self.i.valid & ~open_ & ~whole)",
            new="begin.eq(self.running & self.i.valid & ~open_)",
            cycles=11,
        ),
        Mutant(
            name="a chunk without a word takes one",
            old="needs.eq(first | second)",
            new="needs.eq(1)",
            cycles=11,
        ),
        Mutant(
            name="the address is that of the command before",
            old="whole.eq(0), self.address.eq(self.place)",
            new="whole.eq(0)",
        ),
    ),
)
