"""The accelerator and its memory in Python, operated as hardware is: five calls, no time."""

from collections.abc import Generator

from hw.config import AdaGPConfig
from hw.isa.batch import PhaseCode
from hw.registers import host
from hw.registers.map import register_map
from hw.registers.model import Register

from .batch_loop import next_position, scheduled_phase
from .executor import execute
from .machine import Machine
from .memory import FunctionalError

__all__ = ["EmulatorDevice"]


class EmulatorDevice:
    """A device for :class:`runtime.Accelerator`: memory, registers, and the commands between.

    A run happens inside :meth:`wait`. What is asked of a program is checked more strictly than
    hardware can: a run that does what it must not raises
    :class:`~emulator.memory.FunctionalError` with the number of the command.

    Parameters
    ----------
    config : AdaGPConfig
    memory_bytes : size of the memory, all zeros at first

    Members
    -------
    memory_bytes : int
    counts_cycles : False; there are no cycles, no counters but those of rejected tiles, and no
        sticky flags
    """

    counts_cycles = False

    def __init__(self, config: AdaGPConfig, memory_bytes: int) -> None:
        self.config, self.memory_bytes = config, memory_bytes
        self._memory = bytearray(memory_bytes)
        self._map = register_map(config)
        self.reset()

    def put(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Write ``data`` into the memory."""
        self._check(address, len(data))
        self._memory[address : address + len(data)] = data

    def get(self, address: int, size: int) -> bytes:
        """``size`` bytes of the memory."""
        self._check(address, size)
        return bytes(self._memory[address : address + size])

    def write(self, register: str, value: int) -> None:
        """Write a register, or both halves of a pair ``NAME_LO``, ``NAME_HI`` as ``NAME``.

        Raises
        ------
        KeyError
            no such register
        ValueError
            the accelerator refuses the write: the register is read-only, or locked by a run, or
            the value has too many bits
        """
        for found, part in host.register_writes(self._map, register, value, status=self._status):
            self._write(found, part)

    def _status(self) -> int:
        """STATUS; between two batches the host decides whether a BATCH waits."""
        registers = self._registers
        if self._run is not None:
            waits = self._boundary is not None
            waits = waits and registers["BATCHES_READY"] <= registers["BATCHES_DONE"]
            registers["STATUS"] = self._bits("STATUS", "BUSY", *["WAITING"] * waits)
        return registers["STATUS"]

    def _write(self, found: Register, value: int) -> None:
        register = found.name
        if register == "CONTROL":
            self._control(found, value)
        elif register == "INTERRUPT_STATUS":
            self._registers[register] &= ~value
        elif register in self._registers:
            self._registers[register] = value & sum(field.mask for field in found.fields)

    def wait(self, timeout_cycles: int | None = None) -> dict[str, int]:
        """Run until an interrupt, and acknowledge it.

        Returns
        -------
        registers by name, as they are before the causes in INTERRUPT_STATUS are cleared: those
        that the emulator has

        Raises
        ------
        TimeoutError
            nothing runs, or the program waits for a batch that is not there
        FunctionalError
            of the program
        """
        if self._run is not None:
            try:
                self._advance(self._run)
            except StopIteration:
                self._finish("DONE")
            except FunctionalError:
                self._finish("ERROR")
                self._registers["INTERRUPT_STATUS"] = 0
                raise
        elif not self._registers["INTERRUPT_STATUS"]:
            raise TimeoutError("no program runs: there will be no interrupt")
        found = dict(self._registers)
        self._registers["INTERRUPT_STATUS"] = 0
        return found

    def reset(self) -> None:
        """As ``rst``: registers have their reset values, no program runs; the memory keeps what it
        holds."""
        self._registers = {
            register.name: register.reset
            for register in self._map
            if register.counter is None and not register.name.endswith("_FLAGS")
        }
        self._run: Generator[bool, str | None, None] | None = None
        self._boundary: bool | None = None

    def close(self) -> None:
        """Nothing to do: for devices that hold something outside this process."""

    # A run -----------------------------------------------------------------------------------

    def _check(self, address, size):
        if address < 0 or address + size > self.memory_bytes:
            raise ValueError(
                f"{size} bytes at {address:#x} are outside of the memory of {self.memory_bytes}"
            )

    def _value(self, name):
        """Of a register or a pair."""
        if name in self._registers:
            return self._registers[name]
        return self._registers[f"{name}_LO"] | self._registers[f"{name}_HI"] << 32

    def _bits(self, register, *names):
        """The value in which these flags are set."""
        masks = {field.name: field.mask for field in self._map[register].fields}
        return sum(masks[name] for name in names)

    def _control(self, control: Register, value: int) -> None:
        start, stop = (field.mask & value for field in control.fields)
        if start:
            if self._run is not None:
                raise ValueError("CONTROL.START is refused while a program runs")
            self._begin()
        elif stop and self._run is not None:
            self._finish("STOPPED")

    def _begin(self):
        base, size = self._value("MEM_BASE"), self._registers["MEM_SIZE"]
        size |= self._registers["MEM_SIZE_HI"] << 32
        program, length = self._registers["PROGRAM_ADDRESS"], self._registers["PROGRAM_SIZE"]
        self._check(base, size)
        window = memoryview(self._memory)[base : base + size]
        trains = self.config.has_training_engines
        guard = bool(trains and self._registers["GUARD"])
        self._machine = Machine(
            self.config, window, coefficients=host.coefficients(self._registers), guard=guard
        )  # fmt: skip
        if trains:
            self._registers["BATCHES_DONE"] = 0
            self._sample()
        for name in ("ERROR_CODE", "ERROR_UNIT", "ERROR_ADDRESS_LO", "ERROR_ADDRESS_HI"):
            self._registers[name] = 0
        self._registers["STATUS"] = self._bits("STATUS", "BUSY")
        self._run = execute(self._machine, bytes(window[program : program + length]), program)
        self._boundary = None

    def _advance(self, run):
        """To the next end of a batch; StopIteration at the end of the program."""
        if self._boundary is None:
            self._boundary = next(run)
            if self._count():
                return
        while True:
            registers = self._registers
            if registers["BATCHES_DONE"] >= registers["BATCHES"]:
                raise StopIteration
            self._status()
            if registers["BATCHES_READY"] <= registers["BATCHES_DONE"]:
                raise TimeoutError(
                    f"the program waits for batch {registers['BATCHES_DONE']}: BATCHES_READY is "
                    f"{registers['BATCHES_READY']}"
                )
            self._machine.coefficients[:] = host.coefficients(self._registers)
            registers["PHASE"] = phase = scheduled_phase(registers)
            part = "gp" if phase is PhaseCode.GP else "bp"
            parity = "odd" if registers["BATCHES_DONE"] % 2 else "even"
            self._boundary = run.send(f"{part}_{parity}")
            if self._count():
                return

    def _count(self):
        """A BATCH has come; whether it raises an interrupt and the run goes on."""
        registers = self._registers
        if not self._boundary:
            return False
        registers["BATCHES_DONE"] += 1
        registers.update(next_position(registers))
        self._sample()
        registers["INTERRUPT_STATUS"] |= self._bits("INTERRUPT_STATUS", "BATCH")
        self._rejected()
        if registers["BATCHES_DONE"] >= registers["BATCHES"]:
            raise StopIteration
        return True

    def _sample(self):
        """The seed of the next batch."""
        seed = self._registers["SAMPLE_SEED"] + self._registers["BATCHES_DONE"]
        self._machine.sample_seed = seed & 0xFFFFFFFF

    def _finish(self, cause):
        """The run is over, because of ``cause``, a flag of INTERRUPT_STATUS."""
        self._registers["INTERRUPT_STATUS"] |= self._bits("INTERRUPT_STATUS", cause)
        self._registers["STATUS"] = self._bits("STATUS", *{"DONE", cause})
        self._rejected()
        self._run = None

    def _rejected(self):
        """What the guards of this run have rejected."""
        for index, count in enumerate(self._machine.rejected):
            self._registers[f"CORE{index}_VECTOR_REJECTED"] = count
