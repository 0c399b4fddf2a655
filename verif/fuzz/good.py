"""Good programs: what must run bit for bit whatever has been before. The interpreter says what they
store."""

import random
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compiler.codegen.binary.command_bytes import encode_commands
from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.dependencies import Recorder
from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_input_gradient import input_gradient
from compiler.kernels.convolution.conv_weight_gradient import weight_gradient
from compiler.tensors.intervals import round_up
from emulator.batch_loop import BatchLoop
from emulator.interpreter import interpret
from golden.arithmetic.dot_product import encode as encode_number
from golden.arithmetic.formats import FLOAT32, format_by_name
from golden.commands.vector import Carry, Factor, Source
from golden.prediction.schedule import ScheduleConfig, Stage
from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, Opcode, encode
from hw.registers import host
from hw.registers.map import register_map
from verif.programs.batch_programs import BatchProgram
from verif.programs.convolution_programs import ConvolutionProgram
from verif.programs.faulty_programs import HALT, dma, matmul, post, weights
from verif.programs.repeat_programs import repeat_program
from verif.stimulus.loss import random_batch

__all__ = ["Good", "good_programs", "window_registers"]

_ONE = 0x3F800000


@dataclass(frozen=True, kw_only=True)
class Good:
    """A program that is right.

    Members
    -------
    image, after : the memory window before and after the run
    program, program_size : where the program is in it, in bytes
    registers : ((offset, value), ...) for the host to write before the start
    """

    name: str
    image: bytes
    after: bytes
    program: int
    program_size: int
    registers: tuple

    @cached_property
    def commands(self) -> tuple:
        """The program's commands, 512 bits each."""
        part = self.image[self.program : self.program + self.program_size]
        return tuple(
            int.from_bytes(part[at : at + COMMAND_BYTES], "little")
            for at in range(0, len(part), COMMAND_BYTES)
        )


def window_registers(registers, *, base, size, program, program_size, **values) -> tuple:
    """((offset, value), ...) that describe window and program, and switch on every interrupt, as
    ``registers``, a :class:`~hw.registers.model.RegisterMap`, says."""
    causes = sum(field.mask for field in registers["INTERRUPT_ENABLE"].fields)
    values = {
        "MEM_BASE_LO": base & 0xFFFFFFFF,
        "MEM_BASE_HI": base >> 32,
        "MEM_SIZE": size & 0xFFFFFFFF,
        "MEM_SIZE_HI": size >> 32,
        "PROGRAM_ADDRESS": program,
        "PROGRAM_SIZE": program_size,
        "INTERRUPT_ENABLE": causes,
        "WATCHDOG": 0,
    } | values
    return tuple((registers[name].offset, value) for name, value in values.items())


def good_programs(config: AdaGPConfig, seed: int = 1) -> tuple[Good, ...]:
    """Good programs of every kind that the configuration can run, with data from ``seed``."""
    rng = random.Random(seed)
    goods = []
    # Short ones twice: LOSS takes longer than all the others together.
    for _ in range(2):
        for core in config.cores:
            for memory in core.memories:
                goods += [_product(config, core, memory, rng, tiles) for tiles in (1, 3)]
                if core.has_vector:
                    goods.append(_vectors(config, core, memory, rng))
    if config.has_training_engines:
        goods += [_loss(config, rng)]
        goods += [_batches(config, rng) for _ in range(2)]
        goods += [_convolution(config, rng, part) for part in ("y", "dx", "dw", "y")]
    else:
        goods.append(_convolution(config, rng, "y"))
    goods += [_loops(config, core, rng) for core in config.cores]
    return tuple(goods)


class _Image:
    """A memory window that grows: room for a program, then data."""

    def __init__(self, commands):
        self.memory = bytearray(COMMAND_BYTES * commands)
        self.end = 0

    def add(self, data: bytes) -> int:
        """Place ``data`` or, for a number, so many bytes that nobody has written; the offset."""
        if isinstance(data, int):
            data = b"\xa5" * data
        offset = len(self.memory)
        self.end = offset + len(data)
        self.memory += data + b"\xa5" * (-len(data) % 64)
        return offset

    def good(self, config, name, commands, **registers):
        program = b"".join([*commands, HALT])
        self.memory[: len(program)] = program
        # The window ends with what is stored last.
        return _finish(config, name, bytes(self.memory[: self.end]), program, **registers)


