"""What LiteX's own processor would do first: LiteDRAM's initialisation of the SDRAM, here by the
host over UARTBone."""

from runtime.serial_link import Line, UartBone

from .designs import LiteXDesign

__all__ = ["start_memory"]

#: Bits of LiteDRAM's registers dfii_control and dfii_pi0_command, as its header calls them.
_BITS = {
    "DFII_CONTROL_SEL": 1, "DFII_CONTROL_CKE": 2, "DFII_CONTROL_ODT": 4,
    "DFII_CONTROL_RESET_N": 8, "DFII_COMMAND_CS": 1, "DFII_COMMAND_WE": 2, "DFII_COMMAND_CAS": 4,
    "DFII_COMMAND_RAS": 8,
}  # fmt: skip


def start_memory(line: Line, design: LiteXDesign, *, clock_hz: int) -> None:
    """Send the commands of :attr:`~boards.litex_soc.designs.LiteXDesign.memory_sequence`, then
    leave the memory to the controller.

    One step is left out: "Reset DLL" loads the mode register with a bit that an SDR SDRAM has
    reserved, and the last step loads it again.
    """
    bone, csrs = UartBone(line), design.csrs
    control, first = csrs["sdram_dfii_control"], csrs["sdram_dfii_pi0_command"]
    for what, address, bank, names, cycles in design.memory_sequence:
        value = sum(_BITS[name] for name in names.split("|"))
        if "Reset DLL" in what:
            continue
        if "DFII_CONTROL" in names:
            bone.write(control, [value])
        else:
            # The address first: the second word of the command sends it.
            bone.write(csrs["sdram_dfii_pi0_address"], [address, bank])
            bone.write(first, [value, 1])
        line.pause(cycles / clock_hz)
    bone.write(control, [_BITS["DFII_CONTROL_SEL"]])
