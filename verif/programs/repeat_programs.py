"""Random programs with REPEAT: products and copies in loops inside each other, whose LOADs and
STOREs move over the memory, and the same commands written out."""

import random
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compiler.codegen.binary.command_bytes import decode_commands
from compiler.codegen.program import executed_commands
from compiler.tensors.intervals import round_up
from golden.arithmetic.dot_product import encode as encode_number
from golden.arithmetic.formats import format_by_name
from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode
from hw.isa.loops import LOOP_LEVELS, LOOP_STRIDES, stride_name

from .faulty_programs import HALT, dma, matmul, post, weights

__all__ = ["RepeatProgram", "repeat_program"]

#: Bytes for the program, in front of the data.
_PROGRAM_BYTES = 1 << 13
#: Semaphores of a core: data is there, its place is free, for both places; sums, results. Whoever
#: waits for data has a semaphore of its own: the next job's may be waiting, too.
_FULL, _FREE, _SUMS, _DONE = (1 << 0, 1 << 1), (1 << 2, 1 << 3), 1 << 4, 1 << 5
_WEIGHTS, _COPY = 1 << 6, (1 << 7, 1 << 8)
#: Vectors of a product, and words of a copy.
_PIXELS = 3
_ONE = 0x3F800000


@dataclass(frozen=True, kw_only=True)
class RepeatProgram:
    """A program at offset 0 of the memory window.

    Members
    -------
    commands : of the program, HALT included
    image : the memory window before the run
    """

    name: str
    config: AdaGPConfig
    commands: list
    image: bytes

    @property
    def program(self) -> bytes:
        """The encoded commands."""
        return b"".join(self.commands)

    @cached_property
    def written_out(self) -> list:
        """The commands that are executed, without REPEAT, each with the address that it has."""
        still = {field.name: 0 for field in LOOP_STRIDES}
        return [
            encode(opcode, **fields | (still if opcode in (Opcode.LOAD, Opcode.STORE) else {}))
            for opcode, fields in executed_commands(decode_commands(self.program))
        ]


