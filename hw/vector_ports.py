"""Several read streams at one port of a buffer."""

from amaranth.hdl import Const, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .bus import BufferReadSignature

__all__ = ["SharedReadPort"]


class SharedReadPort(wiring.Component):
    """Lets readers take turns at one port of an on-chip memory; lower numbers go first.

    For the streams of a :class:`~hw.vector.VectorEngine`, where a port of the buffer costs more
    than it brings: with four groups in a word, three streams of operands need a word every four
    cycles each. Nothing is added to the latency; all paths are combinational. No stream starves:
    the others wait for its operands before they ask for more.

    Parameters
    ----------
    core : CoreConfig
    readers : int

    Members
    -------
    read : array of ``In(BufferReadSignature(core))``
    port : ``Out(BufferReadSignature(core))``
    """

    def __init__(self, core, readers):
        super().__init__(
            {
                "read": In(BufferReadSignature(core)).array(readers),
                "port": Out(BufferReadSignature(core)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        taken = Const(0)
        for reader in self.read:
            with m.If(reader.valid & ~taken):
                m.d.comb += self.port.address.eq(reader.address)
            m.d.comb += [reader.ready.eq(self.port.ready & ~taken), reader.data.eq(self.port.data)]
            taken = taken | reader.valid
        m.d.comb += self.port.valid.eq(taken)
        return m
