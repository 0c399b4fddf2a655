"""Bus signatures: AXI4 master, AXI4-Lite slave, and the simple ports blocks use inside.

All signatures are written from the requester's (initiator's) side; the other side is ``In``.
"""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import BUFFER_ADDRESS_WIDTH

__all__ = [
    "ACCUMULATOR_READ_LATENCY",
    "AXI4LiteSignature",
    "AXI4Signature",
    "AccumulatorReadSignature",
    "BUFFER_READ_LATENCY",
    "BufferReadSignature",
    "BufferWriteSignature",
    "ErrorReportSignature",
    "ErrorSignature",
    "ReadChannelSignature",
    "UpdateSignature",
    "WriteChannelSignature",
    "burst_layout",
]

#: Cycles from an accepted buffer read (``valid & ready``) to its ``data``.
BUFFER_READ_LATENCY = 2

#: AXI response codes (AMBA AXI4 specification, table A3-4).
RESP_OKAY, RESP_EXOKAY, RESP_SLVERR, RESP_DECERR = range(4)


class AXI4Signature(wiring.Signature):
    """AXI4 master with the AMBA signal names; bursts are INCR, full width.

    Parameters
    ----------
    address_width, data_width, id_width : bits
    """

    def __init__(self, *, address_width, data_width, id_width):
        members = {}
        for channel in ("aw", "ar"):
            members |= {
                f"{channel}id": Out(id_width),
                f"{channel}addr": Out(address_width),
                f"{channel}len": Out(8),
                f"{channel}size": Out(3),
                f"{channel}burst": Out(2),
                f"{channel}lock": Out(1),
                f"{channel}cache": Out(4),
                f"{channel}prot": Out(3),
                f"{channel}qos": Out(4),
                f"{channel}valid": Out(1),
                f"{channel}ready": In(1),
            }
        members |= {
            "wdata": Out(data_width),
            "wstrb": Out(data_width // 8),
            "wlast": Out(1),
            "wvalid": Out(1),
            "wready": In(1),
            "bid": In(id_width),
            "bresp": In(2),
            "bvalid": In(1),
            "bready": Out(1),
            "rid": In(id_width),
            "rdata": In(data_width),
            "rresp": In(2),
            "rlast": In(1),
            "rvalid": In(1),
            "rready": Out(1),
        }
        super().__init__(members)


class AXI4LiteSignature(wiring.Signature):
    """AXI4-Lite with 32 data bits, from the master's side; a slave port is ``In`` of it."""

    def __init__(self, *, address_width):
        super().__init__(
            {
                "awaddr": Out(address_width),
                "awprot": Out(3),
                "awvalid": Out(1),
                "awready": In(1),
                "wdata": Out(32),
                "wstrb": Out(4),
                "wvalid": Out(1),
                "wready": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
                "araddr": Out(address_width),
                "arprot": Out(3),
                "arvalid": Out(1),
                "arready": In(1),
                "rdata": In(32),
                "rresp": In(2),
                "rvalid": In(1),
                "rready": Out(1),
            }
        )


def burst_layout(config):
    """One burst: byte address (aligned to a beat) and number of beats minus one."""
    return data.StructLayout({"address": config.axi_address_width, "length": 8})


class ReadChannelSignature(wiring.Signature):
    """Read bursts of one requester.

    ``data`` returns the beats of its own bursts in the order of its requests. A burst never
    crosses 4 KiB (the requester sees to it).
    """

    def __init__(self, config):
        beat = data.StructLayout({"data": config.axi_data_width, "resp": 2, "last": 1})
        super().__init__(
            {
                "request": Out(stream.Signature(burst_layout(config))),
                "data": In(stream.Signature(beat)),
            }
        )


class WriteChannelSignature(wiring.Signature):
    """Write bursts of one requester.

    The beats of a burst follow its request in order; ``response`` returns one ``resp`` per burst,
    in the order of the requests.
    """

    def __init__(self, config):
        beat = data.StructLayout(
            {"data": config.axi_data_width, "strb": config.axi_data_width // 8, "last": 1}
        )
        super().__init__(
            {
                "request": Out(stream.Signature(burst_layout(config))),
                "data": Out(stream.Signature(beat)),
                "response": In(stream.Signature(2)),
            }
        )


class BufferReadSignature(wiring.Signature):
    """Read port of an on-chip memory.

    A read is accepted in a cycle with ``valid & ready``; ``data`` carries its word exactly
    :data:`BUFFER_READ_LATENCY` cycles later, and must be taken then.
    """

    def __init__(self, core):
        super().__init__(
            {
                "valid": Out(1),
                "ready": In(1),
                "address": Out(BUFFER_ADDRESS_WIDTH),
                "data": In(core.word_width),
            }
        )


class BufferWriteSignature(wiring.Signature):
    """Write port of an on-chip memory; bit i of ``enable`` writes group i (``post_lanes``
    operands) of the word. Accepted in a cycle with ``valid & ready``; a read accepted in a later
    cycle returns the new data."""

    def __init__(self, core):
        super().__init__(
            {
                "valid": Out(1),
                "ready": In(1),
                "address": Out(BUFFER_ADDRESS_WIDTH),
                "data": Out(core.word_width),
                "enable": Out(core.groups_per_word),
            }
        )


#: Cycles from an accepted accumulator read to its ``data``.
ACCUMULATOR_READ_LATENCY = 2


class AccumulatorReadSignature(wiring.Signature):
    """Read port of an accumulator memory: ``columns`` 32-bit values, lane c in bits 32c and up.

    Accepted in a cycle with ``valid & ready``; ``data`` follows exactly
    :data:`ACCUMULATOR_READ_LATENCY` cycles later.
    """

    def __init__(self, core):
        super().__init__(
            {
                "valid": Out(1),
                "ready": In(1),
                "bank": Out(1),
                "address": Out(16),
                "data": In(32 * core.columns),
            }
        )


class ErrorSignature(wiring.Signature):
    """Report of an error: ``valid`` for one cycle with the code and the address it concerns."""

    def __init__(self):
        super().__init__({"valid": Out(1), "code": Out(8), "address": Out(64)})


class ErrorReportSignature(wiring.Signature):
    """Report of an error with the unit it comes from: ``valid`` for one cycle."""

    def __init__(self):
        super().__init__({"valid": Out(1), "code": Out(8), "unit": Out(8), "address": Out(64)})


class UpdateSignature(wiring.Signature):
    """A new ``value`` of ``width`` bits for a register, in cycles with ``valid``."""

    def __init__(self, width):
        super().__init__({"valid": Out(1), "value": Out(width)})
