"""Register access by name, from the description in :mod:`hw.registers.map`."""

from hw.bus.signatures import RESP_OKAY
from hw.isa.error_codes import ErrorCode
from hw.registers.map import Unit, register_map

__all__ = ["Driver", "RegisterAccessError"]


class RegisterAccessError(Exception):
    """A register access was answered with an error."""


class Driver:
    """Operates the accelerator through its registers.

    Parameters
    ----------
    config : AdaGPConfig
    bus : object
        with ``await read(address) -> (value, response)`` and
        ``await write(address, value) -> response``
    """

    def __init__(self, config, bus):
        self.config = config
        self.map = register_map(config)
        self.bus = bus

    async def read(self, name: str) -> int:
        """Value of a register; ``NAME`` of a pair ``NAME_LO``, ``NAME_HI`` reads both."""
        if name not in self.map:
            low = await self.read(f"{name}_LO")
            return low | (await self.read(f"{name}_HI") << 32)
        value, response = await self.bus.read(self.map[name].offset)
        if response != RESP_OKAY:
            raise RegisterAccessError(f"read of {name}: response {response}")
        return value

    async def write(self, name: str, value: int) -> None:
        """Write a register, or both halves of a pair."""
        if name not in self.map:
            await self.write(f"{name}_LO", value & 0xFFFFFFFF)
            await self.write(f"{name}_HI", value >> 32)
            return
        response = await self.bus.write(self.map[name].offset, value)
        if response != RESP_OKAY:
            raise RegisterAccessError(f"write of {name}: response {response}")

    async def fields(self, name: str) -> dict[str, int]:
        """The fields of a register by name."""
        value = await self.read(name)
        return {field.name: (value & field.mask) >> field.lsb for field in self.map[name].fields}

    async def write_fields(self, name: str, **values: int) -> None:
        """Write a register with ``values``; fields that are not named become zero."""
        word = 0
        for field in self.map[name].fields:
            word |= (values.pop(field.name, 0) << field.lsb) & field.mask
        if values:
            raise ValueError(f"{name} has no field {', '.join(values)}")
        await self.write(name, word)

    async def start(
        self, *, base: int, size: int, program: int, program_size: int, watchdog: int = 0
    ) -> None:
        """Describe the memory window and the program (offsets in bytes), enable the interrupt for
        all causes and start. ``watchdog``: cycles without progress that end the run; 0: none do.
        Raises ValueError if ``size`` is above 4 GiB."""
        if not 0 <= size <= 1 << 32:
            raise ValueError(f"size must be from 0 to {1 << 32} bytes (4 GiB), not {size!r}")
        await self.write("WATCHDOG", watchdog)
        await self.write("MEM_BASE", base)
        await self.write("MEM_SIZE", size & 0xFFFFFFFF)
        await self.write("MEM_SIZE_HI", size >> 32)
        await self.write("PROGRAM_ADDRESS", program)
        await self.write("PROGRAM_SIZE", program_size)
        causes = {field.name: 1 for field in self.map["INTERRUPT_ENABLE"].fields}
        await self.write_fields("INTERRUPT_ENABLE", **causes)
        await self.write_fields("CONTROL", START=1)

    async def stop(self) -> None:
        """End the run that is under way, if there is one; :meth:`wait` tells when it has ended. A
        second time: do not wait for a bus that does not answer."""
        await self.write_fields("CONTROL", STOP=1)

    async def wait(self, polls: int) -> str:
        """Wait until no program runs, and say in a sentence how the last one has ended.

        Raises
        ------
        TimeoutError
            after ``polls`` reads of STATUS
        """
        for _ in range(polls):
            status = await self.fields("STATUS")
            if not status["BUSY"]:
                return await self._ending(status)
        state = ", ".join(name for name, value in status.items() if value)
        raise TimeoutError(f"the program has not ended after {polls} reads of STATUS: {state}")

    async def _ending(self, status):
        """What STATUS and the error registers say of the last run."""
        if not status["DONE"]:
            return "no program has run since the reset"
        text = "the program has ended"
        if status["STOPPED"]:
            text = "the program was stopped by CONTROL.STOP"
        elif status["ERROR"]:
            code, unit, address = await self.error()
            text = f"{unit.name} ended the program with {code.name} at {address:#x}: {code.doc}"
        if status["DRAINING"]:
            text += "; the bus still owes answers"
        return text

    async def acknowledge(self) -> dict[str, int]:
        """Read and clear the causes of the interrupt."""
        causes = await self.fields("INTERRUPT_STATUS")
        await self.write_fields("INTERRUPT_STATUS", **causes)
        return causes

    async def error(self) -> tuple[ErrorCode, Unit, int]:
        """Code, unit and address of the first error of the last run."""
        code = ErrorCode(await self.read("ERROR_CODE"))
        unit = Unit(await self.read("ERROR_UNIT"))
        return code, unit, await self.read("ERROR_ADDRESS")

    async def counters(self) -> dict[str, int]:
        """All counters by name."""
        return {counter.name: await self.read(counter.name) for counter in self.map.counters}

    async def flags(self) -> list[dict[str, int]]:
        """The sticky flags of each core."""
        return [await self.fields(f"CORE{core.index}_FLAGS") for core in self.config.cores]

    async def clear_flags(self) -> None:
        """Clear all sticky flags."""
        for core in self.config.cores:
            name = f"CORE{core.index}_FLAGS"
            await self.write_fields(name, **{field.name: 1 for field in self.map[name].fields})
