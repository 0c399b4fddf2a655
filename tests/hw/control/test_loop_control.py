"""REPEAT in sequencer and fetch: what is executed, which addresses it has, how long it takes.

Covers: hw/control/fetch.py, hw/control/command_ring.py, verif/blocks/control/loop_bench.py.
"""

import itertools
import random

import pytest

from hw.bus.signatures import RESP_DECERR, RESP_SLVERR
from hw.config import make_config
from hw.control.fetch import AHEAD, KEPT
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode, engine_layout
from hw.isa.error_codes import ErrorCode
from hw.isa.packing import WORDS
from verif.blocks.control.loop_bench import (
    BASE,
    PROGRAM,
    LoopBench,
    expected_addresses,
    load,
    random_loops,
    repeat,
)

TINY = make_config(variant="baseline", preset="tiny")
HALT = encode(Opcode.HALT)


def config_of(width):
    return make_config(variant="baseline", preset="tiny", axi_data_width=width, axi_burst_beats=4)


MEMORIES = {
    "fast": {},
    "slow": {"latency": 40},
    "all": {"latency": 17, "accept": 0.4, "beat": 0.7, "take": 0.5},
    "queue": {"latency": 3, "take": 0.05},
}


@pytest.mark.parametrize(
    ("width", "memory"),
    [
        pytest.param(
            width, memory, id=f"{name}-{width}",
            marks=() if width == 64 or name == "all" else pytest.mark.long,
        )
        for name, memory in MEMORIES.items()
        for width in (32, 64, 512)
    ],
)  # fmt: skip
def test_random_loops(width, memory, seed):
    """Every command as often as it should be, in order, with its address."""

    async def process(bench):
        rng = random.Random(seed)
        for size in (1, 4, 30):
            stream = random_loops(rng, size=size, most=120)
            assert await bench.run(stream) == []
            assert [address for _, address in bench.loads] == expected_addresses(stream)

    LoopBench(config_of(width), seed, **memory).simulate(process)


@pytest.mark.parametrize("width", [64, 512])
def test_what_is_kept_is_not_read_again(width):
    """A loop of KEPT - AHEAD lines, that of its REPEAT among them, is kept; one more is not."""
    config, most = config_of(width), KEPT - AHEAD - 1

    async def process(bench):
        for size, again in ((0, False), (1, False), (most, False), (most + 1, True)):
            stream = [load(8 * n) for n in range(size)] + [repeat(1, 3, 0), load(), HALT]
            assert await bench.run(stream) == []
            assert [address for _, address in bench.loads] == expected_addresses(stream)
            times = [bench.requests.count(number) for number in range(len(stream))]
            # Behind REPEAT commands are fetched ahead, and dropped by a jump.
            assert times[: size + 1] == [3 if again else 1] * (size + 1), size
            assert max(times[size + 1 :]) <= (3 if again else 1), size

    LoopBench(config, latency=20).simulate(process)


@pytest.mark.parametrize("width", [32, 64, 256, 512])
def test_cycles_of_a_loop(width):
    """REPEAT takes 4 cycles, and one more at the jump to what is kept; LOAD a cycle more, and one
    for each bit of a counter, where its address is added up."""
    config = config_of(width)
    read = WORDS + 2  # from one whole command to the next

    async def process(bench):
        plain = [load()] * 12
        assert await bench.run([*plain, HALT]) == []
        gaps = [b - a for (a, _), (b, _) in itertools.pairwise(bench.loads[-4:])]
        assert gaps == [read + 4] * 3
        stream = [load(), repeat(2, 12, 0), HALT]
        assert await bench.run(stream) == []
        gaps = [b - a for (a, _), (b, _) in itertools.pairwise(bench.loads)]
        assert gaps[3:] == [read + 4 + read + 3 + 1] * 8
        stream = [load(loop2_stride=8, loop1_stride=8), repeat(2, 12, 0), HALT]
        assert await bench.run(stream) == []
        longer = [b - a for (a, _), (b, _) in itertools.pairwise(bench.loads)]
        extra = [a - b for a, b in zip(longer[3:], gaps[3:], strict=True)]
        assert extra == [1 + number.bit_length() for number in range(4, 12)]

    LoopBench(config).simulate(process)


