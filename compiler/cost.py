"""How long a command stream takes: a timing estimate of the four queues of every core.

Good for choosing between plans. It knows queues, semaphores, the dispatcher, burst and word
rates, and nothing of conflicts between blocks. The hardware's own counters are the truth.
"""

from dataclasses import dataclass, field

from hw.commands import COMMAND_BYTES, MATMUL_LOOPS, POST_LOOPS, Opcode

__all__ = ["Command", "Timeline", "bits", "estimate", "matmul_shape"]

#: Cycles from a request to its first beat, and for a command to take effect.
MEMORY_LATENCY_CYCLES = 40
MATMUL_LATENCY_CYCLES = 24
POST_LATENCY_CYCLES = 16
#: Least cycles between two K tiles: for a tile's weights beyond one per column, and for the sums.
WEIGHT_CYCLES = 5
SUM_CYCLES = 20
#: Cycles a queue needs between two commands.
COMMAND_CYCLES = 4
START_CYCLES = 100


@dataclass
class Command:
    """A command before it is encoded; ``wait`` and ``signal`` are masks, ``fields`` the rest."""

    opcode: Opcode
    core: int = 0
    wait: int = 0
    signal: int = 0
    fields: dict = field(default_factory=dict)


def _product(fields, names):
    result = 1
    for name in names:
        result *= fields[f"{name}_count"]
    return result


def matmul_shape(fields):
    """(K tiles, output vectors) of a MATMUL."""
    return _product(fields, MATMUL_LOOPS[3:]), _product(fields, MATMUL_LOOPS[:3])


def _duration(command, config, core):
    """(cycles the queue is busy, further cycles until the signal)."""
    fields = command.fields
    if command.opcode is Opcode.MATMUL:
        tiles, vectors = matmul_shape(fields)
        # A K tile cannot be shorter than the next one's way into the array, nor than the way of
        # a sum back to the adder.
        least = max(core.columns + WEIGHT_CYCLES, SUM_CYCLES)
        return tiles * max(vectors, least) + COMMAND_CYCLES, MATMUL_LATENCY_CYCLES
    if command.opcode is Opcode.POST:
        results = _product(fields, POST_LOOPS[2:])
        # A wide result leaves as several groups, one in each cycle.
        groups = core.chunks_per_wide if fields["wide"] else 1
        window = _product(fields, POST_LOOPS[:2])
        return results * max(window, groups) + COMMAND_CYCLES, POST_LATENCY_CYCLES
    if command.opcode is Opcode.HALT:
        return 0, 0
    run, count = fields["run_bytes"], fields["run_count"]
    rows = run // fields["row_bytes"] * count
    words = rows * -(-fields["row_bytes"] // core.word_bytes)
    beats = -(-run // config.beat_bytes) * count
    if fields["dram_address"] % config.beat_bytes or fields["run_stride"] % config.beat_bytes:
        beats += count
    return max(words, beats) + COMMAND_CYCLES, MEMORY_LATENCY_CYCLES


class Timeline:
    """Queues and semaphores as commands are pushed in stream order.

    Parameters
    ----------
    config : AdaGPConfig
    shared : one dispatcher serves all cores, as in the hardware; otherwise each core has its own
    """

    def __init__(self, config, *, shared=True):
        self.config = config
        self._cores = config.cores
        self.shared = shared
        self.end = START_CYCLES
        self._dispatch, self._free, self._starts = {}, {}, {}
        self._tokens, self._taken = {}, {}
        self._dispatch_cycles = 2 + COMMAND_BYTES // config.beat_bytes

    def ready(self, command):
        """Whether every token the command takes has been given by a command pushed before."""
        return all(
            len(self._tokens.get(semaphore, ())) > self._taken.get(semaphore, 0)
            for semaphore in bits(command.wait)
        )

    def dispatch(self, command):
        """Cycle in which the command would enter its queue."""
        core = 0 if self.shared else command.core
        cycle = self._dispatch.get(core, START_CYCLES) + self._dispatch_cycles
        starts = self._starts.get((command.core, command.opcode), ())
        depth = self.config.command_queue_depth
        return max(cycle, starts[-depth - 1]) if len(starts) > depth else cycle

    def push(self, command):
        """Execute ``command``; returns the cycle in which it starts."""
        key = (command.core, command.opcode)
        entered = self.dispatch(command)
        self._dispatch[0 if self.shared else command.core] = entered
        start = max(entered, self._free.get(key, 0))
        for semaphore in bits(command.wait):
            index = self._taken.get(semaphore, 0)
            self._taken[semaphore] = index + 1
            start = max(start, self._tokens[semaphore][index])
        busy, latency = _duration(command, self.config, self._cores[command.core])
        self._free[key] = start + busy
        end = start + busy + latency
        self.end = max(self.end, end)
        for semaphore in bits(command.signal):
            self._tokens.setdefault(semaphore, []).append(end)
        self._starts.setdefault(key, []).append(start)
        return start


def estimate(commands, config):
    """Cycles from start to interrupt of ``commands``, in an order in which each one's tokens are
    given by earlier ones."""
    timeline = Timeline(config)
    for command in commands:
        timeline.push(command)
    return timeline.end


def bits(mask):
    """Numbers of the bits set in ``mask``."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
