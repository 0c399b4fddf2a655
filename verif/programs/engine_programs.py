"""Programs with VECTOR and LOSS: everything is loaded, computed on, and stored.

A program loads the whole buffer (:func:`verif.blocks.engines.vector_bench.fill`), runs its
commands, and stores the whole buffer, so that also what must not change is compared.
"""

import itertools
import random
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compiler.tensors.intervals import round_up
from golden.arithmetic.dot_product import encode as encode_number
from golden.arithmetic.formats import FLOAT32, format_by_name
from golden.commands.vector import Carry, Factor, Source, VectorMachine
from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig
from hw.isa.encoding import QUEUE_OPCODES, Opcode, decode, encode
from verif.stimulus.loss import random_batch
from verif.stimulus.vector import NUMBERS, OPERANDS, WORDS, fill, random_command

from .faulty_programs import HALT, dma, loss, matmul, post, vector, weights

__all__ = ["EngineProgram", "busy_program", "loss_program", "product_program", "vector_program"]

#: Bytes for the program, in front of the data.
_PROGRAM_BYTES = 1 << 14
#: Semaphores that a program's own commands may use.
_ACC_FULL, _ACC_FREE, _OUT_FULL, _DONE = (1 << number for number in (0, 7, 14, 15))
#: Pixels and tiles of :func:`product_program`.
_PIXELS, _TILES = 7, 5


@dataclass(frozen=True, kw_only=True)
class EngineProgram:
    """A program on one core.

    Members
    -------
    name : what it is
    core : index
    body : commands between loading and storing; data is there when they begin
    contents : (WORDS, rows) operand codes of the buffer
    coefficients, sample_seed, guard : registers
    """

    name: str
    config: AdaGPConfig
    core: int
    body: list
    contents: np.ndarray
    coefficients: tuple = (0,) * 8
    sample_seed: int = 0
    guard: bool = False

    @property
    def registers(self) -> dict:
        """Names and values for the host to write before the start."""
        values = {f"COEFFICIENT{n}": value for n, value in enumerate(self.coefficients)}
        return {**values, "SAMPLE_SEED": self.sample_seed, "GUARD": int(self.guard)}

    @cached_property
    def program(self) -> bytes:
        """The encoded commands."""
        shift = 16 * self.core
        body = [decode(command) for command in self.body]
        first, last = {}, {}
        for index, (opcode, _fields) in enumerate(body):
            first.setdefault(opcode, index)
            last[opcode] = index
        numbers = [QUEUE_OPCODES.index(opcode) for opcode in first]
        for number, opcode in zip(numbers, first, strict=True):
            body[first[opcode]][1]["wait"] |= 1 << number
            body[last[opcode]][1]["signal"] |= 1 << 8 + number - 1
        loads = self._transfers(Opcode.LOAD, _PROGRAM_BYTES)
        loads[-1][1]["signal"] = sum(1 << number for number in numbers)
        stores = self._transfers(Opcode.STORE, self.results)
        stores[0][1]["wait"] = sum(1 << 8 + number - 1 for number in numbers)
        commands = []
        for opcode, fields in (*loads, *body, *stores):
            masks = {name: fields[name] << shift for name in ("wait", "signal")}
            commands.append(encode(opcode, **fields | masks))
        result = b"".join([*commands, HALT])
        if len(result) > _PROGRAM_BYTES:
            raise ValueError(f"the program has {len(result)} bytes")
        return result

    @property
    def results(self) -> int:
        """Offset in the window of the buffer's words after the run."""
        return _PROGRAM_BYTES + round_up(self.contents.nbytes, 64)

    @cached_property
    def image(self) -> bytes:
        """The memory window."""
        size = self.results + 2 * round_up(self.contents.nbytes, 64)
        memory = bytearray(b"\xa5" * size)
        memory[: len(self.program)] = self.program
        raw = self.contents.tobytes()
        memory[_PROGRAM_BYTES : _PROGRAM_BYTES + len(raw)] = raw
        return bytes(memory)

    def compare(self, actual: bytes, expected: bytes) -> None:
        """Raise AssertionError with the first word and lane that differ."""
        if actual == expected:
            return
        shape, dtype = self.contents.shape, self.contents.dtype
        end = self.results + self.contents.nbytes
        words = [
            np.frombuffer(memory[self.results : end], dtype).reshape(shape)
            for memory in (actual, expected)
        ]
        wrong = np.argwhere(words[0] != words[1])
        if not len(wrong):
            place = next(i for i in range(len(actual)) if actual[i] != expected[i])
            raise AssertionError(
                f"{self.name}: byte {place:#x} of the window is {actual[place]:#04x}, expected "
                f"{expected[place]:#04x}"
            )
        word, lane = (int(part) for part in wrong[0])
        got, want = (int(part[word, lane]) for part in words)
        raise AssertionError(
            f"{self.name}: word {word:#x}, lane {lane} is {got:#x}, expected {want:#x}; "
            f"{len(wrong)} lanes are wrong"
        )

    def _transfers(self, opcode, offset):
        """LOAD or STORE of the whole buffer, decoded."""
        half, size = WORDS // 2, self.contents[0].nbytes
        return [
            decode(
                dma(
                    opcode,
                    self.config,
                    self.core,
                    words=half,
                    buffer_address=_place(self.config.cores[self.core], word),
                    dram_address=offset + word * size,
                )
            )
            for word in (0, half)
        ]


