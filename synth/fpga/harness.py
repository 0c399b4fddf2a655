"""Registers around a design, so that place and route measures it and not the pins."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Harness", "harness_verilog"]


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


def harness_verilog(ports: dict[str, tuple[str, int]], *, top: str, name: str) -> str:
    """The same harness as Verilog, around a module that is only known by its ports.

    Parameters
    ----------
    ports : name -> ("input" or "output", bits), ``clk`` and ``rst`` among them
    top, name : the module inside, the module that is returned

    The module inside is declared as a black box.
    """
    inner = {port: kind for port, kind in ports.items() if port not in ("clk", "rst")}
    header = ", ".join(f"{way} [{bits - 1}:0] {port}" for port, (way, bits) in inner.items())
    bits_in = sum(bits for way, bits in inner.values() if way == "input")
    bits_out = sum(bits for way, bits in inner.values() if way == "output")
    connections, offsets = [".clk(clk)", ".rst(rst)"], {"input": 0, "output": 0}
    for port, (way, bits) in inner.items():
        low = offsets[way]
        offsets[way] = low + bits
        side = "from_pins" if way == "input" else "to_fold"
        connections.append(f".{port}({side}[{low + bits - 1}:{low}])")
    lines = [
        f"(* blackbox *) module {top}(input clk, input rst, {header});",
        "endmodule",
        f"module {name}(input clk, input rst, input d, output q);",
        f"  reg [{bits_in - 1}:0] from_pins;",
        f"  wire [{bits_out - 1}:0] to_fold;",
        f"  reg [{bits_out - 1}:0] to_pins;",
        f"  {top} dut({', '.join(connections)});",
        "  always @(posedge clk) begin",
        "    from_pins <= {from_pins, d};",
        "    to_pins <= to_fold;",
        "  end",
    ]
    source, count, level = "to_pins", bits_out, 0
    while count > 1:
        folded = -(-count // 4)
        lines.append(f"  reg [{folded - 1}:0] fold_{level};")
        lines += [
            f"  always @(posedge clk) fold_{level}[{index}] <= "
            f"^{source}[{min(4 * index + 3, count - 1)}:{4 * index}];"
            for index in range(folded)
        ]
        source, count, level = f"fold_{level}", folded, level + 1
    return "\n".join([*lines, f"  assign q = {source}[0];", "endmodule", ""])
