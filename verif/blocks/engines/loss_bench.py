"""Driver, stimulus and expected writes for benches of ``LossEngine``."""

from dataclasses import dataclass, field

from hw.bus.signatures import BUFFER_READ_LATENCY
from hw.isa.encoding import Opcode, pack_engine_fields
from verif.stimulus.loss import WORDS

from .engine_bench import EngineBench, reset

__all__ = ["Bench", "check", "start"]


@dataclass(kw_only=True)
class Bench(EngineBench):
    """The buffer, with stalls on both ports; records every write.

    Words are integers; junk comes where nothing was asked for.
    """

    LIMIT = 50_000

    word_bits: int
    memory: list
    _data: list = field(default_factory=lambda: [None] * BUFFER_READ_LATENCY)

    def pack(self, fields):
        return pack_engine_fields(Opcode.LOSS, fields)

    async def step(self):
        """One cycle: look at the outputs in its middle, answer, go to the middle of the next."""
        dut = self.dut
        read_ready = self.rng.random() >= self.busy_read
        write_ready = self.rng.random() >= self.busy_write
        dut.read__ready.value = int(read_ready)
        dut.write__ready.value = int(write_ready)
        data = self._data.pop(0)
        dut.read__data.value = self.rng.getrandbits(self.word_bits) if data is None else data

        address = int(dut.read__address.value) if dut.read__valid.value else None
        self.keep("read", address, read_ready)
        served = address is not None and read_ready
        self._data.append(self.memory[address % WORDS] if served else None)
        if (write := self.take_write(write_ready)) is not None:
            assert write[1] == (1 << len(dut.write__enable)) - 1
            self.memory[write[0] % WORDS] = write[2]
        if dut.done.value:
            assert not dut.write__valid.value, "done before the last write was accepted"
        await self.end_cycle()


async def start(core, rng, **options):
    dut = await reset(
        ("command__valid", "stop", "read__ready", "write__ready"),
        ("read__valid", "write__valid", "done", "busy", "error__valid", "flags"),
    )
    memory = [rng.getrandbits(core.word_width) for _ in range(WORDS)]
    return Bench(dut=dut, rng=rng, word_bits=core.word_width, memory=memory, **options)


def check(core, fmt, command, actual, wanted):
    """Compare writes of one command, lane by lane."""
    for number, (got, want) in enumerate(zip(actual, wanted, strict=False)):
        assert got[0] == want[0], (
            f"write {number}: address {got[0]:#x}, expected {want[0]:#x}; command {command}"
        )
        for lane in range(core.rows):
            values = [w >> lane * fmt.width & ((1 << fmt.width) - 1) for w in (got[2], want[1])]
            assert values[0] == values[1], (
                f"write {number} of {len(wanted)}, address {got[0]:#x}, lane {lane}: "
                f"{values[0]:#x}, expected {values[1]:#x}; words {got[2]:#x}, {want[1]:#x}; "
                f"command {command}"
            )
    assert len(actual) == len(wanted), f"{len(actual)} writes, expected {len(wanted)}; {command}"
