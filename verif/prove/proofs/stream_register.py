"""The stream registers lose nothing, double nothing and keep what they offer."""

from functools import partial

from verif.prove.proof import Mutant, Proof
from verif.prove.sizes import register_widths
from verif.prove.streams import QueueCheck

__all__ = ["HALF_RATE_REGISTER", "SKID_BUFFER"]


def _queue(harness, register, capacity):
    harness.add(register)
    return QueueCheck(
        harness,
        entered=register.i.valid & register.i.ready,
        payload=register.i.payload,
        offered=register.o.valid,
        taken=register.o.valid & register.o.ready,
        output=register.o.payload,
        capacity=capacity,
    )


def _build_half_rate(harness, module, *, width):
    register = module.HalfRateRegister(width)
    check = _queue(harness, register, 1)
    valid, payload = harness.inner("dut.valid"), harness.inner("dut.payload", width)
    harness.claim("what is inside is offered", register.o.valid == (check.level != 0))
    harness.claim("it is ready when it is empty", register.i.ready == (check.level == 0))
    harness.invariant("the register counts", check.level == valid)
    harness.invariant("the item is in the register", check.at([payload], 0))


def _build_skid(harness, module, *, width):
    buffer = module.SkidBuffer(width)
    check = _queue(harness, buffer, 2)
    valid, spare_valid = harness.inner("dut.valid"), harness.inner("dut.spare_valid")
    payload, spare = harness.inner("dut.payload", width), harness.inner("dut.spare", width)
    harness.claim("what is inside is offered", buffer.o.valid == (check.level != 0))
    harness.claim("it is ready unless it is full", buffer.i.ready == (check.level != 2))
    harness.invariant("the registers count", check.level == valid + spare_valid)
    harness.invariant("the spare one fills last", ~spare_valid | valid)
    harness.invariant("the item is in its register", check.at([payload, spare], 0))


HALF_RATE_REGISTER = Proof(
    name="half-rate-register",
    what="one-entry stream register: nothing lost or twice, payload stable",
    module="hw.primitives.stream_register",
    build=_build_half_rate,
    configurations={"8 bits": {"width": 8}},
    derived=partial(register_widths, "HalfRateRegister"),
    mutants=(
        Mutant(
            name="it is emptied unasked",
            old="        with m.Elif(self.o.ready):\n            m.d.sync += valid.eq(0)",
            new="        with m.Else():\n            m.d.sync += valid.eq(0)",
            cycles=3,
        ),
        Mutant(
            name="it takes while it is full",
            old="self.i.ready.eq(~valid)",
            new="self.i.ready.eq(~valid | self.o.ready)",
            cycles=2,
        ),
    ),
)

SKID_BUFFER = Proof(
    name="skid-buffer",
    what="two-entry stream buffer: nothing lost or twice, payload stable",
    module="hw.primitives.stream_register",
    build=_build_skid,
    configurations={"8 bits": {"width": 8}},
    derived=partial(register_widths, "SkidBuffer"),
    mutants=(
        Mutant(
            name="the spare register does not wait",
            old="with m.If(~spare_valid):",
            new="with m.If(~valid):",
            cycles=4,
        ),
        Mutant(
            name="the second item is forgotten",
            old="valid.eq(self.i.valid | spare_valid)",
            new="valid.eq(self.i.valid)",
            cycles=4,
        ),
        Mutant(
            name="the payload changes while it waits",
            old="with m.If(self.o.ready | ~valid):",
            new="with m.If(self.o.ready | ~valid | spare_valid):",
            cycles=4,
        ),
    ),
)
