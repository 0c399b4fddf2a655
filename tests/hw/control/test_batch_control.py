"""BATCH between sequencer and fetch: order of the parts, waiting, errors, the end."""

import random
from dataclasses import dataclass

import pytest
from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from emulator.batch_loop import PHASES, BatchLoop
from golden.prediction.schedule import ScheduleConfig, Stage
from hw.bus.signatures import RESP_DECERR, RESP_OKAY
from hw.config import make_config
from hw.control.command_queue import CHUNK_WIDTH, command_chunks
from hw.control.sequencer import DEADLOCK_CYCLES
from hw.isa.encoding import COMMAND_BYTES, Opcode, decode, encode
from hw.isa.error_codes import ErrorCode
from hw.isa.packing import WORDS
from verif.blocks.control.sequencer_bench import Control, patched, values_of
from verif.programs.batch_programs import PARTS, part_of

CONFIG = make_config(variant="baseline", preset="tiny")
BASE, PROGRAM = 0x7000, 0x340
LADDER = (Stage(gp=2, bp=1, epochs=2), Stage(gp=1, bp=2, epochs=1))
SCHEDULE = ScheduleConfig(warm_up=1, ladder=LADDER)
LOAD = values_of(Opcode.LOAD)


def load(number):
    """A command that can be told from others."""
    return encode(Opcode.LOAD, **LOAD | {"dram_address": number})


def program_of(rng, *, least=0, **targets):
    """(commands, numbers of the LOADs of each part, ``least`` or more). Between the parts lies
    garbage."""
    bodies, places, stream = {}, {"first": 0}, [None]
    for index in rng.sample(range(len(PARTS)), len(PARTS)):
        name = PARTS[index]
        bodies[name] = [1000 * index + n for n in range(rng.randint(least, 6))]
        places[name] = PROGRAM + COMMAND_BYTES * len(stream)
        stream += [*map(load, bodies[name]), None, *[bytes([0xEE] * 64)] * rng.randrange(6)]
    places |= targets
    first = encode(Opcode.BATCH, **places | {"first": 1})
    again = encode(Opcode.BATCH, **places)
    return [first, *(again if command is None else command for command in stream[1:])], bodies


