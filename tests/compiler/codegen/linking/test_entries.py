"""Who has touched which part of a memory."""

import pytest

from compiler.codegen.cost import Command
from compiler.codegen.linking.entries import DRAM, Entry, PagedSegments, Region, Segments
from hw.isa.encoding import Opcode


@pytest.mark.parametrize("size", [1 << 12, 1 << 24, 1 << 28], ids=["a page", "pages", "many"])
def test_pages(size, rng):
    """They know the same of every region as one list of all parts."""
    whole, paged = Segments(), PagedSegments()
    counts = {}
    for _ in range(300):
        begin, end = sorted(rng.choice(size + 1, 2, replace=False))
        region = Region(DRAM, int(begin), int(end))
        opcode = (Opcode.LOAD, Opcode.STORE)[rng.integers(2)]
        queue = int(rng.integers(2)), opcode, False
        counts[queue] = counts.get(queue, -1) + 1
        entries = [Entry(Command(opcode, queue[0]), queue, counts[queue], 0) for _ in range(2)]
        action = rng.choice(["touch", "note", "users"])
        for memory, entry in zip((whole, paged), entries, strict=True):
            if action == "note":
                memory.note(region, entry, writes=opcode is Opcode.STORE)
            elif action == "touch" and opcode is Opcode.STORE:
                memory.write(region, entry)
            elif action == "touch":
                memory.read(region, entry)
        assert entries[0].after == entries[1].after, region
        for readers in (False, True):
            found = [memory.users(region, readers=readers) for memory in (whole, paged)]
            assert found[0] == found[1], region
    assert any(counts.values())
