"""The bus between the host's link and what it reaches; addresses: :mod:`hw.registers.board`."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["HostBusSignature"]


class HostBusSignature(wiring.Signature):
    """Accesses of a host, one at a time: from ``valid`` to the cycle of ``ready``, in which
    ``read_data`` holds what is read. ``address`` counts words of 32 bits."""

    def __init__(self):
        super().__init__(
            {
                "valid": Out(1),
                "write": Out(1),
                "address": Out(30),
                "write_data": Out(32),
                "ready": In(1),
                "read_data": In(32),
            }
        )
