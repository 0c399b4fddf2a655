"""Registers around a design, so that place and route measures it and not the pins."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Harness"]


class Harness(wiring.Component):
    """Feeds all inputs of ``component`` from a shift register and folds its outputs into one bit.

    Every input comes from a flip-flop and every output goes to one; the pins are one data input,
    one data output, clock and reset.

    Members
    -------
    d : In, what is shifted in
    q : Out, parity of the registered outputs, in a pipelined tree of four-input gates
    """

    def __init__(self, component):
        self._component = component
        super().__init__({"d": In(1), "q": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = component = self._component
        source = self.d
        outputs = []
        for path, member, value in component.signature.flatten(component):
            name = "_".join(map(str, path))
            if member.flow == In:
                register = Signal(len(_cast(value)), name=f"from_{name}", reset_less=True)
                m.d.sync += register.eq(Cat(source, register)[: len(register)])
                m.d.comb += _cast(value).eq(register)
                source = register[-1]
            else:
                register = Signal(len(_cast(value)), name=f"to_{name}", reset_less=True)
                m.d.sync += register.eq(_cast(value))
                outputs += list(register)
        level = 0
        while len(outputs) > 1:
            folded = []
            for index in range(0, len(outputs), 4):
                bit = Signal(name=f"fold_{level}_{index}", reset_less=True)
                m.d.sync += bit.eq(Cat(outputs[index : index + 4]).xor())
                folded.append(bit)
            outputs, level = folded, level + 1
        m.d.comb += self.q.eq(outputs[0])
        return m


def _cast(value):
    return value.as_value() if hasattr(value, "as_value") else value
