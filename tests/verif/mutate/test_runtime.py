"""The design that holds all mutants: without a selection it is the original, with one the mutant.

Covers: verif/mutate/rewrite.py, verif/mutate/operators.py.
"""

import types

import numpy as np
import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from verif.mutate import runtime
from verif.mutate.operators import OPERATORS
from verif.mutate.rewrite import rewrite

TOY = '''
"""Everything that a mutant can be of."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Toy(wiring.Component):
    def __init__(self):
        super().__init__({"a": In(4), "b": In(4), "go": In(1), "sum": Out(5), "state": Out(2),
                          "less": Out(1), "count": Out(3), "flags": Out(1)})

    def elaborate(self, platform):
        m = Module()
        self._add(m, depth=3)
        with m.FSM() as machine:
            with m.State("IDLE"):
                with m.If(self.go & (self.a != 3)):
                    m.next = "BUSY"
            with m.State("BUSY"):
                m.d.comb += self.state.eq(2 - self.go)
                with m.If(self.b == 1):
                    m.next = "IDLE"
        return m

    def _add(self, m, *, depth):
        m.d.comb += [
            self.sum.eq(Mux(self.go, self.a + self.b - 2, self.b - self.a)),
            self.less.eq(self.a < self.b),
        ]
        with m.If(self.count == depth * 2 - 1):
            m.d.sync += self.count.eq(0)
        with m.Elif(~self.go):
            m.d.sync += self.count.eq(self.count + 1)
        old = Signal(init=1)
        m.d.sync += old.eq(self.less | (self.go & ~old))
        m.d.comb += self.flags.eq(old)
'''
CYCLES = 200


def load():
    """The rewritten toy and its mutants."""
    tree, mutants = rewrite(TOY, "hw/toy.py")
    module = types.ModuleType("toy")
    exec(compile(tree, "toy.py", "exec"), module.__dict__)
    return module.Toy, mutants


class Clearable(wiring.Component):
    """A toy with a reset, as the accelerator clears its parts."""

    def __init__(self, toy):
        self.toy, self.clear = toy, Signal()
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.toy = ResetInserter(self.clear)(self.toy)
        return m


def trace(toy, rng, select=None):
    """Outputs in every cycle, under the same stimulus; ``select``: a signal and its value."""
    dut = Clearable(toy)
    seen = []

    async def testbench(ctx):
        if select is not None:
            ctx.set(*select)
        for _ in range(CYCLES):
            ctx.set(toy.a, int(rng.integers(16)))
            ctx.set(toy.b, int(rng.integers(4)))
            ctx.set(toy.go, int(rng.integers(2)))
            ctx.set(dut.clear, int(rng.random() < 0.06))
            await ctx.delay(1e-7)
            outputs = (toy.sum, toy.state, toy.less, toy.count, toy.flags)
            seen.append(tuple(ctx.get(output) for output in outputs))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return seen


@pytest.fixture
def number(monkeypatch):
    """Selects a mutant of a design that holds all of them, without Verilog."""
    signal = Signal(16)
    monkeypatch.setattr(runtime, "_number", lambda: signal)
    yield signal
    runtime.configure()
    runtime.observe()


def test_all_mutants_in_one_design_are_the_single_ones(number, seed):
    """Number 0 is the original of the source, N the design that was built with mutant N alone."""

    def stimulus():
        return np.random.default_rng(seed)

    toy, mutants = load()
    plain = types.ModuleType("plain")
    exec(TOY, plain.__dict__)
    original = trace(plain.Toy(), stimulus())
    runtime.configure(all=True)
    runtime.observe()
    assert trace(toy(), stimulus(), (number, 0)) == original
    kinds = runtime.observe()
    assert {mutant.operator for mutant in mutants} == set(OPERATORS)
    assert set(kinds) == {mutant.number for mutant in mutants}, "some are never elaborated"
    same = []
    for mutant in mutants:
        runtime.configure(selected=mutant.number)
        single = trace(toy(), stimulus())
        if kinds[mutant.number] == runtime.HARDWARE:
            runtime.configure(all=True)
            assert trace(toy(), stimulus(), (number, mutant.number)) == single, mutant
        if kinds[mutant.number] == runtime.NOTHING:
            assert single == original, mutant
        elif single == original:
            same.append(mutant.change)
    assert same == [], "no stimulus shows these"


def test_what_is_met_is_known():
    """Sums of the generator are no hardware; a signal of one bit has no top bit to lose."""
    toy, mutants = load()
    runtime.configure()
    runtime.observe()
    toy().elaborate(None)
    kinds = runtime.observe()

    def kind(change):
        return {kinds[mutant.number] for mutant in mutants if mutant.change == change}

    assert kind("depth * 2 - 1 -> depth * 2 - 1 + 1") == {runtime.GENERATOR}
    assert kind("the top bit of self.less is always 0") == {runtime.NOTHING}
    assert kind("the top bit of self.sum is always 0") == {runtime.HARDWARE}
    assert kind("old keeps its value through a reset") == {runtime.HARDWARE}


def test_names_survive_a_move():
    """Lines in front of a mutant change its line, not its name."""
    before, after = (rewrite(text, "hw/toy.py")[1] for text in (TOY, "\n\n" + TOY))
    assert [m.name for m in before] == [m.name for m in after]
    assert [m.line + 2 for m in before] == [m.line for m in after]
    assert len({m.name for m in before}) == len(before)


def test_sizes_and_ports_stay():
    """Arguments of Signal and range, and __init__, have no mutants."""
    text = (
        "class C:\n"
        "    def __init__(self):\n        self.depth = 1 + 2\n"
        "    def elaborate(self, platform):\n"
        "        a = Signal(range(self.depth + 1), init=self.depth - 1)\n"
        "        assert a == 1\n"
        "        return a\n"
    )
    assert rewrite(text, "hw/c.py")[1] == []