@dataclass
class Machine:
    """Memory, queues and host of a Control, played by Python.

    Members
    -------
    latency : of the memory, in cycles
    work : chances per cycle that the oldest LOAD in the queue finishes
    ready_after : cycles that the host takes to give inputs to a batch; None: all are there
    refused : number of the command whose read fails, or None
    stuck : number of the LOAD that never finishes, or None
    failing : batch during which and behind which an error is announced, or None
    """

    latency: int = 3
    work: float = 1.0
    ready_after: int | None = None
    seed: int = 1
    refused: int | None = None
    stuck: int | None = None
    failing: int | None = None

    def simulate(self, process):
        self.dut, self.reset = Control(CONFIG), Signal()
        self.rng = random.Random(self.seed)
        simulator = Simulator(ResetInserter(self.reset)(self.dut))
        simulator.add_clock(1e-6)

        async def host(ctx):
            self.ctx = ctx
            ctx.set(self.dut.fetch.memory_base, BASE)
            ctx.set(self.dut.fetch.memory_size, 1 << 20)
            await process(self)

        simulator.add_testbench(self._memory, background=True)
        simulator.add_testbench(host)
        simulator.run()

    async def _memory(self, ctx):
        """Burst after burst, in order; what was asked for is always answered."""
        fetch = self.dut.fetch
        due, cycle, width = [], 0, CONFIG.beat_bytes
        self.stream = []
        ctx.set(fetch.read.request.ready, 1)
        while True:
            here = bool(due) and due[0][0] <= cycle
            ctx.set(fetch.read.data.valid, here)
            if here:
                _, address, beat = due.pop(0)
                place = (address - BASE - PROGRAM) // COMMAND_BYTES
                command = self.stream[place] if place < len(self.stream) else bytes(64)
                bits = int.from_bytes(command[beat * width :][:width], "little")
                last = (beat + 1) * width == COMMAND_BYTES
                resp = RESP_DECERR if place == self.refused else RESP_OKAY
                ctx.set(fetch.read.data.payload, {"data": bits, "resp": resp, "last": last})
            if ctx.get(fetch.read.request.valid):
                address = ctx.get(fetch.read.request.payload.address)
                beats = range(COMMAND_BYTES // width)
                due += [(cycle + self.latency, address, beat) for beat in beats]
            if ctx.get(self.reset):
                due.clear()  # nobody waits for it any more
            await ctx.tick()
            cycle += 1

    async def run(self, stream, loop, *, size=None, batches=None, stop_at=None, limit=20000):
        """A run; returns its errors. ``taken`` are the LOADs dispatched, ``log`` is
        (LOADs finished, phase) at the beginning of every batch; ``waits`` cycles of waiting.
        ``stop_at``: (batch, BATCHES written then)."""
        ctx, dut = self.ctx, self.dut
        self.stream = stream
        ctx.set(dut.fetch.program_address, PROGRAM)
        ctx.set(dut.fetch.program_size, COMMAND_BYTES * len(stream) if size is None else size)
        for name, value in loop.registers().items():
            port = dut.registers.get(name.lower())
            if port is None:
                port = getattr(dut.batches, name.lower())
            ctx.set(port.as_value() if name.startswith("STAGE") else port, value)
        ctx.set(dut.batches.batches_ready, 0xFFFFFFFF if self.ready_after is None else 0)
        ctx.set(dut.start, 1)
        self.taken, self.log, self.batch_at, self.waits = [], [], [], 0
        self.jump_at, self.busy_at, self.push_at, errors = [], [], [], []
        chunks, queued, idle = [], 0, 0
        for cycle in range(limit):
            ctx.set(dut.push0.ready, queued < 3)
            if ctx.get(dut.push0.valid) and queued < 3:
                if not chunks:
                    self.push_at.append(cycle)
                chunks.append(ctx.get(dut.push0.payload))
            if len(chunks) == command_chunks(Opcode.LOAD):
                bits = sum(chunk << (CHUNK_WIDTH * n) for n, chunk in enumerate(chunks))
                _, values = decode(bits.to_bytes(COMMAND_BYTES, "little"))
                self.taken.append(values["dram_address"])
                chunks, queued = [], queued + 1
            elif queued and self.rng.random() < self.work and self.stuck not in self.taken:
                queued -= 1
            everything = (1 << len(dut.queues)) - 1
            ctx.set(dut.empty, everything if not queued and not chunks else 0)
            ctx.set(dut.blocked, 0 if queued and self.stuck not in self.taken else everything)
            ctx.set(dut.fails, self.failing is not None and len(self.log) > self.failing)
            if ctx.get(dut.batches.offered):
                assert ctx.get(dut.fetch.stop), "the fetch may ask for what lies behind BATCH"
            if ctx.get(dut.batches.waiting):
                self.waits += 1
                idle += 1
                if idle == self.ready_after:
                    ctx.set(dut.batches.batches_ready, ctx.get(dut.registers["batches_done"]) + 1)
                    idle = 0
            if ctx.get(dut.batches.batch):
                self.batch_at.append(cycle)
                self.busy_at.append(ctx.get(dut.fetch.busy))
                assert not queued and not chunks, "a batch ends with commands in the queues"
            if ctx.get(dut.batches.jump):
                self.jump_at.append(cycle)
                assert not ctx.get(dut.fetch.busy), "what was asked for could reach the next batch"
            if ctx.get(dut.batches.begin_jump):
                phase = PHASES[ctx.get(dut.registers["phase"])]
                self.log.append((len(self.taken), phase))
                if stop_at and len(self.log) == stop_at[0] + 1:
                    ctx.set(dut.batches.batches, stop_at[1])
            if ctx.get(dut.error.valid):
                errors.append((ctx.get(dut.error.code), ctx.get(dut.error.address)))
                queued = 0
            over = ctx.get(dut.finish)
            await ctx.tick()
            ctx.set(dut.start, 0)
            if over:
                break
        else:
            raise AssertionError("the run does not end")
        assert not ctx.get(dut.fetch.busy)
        return errors

    def register(self, name):
        return self.ctx.get(self.dut.registers[name])

    def check(self, loop, bodies, done=None):
        """Every batch of ``loop`` has run its part, in order, and the registers say so."""
        phases = loop.phases() if done is None else loop.phases()[:done]
        expected = [bodies[part_of(phase, number)] for number, phase in enumerate(phases)]
        assert self.taken == [number for part in expected for number in part]
        begins = [sum(map(len, expected[:number])) for number in range(len(phases))]
        assert self.log == list(zip(begins, phases, strict=True))
        behind = loop.after(len(phases))
        assert self.register("batches_done") == len(phases)
        assert self.register("epoch") == behind.epoch
        assert self.register("epoch_batch") == behind.epoch_batch


@pytest.mark.parametrize(
    ("ready_after", "latency"), [(None, 1), (1, 5), (30, 40), (None, 40), (30, 1)]
)
def test_parts_in_the_order_of_phases(latency, ready_after, seed):
    """Runs in a row, each of which goes on where the last one ended."""
    rng = random.Random(f"{seed} {latency} {ready_after}")

    async def process(machine):
        rest = BatchLoop(schedule=SCHEDULE, batches=27, epoch_batches=5, epoch_batch=2)
        while rest.batches:
            count = min(rng.randint(1, 12), rest.batches)
            loop = BatchLoop(
                schedule=SCHEDULE, batches=count, epoch_batches=5,
                epoch=rest.epoch, epoch_batch=rest.epoch_batch,
            )  # fmt: skip
            stream, bodies = program_of(rng)
            assert await machine.run(stream, loop) == []
            machine.check(loop, bodies)
            assert machine.waits == (ready_after or 0) * count
            rest = rest.after(count)

    Machine(latency=latency, work=0.3, ready_after=ready_after, seed=seed).simulate(process)


def test_cycles_between_batches():
    """From the last command's end to the next batch's first chunk, as docs/architecture.md says."""

    async def process(machine):
        exact = 0
        for latency in (1, 10, 25):
            machine.latency = latency
            loop = BatchLoop(schedule=SCHEDULE, batches=24, epoch_batches=5)
            stream, bodies = program_of(random.Random(1), least=1)
            await machine.run(stream, loop)
            machine.check(loop, bodies)
            for number in range(1, loop.batches):
                jump = machine.jump_at[number] - machine.batch_at[number - 1]
                if loop.after(number).epoch_batch and not machine.busy_at[number - 1]:
                    assert jump == 3, number
                    exact += 1
                elif not machine.busy_at[number - 1]:
                    assert 3 < jump <= 9, number
                first = next(cycle for cycle in machine.push_at if cycle > machine.jump_at[number])
                assert first - machine.jump_at[number] == 6 + latency + 1 + WORDS, number
        assert exact > 20

    Machine(work=0.04).simulate(process)


def test_no_batch_and_fewer_batches():
    """BATCHES may be 0, and lowered below what is done, at any time."""

    async def process(machine):
        rng = random.Random(2)
        whole = BatchLoop(schedule=SCHEDULE, batches=20, epoch_batches=5)
        stream, bodies = program_of(rng)
        none = whole.after(20)
        assert await machine.run(stream, none) == []
        machine.check(none, bodies)
        for at, batches in ((0, 0), (3, 1), (7, 7), (7, 8), (7, 9)):
            assert await machine.run(stream, whole, stop_at=(at, batches)) == []
            machine.check(whole, bodies, done=max(at + 1, batches))

    Machine(ready_after=9, work=0.5).simulate(process)


def test_a_lowered_number_ends_the_waiting():
    async def process(machine):
        ctx, dut = machine.ctx, machine.dut
        stream, bodies = program_of(random.Random(3))
        machine.ready_after = DEADLOCK_CYCLES * 4

        async def run():
            return await machine.run(stream, loop, stop_at=(0, 1))

        loop = BatchLoop(schedule=SCHEDULE, batches=20, epoch_batches=5)
        assert await run() == []
        machine.check(loop, bodies, done=1)
        assert machine.waits == machine.ready_after, "a long wait is no deadlock"
        assert not ctx.get(dut.batches.waiting)

    Machine().simulate(process)


@pytest.mark.parametrize("part", PARTS)
def test_first_only_in_front_of_the_first_batch(part):
    """A BATCH that says so behind a batch would send the stream to the same place for ever, without
    counting; the run ends there, and the next one works."""

    async def process(machine):
        loop = BatchLoop(schedule=SCHEDULE, batches=24, epoch_batches=5)
        stream, bodies = program_of(random.Random(5), least=1)
        done = [part_of(phase, n) for n, phase in enumerate(loop.phases())].index(part)
        place = stream.index(load(bodies[part][-1])) + 1
        bad = [*stream[:place], patched(stream[place], "first", 1), *stream[place + 1 :]]
        for again in range(2):
            errors = await machine.run(bad, loop)
            assert errors == [(ErrorCode.BATCH_FIRST, BASE + PROGRAM + COMMAND_BYTES * place)]
            assert machine.register("batches_done") == done, again
            assert len(machine.log) == done + 1
        assert await machine.run(stream, loop.after(done)) == []
        machine.check(loop.after(done), bodies)

    Machine(work=0.5).simulate(process)


def test_a_batch_that_fails_as_it_ends():
    """With the queues empty, nothing is counted while an error is announced."""

    async def process(machine):
        ctx, dut = machine.ctx, machine.dut
        loop = BatchLoop(schedule=SCHEDULE, batches=3, epoch_batches=5)
        stream, _ = program_of(random.Random(8), least=1)
        with pytest.raises(AssertionError, match="the run does not end"):
            await machine.run(stream, loop, limit=500)
        assert ctx.get(dut.batches.offered) and ctx.get(dut.batches.drained)
        assert len(machine.batch_at) == machine.register("batches_done") == 1
        ctx.set(dut.fails, 0)
        await ctx.tick()
        assert machine.register("batches_done") == 2

    Machine(failing=1).simulate(process)


@pytest.mark.parametrize("part", PARTS)
def test_every_target_is_checked(part):
    """Also those that no batch of the run needs; the next run works."""

    async def process(machine):
        loop = BatchLoop(schedule=SCHEDULE, batches=4, epoch_batches=5)
        for distance in (-64, -1, 1, 2, 63, "end", "behind", 1 << 31):
            rng = random.Random(4)
            stream, bodies = program_of(rng)
            end = PROGRAM + COMMAND_BYTES * len(stream)
            target = {"end": end, "behind": end + 640}.get(distance)
            if target is None:
                target = PROGRAM + distance
            bad, _ = program_of(random.Random(4), **{part: target})
            errors = await machine.run(bad, loop)
            assert errors == [(ErrorCode.BATCH_TARGET, BASE + PROGRAM)], distance
            assert machine.taken == [] and machine.log == []
            # The last whole command is one, what lies behind it is not.
            good, bodies = program_of(random.Random(4), **{part: end - 64})
            size = COMMAND_BYTES * len(stream)
            for bytes_, wrong in ((size + 63, False), (size, False), (size - 1, True)):
                errors = await machine.run(good, loop.after(4), size=bytes_)
                assert errors == ([(ErrorCode.BATCH_TARGET, BASE + PROGRAM)] if wrong else [])
            assert await machine.run(stream, loop) == []
            machine.check(loop, bodies)

    Machine().simulate(process)


def test_a_batch_that_never_ends():
    """A deadlock in front of a BATCH: the batch does not count, also when the queues are empty
    because the run ends."""

    async def process(machine):
        loop = BatchLoop(schedule=SCHEDULE, batches=24, epoch_batches=5)
        stream, bodies = program_of(random.Random(7), least=1)
        numbers = [part_of(phase, n) for n, phase in enumerate(loop.phases())]
        for part in PARTS:
            machine.stuck = bodies[part][-1]
            batch = stream.index(load(machine.stuck)) + 1
            errors = await machine.run(stream, loop)
            assert errors == [(ErrorCode.DEADLOCK, BASE + PROGRAM + COMMAND_BYTES * batch)]
            done = numbers.index(part)
            assert machine.register("batches_done") == done
            assert len(machine.batch_at) == done
            machine.stuck = None
            assert await machine.run(stream, loop.after(done)) == []
            machine.check(loop.after(done), bodies)

    Machine(work=0.5).simulate(process)


@pytest.mark.parametrize("latency", [1, 17])
def test_an_error_in_a_batch(latency):
    """A batch that fails does not count; a run that begins with it goes on."""

    async def process(machine):
        loop = BatchLoop(schedule=SCHEDULE, batches=24, epoch_batches=5)
        stream, bodies = program_of(random.Random(6), least=1)
        last = max(stream.index(load(bodies[part][-1])) for part in PARTS)
        (part,) = (name for name in PARTS if stream[last] == load(bodies[name][-1]))
        numbers = [part_of(phase, n) for n, phase in enumerate(loop.phases())]
        machine.refused = last
        errors = await machine.run(stream, loop)
        assert errors == [(ErrorCode.READ_DECERR, BASE + PROGRAM + COMMAND_BYTES * last)]
        done = machine.register("batches_done")
        assert done == numbers.index(part)
        position = machine.register("epoch"), machine.register("epoch_batch")
        assert position == (loop.after(done).epoch, loop.after(done).epoch_batch)
        machine.refused = None
        assert await machine.run(stream, loop.after(done)) == []
        machine.check(loop.after(done), bodies)

    Machine(latency=latency, work=0.4).simulate(process)
