"""Room in the buffer while commands are written."""

import random

import pytest

from compiler.codegen.scratchpad import NoRoom, Scratch, arrange
from compiler.tensors.tensor import PREDICTOR_MEMORY
from hw.config import make_config

CONFIG = make_config(variant="efficient", preset="tiny")


def test_blocks_in_use_never_overlap(seed):
    rng = random.Random(seed)
    scratch, used = Scratch(CONFIG), []
    for step in range(2000):
        if used and rng.random() < 0.5:
            scratch.release(used.pop(rng.randrange(len(used))))
            continue
        key = rng.choice((None, ("x", rng.randrange(20))))
        block = scratch.find(key) if key else None
        if block is None:
            try:
                block = scratch.take(rng.randrange(1, 300), apart=(used[-2:], used[:1]), key=key)
            except NoRoom:
                continue
        used.append(block)
        assert 0 <= block.address and block.address + block.words <= scratch.words
        for other in used:
            if other is not block:
                apart = (
                    other.address + other.words <= block.address
                    or block.address + block.words <= other.address
                )
                assert apart, f"step {step}: {block} and {other} overlap"


def test_contents_stay_until_their_room_is_wanted():
    scratch = Scratch(CONFIG)
    third = scratch.words // 3
    blocks = [scratch.take(third, key=name) for name in "abc"]
    for block in blocks:
        scratch.release(block)
    assert scratch.find("a") is blocks[0]
    scratch.release(blocks[0])
    # b is the one that nobody has asked for longest.
    scratch.take(third, key="d")
    assert scratch.find("b") is None
    assert scratch.find("a") is blocks[0]
    assert scratch.find("c") is blocks[2]


def test_dropped_contents_are_not_found_but_stay_in_use():
    scratch = Scratch(CONFIG)
    block = scratch.take(10, key="a")
    scratch.drop([block])
    assert scratch.find("a") is None
    other = scratch.take(scratch.words - 10)
    with pytest.raises(NoRoom, match=f"1 more words .* {scratch.words}, of which {scratch.words}"):
        scratch.take(1)
    scratch.release(block)
    assert scratch.take(10).address == block.address
    assert other.address != block.address


def test_another_bank_if_there_is_one():
    scratch = Scratch(CONFIG)
    first = scratch.take(10)
    second = scratch.take(10, apart=([first],))
    assert second.address // scratch.bank_depth != first.address // scratch.bank_depth


def test_the_first_group_counts_most():
    """Where every bank is somebody's, one of the second group's is shared."""
    scratch = Scratch(CONFIG)
    banks = scratch.words // scratch.bank_depth
    blocks = [scratch.take(10)]
    while len(blocks) < banks:
        blocks.append(scratch.take(10, apart=(blocks,)))
    for first in range(banks):
        inputs = [block for number, block in enumerate(blocks) if number != first]
        block = scratch.take(10, apart=(inputs, [blocks[first]]))
        assert block.address // scratch.bank_depth == blocks[first].address // scratch.bank_depth
        scratch.release(block)


def test_predictor_memory():
    scratch = Scratch(CONFIG, 1)
    assert scratch.words == CONFIG.memory_depth[1]
    assert scratch.take(1).address >= PREDICTOR_MEMORY


def test_held_words_are_nobody_else_s():
    scratch = Scratch(CONFIG)
    old = scratch.take(10, key="old")
    scratch.release(old)
    held = scratch.hold(20)
    assert (held.address, scratch.find("old")) == (0, None)
    rest = scratch.take(scratch.words - 20)
    assert rest.address == 20
    scratch.release(held)
    with pytest.raises(NoRoom):
        scratch.take(1)
    scratch.let_go(held)
    assert scratch.take(20).address == 0


def test_banks_count_from_the_first_word_of_the_memory():
    """Also where words in front are reserved."""
    scratch = Scratch(CONFIG)
    scratch.reserve(scratch.bank_depth - 8)
    first = scratch.take(4)
    second = scratch.take(4, apart=([first],))
    assert first.address // scratch.bank_depth != second.address // scratch.bank_depth


def test_blocks_side_by_side_get_banks_of_their_own():
    config = make_config(variant="baseline", preset="tiny")
    assert arrange(config, 0, [100, 512, 600]) == ([0, 512, 1024], True)
    assert arrange(config, 0, [600, 600, 600]) == ([0, 600, 1200], False)
    assert arrange(config, 0, [1024, 1024, 1]) is None


def test_blocks_side_by_side_lie_behind_what_was_taken_last():
    scratch = Scratch(make_config(variant="baseline", preset="tiny"))
    first = scratch.take_side_by_side([100, 512])
    assert [block.address for block in first] == [0, 512]
    for block in first:
        scratch.release(block)
    second = scratch.take_side_by_side([100, 100])
    assert [block.address for block in second] == [1024, 1536]
    for block in second:
        scratch.release(block)
    assert [block.address for block in scratch.take_side_by_side([1000, 1048])] == [0, 1000]
    with pytest.raises(NoRoom, match="2049 words do not fit into a memory of 2048"):
        scratch.take_side_by_side([2048, 1])


def test_what_stays_lies_at_an_edge_of_the_smallest_place():
    """In the middle of a place it would leave two pieces, with less room in each."""
    scratch = Scratch(make_config(variant="baseline", preset="tiny"))
    first, middle = scratch.take(100), scratch.take_at(1500, 200)
    kept = scratch.take(300, edge=True)
    assert (first.address, middle.address, kept.address) == (0, 1500, scratch.words - 300)
    assert scratch.take(40, edge=True).address == 1700  # 48 words are free there, else 1400
    scratch.release(first)
    assert scratch.take(90, edge=True).address == 0
    assert scratch.take(1410, edge=True).address == 90
    with pytest.raises(NoRoom, match="9 more words do not fit"):
        scratch.take(9, edge=True)
