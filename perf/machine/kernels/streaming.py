"""Stretches in which a core's array takes vector after vector and nothing else moves.

Whether they begin is seen by watching: if in as many cycles as the semaphores have turns nothing
but the array's own state has changed, nothing else changes until the tile ends.
"""

from .compilation import inline
from .loss import loss_reads
from .matmul import matmul_step, step_matmul
from .queues import ask
from .store import store_reads
from .vector_reader import asks
from .weights import weights_request

__all__ = ["OWN_COUNTS", "left_in_tile", "stream", "unchanged"]

_VALID = 3
#: Vectors of a tile that must be behind, so that only its middle is on the way.
_BEHIND = 8
#: The counters that step_matmul counts by itself, the first of a core's.
OWN_COUNTS = 6


@inline
def left_in_tile(core, commands):
    """Vectors until a tile ends, 0 unless the array is in its middle."""
    if core.m_active == 0 or core.m_walk != _VALID or core.m_valid == 0:
        return 0
    command = commands[core.m_command]
    if command.transpose != 0:
        return 0
    place = core.m_wo + command.wo_count * (core.m_ho + command.ho_count * core.m_n)
    if place < _BEHIND:
        return 0
    return command.wo_count * command.ho_count * command.n_count - place


@inline
def unchanged(state, core, commands, memory, before, first, last):
    """Whether all state but that in places ``first`` to ``last`` is as ``before``, and nothing but
    the array asks for words or waits for memory."""
    if state.m_bursts[0] != 0 or state.n_done[0] != 0:
        return False
    if core.m_finals_ago != 0 or core.m_biases_ago != 0:
        return False
    for index in range(first):
        if memory[index] != before[index]:
            return False
    for index in range(last, len(memory)):
        if memory[index] != before[index]:
            return False
    if weights_request(core, commands) >= 0 or store_reads(core) >= 0 or loss_reads(core) >= 0:
        return False
    return asks(core, 0) < 0 and asks(core, 1) < 0 and asks(core, 2) < 0


@inline
def stream(
    state, cores, number, sizes, commands, core_counts, counters, earlier, own, count, turns
):
    """``count`` vectors. ``counters``, ``earlier``: all counters now and ``turns`` cycles ago;
    ``own``: the place of those of the core."""
    core, size, tally = cores[number], sizes[number], core_counts[number]
    for index in range(len(counters)):
        if index < own or index >= own + OWN_COUNTS:
            counters[index] += (counters[index] - earlier[index]) // turns * count
    for _ in range(count):
        issues, word = matmul_step(core)
        step_matmul(core, size, commands, tally, False, issues, word >= 0, False)
    state.t_turn = (state.t_turn + count) % turns
    ask(state, cores, commands, (state.t_turn + turns - 1) % turns)
