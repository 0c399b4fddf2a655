"""Block RAM with one read and one write port."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .shared_module import add_shared

__all__ = ["BlockRam", "add_ram"]

# Amaranth gives every memory an initial value, word by word: megabytes of text for the sizes here.
# This is the same memory without one, in the form that synthesis tools infer block RAM from. A tool
# that must keep the old word when a read meets a write adds registers for every written bit and
# a comparison (149 LUT4 and 270 flip-flops per 128 bits on ECP5): nobody here needs that word.
_VERILOG = """\
module {name}(clk, rst, read_en, read_address, read_data, write_en, write_address, write_data);
  input clk;
  input rst;
  input read_en;
  input [{address}:0] read_address;
  output reg [{data}:0] read_data;
  input [{enable}:0] write_en;
  input [{address}:0] write_address;
  input [{data}:0] write_data;
  (* no_rw_check *)
  reg [{data}:0] mem [{last}:0];
  always @(posedge clk)
    if (read_en)
`ifndef SYNTHESIS
      if (|write_en && read_address == write_address) read_data <= ~mem[read_address]; else
`endif
      read_data <= mem[read_address];
  always @(posedge clk) begin
{writes}
  end
endmodule
"""


class BlockRam(wiring.Component):
    """``depth`` words of ``width`` bits; bit i of ``write_en`` writes the i-th ``granularity``
    bits. Read latency 1 cycle. Contents are undefined at first (zero in Amaranth's simulator) and
    survive a reset. What a read gives in the cycle of a write to the same word is undefined, too;
    in simulation it is the complement of the old word, so that nothing can rely on it.

    Raises ``ValueError`` when ``granularity`` does not divide ``width``.
    """

    def __init__(self, *, width, depth, granularity=None):
        self.width = width
        self.depth = depth
        self.granularity = granularity or width
        if width % self.granularity:
            raise ValueError(
                f"Granularity must divide the width of {width} bits, not {granularity}"
            )
        address = max(1, (depth - 1).bit_length())
        super().__init__(
            {
                "read_en": In(1),
                "read_address": In(address),
                "read_data": Out(width),
                "write_en": In(width // self.granularity),
                "write_address": In(address),
                "write_data": In(width),
            }
        )

    @property
    def module_name(self):
        return f"adagp_ram_{self.depth}x{self.width}_{self.granularity}"

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=self.width, depth=self.depth, init=[])
        read = memory.read_port()
        write = memory.write_port(granularity=self.granularity)
        met = Signal(reset_less=True)
        with m.If(self.read_en):
            m.d.sync += met.eq(self.write_en.any() & (self.read_address == self.write_address))
        m.d.comb += [
            read.en.eq(self.read_en),
            read.addr.eq(self.read_address),
            self.read_data.eq(Mux(met, ~read.data, read.data)),
            write.en.eq(self.write_en),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
        ]
        return m

    def verilog(self, name):
        """The same memory in Verilog, without an initial value."""
        slices = [
            (index, f"[{start + self.granularity - 1}:{start}]")
            for index, start in enumerate(range(0, self.width, self.granularity))
        ]
        return _VERILOG.format(
            name=name,
            address=len(self.read_address) - 1,
            data=self.width - 1,
            enable=len(self.write_en) - 1,
            last=self.depth - 1,
            writes="\n".join(
                f"    if (write_en[{index}]) mem[write_address]{bits} <= write_data{bits};"
                for index, bits in slices
            ),
        )


def add_ram(m, platform, *, name, width, depth, granularity=None):
    """Add a :class:`BlockRam` to ``m``, emitted once per size, and return it."""
    ram = BlockRam(width=width, depth=depth, granularity=granularity)
    return add_shared(m, platform, ram, name=name, module_name=ram.module_name)
