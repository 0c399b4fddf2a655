"""What surrounds a block in a proof: free inputs, assumptions, claims."""

from amaranth.back import rtlil
from amaranth.hdl import Module, ResetSignal, Shape, Signal, ValueCastable
from amaranth.lib.wiring import Flow

__all__ = ["Harness"]

#: Cycles behind a reset within which a cover is looked for, one after the other tried.
COVER_CYCLES = (4, 8, 16, 32)


class Harness:
    """A block whose inputs are free, and what is claimed of it in every cycle.

    The block is the unmodified hardware. Its inner registers are reached by their names in the
    flattened design (:meth:`inner`), so nothing has to be added to it for a proof. Whatever the
    harness keeps itself goes into ``m`` and starts at its reset value when the block does.

    Attributes
    ----------
    m : module of the harness
    assumptions, claims, invariants, covers : dict, name to signal of one bit
    cover_cycles : dict, name of a cover to the numbers of cycles that are tried one after the other
    constants : names of free inputs that never change
    watched : names of the signals that a counterexample shows
    cuts : paths of signals that are given any value
    """

    def __init__(self):
        self.m = Module()
        self.assumptions, self.claims, self.invariants, self.covers = {}, {}, {}, {}
        self.cover_cycles = {}
        self.constants = []
        self.watched = []
        self.inner_paths = {}
        self.cuts = []
        self._ports = []
        self._names = set()

    def free(self, name, shape=1):
        """An input with any value in any cycle."""
        return self._port(name, shape)

    def constant(self, name, shape=1):
        """An input with any value that never changes."""
        port = self._port(name, shape)
        self.constants.append(name)
        return port

    def inner(self, path, shape=1):
        """The signal ``path`` of the flattened design, such as ``dut.fifo.level``."""
        name = path.replace(".", "_").replace("[", "_").replace("]", "")
        port = self._port(name, shape)
        self.inner_paths[name] = path
        return port

    def cut(self, path):
        """Let the signal ``path`` of the flattened design have any value in any cycle, and leave
        out what made it. What is proven of the block then holds whatever it is."""
        self.cuts.append(path)

    def add(self, block, name="dut", *, drive=(), hide=()):
        """Put the block in. What is not in ``drive`` (member to value) of its inputs is free. What
        is only needed by the outputs in ``hide`` is left out of the model.

        A block is a component or an elaboratable whose inputs ``drive`` names in full.
        """
        self.m.submodules[name] = block
        drive = dict(drive)
        if hasattr(block, "signature"):
            for path, member, value in block.signature.flatten(block):
                member_name = "__".join(map(str, path))
                shown = f"{name}.{member_name}"
                if member.flow is Flow.In and member_name not in drive:
                    free = self._port(f"{name}_{member_name}", member.shape)
                    self.m.d.comb += _value(value).eq(_value(free))
                elif member.flow is Flow.In:
                    self.m.d.comb += _value(value).eq(_value(drive.pop(member_name)))
                    self.watch(shown, value)
                elif member_name not in hide:
                    self.watch(shown, value)
        else:
            for member in list(drive):
                self.m.d.comb += getattr(block, member).eq(drive.pop(member))
        if drive:
            raise ValueError(f"{name} has no input {', '.join(drive)}")
        return block

    def assume(self, name, condition):
        """The surroundings see to ``condition`` in every cycle."""
        self._bit(self.assumptions, "assume", name, condition)

    def claim(self, name, condition):
        """What is to be proven, in every cycle."""
        self._bit(self.claims, "claim", name, condition)

    def invariant(self, name, condition):
        """What is proven because the claims need it."""
        self._bit(self.invariants, "invariant", name, condition)

    def cover(self, name, condition, *, within=0):
        """What must be reachable, so that the claims say something; in how many cycles behind a
        reset, if that is known."""
        self._bit(self.covers, "cover", name, condition)
        self.cover_cycles[name] = (within,) if within else COVER_CYCLES

    def delayed(self, name, value, *, init=0):
        """``value`` of the cycle before."""
        value = _value(value)
        register = Signal(len(value), name=name, init=init)
        self.m.d.sync += register.eq(value)
        self.watched.append(name)
        return register

    def after_reset(self):
        """Low in the first cycle behind a reset, then high: :meth:`delayed` values are there."""
        if "after_reset" not in self._names:
            self._names.add("after_reset")
            self._after_reset = Signal(name="after_reset")
            self.m.d.sync += self._after_reset.eq(1)
        return self._after_reset

    def rtlil(self):
        """The harness with the block as Yosys' intermediate text; the top module is ``top``."""
        resetting = Signal(name="resetting")
        self.m.d.comb += resetting.eq(ResetSignal())
        return rtlil.convert(self.m, ports=[*self._ports, resetting], name="top")

    def _port(self, name, shape):
        self._take(name)
        width = Shape.cast(shape).width
        port = Signal(width, name=name)
        self._ports.append(port)
        self.watched.append(name)
        return port

    def watch(self, name, value):
        """Show ``value`` in counterexamples."""
        # A port of the harness, because what is only inside may be renamed or merged.
        if len(_value(value)):
            shown = Signal(len(_value(value)), name=name)
            self.m.d.comb += shown.eq(_value(value))
            self._take(name)
            self._ports.append(shown)
            self.watched.append(name)

    def _bit(self, group, kind, name, condition):
        if name in group:
            raise ValueError(f"two {kind}s are called {name!r}")
        signal = Signal(name=f"{kind}: {name}".replace(" ", "_"))
        self.m.d.comb += signal.eq(condition)
        group[name] = signal.name
        self._ports.append(signal)

    def _take(self, name):
        if name in self._names:
            raise ValueError(f"two signals of the harness are called {name!r}")
        self._names.add(name)


def _value(value):
    return value.as_value() if isinstance(value, ValueCastable) else value
