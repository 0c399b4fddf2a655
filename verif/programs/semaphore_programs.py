"""Programs that take semaphores to their limits."""

from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig
from hw.control.command_queue import Semaphores
from hw.isa.encoding import Opcode
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit

from .faulty_programs import HALT, Fault, dma, loss, matmul, post, vector, weights

__all__ = ["counting_program", "overflow_faults"]

#: The most that a semaphore holds.
_MOST = (1 << Semaphores.WIDTH) - 1


def counting_program(config: AdaGPConfig) -> list[bytes]:
    """Commands of every queue that give all semaphores but the last one, which MATMUL gives POST;
    then some that raise all to their maximum and lower them to 0."""
    every = (1 << config.semaphore_count) - 1
    last = 1 << config.semaphore_count - 1
    most = every ^ last
    # What is written here, no other command looks at.
    first = [(core.memories[0] << BUFFER_ADDRESS_WIDTH - 1) + 50 for core in config.cores]
    take = dma(Opcode.LOAD, config, words=1, buffer_address=first[0], wait=most)
    commands = []
    for core in config.cores:
        index = core.index
        given = [
            dma(Opcode.LOAD, config, index, words=40, signal=most),
            weights(config, index, signal=most),
            matmul(config, index, signal=every),
            post(config, index, out_address=first[index] + 1, wait=last, signal=most),
            dma(Opcode.STORE, config, index, words=1, dram_address=0x6000, signal=most),
        ]
        if core.has_vector:
            given.append(vector(config, index, o_address=first[index] + 2, signal=most))
        if core.has_loss:
            given.append(loss(config, loss=1, signal=most))
        for command in given:
            commands += [command, take]
    give = dma(Opcode.LOAD, config, words=1, signal=every)
    take = dma(Opcode.LOAD, config, words=1, wait=every)
    return [*commands, *[give] * _MOST, *[take] * _MOST, HALT]


def overflow_faults(config: AdaGPConfig) -> list[Fault]:
    """For every semaphore a program that signals it once too often."""
    return [
        Fault(
            name=f"semaphore {number} overflows",
            commands=[*[dma(Opcode.LOAD, config, words=1, signal=1 << number)] * (_MOST + 1), HALT],
            code=ErrorCode.SEMAPHORE_OVERFLOW,
            unit=Unit.SEQUENCER,
            address=number,
            in_window=False,
        )
        for number in range(config.semaphore_count)
    ]
