"""From runs to bursts, a cycle at a time (hw/dma/burst.py). LOAD and STORE have one each.

Places in memory count in granules from the beginning of the block in which a run or the rest of it
begins, as nothing else decides how it is cut.
"""

from .compilation import inline

__all__ = ["FINAL", "FIRST", "LAST", "burst_length", "burst_end", "burst_offset", "step_planner"]

#: Bits of a burst; then 8 bits each: beats minus one, first and last granule.
FIRST, LAST, FINAL = 1, 2, 4
_LENGTH, _OFFSET, _END = 3, 11, 19


@inline
def burst_length(burst):
    return burst >> _LENGTH & 0xFF


@inline
def burst_offset(burst):
    return burst >> _OFFSET & 0xFF


@inline
def burst_end(burst):
    return burst >> _END & 0xFF


@inline
def step_planner(planner, sizes, command, accepted, address, sent):
    """One cycle; ``accepted``: ``command`` is, the first run of which begins at byte ``address`` of
    its block; ``sent``: the burst that is offered leaves."""
    if accepted == 0 and planner.active == 0 and planner.valid == 0 and planner.cut_valid == 0:
        if sent:
            planner.out = planner.burst = 0
        return
    block, bits = sizes.block_granules, sizes.beat_bits
    last_block = planner.cut_last < block
    emit = planner.cut_valid != 0 and (planner.out == 0 or sent)
    run_done = emit and last_block
    advance = planner.valid != 0 and (planner.cut_valid == 0 or run_done)
    enter = planner.active != 0 and (planner.valid == 0 or advance)
    if emit:
        end = planner.cut_last if last_block else block - 1
        low = (1 << bits) - 1
        burst = ((end >> bits) - (planner.cut_from >> bits)) << _LENGTH
        burst |= (planner.cut_from & low) << _OFFSET | (end & low) << _END
        burst |= FIRST if planner.cut_first != 0 else 0
        if last_block:
            burst |= LAST | (FINAL if planner.cut_final != 0 else 0)
        planner.out, planner.burst = 1, burst
    elif sent:
        planner.out = planner.burst = 0
    if advance:
        planner.cut_from, planner.cut_last = planner.begin, planner.last
        planner.cut_first, planner.cut_final, planner.cut_valid = 1, planner.final, 1
    elif run_done:
        planner.cut_valid = 0
    elif emit:
        planner.cut_from = planner.cut_first = 0
        planner.cut_last -= block
    if enter:
        planner.begin, planner.last = planner.first, planner.first + planner.extent
        planner.final, planner.valid = 1 if planner.runs == 0 else 0, 1
        planner.first = (planner.first + planner.stride) % block
        if planner.runs == 0:
            planner.active = 0
        else:
            planner.runs -= 1
    elif advance:
        planner.valid = 0
    if accepted:
        planner.active = 1
        planner.first = address // sizes.granule
        planner.extent = command.run_bytes // sizes.granule - 1
        planner.stride = command.run_stride // sizes.granule % block
        planner.runs = command.run_count - 1