def _finish(config, name, image, program, *, loop=None, **registers):
    """What the interpreter makes of it."""
    after = bytearray(image)
    coefficients = host.coefficients(registers)
    interpret(config, program, after, coefficients=coefficients, loop=loop)
    if bytes(after) == image:
        raise AssertionError(f"{name} stores nothing")
    registers |= loop.registers() | {"BATCHES_READY": loop.batches} if loop else {}
    values = window_registers(
        register_map(config), base=0, size=len(image), program=0, program_size=len(program),
        **registers,
    )  # fmt: skip
    return Good(
        name=name, image=image, after=bytes(after), program=0, program_size=len(program),
        registers=values,
    )  # fmt: skip


def _operands(config, core, rng, words):
    """Words of operands near one, of a core."""
    generator = np.random.default_rng(rng.getrandbits(32))
    count = words * core.rows
    kind = np.dtype("<u1" if core.operand_width == 8 else "<u2")
    if not config.format.is_float:
        return generator.integers(0, 256, count).astype(kind).tobytes()
    values = generator.standard_normal(count)
    return encode_number(format_by_name(config.operand_format), values).astype(kind).tobytes()


def _base(memory):
    """The first word of a memory: 0 global buffer, 1 predictor memory."""
    return memory << BUFFER_ADDRESS_WIDTH - 1


