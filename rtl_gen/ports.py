"""Top-level port names as AXI tools expect them: ``s_axil_awaddr``, not ``s_axil__awaddr``."""

from amaranth.hdl import Value, ValueCastable
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring
from amaranth.lib.wiring import In

__all__ = ["TopPorts", "top_ports"]

#: Ports by name: signal and direction.
TopPorts = dict[str, tuple[Value, PortDirection]]


def top_ports(component: wiring.Component) -> TopPorts:
    """Return the ports of ``component``: name -> (signal, direction), sorted by declaration.

    The elements of a path are joined by a single underscore; clock and reset are not included.

    Raises
    ------
    ValueError
        if two members would get the same name.
    """
    ports = {}
    for path, member, value in component.signature.flatten(component):
        name = "_".join(map(str, path))
        if name in ports:
            raise ValueError(f"two ports are called {name}")
        if isinstance(value, ValueCastable):
            value = value.as_value()
        direction = PortDirection.Input if member.flow == In else PortDirection.Output
        ports[name] = (value, direction)
    return ports
