"""Random orders in which queues and semaphores let commands run."""

from hw.isa.encoding import Opcode

#: Commands of a queue that run at the same time.
IN_FLIGHT = 4


def conflicts(first, second):
    """Whether the order of two commands (opcode, reads, writes) matters."""
    return any(
        a.memory == b.memory and a.begin < b.end and b.begin < a.end
        for one, other in ((first[2], second[1] + second[2]), (first[1], second[2]))
        for a in one
        for b in other
    )


def execute(linked, rng, depth):
    """[(what, command number)] of a random order that queues and semaphores allow.

    Queues start and end their commands in order, some of them at the same time; a MATMUL ends
    after the WEIGHTS before it. A queue holds ``depth`` commands.
    """
    tokens, events, next_command = [0] * 32, [], 0
    # (core, opcode), in an order that depends on the program alone.
    queues = list(dict.fromkeys((command.core, command.opcode) for command in linked))
    queued, running = {queue: [] for queue in queues}, {queue: [] for queue in queues}
    ended = set()
    feeders, weights = {}, {}
    for number, command in enumerate(linked):
        if command.opcode is Opcode.WEIGHTS:
            weights[command.core] = number
        elif command.opcode is Opcode.MATMUL:
            feeders[number] = weights.get(command.core)
    preference = {queue: rng.choice((0.02, 1, 50)) for queue in queues}
    while True:
        choices = []
        if next_command < len(linked):
            queue = linked[next_command].core, linked[next_command].opcode
            if queue[1] is not Opcode.HALT and len(queued[queue]) < depth:
                choices.append(("dispatch", queue))
        for queue, waiting in queued.items():
            if waiting and len(running[queue]) < IN_FLIGHT:
                wait = linked[waiting[0]].wait
                if all(tokens[n] for n in range(32) if wait >> n & 1):
                    choices.append(("start", queue))
            if running[queue]:
                head = running[queue][0]
                if queue[1] is not Opcode.MATMUL or feeders[head] in ended:
                    choices.append(("end", queue))
        if not choices:
            assert next_command == len(linked) - 1, f"deadlock at command {next_command}"
            assert not any(queued.values())
            assert not any(tokens)
            return events
        what, queue = rng.choices(choices, [preference[queue] for _, queue in choices])[0]
        if what == "dispatch":
            queued[queue].append(next_command)
            next_command += 1
            continue
        command = (queued if what == "start" else running)[queue].pop(0)
        events.append((what, command))
        mask = linked[command].wait if what == "start" else linked[command].signal
        for number in range(32):
            if mask >> number & 1:
                tokens[number] += -1 if what == "start" else 1
                assert tokens[number] <= 15
        if what == "start":
            running[queue].append(command)
        else:
            ended.add(command)


def violations(commands, events, order=None):
    """Pairs of commands in different queues whose order matters and was not kept; ``order`` is the
    number that each had before it was linked, None if that has not changed."""
    ended, wrong = set(), []
    for what, place in events:
        number = place if order is None else order[place]
        if what == "end":
            ended.add(number)
            continue
        wrong += [
            (before, number)
            for before in range(number)
            if before not in ended
            and commands[before][0] is not commands[number][0]
            and conflicts(commands[before], commands[number])
        ]
    return wrong
