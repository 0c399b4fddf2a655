"""What machines cost, and what there is: a device's resources, or an area of silicon."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hw.config import AdaGPConfig
from perf.area import block_rams, fitted, sram_macros
from perf.area.memories import other_sram
from synth.fpga.devices import DEVICES, device_by_name
from synth.sram.cacti import Technology, sram_macro

__all__ = ["AREA", "Budget", "area_budget", "device_budget"]

#: Name of the resource of a chip: standard cells and SRAM.
AREA = "mm²"

#: Family -> its resources beside those of the model: block RAM, and the one that is shown.
_BLOCK_RAM = {"xc7": "RAMB36", "ecp5": "DP16KD"}
_SHOWN = {"xc7": "LUT", "ecp5": "COMB"}
_MULTIPLIERS = {"xc7": "DSP48E1", "ecp5": "MULT18X18D"}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What there is.

    Members
    -------
    name : for people
    flow : of :data:`perf.area.FLOWS`
    shown : the resource that the front is about
    available : resource -> amount; what is missing has no limit
    """

    name: str
    flow: str
    shown: str
    available: Mapping[str, float] = field(default_factory=dict)

    def fitting(self, config: AdaGPConfig) -> tuple[AdaGPConfig, dict[str, float]]:
        """A machine as it goes onto the device, and what it takes.

        Where multipliers do not suffice, rows of the array have theirs made of look-up tables, as
        few as possible; on 7-series nobody has measured what such rows take, so there are none.
        """
        costs = self.costs(config)
        name = _MULTIPLIERS.get(self.flow, "")
        known = "lut_pes" not in self.never_varied
        while known and (
            costs.get(name, 0) > self.available.get(name, float("inf"))
            and config.lut_multiplier_rows < config.rows
        ):
            config = replace(config, lut_multiplier_rows=config.lut_multiplier_rows + 1)
            costs = self.costs(config)
        return config, costs

    def costs(self, config: AdaGPConfig) -> dict[str, float]:
        """Resource -> amount: logic by the model of area, memories by their sizes.

        Raises
        ------
        ToolError
            for a chip, if CACTI is missing.
        """
        found = fitted(self.flow).estimate(config)
        if self.flow != "asic":
            return found | {_BLOCK_RAM[self.flow]: block_rams(config, self.flow)}
        sram = other_sram(config) + sum(
            macro.count
            * sram_macro(words=macro.words, width=macro.width, technology=Technology())["area_um2"]
            for macro in sram_macros(config)
        )
        return {AREA: (found["um2"] + sram) / 1e6, "cells mm²": found["um2"] / 1e6}

    def fits(self, costs: Mapping[str, float], *, margin: float = 0.0) -> bool:
        """Whether there is enough of everything, with the logic ``margin`` larger (a share)."""
        exact = (*_BLOCK_RAM.values(), *_MULTIPLIERS.values())
        return all(
            costs[name] * (1 if name in exact else 1 + margin) <= amount
            for name, amount in self.available.items()
            if name in costs
        )

    @property
    def never_varied(self) -> list[str]:
        """What the model of area does not know the costs of."""
        return fitted(self.flow).never_varied

    def error(self) -> tuple[float, float]:
        """Mean and largest error of the model, as shares of designs left out. Of a chip it is that
        of the cells."""
        return fitted(self.flow).error("um2" if self.flow == "asic" else self.shown)


def area_budget(limit: float | None) -> Budget:
    """A chip of 45 nm; ``limit`` in mm² of standard cells and SRAM, None for any.

    Raises
    ------
    ValueError
        for a limit that is not positive.
    """
    if limit is not None and not limit > 0:
        raise ValueError(f"area limit must be above 0 mm², not {limit}")
    name = "45 nm" if limit is None else f"45 nm, {limit:g} mm²"
    return Budget(name=name, flow="asic", shown=AREA,
                  available={} if limit is None else {AREA: limit})  # fmt: skip


def device_budget(name: str) -> Budget:
    """An FPGA of :data:`synth.fpga.devices.DEVICES`.

    Raises
    ------
    ToolError, ValueError
        for one that is unknown, or of a family that no accelerator was mapped to.
    """
    device = device_by_name(name)
    if device.family not in _SHOWN:
        known = [each.name for each in DEVICES.values() if each.family in _SHOWN]
        raise ValueError(
            f"device must be one of {', '.join(known)}, for which designs were synthesised, not "
            f"{device.name}"
        )
    return Budget(name=device.name, flow=device.family, shown=_SHOWN[device.family],
                  available=device.available)  # fmt: skip
