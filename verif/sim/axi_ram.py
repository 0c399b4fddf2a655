"""Fast AXI4 memory for simulation: the Verilog of ``verif/sim/rtl/axi_ram.v``, and its handle.

:func:`wrapper_verilog` makes a top module of a design and the memory; in a cocotb test,
:class:`SimMemory` fills it, looks into it, and sets its stalls and errors::

    memory = SimMemory(dut, directory=".")
    await memory.load(0, image)
    ...
    await memory.dump(0, 4096)
"""

import re
from pathlib import Path

import numpy as np

__all__ = ["AXI_RAM", "SimMemory", "component_ports", "dumped", "wrapper_verilog"]

AXI_RAM = Path(__file__).parent / "rtl" / "axi_ram.v"
"""Verilog source; give it to ``runner.build(files=[AXI_RAM])``."""

LOAD_FILE, DUMP_FILE = "memory_in.bin", "memory_out.hex"

_RESPONSES = {"okay": 0, "slverr": 2, "decerr": 3}

#: AXI signals (without prefix) -> width; None: depends on the data, address or ID width.
_AXI = """
    awid awaddr awlen awsize awburst awvalid <awready wdata wstrb wlast wvalid <wready
    <bid <bresp <bvalid bready arid araddr arlen arsize arburst arvalid <arready
    <rid <rdata <rresp <rlast <rvalid rready
""".split()


def dumped(path: str | Path) -> bytes:
    """The words of a file that ``$writememh`` wrote, each with its first digit first."""
    digits = re.sub(rb"(?m)^(?:@|//).*$", b"", Path(path).read_bytes())
    return bytes.fromhex(digits.translate(None, b" \r\n").decode())


def _control_ports(address_width, data_width):
    """Ports of axi_ram besides AXI: (direction, name, width)."""
    return [
        *(("input", f"stall_{channel}", 8) for channel in ("aw", "w", "b", "ar", "r")),
        ("input", "read_latency", 16),
        ("input", "write_latency", 16),
        ("input", "seed", 32),
        ("input", "error_base", address_width),
        ("input", "error_size", address_width),
        ("input", "error_resp", 2),
        ("input", "load", 1),
        ("input", "load_first", 32),
        ("input", "load_count", 32),
        ("output", "load_done", 1),
        ("input", "dump", 1),
        ("input", "dump_first", 32),
        ("input", "dump_last", 32),
        ("output", "dump_done", 1),
        ("input", "access", 1),
        ("input", "access_write", 1),
        ("input", "access_word", 32),
        ("input", "access_data", data_width),
        ("output", "access_result", data_width),
        ("output", "access_done", 1),
        ("output", "read_beats", 32),
        ("output", "write_beats", 32),
        ("output", "protocol_errors", 32),
    ]


def component_ports(component, *, without):
    """The ports of an Amaranth component for :func:`wrapper_verilog`.

    Names are those that :func:`verif.sim.runner.verilog` gives; the ones that begin with
    ``without``, the AXI port's, are left out.
    """
    from amaranth.hdl import Value
    from amaranth.lib.wiring import Flow

    ports = []
    for path, member, value in component.signature.flatten(component):
        name = "__".join(map(str, path))
        if not name.startswith(without):
            way = "output" if member.flow is Flow.Out else "input"
            ports.append((way, name, len(Value.cast(value))))
    return ports


