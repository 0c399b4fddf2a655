"""Jumps of the command fetch: what is kept, what is requested again, what is dropped.

Covers: hw/control/fetch.py, hw/control/command_ring.py.
"""

import pytest

from hw.control.fetch import AHEAD, KEPT
from tests.hw.control.test_fetch import BASE, Bench, config_of
from tests.hw.control.test_fetch_reset import reset

#: Commands of the program.
COUNT = 70


class JumpBench(Bench):
    """A consumer that jumps at random: a little back, as far as commands are kept, a step further,
    and anywhere. Checks every command, and that nothing is requested that is still kept."""

    async def start(self, *, base=BASE, begin=0, **place):
        self.index, self.following, self.passed = begin, begin, 0
        self.target, self.offered, self.base = None, 0, base
        await super().start(base=base, begin=begin, **place)

    def choose(self):
        """The command behind this one, None: the next."""
        last = self.index == COUNT - 1
        if self.rng.random() < 0.6 and not last:
            return None
        passed = self.passed
        backs = [0, 1, passed, passed + 1, KEPT, self.rng.randint(0, 5), -self.rng.randint(1, 5)]
        target = self.index - self.rng.choice(backs)
        return target if 0 <= target < COUNT else self.rng.randrange(COUNT)

    def offer(self, ready):
        ctx, fetch = self.ctx, self.fetch
        if not ctx.get(fetch.command.valid):
            self.offered = 0
        elif not self.offered:
            self.target = self.choose()
            place = self.first - self.base + 64 * (self.target or 0)
            ctx.set(fetch.jump_target, place)
        jumps = self.target is not None
        # The target is there for 3 cycles before.
        self.ready = ready and (self.offered >= 3 or not jumps)
        ctx.set(fetch.command.ready, self.ready)
        ctx.set(fetch.jump, self.ready and jumps)

    def next_request(self):
        self.following += 1
        return self.first + 64 * (self.following - 1)

    def consume(self, ready):
        fetch = self.fetch
        owed = sum(last for *_, last in self.owed)
        assert owed <= AHEAD, f"{owed} bursts at a time"
        if not self.ctx.get(fetch.command.valid):
            return
        assert not self.stopped, "a command after the stop"
        self.offered += 1
        expected = self.first + 64 * self.index
        self.check_command(expected)
        if not self.ready:
            return
        self.taken.append(expected)
        self.offered = 0
        back = None if self.target is None else self.index - self.target
        if back is None:
            self.index, self.passed = self.index + 1, min(self.passed + 1, KEPT - AHEAD - 1)
        elif -1 <= back <= self.passed:
            most = KEPT - AHEAD - 1
            self.index, self.passed = self.target, min(self.passed - back, most)
        else:
            self.index, self.following, self.passed = self.target, self.target, 0
        self.target = None


#: A fast memory, one that accepts slowly, one that is far away, a slow consumer.
PACES = {
    "fast": {},
    "slow": {"accept": 0.3, "beat": 0.5},
    "far": {"latency": 40, "accept": 0.8},
    "consumer": {"take": 0.2},
}


def paces(*widths):
    """(pace, bits of the bus) of all of them, of which some run in the long regression alone."""
    return [
        pytest.param(pace, width, marks=() if width == 64 or pace == "far" else pytest.mark.long)
        for pace in PACES
        for width in widths
    ]


@pytest.mark.parametrize(("pace", "width"), paces(64, 512))
def test_random_jumps(width, pace, seed):
    bench = JumpBench(config_of(width), f"{seed} {pace} {width}", **PACES[pace])

    async def process(bench):
        # In the upper half of the address space, too.
        top = 1 << bench.config.axi_address_width
        base = BASE if width == 512 else top - 0x1_0000
        await bench.start(base=base, address=0x340, size=64 * COUNT)
        await bench.until(lambda: len(bench.taken) == 150, limit=20000)
        assert not bench.errors

    bench.simulate(process)


def test_reset_behind_jumps(seed):
    """What is to be dropped is forgotten: the first bursts behind the reset are wanted."""
    bench = JumpBench(config_of(512), seed, latency=25)

    async def process(bench):
        for moment in range(40, 120, 5):
            await bench.start(address=0, size=64 * COUNT)
            for _ in range(moment):
                await bench.step()
            await reset(bench)
            await bench.start(address=0x1000, size=64 * COUNT, begin=30)
            await bench.until(lambda: len(bench.taken) == 8)
            await reset(bench)

    bench.simulate(process)


def test_reset_forgets_what_is_kept(seed):
    """A jump back to a command that the program before had at this place reads it."""
    bench = JumpBench(config_of(512), seed)

    async def process(bench):
        bench.choose = lambda: None
        await bench.start(address=0, size=64 * COUNT)
        await bench.until(lambda: len(bench.taken) == 20)
        await reset(bench)
        bench.choose = lambda: None if bench.taken else 27
        await bench.start(address=0x1000, size=64 * COUNT, begin=30)
        await bench.until(lambda: len(bench.taken) == 5)
        assert bench.taken[:2] == [BASE + 0x1000 + 64 * 30, BASE + 0x1000 + 64 * 27]

    bench.simulate(process)
