"""Packed commands: what the fetch makes of them, on every way through a program.

Covers: hw/control/command_reader.py, hw/control/fetch.py, hw/isa/packing.py.
"""

import random

import pytest

from hw.bus.signatures import RESP_SLVERR
from hw.isa.encoding import COMMAND_BYTES
from hw.isa.error_codes import ErrorCode
from hw.isa.field import pack_fields
from hw.isa.packing import LINE_BYTES, PACKED, PACKED_CODE, SLOTS, WORD_BYTES, WORDS, unpack
from tests.hw.control.test_fetch import BASE, Bench, config_of
from tests.hw.control.test_fetch_jumps import PACES, paces

#: Programs begin at a multiple of lines.
ADDRESS = 0x340
#: First bytes of commands that lead nowhere.
_CODES = range(0x20, 0x80)


def random_program(rng, count):
    """Commands, packed in any way, and the numbers of those with which another way may begin."""
    contents, entries, data = {}, [], bytearray()
    for number in range(count):
        if number == 0 or rng.random() < 0.15:
            contents = {}
            entries.append(number)
        if rng.random() < 0.1:
            data += bytes([rng.choice(_CODES)]) + rng.randbytes(COMMAND_BYTES - 1)
            continue
        base, slot = rng.choice([0, *contents]), rng.choice([0, *range(SLOTS)])
        mask = rng.choice([0, 1, 0x8001, rng.getrandbits(WORDS), rng.getrandbits(WORDS), 0xFFFF])
        if not base:
            mask |= 1  # a command of zeros would end the program
        fields = {"code": PACKED_CODE, "base": base, "slot": slot, "words": mask}
        data += pack_fields(PACKED, fields).to_bytes(WORD_BYTES, "little")
        words = bytearray(rng.randbytes(WORD_BYTES * mask.bit_count()))
        if mask & 1:
            words[0] = rng.choice(_CODES)
        data += words
        if slot:
            contents[slot] = number
    data += bytes(-len(data) % LINE_BYTES)
    return bytes(data), entries


class PackedBench(Bench):
    """A consumer that goes through a program as it likes, as far as packed commands allow it."""

    async def begin(self, data, entries, *, first=0, window=1 << 20):
        self.data, self.placed, self.entries = data, unpack(data, ADDRESS), entries
        self.index, self.offered, self.target = first, 0, None
        at = self.placed[first].begin
        await self.start(address=ADDRESS, size=len(data), window=window, at=at)

    def beat_at(self, address, number):
        width = self.config.beat_bytes
        place = address + number * width - BASE - ADDRESS
        assert 0 <= place < len(self.data), f"{place:#x} is outside the program"
        return int.from_bytes(self.data[place : place + width], "little")

    def offer(self, ready):
        ctx, fetch = self.ctx, self.fetch
        if not ctx.get(fetch.command.valid):
            self.offered = 0
        elif not self.offered:
            jumps = bool(self.entries) and (
                self.index == len(self.placed) - 1 or self.rng.random() < 0.3
            )
            self.target = None
            if jumps:
                near = [e for e in self.entries if abs(e - self.index) < 12] or self.entries
                self.target = self.rng.choice(self.rng.choice([near, self.entries]))
                ctx.set(fetch.jump_target, ADDRESS + self.placed[self.target].begin)
        jumps = self.target is not None
        self.ready = ready and (self.offered >= 3 or not jumps)
        ctx.set(fetch.command.ready, self.ready)
        ctx.set(fetch.jump, self.ready and jumps)

    def check_request(self, address, length):
        end = address + (length + 1) * self.config.beat_bytes
        assert self.first <= address < end <= self.end
        assert end % LINE_BYTES == 0, "a burst ends with its line"
        assert address // LINE_BYTES == (end - 1) // LINE_BYTES

    def consume(self, ready):
        fetch = self.fetch
        if not self.ctx.get(fetch.command.valid):
            return
        self.offered += 1
        one = self.placed[self.index]
        assert self.ctx.get(fetch.address) == self.first + one.begin, f"command {self.index}"
        found = self.ctx.get(fetch.command.payload).to_bytes(COMMAND_BYTES, "little")
        words = range(0, COMMAND_BYTES, WORD_BYTES)
        wrong = [n for n, w in enumerate(words) if found[w : w + 4] != one.command[w : w + 4]]
        assert not wrong, f"command {self.index}: words {wrong}"
        if self.ready:
            self.taken.append(self.index)
            self.offered = 0
            self.index = self.index + 1 if self.target is None else self.target
            self.target = None


