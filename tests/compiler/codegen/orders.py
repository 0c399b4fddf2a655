"""Random orders in which queues and semaphores let commands run."""

from hw.isa.encoding import QUEUE_OPCODES, Opcode

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
    queued = {opcode: [] for opcode in QUEUE_OPCODES}
    running = {opcode: [] for opcode in QUEUE_OPCODES}
    ended = set()
    feeders, weights = {}, None
    for number, command in enumerate(linked):
        if command.opcode is Opcode.WEIGHTS:
            weights = number
        elif command.opcode is Opcode.MATMUL:
            feeders[number] = weights
    preference = {opcode: rng.choice((0.02, 1, 50)) for opcode in QUEUE_OPCODES}
    while True:
        choices = []
        if next_command < len(linked):
            opcode = linked[next_command].opcode
            if opcode is not Opcode.HALT and len(queued[opcode]) < depth:
                choices.append(("dispatch", opcode))
        for opcode, queue in queued.items():
            if queue and len(running[opcode]) < IN_FLIGHT:
                wait = linked[queue[0]].wait
                if all(tokens[n] for n in range(32) if wait >> n & 1):
                    choices.append(("start", opcode))
            if running[opcode]:
                head = running[opcode][0]
                if opcode is not Opcode.MATMUL or feeders[head] in ended:
                    choices.append(("end", opcode))
        if not choices:
            assert next_command == len(linked) - 1, f"deadlock at command {next_command}"
            assert not any(queued.values())
            assert not any(tokens)
            return events
        weights = [preference[opcode] for _, opcode in choices]
        what, opcode = rng.choices(choices, weights)[0]
        if what == "dispatch":
            queued[opcode].append(next_command)
            next_command += 1
            continue
        command = (queued if what == "start" else running)[opcode].pop(0)
        events.append((what, command))
        mask = linked[command].wait if what == "start" else linked[command].signal
        for number in range(32):
            if mask >> number & 1:
                tokens[number] += -1 if what == "start" else 1
                assert tokens[number] <= 15
        if what == "start":
            running[opcode].append(command)
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