def _place(core, word):
    """Address of a word: operands and numbers are in the core's first memory, results and what
    LOSS works on in its last one."""
    memory = core.memories[-1 if word >= WORDS // 2 else 0]
    return memory << (BUFFER_ADDRESS_WIDTH - 1) | word


def _coefficients(rng):
    values = np.array([rng.choice((0.0, 1.0, -0.5, rng.gauss(0, 1), 1e30)) for _ in range(8)])
    return tuple(int(bits) for bits in encode_number(FLOAT32, values))


def _contents(config, core, rng):
    fmt = format_by_name(config.operand_format)
    return fill(np.random.default_rng(rng.getrandbits(32)), fmt, core.rows)


def vector_program(config, core, seed, *, guard, commands=40) -> EngineProgram:
    """Random VECTOR commands, one after the other."""
    rng, sizes = random.Random(seed), config.cores[core]
    contents = _contents(config, sizes, rng)
    machine = VectorMachine(fmt=format_by_name(config.operand_format), memory=contents)
    body = []
    for _ in range(commands):
        values = random_command(rng, machine)
        values["guarded"] = int(rng.random() < 0.3)
        for stream in "xo" if values["sample"] else "xyzo":
            values[f"{stream}_address"] = _place(sizes, values[f"{stream}_address"])
        body.append(encode(Opcode.VECTOR, core=core, **values))
    return EngineProgram(
        name=f"VECTOR on core {core}, guard {'on' if guard else 'off'}", config=config, core=core,
        body=body, contents=contents, coefficients=_coefficients(rng), guard=guard,
        sample_seed=rng.getrandbits(32),
    )  # fmt: skip


def _losses(config, rng, contents, *, first=3 * WORDS // 4, special=False):
    """Commands of a batch of LOSS whose data is put into ``contents``, from word ``first`` on."""
    core = config.cores[0]
    batch = random_batch(rng, config, core, special=special, numbers=40, base=_place(core, first))
    mask = (1 << (BUFFER_ADDRESS_WIDTH - 1)) - 1
    for address, word in batch.memory.items():
        raw = word.to_bytes(core.word_bytes, "little")
        contents[address & mask] = np.frombuffer(raw, contents.dtype)
    return [encode(Opcode.LOSS, **command) for command in batch.commands]


def loss_program(config, seed) -> EngineProgram:
    """Random batches of LOSS, the last of them with special values."""
    rng, core = random.Random(seed), config.cores[0]
    contents = _contents(config, core, rng)
    room = WORDS // 2 // 4
    body = []
    for number in range(4):
        body += _losses(
            config, rng, contents, first=WORDS // 2 + number * room, special=number == 3
        )
    return EngineProgram(name="LOSS", config=config, core=0, contents=contents, body=body)


def product_program(config, core, seed) -> EngineProgram:
    """Products that POST leaves as float32, VECTOR scales, adds to a map and rounds, and STORE
    takes away, tile after tile; LOSS on core 0 meanwhile."""
    rng, sizes = random.Random(seed), config.cores[core]
    contents = _contents(config, sizes, rng)
    blocks = -(-sizes.columns // sizes.rows)
    wide = blocks * sizes.chunks_per_wide
    sums, outputs = WORDS // 2, WORDS // 2 + _TILES * _PIXELS * wide
    stored = round_up(_PIXELS * blocks * sizes.word_bytes, 64)
    behind = _PROGRAM_BYTES + 2 * round_up(contents.nbytes, 64)
    body = _losses(config, rng, contents) if sizes.has_loss else []
    for tile in range(_TILES):
        bank, matrix = tile % 2, rng.randrange(OPERANDS - sizes.rows * blocks)
        x, z = (rng.randrange(OPERANDS - _PIXELS - blocks) for _ in range(2))
        sum_address = _place(sizes, sums + tile * _PIXELS * wide)
        output = outputs + tile * _PIXELS * blocks
        body += [
            weights(config, core, address=_place(sizes, matrix), row_stride=blocks,
                    row_limit=sizes.rows, block_count=blocks),
            matmul(config, core, vectors=_PIXELS, x_address=_place(sizes, x), wo_stride=1,
                   w_limit=_PIXELS, wo_step=1, channels=sizes.columns, accumulator_bank=bank,
                   wait=_ACC_FREE if tile >= 2 else 0, signal=_ACC_FULL),
            post(config, core, outputs=_PIXELS, wide=1, channels=sizes.columns,
                 group_count=sizes.groups_per_vector, out_address=sum_address, wo_stride=1,
                 out_wo_stride=wide, accumulator_bank=bank, wait=_ACC_FULL,
                 signal=_OUT_FULL | (_ACC_FREE if tile + 2 < _TILES else 0)),
            encode(Opcode.VECTOR, core=core, wait=_OUT_FULL, signal=_DONE,
                   x_source=Source.WIDE, x_address=sum_address, x_i0_stride=wide,
                   y_source=Source.COEFFICIENT, coefficient=rng.randrange(8),
                   z_source=Source.NARROW, z_address=_place(sizes, z), z_i0_stride=1,
                   factor=Factor.Y, carry=Carry.Z, add=1,
                   o_address=_place(sizes, output), o_i0_stride=blocks,
                   i0_count=_PIXELS, cb_count=blocks, channels=sizes.columns),
            dma(Opcode.STORE, config, core, words=_PIXELS * blocks, wait=_DONE,
                buffer_address=_place(sizes, output), dram_address=behind + tile * stored),
        ]  # fmt: skip
    return EngineProgram(
        name=f"MATMUL, POST, VECTOR, STORE on core {core}", config=config, core=core,
        body=body, contents=contents, coefficients=_coefficients(rng),
    )  # fmt: skip


#: Rounds of :func:`busy_program`, and the words that each has for what it loads and for what POST
#: and VECTOR make; its LOSS commands, and the words of each.
_ROUNDS, _LOADED, _MADE = 10, 32, 8
_LOSSES, _LOSS_WORDS = 12, 36


def busy_program(config, core, seed) -> EngineProgram:
    """All engines of a core at once, each on words that no other one changes, faster than their
    queues take commands; then one behind the other, each with two semaphores before and after."""
    rng, sizes = random.Random(seed), config.cores[core]
    contents = _contents(config, sizes, rng)
    counts = (1, 2, 3, sizes.rows, sizes.columns, max(sizes.rows, sizes.columns) + 1)
    results = WORDS // 2
    made = results + (_ROUNDS + 1) * _LOADED
    emptied, done = 1 << 14, 1 << 15

    def read(words):
        return _place(sizes, rng.randrange(OPERANDS - words))

    def step(number):
        """Commands by opcode."""
        place = made + 2 * number * _MADE
        commands = {
            Opcode.LOAD: _busy_transfer(Opcode.LOAD, config, core, rng, number, counts,
                                        _place(sizes, results + number * _LOADED)),
            Opcode.STORE: _busy_transfer(Opcode.STORE, config, core, rng, number, counts,
                                         read(_LOADED)),
            Opcode.WEIGHTS: {"address": read(2 * sizes.rows), "row_stride": 2,
                             "row_limit": sizes.rows},
            Opcode.MATMUL: {"x_address": read(_PIXELS), "wo_count": _PIXELS, "wo_stride": 1,
                            "w_limit": _PIXELS, "wo_step": 1, "channels": sizes.columns,
                            # Beside what POST reads, so that they are in each other's way.
                            "accumulator_bank": number % 2, "accumulator_address": _MADE},
            Opcode.POST: {"accumulator_bank": 1, "wo_count": _MADE, "wo_stride": 1,
                          "out_wo_stride": 1, "channels": sizes.columns,
                          "out_address": _place(sizes, place)},
        }  # fmt: skip
        if sizes.has_vector:
            commands[Opcode.VECTOR] = {
                "x_address": read(_MADE), "o_address": _place(sizes, place + _MADE),
                "i0_count": _MADE, "channels": sizes.rows,
            }  # fmt: skip
        if sizes.has_loss and number == _ROUNDS:
            commands[Opcode.LOSS] = _busy_loss(sizes, rng, _LOSSES, counts)
        return commands

    makers = {
        Opcode.WEIGHTS: weights, Opcode.MATMUL: matmul, Opcode.POST: post, Opcode.VECTOR: vector,
    }  # fmt: skip

    def make(opcode, fields, **masks):
        if opcode in makers:
            return makers[opcode](config, core, **fields, **masks)
        if opcode == Opcode.LOSS:
            return loss(config, **fields, **masks)
        return encode(opcode, core=core, **fields, **masks)

    body = []
    if sizes.has_loss:
        body += [loss(config, **_busy_loss(sizes, rng, n, counts)) for n in range(_LOSSES)]
    # What POST reads, a bank that no MATMUL changes any more.
    empty = {"x_address": read(1), "h_limit": 0, "accumulator_bank": 1}
    body += [
        weights(config, core, address=read(1)),
        matmul(config, core, vectors=_MADE, signal=emptied, **empty),
        # Sums that the next vector needs while they are under way.
        weights(config, core, tiles=2, address=read(1)),
        matmul(config, core, kw_count=2, x_address=read(1)),
    ]
    for number in range(_ROUNDS):
        for opcode, fields in step(number).items():
            masks = {}
            if opcode == Opcode.POST:
                masks = {
                    "wait": 0 if number else emptied,
                    "signal": 0 if number + 1 < _ROUNDS else done,
                }
            body.append(make(opcode, fields, **masks))
    # These have been taken when the chain begins; a link has two that no other has.
    free = [1 << 0, 1 << 1, 1 << 2, 1 << 3, emptied, done]
    links = [one | other for one, other in itertools.combinations(free, 2)]
    before = done
    for (opcode, fields), link in zip(step(_ROUNDS).items(), links, strict=False):
        body.append(make(opcode, fields, wait=before, signal=link))
        before = link
    body.append(make(opcode, fields, wait=before))
    return EngineProgram(
        name=f"everything at once on core {core}", config=config, core=core, body=body,
        contents=contents, coefficients=_coefficients(rng),
    )  # fmt: skip


def _busy_transfer(opcode, config, core, rng, number, counts, word):
    """Rows of less than a word, where there are such, of a word and of two, in runs."""
    sizes, granule = config.cores[core], config.granule_bytes
    row, rows = rng.choice(
        ((granule, 1), (granule, 3), (sizes.word_bytes, 1), (sizes.word_bytes, 4),
         (2 * sizes.word_bytes, 2))
    )  # fmt: skip
    count, run = counts[number % len(counts)], rows * row
    stride = run + granule * rng.randrange(2)
    raw = round_up(WORDS * sizes.rows * config.format.width // 8, 64)
    if opcode == Opcode.LOAD:
        offset = _PROGRAM_BYTES + 64 * rng.randrange(16)
        stride = rng.choice((0, stride))
    else:
        offset = _PROGRAM_BYTES + 2 * raw + number * (raw // (_ROUNDS + 1) // 64 * 64)
    return {
        "buffer_address": word, "dram_address": offset, "run_bytes": run, "run_count": count,
        "run_stride": stride, "row_bytes": row,
    }  # fmt: skip


def _busy_loss(sizes, rng, number, counts):
    """Squared errors: of numbers that are anywhere, so no labels."""
    count = counts[number % len(counts)]
    place = _place(sizes, WORDS - (_LOSSES + 1 - number) * _LOSS_WORDS)
    numbers = 2 * count * count
    return {
        "loss": 1, "first": int(number % 3 == 0), "last": int(number % 3 == 2),
        "x_wide": rng.randrange(2), "target_wide": rng.randrange(2),
        "row_count": count, "row_length": count, "x_stride": rng.choice((0, 1, 5)),
        "x_address": _place(sizes, OPERANDS + rng.randrange(NUMBERS - numbers - 8 * count)),
        "target_address": _place(sizes, OPERANDS + rng.randrange(NUMBERS - numbers)),
        "gradient_address": place, "value_address": place + _LOSS_WORDS - 4,
    }  # fmt: skip