@pytest.mark.parametrize(("pace", "width"), paces(32, 64, 512))
def test_random_ways(width, pace, seed):
    rng = random.Random(f"{seed} {pace} {width}")
    bench = PackedBench(config_of(width), rng.random(), **PACES[pace])

    async def process(bench):
        for count in (40, 200):
            data, entries = random_program(rng, count)
            await bench.begin(data, entries, first=rng.choice(entries))
            await bench.until(lambda: len(bench.taken) == 90, limit=20000)
            assert not bench.errors
            bench.ctx.set(bench.fetch.stop, 1)
            bench.owed = []

    bench.simulate(process)


def test_a_line_that_cannot_be_read(seed):
    """What was whole before it is offered; the command that lacks a word is the error's."""
    rng = random.Random(seed)
    for _ in range(8):
        data, _ = random_program(rng, 40)
        line = rng.randrange(1, len(data) // LINE_BYTES)
        answers = {BASE + ADDRESS + LINE_BYTES * line: (0, RESP_SLVERR)}
        bench = PackedBench(config_of(64), rng.random(), beat=0.7, answers=answers)

        async def process(bench, data=data, line=line):
            await bench.begin(data, [])
            whole = [one for one in bench.placed if one.end <= LINE_BYTES * line]
            await bench.until(lambda: bench.errors)
            assert len(bench.taken) == len(whole)
            place = bench.first + (whole[-1].end if whole else 0)
            assert bench.errors == [(ErrorCode.READ_SLVERR, place)]

        bench.simulate(process)


def test_a_command_behind_the_end(seed):
    """A command whose last words are behind the program is not whole."""
    rng = random.Random(seed)
    header = pack_fields(PACKED, {"code": PACKED_CODE, "base": 0, "slot": 1, "words": 0xFFFF})
    data = header.to_bytes(WORD_BYTES, "little") + bytes([1]) * 60
    bench = PackedBench(config_of(64), rng.random())

    async def process(bench):
        bench.data, bench.placed, bench.entries, bench.offered = data, [], [], 0
        bench.target = None
        with pytest.raises(ValueError, match="is not whole"):
            unpack(data)
        await Bench.start(bench, address=ADDRESS, size=LINE_BYTES)
        await bench.until(lambda: bench.errors)
        assert bench.errors == [(ErrorCode.PROGRAM_END, bench.first)]

    bench.simulate(process)


def test_a_slot_of_another_way_is_refused():
    """A loop whose body takes a slot that was filled in front of it."""
    from hw.isa.encoding import Opcode, encode

    def packed(base, slot, mask, words=b""):
        fields = {"code": PACKED_CODE, "base": base, "slot": slot, "words": mask}
        return pack_fields(PACKED, fields).to_bytes(WORD_BYTES, "little") + words

    first, second = packed(0, 3, 1, bytes([1, 0, 0, 0])), packed(3, 0, 0)
    loop = encode(Opcode.REPEAT, level=0, count=2, first=0x80)
    assert len(unpack(first + second + loop, 0x80)) == 3
    loop = encode(Opcode.REPEAT, level=0, count=2, first=0x80 + len(first))
    with pytest.raises(ValueError, match="0x88 takes a slot that is not filled on every way"):
        unpack(first + second + loop, 0x80)


def test_nothing_is_left_of_the_program_before(seed):
    """Behind a reset in any cycle slots are zeros, and no command is half there."""
    rng = random.Random(seed)
    bench = PackedBench(config_of(64), rng.random())

    async def process(bench):
        for moment in range(0, 90, 2):
            data, _ = random_program(rng, 20)
            await bench.begin(data, [])
            for _ in range(moment):
                await bench.step()
            bench.owed = []
            # Each command is made of a slot that nothing has been left in.
            fields = {"code": PACKED_CODE, "base": 0, "slot": 0, "words": 0x81}
            heads = (pack_fields(PACKED, fields | {"base": slot}) for slot in range(SLOTS))
            words = bytes([1]) * (2 * WORD_BYTES)
            parts = (head.to_bytes(WORD_BYTES, "little") + words for head in heads)
            await bench.begin(b"".join(parts), [])
            await bench.until(lambda: len(bench.taken) == SLOTS)
            assert not bench.errors
            bench.owed = []

    bench.simulate(process)