@pytest.mark.parametrize("latency", [20, 40, 100])
def test_cycles_of_a_loop_that_is_not_kept(latency):
    """The jump costs what the memory needs, and the rest of a burst that comes before."""
    beats = COMMAND_BYTES // TINY.beat_bytes

    async def process(bench):
        size = KEPT
        stream = [load()] * size + [repeat(2, 3, 0), HALT]
        assert await bench.run(stream) == []
        # From REPEAT to the LOAD behind the jump: 2 cycles to the request, the first beat, the
        # words, the LOAD.
        repeat_at, load_at = bench.dispatched[size], bench.loads[size][0]
        least = 2 + latency + 1 + WORDS + 1 + 4
        assert least <= load_at - repeat_at <= least + beats

    LoopBench(TINY, latency=latency).simulate(process)


@pytest.mark.parametrize(
    "place", [-PROGRAM - 1, -COMMAND_BYTES, -1, 1, 2, 62, 7 * COMMAND_BYTES, 1 << 31]
)
@pytest.mark.parametrize("count", [1, 2])
def test_targets_that_are_no_commands(place, count):
    """Whether it goes there or not; the next run is not affected."""

    async def process(bench):
        first = (PROGRAM + place) % (1 << 32)
        wrong = encode(Opcode.REPEAT, level=0, count=count, first=first)
        address = BASE + PROGRAM + COMMAND_BYTES
        assert await bench.run([load(), wrong, HALT]) == [(ErrorCode.REPEAT_TARGET, address)]
        assert len(bench.loads) == 1
        assert await bench.run([load(), repeat(0, 2, 0), HALT]) == []
        assert len(bench.loads) == 2

    LoopBench(TINY, latency=5).simulate(process)


def test_a_target_in_a_line_that_is_not_whole():
    """It is none, and the last line that is whole has one."""

    async def process(bench):
        stream = [load(8), repeat(0, 2, 2), load(16), HALT]
        for missing, errors in ((0, []), (1, [(ErrorCode.REPEAT_TARGET, BASE + PROGRAM + 64)])):
            await bench.start(stream)
            bench.ctx.set(bench.dut.fetch.program_size, 3 * COMMAND_BYTES - missing)
            while not await bench.step():
                pass
            assert bench.errors[: len(errors)] == errors
            assert len(bench.loads) == 1 + (not errors)

    LoopBench(TINY, latency=3).simulate(process)


def test_a_jump_forward():
    """Nothing forbids it; what is behind the jump is read, whatever was fetched ahead."""

    async def process(bench):
        for distance in (1, 2, 3, AHEAD, KEPT, 3 * KEPT):
            skipped = [load(8 * n) for n in range(distance)]
            stream = [repeat(0, 2, 1 + distance), *skipped, load(4096, loop0_stride=8), HALT]
            assert await bench.run(stream) == []
            assert [address for _, address in bench.loads] == [4104]

    LoopBench(TINY, latency=13).simulate(process)


@pytest.mark.parametrize("size", [2, KEPT])
def test_what_cannot_be_read_behind_a_loop(size):
    """It is an error when the loop is over, not before."""

    async def process(bench):
        body = [load(8 * n) for n in range(size)]
        for behind in range(3):
            for response, code in (
                (RESP_SLVERR, ErrorCode.READ_SLVERR),
                (RESP_DECERR, ErrorCode.READ_DECERR),
            ):
                stream = [*body, repeat(0, 4, 0), *[load()] * behind]
                bench.answers = {len(stream): response}
                address = BASE + PROGRAM + COMMAND_BYTES * len(stream)
                assert await bench.run(stream) == [(code, address)]
                assert [address for _, address in bench.loads] == (
                    [8 * n for n in range(size)] * 4 + [0] * behind
                )
        bench.answers = {}
        stream = [*body, repeat(0, 2, 0)]
        end = (ErrorCode.PROGRAM_END, BASE + PROGRAM + COMMAND_BYTES * len(stream))
        assert await bench.run(stream, behind=0) == [end]
        assert len(bench.loads) == 2 * size

    LoopBench(TINY, latency=9).simulate(process)


