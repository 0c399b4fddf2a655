"""Ports of a device as plain integers.

A bench that looks at every port in every cycle spends most of its time in cocotb's conversions
to and from four-valued logic. Verilator has two values, so integers lose nothing. In benches of
the engines that is 2 to 3 times as fast.
"""

__all__ = ["Ports"]

#: cocotb's code of a plain write, which takes effect as ``handle.value = ...`` does.
_DEPOSIT = 0
#: Bits that its simulator interface takes as a number.
_NUMBER_WIDTH = 32


class Ports:
    """Stands in for a cocotb device whose ports are written and read through ``value``.

    ``ports.name.value`` is an unsigned int of any width; ``len(ports.name)`` its bits. Writes take
    effect as cocotb's do where it trusts inertial writes, as
    :func:`verif.sim.environment.simulation_environment` says. ``clk`` is cocotb's own handle, for
    triggers. An unknown name raises AttributeError, a value that does not fit ValueError.
    """

    def __init__(self, dut):
        self._dut = dut
        self.clk = dut.clk

    def __getattr__(self, name):
        port = _Port(getattr(self._dut, name))
        self.__dict__[name] = port
        return port


class _Port:
    __slots__ = ("_limit", "_name", "_read", "_width", "_write_bits", "_write_number")

    def __init__(self, handle):
        inner = handle._handle
        self._name = handle._name
        self._width = len(handle)
        self._limit = 1 << self._width
        self._read = inner.get_signal_val_binstr
        self._write_bits = inner.set_signal_val_binstr
        self._write_number = inner.set_signal_val_int

    def __len__(self):
        return self._width

    @property
    def value(self):
        return int(self._read(), 2)

    @value.setter
    def value(self, value):
        value = int(value)
        if not 0 <= value < self._limit:
            raise ValueError(f"{self._name} has {self._width} bits, too few for {value}")
        if self._width <= _NUMBER_WIDTH:
            self._write_number(_DEPOSIT, value)
        else:
            self._write_bits(_DEPOSIT, f"{value:0{self._width}b}")
