"""Programs with addresses far beyond the end of a memory: every bit of them counts."""

from collections.abc import Iterator

from golden.commands.vector import Source
from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig
from hw.isa.encoding import Opcode
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit

from .faulty_programs import HALT, Fault, dma, loss, matmul, post, vector, weights

__all__ = ["far_address_faults"]

#: Bits of the number of an accumulator entry.
_ENTRY_WIDTH = 16


def far_address_faults(config: AdaGPConfig) -> list[Fault]:
    """For every address in a command of every core, and every bit that no word behind it has, a
    program whose address has that bit."""
    result = []
    for core in config.cores:
        memory = core.memories[0]
        words, entries = config.memory_depth[memory], core.accumulator_depth
        bits = range((words - 1).bit_length(), BUFFER_ADDRESS_WIDTH - 1)
        for bit in (*bits, *bits[:1]):  # behind the highest bit a lower one, so that it falls again
            address = memory << BUFFER_ADDRESS_WIDTH - 1 | 1 << bit
            for name, opcode, commands in _at_word(config, core, address):
                result.append(_fault(core, name, opcode, commands, ErrorCode.BUFFER_ADDRESS,
                                     address))  # fmt: skip
        for bit in range((entries - 1).bit_length(), _ENTRY_WIDTH):
            fields = {"accumulator_address": 1 << bit}
            for opcode, commands in (
                (
                    Opcode.MATMUL,
                    [weights(config, core.index), matmul(config, core.index, **fields)],
                ),
                (Opcode.POST, [post(config, core.index, **fields)]),
            ):
                result.append(_fault(core, "entry", opcode, commands,
                                     ErrorCode.ACCUMULATOR_ADDRESS, 1 << bit))  # fmt: skip
    return result


def _fault(core, name, opcode, commands, code, address):
    return Fault(
        name=f"core {core.index} {opcode.name} {name} {address:#x}", commands=[*commands, HALT],
        code=code, unit=Unit[f"CORE{core.index}_{opcode.name}"], address=address, in_window=False,
    )  # fmt: skip


def _at_word(config, core, address) -> Iterator[tuple[str, Opcode, list]]:
    """(name of the address, opcode, commands) of everything that goes to a buffer word."""
    index = core.index
    for opcode in (Opcode.LOAD, Opcode.STORE):
        yield "word", opcode, [dma(opcode, config, index, words=1, buffer_address=address)]
    yield "tile", Opcode.WEIGHTS, [weights(config, index, address=address)]
    biases = weights(config, index, bias=1, bias_address=address)
    yield "biases", Opcode.WEIGHTS, [biases, matmul(config, index, init=1)]
    yield "x", Opcode.MATMUL, [weights(config, index), matmul(config, index, x_address=address)]
    yield "out", Opcode.POST, [post(config, index, out_address=address)]
    if core.has_vector:
        for stream in "xyzo":
            fields = {f"{stream}_address": address}
            if stream != "o":
                fields |= {"x_source": Source.IMMEDIATE, f"{stream}_source": Source.NARROW}
            yield stream, Opcode.VECTOR, [vector(config, index, **fields)]
    if core.has_loss:
        for name in ("x", "target", "gradient", "value"):
            yield name, Opcode.LOSS, [loss(config, loss=1, **{f"{name}_address": address})]