def test_a_loop_that_never_ends_is_stopped(seed):
    """At any time; no watchdog takes it for a run in which nothing moves. The next run begins with
    counters of 0."""

    async def process(bench):
        ctx, dut, rng = bench.ctx, bench.dut, random.Random(seed)
        ctx.set(dut.watchdog, 90)
        for body in (0, 1, 3, KEPT):
            loads = [load(8 * n, loop0_stride=8, loop3_stride=-64) for n in range(body)]
            stream = [*loads, repeat(0, 5, 0), repeat(3, (1 << 32) - 1, 0)]
            await bench.start(stream)
            for _ in range(rng.randrange(900, 1100)):
                assert not await bench.step()
            assert bench.errors == []
            ctx.set(dut.abort, 1)
            await bench.step()
            ctx.set(dut.abort, 0)
            stopped = 0
            for _ in range(300):
                stopped |= ctx.get(dut.stopped)
                if await bench.step():
                    break
            else:
                raise AssertionError("the stop does not end it")
            assert stopped and bench.errors == [] and len(bench.dispatched) > 10
            stream = [load(512, loop0_stride=8, loop3_stride=8), repeat(3, 2, 0), HALT]
            assert await bench.run(stream) == []
            assert [address for _, address in bench.loads] == [512, 520]

    LoopBench(TINY, latency=12).simulate(process)


def test_a_queue_that_is_never_taken_from_is_a_deadlock():
    async def process(bench):
        bench.take = 0.0
        bench.ctx.set(bench.dut.blocked, (1 << len(bench.dut.queues)) - 1)
        errors = await bench.run([load(), repeat(0, 100, 0), HALT])
        assert errors == [(ErrorCode.DEADLOCK, BASE + PROGRAM)]

    LoopBench(TINY).simulate(process)


def test_batches_and_loops():
    """A loop in a batch that is over; one that is not is refused."""
    targets = ("bp_even", "bp_odd", "gp_even", "gp_odd")

    def batch(first, number):
        offset = PROGRAM + COMMAND_BYTES * number
        return encode(Opcode.BATCH, first=first, **dict.fromkeys(targets, offset))

    async def process(bench):
        for register in ("batches", "batches_ready"):
            bench.ctx.set(getattr(bench.dut.batches, register), 2)
        body = [load(64, loop1_stride=8), repeat(1, 3, 1)]
        assert await bench.run([batch(1, 1), *body, batch(0, 1)]) == []
        assert [address for _, address in bench.loads] == [64, 72, 80] * 2
        body = [load(64, loop1_stride=8), repeat(1, 3, 3)]
        errors = await bench.run([batch(1, 1), *body, batch(0, 1)])
        assert errors == [(ErrorCode.OPEN_LOOP, BASE + PROGRAM + 3 * COMMAND_BYTES)]

    LoopBench(TINY, latency=7).simulate(process)


@pytest.mark.parametrize("program", [PROGRAM, (1 << 31) + PROGRAM])
def test_programs_in_a_window_of_4_gib(program):
    """One in its upper half, and one of 2 GiB that ends by HALT long before."""

    async def process(bench):
        stream = [load(8), load(64, loop0_stride=8), repeat(0, 3, 0, program), HALT]
        behind = (1 << 31) // COMMAND_BYTES - len(stream) if program == PROGRAM else 4
        assert await bench.run(stream, behind=behind) == []
        assert [address for _, address in bench.loads] == [8, 64, 8, 72, 8, 80]

    LoopBench(TINY, program=program, memory_size=1 << 32).simulate(process)


def test_other_fields_of_a_moved_command_stay(seed):
    """Strides among them: of loops that are not open."""
    rng = random.Random(seed)

    async def process(bench):
        fields = [
            {
                name: rng.getrandbits(field.width - 1)
                for name, field in engine_layout(Opcode.LOAD)
                if name not in ("dram_address", "loop2_stride")
            }
            for _ in range(6)
        ]
        stream = [load(8 * n, loop2_stride=64, **own) for n, own in enumerate(fields)]
        assert await bench.run([*stream, repeat(2, 3, 0), HALT]) == []
        assert len(bench.values) == 3 * len(fields)
        for values, own in zip(bench.values, 3 * fields, strict=True):
            assert {name: values[name] for name in own} == own

    LoopBench(TINY).simulate(process)