def _product(config, core, memory, rng, tiles):
    """Products of weights and vectors, tile after tile in both accumulator banks."""
    pixels = rng.randint(3, 6)
    blocks = -(-core.columns // core.rows)
    image, sem = _Image(4 + 4 * tiles), config.semaphores * core.index
    ready, full, free, out = (1 << sem + number for number in range(4))
    size, first = core.word_bytes, _base(memory)
    matrix = core.rows * blocks
    count = matrix + pixels
    if core.columns % core.rows:  # words that a tile does not fill are stored all the same
        count += pixels * blocks * tiles
    source = image.add(_operands(config, core, rng, count))
    commands = [
        dma(
            Opcode.LOAD,
            config,
            core.index,
            words=count,
            dram_address=source,
            signal=ready,
            buffer_address=first,
        ),
    ]
    scale = _ONE if config.format.is_float else 1
    for tile in range(tiles):
        bank = tile % 2
        target = image.add(pixels * blocks * size)
        outputs = first + matrix + pixels * (1 + tile * blocks)
        commands += [
            weights(config, core.index, row_stride=blocks, row_limit=core.rows,
                    block_count=blocks, wait=ready if tile == 0 else 0,
                    address=first + tile % blocks, signal=free if tile == 0 else 0),
            matmul(config, core.index, vectors=pixels, x_address=first + matrix, wo_stride=1,
                   w_limit=pixels, wo_step=1, channels=core.columns, accumulator_bank=bank,
                   wait=free if tile != 1 else 0, signal=full),
            post(config, core.index, outputs=pixels, channels=core.columns, wo_stride=1,
                 group_count=core.groups_per_vector, out_address=outputs, out_wo_stride=blocks,
                 accumulator_bank=bank, relu=tile % 2, scale=scale, wait=full,
                 signal=out | (free if 0 < tile + 2 < tiles else 0)),
            dma(Opcode.STORE, config, core.index, words=pixels * blocks, wait=out,
                buffer_address=outputs, dram_address=target),
        ]  # fmt: skip
    where = f"core {core.index}, memory {memory}"
    return image.good(config, f"product, {tiles} tiles on {where}", commands)


def _vectors(config, core, memory, rng):
    """A chain, a reduction, and a division or a root."""
    words = rng.randint(3, 6)
    wide = core.chunks_per_wide
    image, sem = _Image(8), config.semaphores * core.index
    loaded, done = 1 << sem + 4, 1 << sem + 5
    first = _base(memory)
    source = image.add(_operands(config, core, rng, 2 * words))
    target = image.add((words + 2 * wide) * core.word_bytes)
    results = first + 2 * words
    narrow = {
        "core": core.index, "x_address": first, "x_i0_stride": 1,
        "y_source": Source.COEFFICIENT, "channels": core.rows,
    }  # fmt: skip
    commands = [
        dma(Opcode.LOAD, config, core.index, words=2 * words, dram_address=source, signal=loaded,
            buffer_address=first),
        encode(Opcode.VECTOR, wait=loaded, coefficient=1, z_source=Source.NARROW,
               z_address=first + words, z_i0_stride=1, factor=Factor.Y, carry=Carry.Z, add=1,
               o_address=results, o_i0_stride=1, i0_count=words, **narrow),
        encode(Opcode.VECTOR, coefficient=2, factor=Factor.Y, reduce=1, wide=1, i0_count=words,
               o_address=results + words, **narrow),
        encode(Opcode.VECTOR, coefficient=3, operation=rng.randint(1, 3), wide=1, signal=done,
               o_address=results + words + wide, **narrow),
        dma(Opcode.STORE, config, core.index, words=words + 2 * wide, wait=done,
            buffer_address=results, dram_address=target),
    ]  # fmt: skip
    numbers = encode_number(FLOAT32, np.array([rng.gauss(0, 1) for _ in range(8)]))
    return image.good(
        config, f"vectors on core {core.index}, memory {memory}", commands,
        **{f"COEFFICIENT{number}": int(value) for number, value in enumerate(numbers)}, GUARD=0,
    )  # fmt: skip


def _loops(config, core, rng):
    """Loops of commands inside each other."""
    program = repeat_program(config, core.index, rng.getrandbits(32), depth=2)
    return _finish(config, f"loops on core {core.index}", program.image, program.program)


def _loss(config, rng):
    """A batch of LOSS."""
    core = config.cores[0]
    base = _base(core.memories[0])
    # A number takes LOSS some hundred cycles.
    batch = random_batch(rng, config, core, base=base, rows=1, length=rng.randint(1, 2))
    last = batch.commands[-1]
    behind = last["value_address"] + core.chunks_per_wide
    count = max([behind, *(address + 1 for write in batch.writes for address, _ in write)]) - base
    words = bytearray(b"\xa5" * count * core.word_bytes)
    for address, word in batch.memory.items():
        place = (address - base) * core.word_bytes
        words[place : place + core.word_bytes] = word.to_bytes(core.word_bytes, "little")
    image = _Image(3 + len(batch.commands))
    source, target = image.add(bytes(words)), image.add(len(words))
    body = [dict(fields) for fields in batch.commands]
    body[0]["wait"] = body[-1]["signal"] = 1 << 6
    whole = {"words": count, "buffer_address": base}
    commands = [
        dma(Opcode.LOAD, config, dram_address=source, signal=1 << 6, **whole),
        *(encode(Opcode.LOSS, **fields) for fields in body[:-1]),
        encode(Opcode.LOSS, **body[-1] | {"signal": 1 << 7}),
        dma(Opcode.STORE, config, dram_address=target, wait=1 << 7, **whole),
    ]  # fmt: skip
    return image.good(config, "loss", commands)


def _batches(config, rng):
    """Batches in both phases and parities; all inputs are there from the beginning."""
    program = BatchProgram(config=config, program=0)
    commands = program.commands()
    memory = bytearray(program.image(commands))
    for number in range(2):
        for offset, data in program.changes(number):
            memory[offset : offset + len(data)] = data
    loop = BatchLoop(
        schedule=ScheduleConfig(
            warm_up=rng.randint(0, 1), ladder=(Stage(gp=rng.randint(1, 2), bp=1, epochs=3),)
        ),
        batches=rng.randint(2, 4), epoch_batches=2, epoch=rng.randint(0, 1),
    )  # fmt: skip
    return _finish(config, "batches", bytes(memory), commands, loop=loop)


@dataclass(frozen=True, kw_only=True)
class _Convolution(ConvolutionProgram):
    room: int = 1 << 12

    @property
    def program_bytes(self):
        return self.room

    @cached_property
    def commands(self):
        recorder = Recorder(self.config)
        program, tensors = CoreProgram(self.config, self.core, recorder), self.tensors
        if "y" in self.parts:
            forward(program, self.layer)
        if "dx" in self.parts:
            input_gradient(program, self.layer, tensors["dy"], tensors["dx"])
        if "dw" in self.parts:
            weight_gradient(program, self.layer, tensors["dy"], tensors["dw"], tensors["db"])
        return recorder.link()


def _convolution(config, rng, part):
    """What the compiler makes of a small convolution, in one direction."""
    program = _Convolution(
        config=config, shape=(1, rng.randint(2, 3), rng.randint(2, 4), rng.randint(2, 5)),
        outputs=rng.randint(2, 5), kernel=(1, 2), padding=(0, 0), parts=(part,),
    )  # fmt: skip
    size = len(encode_commands(program.commands))
    program = _Convolution(
        **{name: getattr(program, name) for name in
           ("config", "shape", "outputs", "kernel", "padding", "parts")},
        room=round_up(size, 64),
    )  # fmt: skip
    generator = np.random.default_rng(rng.getrandbits(32))

    def codes(shape, fmt=None):
        if fmt is None and not config.format.is_float:
            return generator.integers(0, 256, shape).astype(np.uint32)
        values = generator.standard_normal(shape)
        return encode_number(fmt or format_by_name(config.operand_format), values)

    images, *_, inputs = program.shape
    image = program.image(
        codes(program.shape),
        codes((images, *program.map, program.outputs)),
        codes((program.outputs, inputs, *program.kernel)),
        codes((program.outputs,), FLOAT32 if config.format.is_float else None),
    )
    return _finish(config, f"convolution {part}", image, program.program)
