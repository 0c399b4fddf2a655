"""Buffer, random commands and expected contents for benches of :class:`hw.vector.VectorEngine`."""

from dataclasses import dataclass, field

import numpy as np

from golden.formats import FLOAT32
from golden.formats import FORMATS as GOLDEN_FORMATS
from golden.numerics import encode
from golden.vector_command import VectorMachine, defaults
from hw.bus import BUFFER_READ_LATENCY
from hw.command_field import pack_fields
from hw.vector_command import VECTOR, VECTOR_LOOPS, Condition, Operation, Source, Watch
from verif.engine_bench import EngineBench, reset

__all__ = ["Bench", "fill", "random_command", "start"]

#: Words of operands, of float32 numbers, and for results.
OPERANDS, NUMBERS, RESULTS = 512, 512, 1024
WORDS = OPERANDS + NUMBERS + RESULTS
_PORTS = ("x", "y", "z")


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
    reads: dict = field(default_factory=lambda: dict.fromkeys(_PORTS, 0))
    _data: dict = field(
        default_factory=lambda: {name: [None] * BUFFER_READ_LATENCY for name in _PORTS}
    )
    _ports: dict = field(default_factory=dict)
    _ready: dict = field(default_factory=lambda: dict.fromkeys((*_PORTS, "write")))
    _garbage: dict = field(default_factory=lambda: dict.fromkeys(_PORTS))

    def __post_init__(self):
        for name in _PORTS:
            parts = ("valid", "address", "ready", "data")
            self._ports[name] = [getattr(self.dut, f"{name}_read__{part}") for part in parts]

    async def step(self):
        """One cycle: look at the outputs in its middle, answer, go to the middle of the next."""
        dut = self.dut
        served, reads = False, []
        for name in _PORTS:
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
        return pack_fields(VECTOR, fields)

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


def fill(rng, fmt, rows):
    """Contents of a buffer: operands, then float32 numbers, with special values among them."""
    dtype = np.uint8 if fmt.width == 8 else np.uint16
    memory = np.zeros((WORDS, rows), dtype)

    def numbers(fmt, count, kind):
        scale = 2.0 ** rng.integers(-4, 4, count)
        values = encode(fmt, rng.standard_normal(count) * scale).astype(kind)
        small = rng.random(count) < 0.3
        values[small] = encode(fmt, rng.integers(-2, 4, count)).astype(kind)[small]
        nan, subnormal, sign = fmt.nan | 1, 1, fmt.sign_bit
        special = [0, sign, fmt.infinity, fmt.infinity | sign, fmt.nan, nan | sign, subnormal,
                   subnormal | sign, fmt.infinity - 1, 1 << fmt.mantissa_bits]  # fmt: skip
        chosen = rng.random(count) < 0.02
        values[chosen] = rng.choice(np.array(special, np.uint64), count).astype(kind)[chosen]
        return values

    memory[:OPERANDS] = numbers(fmt, OPERANDS * rows, dtype).reshape(-1, rows)
    count = NUMBERS * rows * fmt.width // 32
    wide = numbers(FLOAT32, count, np.dtype("<u4"))
    memory[OPERANDS : OPERANDS + NUMBERS] = wide.view(dtype).reshape(-1, rows)
    return memory


async def start(config, core, rng, **options):
    fmt = GOLDEN_FORMATS[config.operand_format]
    draw = np.random.default_rng(rng.getrandbits(32))
    memory = fill(draw, fmt, core.rows)
    coefficients = encode(FLOAT32, draw.standard_normal(8))
    machine = VectorMachine(fmt=fmt, memory=memory.copy(), coefficients=coefficients)
    reads = [f"{name}_read__" for name in _PORTS]
    dut = await reset(
        ("command__valid", "stop", "guard", "write__ready", *(f"{read}ready" for read in reads)),
        ("write__valid", "done", "busy", "error__valid", "flags", *(f"{r}valid" for r in reads)),
    )
    dut.coefficients.value = int.from_bytes(coefficients.astype("<u4").tobytes(), "little")
    return Bench(dut=dut, rng=rng, machine=machine, memory=memory, **options)


