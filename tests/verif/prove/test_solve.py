"""A counter whose claims hold or do not: what is found, and where.

Covers: verif/prove/check.py, verif/prove/harness.py, verif/prove/model.py.
"""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from verif.prove.check import check
from verif.prove.command import table
from verif.prove.harness import Harness
from verif.prove.model import ModelError, build_model
from verif.prove.proof import Proof
from verif.prove.solve import OutOfTime, check_base, check_run, check_step


class Counter(wiring.Component):
    """Counts up to ``top`` and begins again."""

    def __init__(self, top):
        self.top = top
        super().__init__({"enable": In(1), "value": Out(4)})

    def elaborate(self, platform):
        m = Module()
        count = Signal(4, init=1)
        m.d.comb += self.value.eq(count)
        with m.If(self.enable):
            m.d.sync += count.eq(count + 1)
            with m.If(count == self.top):
                m.d.sync += count.eq(0)
        return m


def harness_of(claim, *, invariant=None, cover=None, top=9):
    """A harness with a counter and what is said of it."""
    harness = Harness()
    counter = harness.add(Counter(top))
    count = harness.inner("dut.count", 4)
    harness.claim("claim", claim(counter, count))
    if invariant is not None:
        harness.invariant("invariant", invariant(count))
    if cover is not None:
        harness.cover("cover", cover(counter))
    return harness


def proof_of(build):
    return Proof(name="counter", what="", module="hw.primitives.stream_register", build=build)


def test_what_is_inductive_is_proven():
    harness = harness_of(lambda counter, count: counter.value <= 9)
    model = build_model(harness)
    assert check_base(harness, model, limit=60) is None
    assert check_step(harness, model, limit=60) is None


def test_what_does_not_hold_behind_a_reset():
    harness = harness_of(lambda counter, count: counter.value == 0)
    trace = check_base(harness, build_model(harness), limit=60)
    assert trace.broken == ("claim",)
    assert [cycle["dut.value"] for cycle in trace.cycles][-1] == 1
    assert trace.start == "reset"


def test_what_does_not_hold_later():
    """It is no step from a state that can be reached, but a run that is."""
    harness = harness_of(lambda counter, count: counter.value != 4)
    model = build_model(harness)
    assert check_step(harness, model, limit=60).broken == ("claim",)
    assert check_run(harness, model, cycles=3, limit=60) is None
    trace = check_run(harness, model, cycles=4, limit=60)
    assert [cycle["dut.value"] for cycle in trace.cycles][1:] == [1, 2, 3, 4]


def test_what_holds_needs_an_invariant():
    harness = harness_of(lambda counter, count: counter.value != 12)
    model = build_model(harness)
    assert check_step(harness, model, limit=60).cycles[0]["dut.value"] == 11
    harness = harness_of(
        lambda counter, count: counter.value != 12, invariant=lambda count: count <= 9
    )
    assert check_step(harness, build_model(harness), limit=60) is None


def test_a_table_has_a_line_for_every_signal_that_moves():
    harness = harness_of(lambda counter, count: counter.value != 3)
    trace = check_run(harness, build_model(harness), cycles=3, limit=60)
    lines = table(trace).splitlines()
    assert lines[0].split() == ["reset,", "cycle", "1,", "cycle", "2,", "cycle", "3"]
    assert lines[-1] == "  broken: claim"
    values = next(line.split() for line in lines if line.split()[0] == "dut.value")
    assert values[2:] == ["1", "2", "3"]


def test_an_unknown_inner_signal_is_named_with_its_neighbours():
    harness = Harness()
    harness.add(Counter(9))
    harness.inner("dut.cuont", 4)
    with pytest.raises(ModelError, match=r"no signal 'dut\.cuont'; in dut there are .*dut\.count"):
        build_model(harness)


def test_an_inner_signal_of_another_width():
    harness = Harness()
    harness.add(Counter(9))
    harness.inner("dut.count", 5)
    with pytest.raises(ModelError, match=r"'dut\.count' has 4 bits, not 5"):
        build_model(harness)


def test_a_signal_that_is_cut_has_any_value():
    """The count leaves its range at once; that the output shows it is still proven."""
    harness = harness_of(lambda counter, count: counter.value <= 9)
    harness.cut("dut.count")
    trace = check_base(harness, build_model(harness), limit=60)
    assert trace.broken == ("claim",)
    assert trace.cycles[-1]["dut.value"] > 9
    harness = harness_of(lambda counter, count: counter.value == count)
    harness.cut("dut.count")
    assert check_step(harness, build_model(harness), limit=60) is None


def test_a_signal_to_be_cut_that_is_not_there():
    harness = harness_of(lambda counter, count: counter.value <= 9)
    harness.cut("dut.cuont")
    with pytest.raises(ModelError, match=r"no signal 'dut\.cuont'; in dut there are .*dut\.count"):
        build_model(harness)


def test_two_claims_of_a_name():
    harness = Harness()
    harness.claim("it", Signal())
    with pytest.raises(ValueError, match="two claims are called 'it'"):
        harness.claim("it", Signal())


def test_an_input_that_is_not_there():
    with pytest.raises(ValueError, match="dut has no input enabled"):
        Harness().add(Counter(9), drive={"enabled": 1})


def test_assumptions_that_nothing_keeps_prove_nothing():
    """Everything follows from them, so the cover must be out of reach."""

    def build(harness, module):
        counter = harness.add(Counter(9))
        harness.claim("claim", counter.value == 5)
        harness.assume("contradiction", counter.enable & ~counter.enable)
        harness.cover("cover", counter.value == 1)

    outcome = check(proof_of(build), "only", {}, limit=60)
    assert outcome.verdict == "failed"
    assert outcome.reason == "not reached, so the claims may say nothing: cover"


def test_a_proof_says_what_it_has_counted():
    def build(harness, module):
        counter = harness.add(Counter(9))
        harness.claim("claim", counter.value <= 9)
        harness.cover("cover", counter.value == 5)

    outcome = check(proof_of(build), "only", {}, limit=60)
    assert outcome.passed
    assert (outcome.claims, outcome.invariants, outcome.registers) == (1, 0, 4)
    assert outcome.covers == {"cover": 5}
    document = outcome.as_dict()
    assert document["verdict"] == "proven"
    assert document["induction_depth"] == 1


def test_a_constant_keeps_its_value():
    for kind, holds in (("constant", True), ("free", False)):
        harness = Harness()
        value = getattr(harness, kind)("value", 4)
        harness.claim("claim", harness.delayed("before", value) == value)
        assert (check_step(harness, build_model(harness), limit=60) is None) == holds


def test_out_of_time():
    """Two ways to multiply, which a solver cannot compare in a moment."""
    harness = Harness()
    a, b = harness.free("a", 40), harness.free("b", 40)
    total = Signal(80)
    for bit in range(40):
        previous, total = total, Signal(80)
        harness.m.d.comb += total.eq((0 if bit == 0 else previous) + ((a * b[bit]) << bit))
    harness.claim("products are equal", total == a * b)
    with pytest.raises(OutOfTime, match=r"no answer within 0\.2 s"):
        check_step(harness, build_model(harness), limit=0.2)
