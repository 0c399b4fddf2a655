"""A run from event to event: commands come to their queues, take tokens, begin, end and give."""

from hw.control.fetch import AHEAD, KEPT
from hw.isa.encoding import Opcode

from .compilation import inline, kernel
from .control import loop_address
from .event_state import ENDING
from .queues import LOAD, LOSS, MATMUL, POST, QUEUES, STORE, VECTOR, WEIGHTS
from .sharing import share

__all__ = ["simulate_events"]

_HALT, _REPEAT = int(Opcode.HALT), int(Opcode.REPEAT)
_LOAD, _STORE = int(Opcode.LOAD), int(Opcode.STORE)
_QUEUES, _ENDING = QUEUES, ENDING
#: Lines of the program that a jump back finds in the ring.
_NEAR = KEPT - AHEAD
_NEVER, _NOTHING = 1e18, 1e-6
#: Cycles of a REPEAT; of one that reads again, beyond the memory's latency.
_JUMP, _REFETCH = 4, 16
#: Cycles from a command's last chunk in its queue to its first one out of it; from its turn at the
#: semaphores to its engine; from the end of its work until its tokens count.
_BEHIND, _GRANT, _GIVE = 2, 2, 3
#: Cycles from the last word of a tile to the first vector behind it; a MATMUL's until it asks.
_LOADED, _ASKS = 8, 2


@kernel
def simulate_events(commands, works, which, sizes, queues, cores, run, tokens, loop, ends):
    """Executes a program to its end; the number of cycles, or -1 if nothing happens any more.

    ``commands`` (:data:`perf.machine.records.COMMAND`), ``works`` and ``which``
    (:meth:`perf.machine.events.work.Works.of`): of the program. ``sizes``: depth of a queue,
    turns of the semaphores, the memory's latency, bytes of a granule, 64-bit words of a line.
    ``queues``, ``cores``, ``run`` (:mod:`.event_state`), ``tokens`` of the semaphores and counters
    of the ``loop`` levels: the state. ``ends``: for each command when its last execution gave its
    tokens.
    """
    granules = which.shape[1]
    kinds = which.reshape(which.size)
    now = 0.0
    state = run[0]
    while True:
        happens, moves = True, False
        while happens:
            happens = False
            for number in range(len(queues)):
                queue = queues[number]
                if _give(queue, commands, tokens, ends, granules, now):
                    happens = True
                if _finish(queue, cores, number, works, kinds, now):
                    happens = moves = True
                if _grant(queue, commands, tokens, granules, number, sizes[1], now):
                    happens = True
                if _begin(queues, number, commands, works, kinds, granules, cores, now):
                    happens = moves = True
            if _push(state, queues, commands, loop, sizes, granules, now):
                happens = True
        if moves:
            share(works, kinds, queues, len(cores), now)
        following = _next(state, queues, now)
        if following >= _NEVER:
            break
        starts = False
        for number in range(len(queues)):
            queue = queues[number]
            if queue.running < 0:
                continue
            if queue.begins <= now:
                queue.left -= (following - now) * queue.rate
            elif queue.begins <= following:
                starts = True
        now = following
        if starts:
            share(works, kinds, queues, len(cores), now)
    for number in range(len(queues)):
        if queues[number].head >= 0 or queues[number].running >= 0:
            return -1
    return int(now) if state.halted != 0 else -1


@inline
def _give(queue, commands, tokens, ends, granules, now):
    """Tokens of a command that is over count from now on."""
    if queue.endings == 0 or queue.given[0] > now:
        return False
    place = queue.ending[0] // granules
    _add(tokens, commands[place].signal, 1)
    ends[place] = int(now)
    for index in range(1, queue.endings):
        queue.ending[index - 1] = queue.ending[index]
        queue.given[index - 1] = queue.given[index]
    queue.endings -= 1
    return True


@inline
def _add(tokens, mask, count):
    """So many tokens to each semaphore of a mask."""
    number = 0
    while mask != 0:
        if mask & 1:
            tokens[number] += count
        mask >>= 1
        number += 1