def random_command(rng, machine, *, limit=50):
    """Fields of a legal command of at most ``limit`` steps."""
    # Flags are those of a whole command: some have a channel or two only.
    tiny = rng.random() < 0.3
    while True:
        counts = [rng.choice((1, 1, 2, 3, rng.randint(1, 20))) for _ in range(4)]
        counts = [1, 1, 1, 1] if tiny else counts
        if np.prod(counts) <= limit:
            break
    values = defaults() | {f"{n}_count": c for n, c in zip(VECTOR_LOOPS, counts, strict=True)}
    operation = rng.choices(list(Operation), (12, 1, 1))[0]
    if operation != Operation.CHAIN:
        counts = [rng.randint(1, 2), 1, 1, rng.randint(1, 2)]
        values |= {f"{n}_count": c for n, c in zip(VECTOR_LOOPS, counts, strict=True)}
    values |= {item.name: rng.randrange(1 << item.width) for item in VECTOR[: _index("channels")]}
    values["operation"] = operation
    values["condition"] = rng.choice((0, 0, *Condition))
    values["watch"] = rng.choice((0, *Watch)) if operation == Operation.CHAIN else 0
    values["guarded"] = int(rng.random() < 0.1)
    values["reduce"] = int(operation == Operation.CHAIN and rng.random() < 0.3)
    if values["reduce"]:
        values["condition"] = values["add"] = 0
    channels = counts[3] * machine.rows
    values["channels"] = rng.choice((channels, rng.randint(1, channels), channels + 5))
    if tiny:
        values["channels"] = rng.randint(0, 2)

    blocks = {Source.NARROW: (0, OPERANDS, 1), Source.WIDE: (OPERANDS, NUMBERS, machine.chunks)}
    for name in _PORTS:
        if values[f"{name}_source"] in blocks:
            walk(rng, values, name, counts, *blocks[values[f"{name}_source"]])
    block = machine.chunks if values["wide"] else 1
    if values["reduce"]:
        values["o_address"] = OPERANDS + NUMBERS + rng.randrange(RESULTS - counts[3] * block)
        for loop in range(3):
            values[f"o_i{loop}_stride"] = 0
    else:
        # Loops in any order of nesting, in both directions, with gaps.
        size, lowest = counts[3] * block, 0
        for loop in rng.sample(range(3), 3):
            stride = rng.choice((-1, 1)) * (size + rng.choice((0, 0, 1)))
            values[f"o_i{loop}_stride"] = stride
            lowest += min(0, stride * (counts[loop] - 1))
            size += abs(stride) * (counts[loop] - 1)
        values["o_address"] = OPERANDS + NUMBERS + rng.randrange(RESULTS - size) - lowest
        stream = rng.choice(_PORTS)
        source = Source.WIDE if values["wide"] else Source.NARROW
        if rng.random() < 0.3 and size < 400:
            # In place.
            values[f"{stream}_source"] = source
            first, room, _ = blocks[source]
            values["o_address"] = first + rng.randrange(room - size) - lowest
            for part in ("address", *(f"i{loop}_stride" for loop in range(3))):
                values[f"{stream}_{part}"] = values[f"o_{part}"]
            for other in set(_PORTS) - {stream}:
                if values[f"{other}_source"] == source:
                    values[f"{other}_source"] = Source.IMMEDIATE
    number = int(encode(FLOAT32, rng.choice((0.0, 1.0, -1.0, 2.0, 3.0, 0.1, 1e-30, 1e30))))
    values["immediate"] = rng.choice((number, 0x7FC00001, 0x80000000, 0x00000001, 0xFF800000))
    return values


def walk(rng, values, name, counts, first, room, block):
    """Strides and address of an operand that stays within ``room`` words."""
    while True:
        strides = [rng.choice((0, 0, 1, -1, block, rng.randint(-9, 9))) for _ in range(3)]
        if rng.random() < 0.2:
            strides = [0, 0, 0]
        steps = [s * (n - 1) for s, n in zip(strides, counts[:3], strict=True)]
        lowest = sum(min(0, step) for step in steps)
        size = sum(map(abs, steps)) + counts[3] * block
        if size <= room:
            break
    values[f"{name}_address"] = first + rng.randint(0, room - size) - lowest
    for loop in range(3):
        values[f"{name}_i{loop}_stride"] = strides[loop]


def _index(name):
    return next(number for number, item in enumerate(VECTOR) if item.name == name)