class _Writer:
    """Writes the commands of one core; jobs alternate between two places of its buffer."""

    def __init__(self, config, core, rng):
        self.config, self.core, self.rng = config, core, rng
        self.sizes = config.cores[core]
        self.shift = config.semaphores * core
        self.own = self.sizes.memories[0] << (BUFFER_ADDRESS_WIDTH - 1)
        self.blocks = -(-self.sizes.columns // self.sizes.rows)
        #: Words: the weights, then two places with room for inputs and results each.
        self.weights = self.sizes.rows * self.blocks
        self.room = _PIXELS * (1 + self.blocks)
        self.commands, self.jobs = [], 0
        self.inputs, self.end = 0, 0

    def place(self, number):
        """First word of a place."""
        return self.own + self.weights + number * self.room

    def mask(self, mask):
        return mask << self.shift

    def loop(self, levels, counts, open_levels):
        """A loop of ``levels[0]`` with the others inside, jobs in all of them."""
        rng, first = self.rng, len(self.commands)
        level, *rest = levels
        inside = [*open_levels, level]
        for _ in range(rng.randint(1, 2)):
            self.job(counts, inside)
        if rest:
            self.loop(rest, counts, inside)
            if rng.random() < 0.5:
                self.job(counts, inside)
        self.commands.append(
            encode(Opcode.REPEAT, level=level, count=counts[level], first=COMMAND_BYTES * first)
        )

    def job(self, counts, inside):
        """Loads vectors, multiplies or leaves them, stores what comes out, to other places every
        time."""
        rng, config, core, size = self.rng, self.config, self.core, self.sizes.word_bytes
        place, self.jobs = self.jobs % 2, self.jobs + 1
        source = self.place(place)
        product = rng.random() < 0.7
        words = _PIXELS * (self.blocks if product else 1)
        # Inputs may come again; results have strides that keep them apart, some of them backwards.
        grain = config.granule_bytes
        come = {level: grain * rng.randrange(-3, 4) for level in inside}
        low = sum(-step * (counts[level] - 1) for level, step in come.items() if step < 0)
        span = round_up(words * size, 64)
        go, start, step = {}, self.end, span
        for level in rng.sample(inside, len(inside)):
            forward = rng.random() < 0.7
            go[level] = step if forward else -step
            start += 0 if forward else step * (counts[level] - 1)
            step *= counts[level]
        self.end += step
        free = self.mask(_FREE[place])
        full = self.mask((_FULL if product else _COPY)[place])
        self.commands.append(
            dma(
                Opcode.LOAD,
                config,
                core,
                words=_PIXELS,
                buffer_address=source,
                wait=free,
                dram_address=self.inputs + low,
                signal=full | (self.mask(_WEIGHTS) if product else 0),
                **{stride_name(level): stride for level, stride in come.items()},
            )
        )
        ready, result = full, source
        if product:
            ready, result = self.mask(_DONE), source + _PIXELS
            scale = _ONE if config.format.is_float else 1
            self.commands += [
                weights(config, core, row_stride=self.blocks, row_limit=self.sizes.rows,
                        block_count=self.blocks, address=self.own,
                        wait=self.mask(_WEIGHTS)),
                matmul(config, core, vectors=_PIXELS, x_address=source, wo_stride=1,
                       w_limit=_PIXELS, wo_step=1, channels=self.sizes.columns,
                       accumulator_bank=place, wait=full, signal=self.mask(_SUMS)),
                post(config, core, outputs=_PIXELS, wo_stride=1, out_wo_stride=self.blocks,
                     group_count=self.sizes.groups_per_vector, channels=self.sizes.columns,
                     out_address=result, accumulator_bank=place, scale=scale,
                     wait=self.mask(_SUMS), signal=ready),
            ]  # fmt: skip
        self.commands.append(
            dma(
                Opcode.STORE,
                config,
                core,
                words=words,
                buffer_address=result,
                wait=ready,
                dram_address=start,
                signal=free,
                **{stride_name(level): stride for level, stride in go.items()},
            )
        )


def repeat_program(config: AdaGPConfig, core: int, seed: int, *, depth: int = 3) -> RepeatProgram:
    """Two loops, ``depth`` levels deep, one after the other on the same counters."""
    rng = random.Random(seed)
    writer = _Writer(config, core, rng)
    size = writer.sizes.word_bytes
    fmt = format_by_name(config.operand_format)
    numbers = np.random.default_rng(seed)
    # Enough for the strides of all levels, forwards and backwards.
    words = writer.weights + _PIXELS + 2 * LOOP_LEVELS * 3 * 4
    shape = words, writer.sizes.rows
    if fmt.is_float:
        values = numbers.standard_normal(shape)
    else:
        values = numbers.integers(-128, 128, shape)
    codes = encode_number(fmt, values).astype(np.uint8 if fmt.width == 8 else np.uint16)
    data = codes.tobytes()
    writer.inputs = _PROGRAM_BYTES + writer.weights * size
    writer.end = round_up(_PROGRAM_BYTES + len(data), 64)
    # The weights; and both places are free, with something in what no result fills.
    first = {"words": writer.room, "dram_address": _PROGRAM_BYTES}
    writer.commands = [
        dma(Opcode.LOAD, config, core, words=writer.weights, dram_address=_PROGRAM_BYTES),
        *(
            dma(Opcode.LOAD, config, core, buffer_address=writer.place(number),
                signal=writer.mask(mask), **first)
            for number, mask in enumerate(_FREE)
        ),
    ]  # fmt: skip
    for _ in range(2):
        levels = rng.sample(range(LOOP_LEVELS), depth)
        counts = {level: rng.choice((1, 2, 2, 3)) for level in levels}
        writer.loop(levels, counts, [])
    # The tokens that are left.
    writer.commands += [
        dma(Opcode.LOAD, config, core, buffer_address=writer.place(number),
            wait=writer.mask(mask), **first)
        for number, mask in enumerate(_FREE)
    ]  # fmt: skip
    writer.commands.append(HALT)
    if COMMAND_BYTES * len(writer.commands) > _PROGRAM_BYTES:
        raise ValueError(f"the program has {len(writer.commands)} commands")
    image = bytearray(b"\xa5" * writer.end)
    image[_PROGRAM_BYTES : _PROGRAM_BYTES + len(data)] = data
    program = b"".join(writer.commands)
    image[: len(program)] = program
    return RepeatProgram(
        name=f"loops of commands on core {core}", config=config, commands=writer.commands,
        image=bytes(image),
    )  # fmt: skip
