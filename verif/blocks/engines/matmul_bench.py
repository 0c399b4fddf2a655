"""A matrix unit with its buffer: what the MATMUL bench drives."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect, flipped

from hw.bus.signatures import BufferReadSignature, BufferWriteSignature
from hw.engines.matmul.matrix_unit import MatrixUnit
from hw.memory.buffer import Buffer

__all__ = ["MatmulBench"]


class MatmulBench(wiring.Component):
    """A :class:`~hw.engines.matmul.matrix_unit.MatrixUnit` on a buffer.

    The bench writes the buffer through ``write``, disturbs its banks through ``disturb`` (a reader
    that goes first) and has the unit's other ports as they are.
    """

    def __init__(self, config):
        self.config = config
        self.core = core = config.cores[0]
        self.unit = MatrixUnit(config, core)
        self.kept = {
            name: member
            for name, member in self.unit.signature.members.items()
            if name not in ("x_read", "w_read")
        }
        super().__init__(
            {
                **self.kept,
                "write": In(BufferWriteSignature(core)),
                "disturb": In(BufferReadSignature(core)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self.unit
        m.submodules.buffer = buffer = Buffer(
            self.config, self.core, readers=(0, 0, 1), writers=(0,)
        )
        connect(m, flipped(self.disturb), buffer.read[0])
        connect(m, unit.w_read, buffer.read[1])
        connect(m, unit.x_read, buffer.read[2])
        connect(m, flipped(self.write), buffer.write[0])
        for name, member in self.kept.items():
            ours, theirs = getattr(self, name), getattr(unit, name)
            if member.is_signature:
                connect(m, flipped(ours), theirs)
            elif member.flow.name == "Out":
                m.d.comb += ours.eq(theirs)
            else:
                m.d.comb += theirs.eq(ours)
        return m
