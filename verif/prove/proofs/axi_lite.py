"""The AXI4-Lite slave answers every request once."""

from amaranth.hdl import Cat, Signal

from hw.registers.map import ADDRESS_WIDTH
from verif.prove.proof import Mutant, Proof
from verif.prove.streams import add_hold_claims

__all__ = ["AXI_LITE"]


def _build(harness, module, *, address_width):
    target = harness.add(module.AXI4LiteTarget(address_width=address_width))
    _add_writes(harness, target)
    _add_reads(harness, target)


def _add_writes(harness, target):
    m, bus = harness.m, target.bus
    addressed = bus.awvalid & bus.awready
    supplied = bus.wvalid & bus.wready
    answered = bus.bvalid & bus.bready

    # Requests that are taken and not yet carried out, and accesses that are not yet answered.
    addresses, data, answers = Signal(2), Signal(2), Signal(2)
    address, word, strobe = (
        Signal.like(target.write_address), Signal(32), Signal(4),
    )  # fmt: skip
    response = Signal(2)
    shown = {"addresses": addresses, "data": data, "answers": answers}
    for name, signal in shown.items():
        harness.watch(f"check_{name}", signal)
    m.d.sync += [
        addresses.eq(addresses + addressed - target.write_valid),
        data.eq(data + supplied - target.write_valid),
        answers.eq(answers + target.write_valid - answered),
    ]
    with m.If(addressed):
        m.d.sync += address.eq(bus.awaddr[2:])
    with m.If(supplied):
        m.d.sync += [word.eq(bus.wdata), strobe.eq(bus.wstrb)]
    with m.If(target.write_valid):
        m.d.sync += response.eq(target.write_resp)

    harness.claim(
        "a write is carried out once, with an address and data",
        ~target.write_valid | (addresses == 1) & (data == 1),
    )
    harness.claim(
        "it has the address and the data of its request",
        ~target.write_valid
        | (target.write_address == address)
        & (target.write_data == word)
        & (target.write_strobe == strobe),
    )
    harness.claim("every write has one answer, and no other is given", bus.bvalid == (answers == 1))
    harness.claim("at most one write waits for its answer", answers <= 1)
    harness.claim("the answer is that of the access", ~bus.bvalid | (bus.bresp == response))
    harness.claim(
        "a write waits for nothing but the answer before it",
        (addresses == 0) | (data == 0) | target.write_valid | (bus.bvalid & ~bus.bready),
    )
    harness.claim("an address is taken unless one is there", bus.awready == (addresses == 0))
    harness.claim("data are taken unless some are there", bus.wready == (data == 0))
    add_hold_claims(
        harness, offered=bus.bvalid, taken=answered, output=bus.bresp, name=" (write answer)"
    )
    harness.invariant("at most one request of each kind", (addresses <= 1) & (data <= 1))
    harness.invariant(
        "what is there is its address", (addresses == 0) | (target.write_address == address)
    )
    harness.invariant(
        "what is there are its data",
        (data == 0) | (target.write_data == word) & (target.write_strobe == strobe),
    )
    harness.cover("a write behind a write", target.write_valid & answered)


def _add_reads(harness, target):
    m, bus = harness.m, target.bus
    addressed = bus.arvalid & bus.arready
    read = target.read_valid & target.read_ready
    answered = bus.rvalid & bus.rready
    requests, answers = Signal(2), Signal(2)
    address, word, response = Signal.like(target.read_address), Signal(32), Signal(2)
    harness.watch("check_reads", requests)
    harness.watch("check_read_answers", answers)
    m.d.sync += [
        requests.eq(requests + addressed - read),
        answers.eq(answers + read - answered),
    ]
    with m.If(addressed):
        m.d.sync += address.eq(bus.araddr[2:])
    with m.If(read):
        m.d.sync += [word.eq(target.read_data), response.eq(target.read_resp)]

    harness.claim("a read is asked for while one is there", target.read_valid == (requests == 1))
    harness.claim("at most one read is under way", requests + answers <= 1)
    harness.claim(
        "a read has the address of its request",
        ~target.read_valid | (target.read_address == address),
    )
    harness.claim("every read has one answer, and no other is given", bus.rvalid == (answers == 1))
    harness.claim(
        "the read's answer is that of the access",
        ~bus.rvalid | (bus.rresp == response) & (bus.rdata == word),
    )
    harness.claim(
        "a read is taken unless one is under way", bus.arready == (requests + answers == 0)
    )
    add_hold_claims(
        harness,
        offered=bus.rvalid,
        taken=answered,
        output=Cat(bus.rdata, bus.rresp),
        name=" (read answer)",
    )
    harness.cover("a read is answered", answered)


AXI_LITE = Proof(
    name="axi-lite",
    what="AXI4-Lite slave: one access and one answer per request, answers stable",
    module="hw.bus.axi_lite",
    build=_build,
    configurations={"registers": {"address_width": ADDRESS_WIDTH}},
    mutants=(
        Mutant(
            name="a write does not wait for the answer before it",
            old="self.write_valid.eq(have_address & have_data & (~bus.bvalid | bus.bready))",
            new="self.write_valid.eq(have_address & have_data)",
            cycles=5,
        ),
        Mutant(
            name="a write is carried out twice",
            old="                have_data.eq(0),\n",
            new="",
            cycles=3,
        ),
        Mutant(
            name="a read is taken while an answer waits",
            old="bus.arready.eq(~self.read_valid & ~bus.rvalid)",
            new="bus.arready.eq(~self.read_valid)",
            cycles=3,
        ),
        Mutant(
            name="an answer is withdrawn",
            old="with m.If(bus.rvalid & bus.rready):",
            new="with m.If(bus.rvalid):",
            cycles=4,
        ),
    ),
)
