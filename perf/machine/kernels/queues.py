"""Command queues and semaphores, a cycle at a time (hw/control/command_queue.py)."""

from hw.control.command_queue import IN_FLIGHT
from hw.isa.encoding import QUEUE_OPCODES, Opcode

from .compilation import inline
from .fifo import pop, push

__all__ = [
    "LOAD", "LOSS", "MATMUL", "POST", "QUEUES", "STORE", "VECTOR", "WEIGHTS", "all_empty",
    "arbitrate_tokens", "ask", "offers", "step_queue",
]  # fmt: skip

QUEUES = len(QUEUE_OPCODES)
#: Queues of a core by opcode; a core without VECTOR or LOSS lacks the last ones.
LOAD, WEIGHTS, MATMUL, POST, STORE, VECTOR, LOSS = range(QUEUES)
assert QUEUE_OPCODES == tuple(
    Opcode[name] for name in ("LOAD", "WEIGHTS", "MATMUL", "POST", "STORE", "VECTOR", "LOSS")
)
_IN_FLIGHT = IN_FLIGHT


@inline
def offers(core, queue):
    """Whether the queue offers a command to its engine."""
    return (
        core.q_waiting[queue] != 0
        and core.q_granted[queue] != 0
        and core.q_signals[queue][0] < _IN_FLIGHT
    )


@inline
def all_empty(cores):
    """Whether nothing is queued or in flight, and no weights are left over."""
    for index in range(len(cores)):
        core = cores[index]
        for queue in range(QUEUES):
            if (
                core.q_reserved[queue] != 0
                or core.q_waiting[queue] != 0
                or core.q_signals[queue][0] != 0
            ):
                return False
        if core.w_free == 0 or core.w_held or core.w_filling or core.w_bias_held:
            return False
    return True


@inline
def step_queue(core, queue, sizes, commands, pushed, accepted, granted, gave, done, address):
    """One cycle of a queue; whether it may do something in the next one by itself.

    ``pushed``: number of the command of which a chunk comes, or -1; ``accepted``: the engine takes
    the command; ``granted``, ``gave``: the semaphores do; ``done``: the engine has finished one.
    """
    first, last, left = 0, 0, 0
    arriving = core.q_arriving[queue]
    if pushed >= 0:
        if arriving == 0:
            first = 1
            push(core.q_commands[queue], pushed)
            push(core.q_addresses[queue], address)
        if arriving == commands[pushed].chunks - 1:
            last = 1
            core.q_arriving[queue] = 0
        else:
            core.q_arriving[queue] = arriving + 1
    leaving, shift = core.q_leaving[queue], core.q_shift[queue]
    begin = core.q_waiting[queue] == 0 and leaving == 0 and shift == 0 and core.q_whole[queue] != 0
    if shift != 0 and leaving == 0:
        left = 1
    core.q_whole[queue] += last - (1 if begin else 0)
    if begin or leaving != 0:
        if begin:
            leaving = commands[core.q_commands[queue][1]].chunks
        core.q_leaving[queue] = leaving - 1
        core.q_shift[queue] = 1
    else:
        core.q_shift[queue] = 0
    core.q_reserved[queue] += first - left
    if accepted:
        core.q_waiting[queue] = 0
        push(core.q_signals[queue], core.q_head[queue])
    if granted:
        core.q_granted[queue] = 1
    if left != 0:
        core.q_waiting[queue] = 1
        core.q_granted[queue] = 0
        core.q_head[queue] = core.q_commands[queue][1]
        core.q_address[queue] = core.q_addresses[queue][1]
        pop(core.q_commands[queue])
        pop(core.q_addresses[queue])
    if gave:
        pop(core.q_signals[queue])
    core.q_finished[queue] += (1 if done else 0) - (1 if gave else 0)
    return (
        core.q_reserved[queue] != 0
        or core.q_waiting[queue] != 0
        or core.q_finished[queue] != 0
        or core.q_shift[queue] != 0
    )


@inline
def arbitrate_tokens(shared, cores, commands):
    """One cycle of the semaphores.

    Returns (core, queue) whose take is granted, and (core, queue) whose tokens are accepted; -1
    where there is none.
    """
    take_core, take_queue, give_core, give_queue = -1, -1, -1, -1
    taken = 0
    if shared.t_asking >= 0:
        wanted, able = shared.t_wanted, True
        rest, number = wanted, 0
        while rest != 0:
            if rest & 1 and shared.tokens[number] == 0:
                able = False
                break
            rest >>= 1
            number += 1
        if able:
            taken = wanted
            take_core, take_queue = shared.t_asking // QUEUES, shared.t_asking % QUEUES
    given = shared.t_given
    both = given | taken
    number = 0
    while both != 0:
        if both & 1:
            shared.tokens[number] += ((given >> number) & 1) - ((taken >> number) & 1)
        both >>= 1
        number += 1
    # What is given now counts from the next cycle on.
    shared.t_given = 0
    for index in range(len(cores)):
        core = cores[index]
        if core.q_active != 0:
            for queue in range(QUEUES):
                if core.q_finished[queue] != 0:
                    give_core, give_queue = index, queue
                    break
            if give_core >= 0:
                shared.t_given = commands[core.q_signals[give_queue][1]].signal
                break
    turn = shared.t_turn
    ask(shared, cores, commands, turn)
    shared.t_turn = turn + 1 if turn + 1 < max(shared.t_queues, 2) else 0
    return take_core, take_queue, give_core, give_queue


@inline
def ask(shared, cores, commands, turn):
    """Whose turn it is asks, and is answered in the next cycle."""
    index, queue = 0, turn
    if turn >= shared.t_first:
        index, queue = 1, turn - shared.t_first
    shared.t_asking, shared.t_wanted = -1, 0
    if (
        turn < shared.t_queues
        and cores[index].q_waiting[queue] != 0
        and cores[index].q_granted[queue] == 0
    ):
        shared.t_asking = index * QUEUES + queue
        shared.t_wanted = commands[cores[index].q_head[queue]].wait
