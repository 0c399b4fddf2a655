"""Error codes of the machine; registers, documentation and drivers take them from here."""

import enum

__all__ = ["ErrorCode"]


class ErrorCode(enum.IntEnum):
    """Reason of the first error since the start; the error address register tells the place.

    Every member carries its description in ``doc``; the numbers are part of the register
    interface and never change meaning.
    """

    doc: str

    def __new__(cls, code: int, doc: str) -> "ErrorCode":
        member = int.__new__(cls, code)
        member._value_ = code
        member.doc = doc
        return member

    NONE = 0, "no error"
    UNDEFINED_COMMAND = 1, "undefined opcode; address: the command's DRAM address"
    # Of a run that ends inside a row, the address is that of the buffer word.
    ILLEGAL_FIELD = 2, "a field outside its range; address: the DRAM address the command names"
    UNALIGNED_ADDRESS = 3, "not a multiple of the granule; address: the command's DRAM address"
    MEMORY_WINDOW = 4, "an access outside the memory window; address: the DRAM address"
    BUFFER_ADDRESS = 5, "a buffer access past the end of the memory; address: the word address"
    ACCUMULATOR_ADDRESS = 6, "an accumulator access past the end; address: the entry"
    # EXOKAY answers exclusive accesses only, and nobody makes any: whose answer it is, is unknown.
    READ_SLVERR = 7, "SLVERR or EXOKAY answered a read; address: the DRAM address of the burst"
    READ_DECERR = 8, "DECERR answered a read; address: the DRAM address of the burst"
    WRITE_SLVERR = 9, "SLVERR or EXOKAY answered a write; address: the DRAM address of the burst"
    WRITE_DECERR = 10, "DECERR answered a write; address: the DRAM address of the burst"
    SEMAPHORE_OVERFLOW = 11, "a signal to a semaphore at its maximum; address: the semaphore"
    DEADLOCK = 12, "no unit can make progress: every waiting command's semaphores are empty"
    PROGRAM_END = 13, "the program ended without a HALT command; address: behind the last command"
    ILLEGAL_LABEL = 14, "a label that is no class; address: the word address of its row"
    BATCH_TARGET = 15, "BATCH names no command of the program; address: the command's DRAM address"
    WATCHDOG = 16, "nothing moved for WATCHDOG cycles; address: the next command to be dispatched"
    UNEXPECTED_RESPONSE = 17, "the bus answered what nobody had asked for; address: the AXI ID"
    BATCH_FIRST = 18, "BATCH has `first`, but is not the run's first; address: its DRAM address"
    REPEAT_TARGET = (
        19,
        "REPEAT names no command of the program; address: the command's DRAM address",
    )
    OPEN_LOOP = 20, "BATCH inside a loop that is not over; address: the command's DRAM address"
