"""One operand stream of VECTOR, a cycle at a time (hw/engines/vector/reader.py)."""

from hw.engines.vector.reader import VectorReader
from hw.isa.vector import Source

from .compilation import inline

__all__ = ["asks", "reader_takes_address", "step_reader"]

_DEPTH = VectorReader.DEPTH
_WIDE = int(Source.WIDE)
_POINTERS = 2 * _DEPTH


@inline
def asks(core, number):
    """Address of the word that is asked for, or -1."""
    full = (core.r_asked[number] - core.r_base[number]) % _POINTERS == _DEPTH
    if core.r_active[number] == 0 or full:
        return -1
    return core.r_address[number]


@inline
def reader_takes_address(core, number, served):
    """Whether the address of a step is accepted in this cycle."""
    return core.r_active[number] == 0 or (served and core.r_words[number] == 0)


@inline
def step_reader(core, number, sizes, source, held, served, address, take, release, start):
    """One cycle; ``address``: of the step that is accepted, or -1."""
    groups, chunks = sizes.groups, sizes.chunks
    wide, scalar = source == _WIDE, source > _WIDE
    arrived = core.r_arriving[number] >> 1 & 1
    core.r_arriving[number] = (core.r_arriving[number] << 1 | (1 if served else 0)) & 3
    filled = (core.r_filled[number] + arrived) % _POINTERS
    core.r_filled[number] = filled
    if served:
        core.r_asked[number] = (core.r_asked[number] + 1) % _POINTERS
        core.r_address[number] = (core.r_address[number] + 1) & 0xFFFFFF
        if core.r_words[number] == 0:
            core.r_active[number] = 0
        else:
            core.r_words[number] -= 1
    if address >= 0:
        core.r_active[number] = 1
        core.r_address[number] = address
        core.r_words[number] = chunks - 1 if wide else 0
    place, base = core.r_place[number], core.r_base[number]
    present, full = core.r_present[number] != 0, core.r_full[number] != 0
    group = core.r_group[number]
    other = held and not scalar and release
    following = (base + (chunks if wide else 1)) % _POINTERS
    if take:
        core.r_full[number] = 0
    advance, step_end = False, False
    if wide and groups % chunks != 0:
        stays = held and groups == 1
        step_end = core.r_word[number] == chunks - 1
        fetch = present and (not full or (take and not stays))
        word_end = core.r_slot[number] == groups - 1
        advance = fetch and word_end
        if take and stays:
            core.r_full[number] = 1
        if fetch:
            chunk_end = core.r_chunk[number] == chunks - 1
            core.r_chunk[number] = 0 if chunk_end else core.r_chunk[number] + 1
            core.r_slot[number] = 0 if word_end else core.r_slot[number] + 1
            if word_end:
                core.r_word[number] = 0 if step_end else core.r_word[number] + 1
            if chunk_end:
                core.r_full[number] = 1
        if other:
            core.r_slot[number] = core.r_word[number] = core.r_chunk[number] = 0
    else:
        load = (present or scalar) and (not full or take)
        step_end = group == groups - 1
        word_end = step_end
        if wide:
            inside = groups // chunks
            word_end = group % inside == inside - 1
        advance = load and not scalar and word_end
        if load:
            core.r_full[number] = 1
            if not scalar:
                core.r_group[number] = 0 if step_end else group + 1
    if advance:
        if step_end and held:
            place = base
        else:
            place = (place + 1) % _POINTERS
        if not held:
            base = place
        present = place != filled or (step_end and held)
    else:
        present = place != filled
    if other:
        base = place = following
        present = following != filled
    core.r_place[number], core.r_base[number] = place, base
    core.r_present[number] = 1 if present else 0
    if start or other:
        core.r_full[number] = core.r_group[number] = 0
