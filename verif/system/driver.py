"""Register access by name, from the description in :mod:`hw.registers.map`."""

from hw.bus.signatures import RESP_OKAY
from hw.isa.error_codes import ErrorCode
from hw.registers import host
from hw.registers.map import Unit, register_map

__all__ = ["Driver", "RegisterAccessError"]

_ERROR = ("ERROR_CODE", "ERROR_UNIT", "ERROR_ADDRESS_LO", "ERROR_ADDRESS_HI")


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

    def _is_pair(self, name):
        if name not in self.map and f"{name}_LO" not in self.map:
            raise KeyError(f"the accelerator has no register {name}")
        return name not in self.map

    async def read(self, name: str) -> int:
        """Value of a register; ``NAME`` of a pair ``NAME_LO``, ``NAME_HI`` reads both."""
        if self._is_pair(name):
            low = await self.read(f"{name}_LO")
            return low | (await self.read(f"{name}_HI") << 32)
        value, response = await self.bus.read(self.map[name].offset)
        if response != RESP_OKAY:
            raise RegisterAccessError(f"read of {name}: response {response}")
        return value

    async def write(self, name: str, value: int) -> None:
        """Write a register, or both halves of a pair."""
        if self._is_pair(name):
            await self.write(f"{name}_LO", value & 0xFFFFFFFF)
            await self.write(f"{name}_HI", value >> 32)
            return
        response = await self.bus.write(self.map[name].offset, value)
        if response != RESP_OKAY:
            raise RegisterAccessError(f"write of {name}: response {response}")

    async def fields(self, name: str) -> dict[str, int]:
        """The fields of a register by name."""
        return host.field_values(self.map, name, await self.read(name))

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
        """Write :func:`hw.registers.host.start_values`."""
        values = host.start_values(
            self.map, base=base, size=size, program=program, program_size=program_size,
            watchdog=watchdog,
        )  # fmt: skip
        for name, value in values.items():
            await self.write(name, value)

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
            value = await self.read("STATUS")
            status = host.field_values(self.map, "STATUS", value)
            if not status["BUSY"]:
                errors = {name: await self.read(name) for name in _ERROR}
                return host.ending(self.map, {"STATUS": value, **errors})
        state = ", ".join(name for name, value in status.items() if value)
        raise TimeoutError(f"the program has not ended after {polls} reads of STATUS: {state}")

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