def wrapper_verilog(
    *,
    name,
    design,
    ports,
    axi_prefix,
    address_width,
    data_width,
    id_width,
    size_bytes,
    clock="clk",
    reset="rst",
):
    """Return Verilog of a module ``name`` that holds ``design`` and an ``axi_ram``.

    Parameters
    ----------
    design : str
        Module name of the design; instance ``dut``. The memory is instance ``ram``.
    ports : list of (direction, name, width)
        The design's other ports, which become the wrapper's; direction is ``input`` or
        ``output``. Without clock, reset and the AXI port.
    axi_prefix : str
        What the design puts in front of ``awaddr`` and so on, e.g. ``m_axi_``.
    size_bytes : int
        Memory size, a power of two.

    The wrapper's own ports are ``clk``, ``rst`` and ``ram_<control port>``.
    """
    if size_bytes & (size_bytes - 1) or size_bytes < 4096:
        raise ValueError(f"size_bytes must be a power of two from 4096 up, not {size_bytes!r}")
    control = _control_ports(address_width, data_width)
    widths = {"addr": address_width, "data": data_width, "strb": data_width // 8, "id": id_width}
    widths |= {"len": 8, "size": 3, "burst": 2, "resp": 2, "last": 1, "valid": 1, "ready": 1}

    def declare(direction, port, width):
        return f"    {direction} {f'[{width - 1}:0] ' if width > 1 else ''}{port}"

    axi = [signal.lstrip("<") for signal in _AXI]
    wires = []
    for signal in axi:
        channel = 2 if signal[:2] in ("aw", "ar") else 1
        wires.append(declare("wire", f"axi_{signal}", widths[signal[channel:]]) + ";")
    header = [declare("input", "clk", 1), declare("input", "rst", 1)]
    header += [declare(*port) for port in ports]
    header += [declare(way, f"ram_{port}", width) for way, port, width in control]
    design_pins = [f".{clock}(clk)", f".{reset}(rst)"]
    design_pins += [f".{port}({port})" for _, port, _ in ports]
    design_pins += [f".{axi_prefix}{signal}(axi_{signal})" for signal in axi]
    ram_pins = [".clk(clk)", ".rst(rst)", *(f".{signal}(axi_{signal})" for signal in axi)]
    ram_pins += [f".{port}(ram_{port})" for _, port, _ in control]
    parameters = {
        "DATA_WIDTH": data_width,
        "ADDRESS_WIDTH": address_width,
        "ID_WIDTH": id_width,
        "SIZE_BYTES": size_bytes,
    }
    values = ", ".join(f".{key}({value})" for key, value in parameters.items())
    comma = ",\n    "
    return "\n".join(
        [
            f"module {name} (\n" + ",\n".join(header) + "\n);",
            *wires,
            f"    {design} dut (\n    {comma.join(design_pins)}\n    );",
            f"    axi_ram #({values}) ram (\n    {comma.join(ram_pins)}\n    );",
            "endmodule\n",
        ]
    )


class SimMemory:
    """Handle of an ``axi_ram`` inside a cocotb test.

    Parameters
    ----------
    dut : cocotb handle
        Has ``clk`` and the memory's control ports as ``<prefix><name>``.
    prefix : str
    directory : path
        Working directory of the simulator, where image and dump files lie.

    All addresses are in bytes. :meth:`load` and :meth:`dump` go through a file and take two
    clock cycles whatever the size; :meth:`read` and :meth:`write` take some cycles per word.
    """

    def __init__(self, dut, *, prefix="ram_", directory="."):
        self._dut = dut
        self._prefix = prefix
        self._directory = Path(directory)
        self.beat_bytes = len(self._port("access_data")) // 8
        for way, name, _ in _control_ports(1, 1):
            if way == "input":
                self._port(name).value = 0
        for name in ("load", "dump", "access"):  # as an earlier test left them
            self._port(name).value = int(self._port(f"{name}_done").value)
        self._port("seed").value = 1

    def _port(self, name):
        return getattr(self._dut, self._prefix + name)

    def set_stalls(self, *, aw=0, w=0, b=0, ar=0, r=0):
        """Let channels pause with these probabilities, in 1/256 per cycle (0 to 255)."""
        for name, value in {"aw": aw, "w": w, "b": b, "ar": ar, "r": r}.items():
            self._port(f"stall_{name}").value = value

    def set_latency(self, *, read=0, write=0):
        """Cycles added in front of a read burst's first beat and of a write's response."""
        self._port("read_latency").value = read
        self._port("write_latency").value = write

    def set_seed(self, seed):
        """Seed of the stalls; takes effect at the next reset."""
        self._port("seed").value = seed & 0xFFFFFFFF

    def set_error(self, base=0, size=0, response="slverr"):
        """Let ``size`` bytes from ``base`` on answer ``"slverr"`` or ``"decerr"``; 0: none."""
        self._port("error_base").value = base
        self._port("error_size").value = size
        self._port("error_resp").value = _RESPONSES[response]

    @property
    def read_beats(self):
        """Read beats since reset."""
        return int(self._port("read_beats").value)

    @property
    def write_beats(self):
        """Write beats since reset."""
        return int(self._port("write_beats").value)

    def check(self):
        """Raise AssertionError if the master broke the protocol since the reset."""
        count = int(self._port("protocol_errors").value)
        if count:
            raise AssertionError(f"the AXI master broke the protocol {count} times")

    async def _toggle(self, name):
        from cocotb.triggers import RisingEdge

        port, done = self._port(name), self._port(f"{name}_done")
        value = 1 - int(done.value)
        port.value = value
        for _ in range(4):
            await RisingEdge(self._dut.clk)
            if int(done.value) == value:
                return
        raise AssertionError(f"the memory did not answer {name}")

    async def load(self, address, image):
        """Write ``image`` (bytes or an array) at ``address``, a multiple of the beat.

        The last beat is filled up with zeros.
        """
        image = np.frombuffer(bytes(image), np.uint8)
        words = -(-len(image) // self.beat_bytes)
        if address % self.beat_bytes:
            raise ValueError(f"address must be a multiple of {self.beat_bytes}, not {address:#x}")
        if not words:
            return
        padded = np.zeros(words * self.beat_bytes, np.uint8)
        padded[: len(image)] = image
        backwards = padded.reshape(words, self.beat_bytes)[:, ::-1]
        (self._directory / LOAD_FILE).write_bytes(backwards.tobytes())
        self._port("load_first").value = address // self.beat_bytes
        self._port("load_count").value = words
        await self._toggle("load")

    async def dump(self, address, count):
        """Return ``count`` bytes from ``address`` on as a uint8 array."""
        if not count:
            return np.zeros(0, np.uint8)
        first, last = address // self.beat_bytes, (address + count - 1) // self.beat_bytes
        self._port("dump_first").value = first
        self._port("dump_last").value = last
        await self._toggle("dump")
        words = np.frombuffer(dumped(self._directory / DUMP_FILE), np.uint8)
        words = words.reshape(last - first + 1, self.beat_bytes)[:, ::-1].ravel()
        offset = address - first * self.beat_bytes
        return words[offset : offset + count].copy()

    async def _access(self, word, data=None):
        self._port("access_word").value = word
        self._port("access_write").value = data is not None
        if data is not None:
            self._port("access_data").value = int.from_bytes(data, "little")
        await self._toggle("access")
        return int(self._port("access_result").value).to_bytes(self.beat_bytes, "little")

    async def read(self, address, count):
        """Return a few bytes through the back door."""
        first, last = address // self.beat_bytes, (address + count - 1) // self.beat_bytes
        data = b"".join([await self._access(word) for word in range(first, last + 1)])
        return data[address - first * self.beat_bytes :][:count]

    async def write(self, address, data):
        """Write a few bytes through the back door."""
        first, last = address // self.beat_bytes, (address + len(data) - 1) // self.beat_bytes
        old = bytearray(b"".join([await self._access(word) for word in range(first, last + 1)]))
        offset = address - first * self.beat_bytes
        old[offset : offset + len(data)] = data
        for index, word in enumerate(range(first, last + 1)):
            await self._access(word, old[index * self.beat_bytes :][: self.beat_bytes])