@inline
def _finish(queue, cores, number, works, kinds, now):
    """An engine has done its work."""
    if queue.running < 0 or queue.begins > now or queue.left > _NOTHING:
        return False
    if queue.endings == _ENDING:
        return False
    work = works[kinds[queue.running]]
    queue.ending[queue.endings] = queue.running
    queue.given[queue.endings] = now + work.tail + _GIVE
    queue.endings += 1
    queue.running, queue.free = -1, now
    core, kind, taken = cores[number // _QUEUES], number % _QUEUES, now - queue.accepted
    if kind == MATMUL:
        core.vectors += work.vectors
        core.tiles += work.tiles
    elif kind == POST:
        core.busy_post += taken
        core.stall_post += work.stalls + taken - work.cycles
    elif kind == VECTOR:
        core.busy_vector += taken
        core.stall_vector += work.stalls + taken - work.cycles
    elif kind == LOSS:
        core.busy_loss += taken
    elif kind == LOAD:
        core.busy_load += taken
        core.read_beats += work.read_beats
    elif kind == STORE:
        core.busy_store += taken
        core.write_beats += work.write_beats
        core.write_bytes += work.write_bytes
    return True


@inline
def _grant(queue, commands, tokens, granules, number, turns, now):
    """The first command of a queue takes its tokens, all together."""
    if queue.head < 0 or queue.granted != 0 or queue.shown > now:
        return False
    wanted = commands[queue.head // granules].wait
    mask, semaphore = wanted, 0
    while mask != 0:
        if mask & 1 and tokens[semaphore] == 0:
            return False
        mask >>= 1
        semaphore += 1
    _add(tokens, wanted, -1)
    queue.granted = 1
    queue.ready = now + (number + 1 - now) % turns + _GRANT
    return True


@inline
def _begin(queues, number, commands, works, kinds, granules, cores, now):
    """An engine accepts the first command of its queue, and the next one moves up."""
    queue = queues[number]
    if queue.head < 0 or queue.granted == 0 or queue.ready > now or queue.running >= 0:
        return False
    core, kind = cores[number // _QUEUES], number % _QUEUES
    work = works[kinds[queue.head]]
    begins, left = now, float(work.cycles)
    if kind == WEIGHTS:
        # Into the bank that the array leaves with the last tile before.
        core.tile_ready = max(now, core.tile_free) + work.pace + _LOADED
        core.weights += 1
        left = float(work.tiles * work.pace)
    elif kind == MATMUL:
        if core.products == core.weights:
            return False
        core.products += 1
        begins = max(now + _ASKS, core.tile_ready)
        each = work.cycles / max(1, work.tiles)
        core.tile_free = begins + (work.tiles - 1) * each
        # Its weights cannot be read faster than it takes them.
        weights = queues[number - MATMUL + WEIGHTS]
        if weights.running >= 0:
            until = begins + max(0, work.tiles - 2) * each + work.pace
            weights.left = max(weights.left, until - now)
    elif kind == POST or kind == VECTOR or kind == LOSS:
        begins = max(now, queue.free + 1)
    elif kind == LOAD:
        # Asked for while the one before still comes.
        begins = max(now, queue.ready + work.head)
    queue.running = queue.head
    queue.accepted = now if kind == LOAD else begins
    queue.begins, queue.left, queue.rate = begins, left, 1.0
    queue.head, queue.granted = -1, 0
    if queue.held != 0:
        queue.head = queue.fifo[0]
        chunks = commands[queue.head // granules].chunks
        queue.shown = max(now, queue.pushed[0]) + chunks + _BEHIND
        for index in range(1, queue.held):
            queue.fifo[index - 1] = queue.fifo[index]
            queue.pushed[index - 1] = queue.pushed[index]
        queue.held -= 1
    return True


@inline
def _push(state, queues, commands, loop, sizes, granules, now):
    """The sequencer's next command: into its queue, or back to the first one of its loop."""
    if state.halted != 0 or state.time > now:
        return False
    place = state.place
    command = commands[place]
    if command.opcode == _HALT:
        state.halted = 1
        state.executed += 1
        return True
    if command.opcode == _REPEAT:
        state.executed += 1
        state.time = now + _JUMP
        if loop[command.level] + 1 < command.count:
            loop[command.level] += 1
            words = command.begin - commands[command.target].begin
            if words > _NEAR * sizes[4]:
                state.time += sizes[2] + _REFETCH
                state.again += words
            state.place = command.target
        else:
            loop[command.level] = 0
            state.place += 1
        return True
    queue = queues[command.core * _QUEUES + command.queue]
    if queue.held == sizes[0]:
        return False
    arrives = now + 1 + command.chunks
    number = place * granules
    if command.opcode == _LOAD or command.opcode == _STORE:
        address, adds = loop_address(command, loop)
        arrives += adds
        number += address // sizes[3] % granules
    if queue.head < 0 and queue.held == 0:
        queue.head = number
        queue.shown = arrives + command.chunks + _BEHIND
    else:
        queue.fifo[queue.held], queue.pushed[queue.held] = number, arrives
        queue.held += 1
    state.executed += 1
    state.time = arrives
    state.place += 1
    return True


@inline
def _next(state, queues, now):
    """When something can happen next."""
    following = _NEVER
    if state.halted == 0 and state.time > now:
        following = state.time
    for number in range(len(queues)):
        queue = queues[number]
        if queue.endings != 0:
            following = min(following, queue.given[0])
        if queue.running >= 0:
            if queue.begins > now:
                following = min(following, queue.begins)
            elif queue.left > _NOTHING:
                following = min(following, now + queue.left / queue.rate)
        if queue.head >= 0:
            if queue.granted == 0:
                if queue.shown > now:
                    following = min(following, queue.shown)
            elif queue.ready > now:
                following = min(following, queue.ready)
    return following
