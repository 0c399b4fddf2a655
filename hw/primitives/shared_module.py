"""Emission of repeated modules: one Verilog module, many instances.

Amaranth writes the text of a submodule once per copy. Components that occur many times are added
with :func:`add_shared` instead. What that means depends on the platform of the elaboration:

- any platform but a :class:`SharedModules` (the simulator's ``None``): an ordinary submodule;
- a :class:`SharedModules`: an ``Instance`` of a module that is emitted once.

Either way the parent connects to the ports of the component it holds. :func:`emit_verilog` gives
the complete text of a design with all of its shared modules.
"""

from collections.abc import Iterable

from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    Fragment,
    Instance,
    Module,
    ResetInserter,
    ResetSignal,
    ValueCastable,
)
from amaranth.hdl._ir import PortDirection
from amaranth.lib.wiring import In

from hw.config import TECHNOLOGIES
from hw.verilog.backend import convert, envelope

__all__ = ["SharedModules", "add_shared", "emit_verilog"]


class SharedModules:
    """Modules met during one emission, by name.

    Components that are given the same module name must be interchangeable; a different class or
    signature under a known name raises ``ValueError``.

    ``technology`` names what the Verilog is for: "generic" for any tool, or "ecp5", which lets
    components instantiate that family's primitives.
    """

    def __init__(self, technology: str = "generic"):
        if technology not in TECHNOLOGIES:
            allowed = ", ".join(map(repr, TECHNOLOGIES))
            raise ValueError(f"Technology must be one of {allowed}, not {technology!r}")
        self.technology = technology
        self._components = {}

    def add(self, module_name, component):
        known = self._components.setdefault(module_name, component)
        if type(known) is not type(component) or known.signature != component.signature:
            raise ValueError(
                f"Module name {module_name!r} stands for both {known!r} and {component!r}"
            )

    def __iter__(self):
        """Components in the order in which they were added; may grow while iterating."""
        done = 0
        while done < len(self._components):
            yield list(self._components.items())[done]
            done += 1


def add_shared(m: Module, platform, component, *, name: str, module_name: str, clear=None):
    """Add ``component`` to ``m`` as the submodule ``name``, emitted once as ``module_name``.

    The component lives in the clock domain ``sync``; while ``clear`` is high it is held in reset
    as well. A component with a method ``verilog(module_name)`` gives its own text. Returns
    ``component``.
    """
    if not isinstance(platform, SharedModules):
        m.submodules[name] = component if clear is None else ResetInserter(clear)(component)
        return component
    reset = ResetSignal() if clear is None else ResetSignal() | clear
    platform.add(module_name, component)
    component._MustUse__used = True  # all but the first of a name are never elaborated
    ports = {
        f"{'i' if direction is PortDirection.Input else 'o'}_{port}": value
        for port, (value, direction) in _ports(component).items()
    }
    m.submodules[name] = Instance(module_name, i_clk=ClockSignal(), i_rst=reset, **ports)
    return component


def emit_verilog(
    component,
    *,
    name: str,
    ports: dict | None = None,
    technology: str = "generic",
    sources: bool = False,
    clocks: Iterable[str] = (),
) -> str:
    """Verilog of ``component`` as module ``name``, followed by the modules it shares.

    Every module has the ports ``clk`` and ``rst`` (active high, synchronous) and those of the
    component's signature, with path elements joined by two underscores; a component that makes the
    clock domain ``sync`` itself has no ``clk`` and ``rst``. For each of ``clocks``, further clock
    domains without a reset, the top module has a port ``clk_<domain>``. ``ports`` replaces the
    signature's ports of the top module: name -> (signal, direction). ``technology``: see
    :class:`SharedModules`. With ``sources``, attributes ``src`` name the Python file and line of
    modules, signals and expressions; the text then depends on where the project lies.
    """
    shared = SharedModules(technology)
    texts = [_convert(component, name, shared, ports, sources=sources, clocks=clocks)]
    for module_name, child in shared:
        if module_name == name:
            raise ValueError(f"Module name {name!r} is that of the top module")
        if hasattr(child, "verilog"):
            texts.append(child.verilog(module_name))
        else:
            texts.append(_convert(child, module_name, shared, sources=sources))
    return envelope(texts)


def _ports(component) -> dict:
    ports = {}
    for path, member, value in component.signature.flatten(component):
        if isinstance(value, ValueCastable):
            value = value.as_value()
        direction = PortDirection.Input if member.flow == In else PortDirection.Output
        ports["__".join(map(str, path))] = (value, direction)
    return ports


def _convert(component, name, shared, ports=None, *, sources=False, clocks=()):
    fragment = Fragment.get(component, shared)
    inputs = {}
    if "sync" not in fragment.domains:
        domain = ClockDomain("sync")
        fragment.add_domains(domain)
        inputs |= {"clk": domain.clk, "rst": domain.rst}
    for clock in clocks:
        domain = ClockDomain(clock, reset_less=True)
        fragment.add_domains(domain)
        inputs[f"clk_{clock}"] = domain.clk
    ports = {
        **{port: (signal, PortDirection.Input) for port, signal in inputs.items()},
        **(_ports(component) if ports is None else ports),
    }
    return convert(fragment, ports, name, sources=sources)
