"""Buffer, random commands and expected contents for benches of ``VectorEngine``."""

from dataclasses import dataclass, field

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.formats import FLOAT32
from golden.arithmetic.formats import FORMATS as GOLDEN_FORMATS
from golden.commands.vector import VectorMachine
from hw.bus.signatures import BUFFER_READ_LATENCY
from hw.isa.encoding import Opcode, pack_engine_fields
from verif.stimulus.vector import PORTS, fill

from .engine_bench import EngineBench, reset

__all__ = ["Bench", "start"]


@dataclass(kw_only=True)
class Bench(EngineBench):
    """The engine's buffer, with stalls, and what golden makes of the same commands.

    With ``single`` only one of the three read ports is served in a cycle. A word must not be read
    in the cycle of its write, except by commands that are ``overlapping`` against the rules.
    """

    machine: VectorMachine
    memory: np.ndarray
    single: bool = False
    overlapping: bool = False
    rejected: int = 0
    reads: dict = field(default_factory=lambda: dict.fromkeys(PORTS, 0))
    _data: dict = field(
        default_factory=lambda: {name: [None] * BUFFER_READ_LATENCY for name in PORTS}
    )
    _ports: dict = field(default_factory=dict)
    _ready: dict = field(default_factory=lambda: dict.fromkeys((*PORTS, "write")))
    _garbage: dict = field(default_factory=lambda: dict.fromkeys(PORTS))

    def __post_init__(self):
        for name in PORTS:
            parts = ("valid", "address", "ready", "data")
            self._ports[name] = [getattr(self.dut, f"{name}_read__{part}") for part in parts]

    async def step(self):
        """One cycle: look at the outputs in its middle, answer, go to the middle of the next."""
        dut = self.dut
        served, reads = False, []
        for name in PORTS:
            valid, address, ready_port, data = self._ports[name]
            ready = self.rng.random() >= self.busy_read and not (self.single and served)
            if ready != self._ready[name]:
                self._ready[name] = ready
                ready_port.value = int(ready)
            answer = self._data[name].pop(0)
            if answer is not None:
                data.value = answer
            elif self._garbage[name] != (answer is None):
                data.value = self.rng.getrandbits(self.memory.shape[1] * self.machine.fmt.width)
            self._garbage[name] = answer is None
            answer = None
            if valid.value and ready:
                self.reads[name] += 1
                served = True
                answer = int.from_bytes(self.memory[int(address.value)].tobytes(), "little")
                reads.append(int(address.value))
            self._data[name].append(answer)

        ready = self.rng.random() >= self.busy_write
        if ready != self._ready["write"]:
            self._ready["write"] = ready
            dut.write__ready.value = int(ready)
        if (write := self.take_write(ready)) is not None:
            meets = write[0] in reads and not self.overlapping
            assert not meets, f"word {write[0]} read in the cycle of its write"
            self._store(*write)
        self.rejected += int(dut.rejected.value)
        await self.end_cycle()

    def _store(self, address, enable, data):
        rows = self.memory.shape[1]
        slots = len(self.dut.write__enable)
        assert enable == (1 << slots) - 1, f"write of a part of a word: {enable:#b}"
        raw = data.to_bytes(rows * self.memory.itemsize, "little")
        self.memory[address] = np.frombuffer(raw, self.memory.dtype)

    def load(self, memory):
        """Put ``memory`` (words, rows) into the buffer."""
        self.memory, self.machine.memory = memory.copy(), memory.copy()

    def set_registers(self, coefficients, *, guard):
        """Registers, and no rejected tile so far."""
        self.machine.coefficients, self.machine.guard = coefficients, guard
        raw = np.asarray(coefficients).astype("<u4").tobytes()
        self.dut.coefficients.value = int.from_bytes(raw, "little")
        self.dut.guard.value = int(guard)
        self.rejected = self.machine.rejected = 0

    def pack(self, fields):
        return pack_engine_fields(Opcode.VECTOR, fields)

    def forget(self):
        """A stop has withdrawn the write that was waiting; nothing is left of the run before."""
        super().forget()
        self.machine.memory[:] = self.memory
        self.machine.noted = False

    def check(self, values):
        """Compare buffer and flags with golden's, which has run the same commands."""
        actual, wanted = self.memory, self.machine.memory
        for word, lane in np.argwhere(actual != wanted)[:1]:
            raise AssertionError(
                f"word {word} lane {lane}: {int(actual[word, lane]):#x}, expected "
                f"{int(wanted[word, lane]):#x}, {int((actual != wanted).sum())} differ; {values}"
            )
        flags, wanted_flags = self.flags, self.machine.flags
        self.flags = self.machine.flags = 0
        assert flags == wanted_flags, f"flags {flags:#06b}, expected {wanted_flags:#06b}; {values}"
        assert self.rejected == self.machine.rejected, f"rejected {self.rejected}; {values}"
        assert not self.errors, f"error {self.errors}; {values}"

    async def execute(self, values):
        """Run one command on both; returns the cycles from acceptance to ``done``."""
        accepted = await self.issue(values)
        end = await self.finish()
        self.machine.run(values)
        self.check(values)
        return end - accepted


async def start(config, core, rng, **options):
    fmt = GOLDEN_FORMATS[config.operand_format]
    draw = np.random.default_rng(rng.getrandbits(32))
    memory = fill(draw, fmt, core.rows)
    coefficients = encode(FLOAT32, draw.standard_normal(8))
    machine = VectorMachine(fmt=fmt, memory=memory.copy(), coefficients=coefficients)
    reads = [f"{name}_read__" for name in PORTS]
    dut = await reset(
        (
            "command__valid",
            "stop",
            "guard",
            "sample_seed",
            "write__ready",
            *(f"{read}ready" for read in reads),
        ),
        ("write__valid", "done", "busy", "error__valid", "flags", *(f"{r}valid" for r in reads)),
    )
    dut.coefficients.value = int.from_bytes(coefficients.astype("<u4").tobytes(), "little")
    return Bench(dut=dut, rng=rng, machine=machine, memory=memory, **options)
