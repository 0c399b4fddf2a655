"""The multiplexers of the bus: an answer reaches who has asked for it, and nobody else."""

from amaranth.hdl import Array, Cat, Const, Signal

from hw.bus.axi_mux import axi_id_width
from hw.config import make_config
from hw.control.fetch import AHEAD
from hw.dma.store import OUTSTANDING_WRITES
from hw.isa.error_codes import ErrorCode
from verif.prove.proof import Mutant, Proof
from verif.prove.streams import add_hold_claims

__all__ = ["READ_MUX", "WRITE_MUX"]


class _Port:
    """One requester, any, and the bursts that are outstanding for it.

    ``begun`` and ``ended`` say for every requester whether one of its bursts begins or ends, by the
    bus and its answers.

    Attributes
    ----------
    number : its number, which stays the same
    outstanding : its bursts that have begun and not ended
    """

    def __init__(self, harness, most, begun, ended):
        count = len(begun)
        self.number = harness.constant("port", range(max(count, 2)))
        harness.assume("the port is that of a requester", self.number < count)
        self._counts = []
        for index in range(count):
            outstanding = Signal(range(most + 2), name=f"outstanding{index}")
            harness.watch(f"check_outstanding{index}", outstanding)
            harness.m.d.sync += outstanding.eq(outstanding + begun[index] - ended[index])
            harness.assume(
                f"requester {index} has at most {most} bursts outstanding",
                ~begun[index] | ended[index] | (outstanding < most),
            )
            inner = harness.inner(f"dut.owed{index}_bursts", most.bit_length())
            harness.invariant(f"bursts are counted ({index})", inner == outstanding)
            harness.invariant(
                f"it is known whether there are any ({index})",
                harness.inner(f"dut.owed{index}") == outstanding.any(),
            )
            self._counts.append(outstanding)
        self.outstanding = self.of(self._counts)

    def of(self, values):
        """That of the port."""
        return Array(values)[self.number]

    def known(self, number):
        """Whether the requester ``number``, if there is one, has a burst outstanding."""
        some = [count.any() for count in self._counts]
        some += [Const(0)] * ((1 << len(number)) - len(some))
        return Array(some)[number]


def _one_at_most(bits):
    return (bits & (bits - 1)) == 0


def _add_requests(harness, axi, channel, requesters):
    """What goes out on an address channel is what was accepted, once, with its number."""
    m = harness.m
    valid, ready = getattr(axi, f"{channel}valid"), getattr(axi, f"{channel}ready")
    sent = Cat(getattr(axi, f"{channel}{name}") for name in ("addr", "len", "id"))
    accepted = Cat(port.request.valid & port.request.ready for port in requesters)
    bits = len(getattr(axi, f"{channel}id"))
    item, waiting = Signal(len(sent)), Signal()
    harness.watch("check_item", item)
    harness.watch("check_waiting", waiting)
    with m.If(valid & ready):
        m.d.sync += waiting.eq(0)
    for number, port in enumerate(requesters):
        with m.If(accepted[number]):
            burst = port.request.payload
            m.d.sync += [
                waiting.eq(1),
                item.eq(Cat(burst.address, burst.length, Const(number, bits))),
            ]
    harness.claim("at most one request is accepted in a cycle", _one_at_most(accepted))
    harness.claim("every accepted request goes out, and no other", valid == waiting)
    harness.claim("it goes out unchanged, with its number", ~valid | (sent == item))
    harness.claim("none is accepted before the one before is out", ~accepted.any() | ~waiting)
    add_hold_claims(harness, offered=valid, taken=valid & ready, output=sent, name=" (request)")


def _add_error(harness, error, dropped, number):
    dropped_before = harness.delayed("dropped_before", dropped)
    number_before = harness.delayed("number_before", number)
    harness.claim("what is dropped is an error, and nothing else is", error.valid == dropped_before)
    harness.claim(
        "the error names the ID",
        ~error.valid
        | (error.code == ErrorCode.UNEXPECTED_RESPONSE) & (error.address == number_before),
    )
    harness.cover("an answer is dropped", error.valid)


def _build_read(harness, module, *, config, requesters, outstanding):
    mux = harness.add(module.ReadMux(config, requesters, outstanding=outstanding))
    channels = [mux.requesters[index] for index in range(requesters)]
    axi = mux.axi
    _add_requests(harness, axi, "ar", channels)
    payload = channels[0].data.payload
    offered = Cat(channel.data.valid for channel in channels)
    port = _Port(
        harness,
        outstanding,
        begun=[axi.arvalid & axi.arready & (axi.arid == index) for index in range(requesters)],
        ended=[c.data.valid & c.data.ready & payload.last for c in channels],
    )
    mine = port.of(list(offered))
    ready = port.of([channel.data.ready for channel in channels])

    # The beat whose turn it is: the skid buffer, which has a proof of its own, hands it on.
    answer_width = payload.shape().size
    beat = harness.inner("dut.data.payload", answer_width + mux.id_width)
    waiting, taken = harness.inner("dut.data.valid"), harness.inner("dut.data.o__ready")
    number = beat[answer_width:]
    harness.claim("a beat is offered to one requester", _one_at_most(offered))
    harness.claim(
        "a requester is offered a beat of its own, if it has a burst outstanding",
        mine == (waiting & (number == port.number) & (port.outstanding != 0)),
    )
    harness.claim("it is offered that beat", ~mine | (payload.as_value() == beat[:answer_width]))
    harness.claim("the beat waits for it", ~mine | (taken == ready))
    unwanted = waiting & ~port.known(number)
    harness.claim("a beat that nobody asked for is taken at once", ~unwanted | taken)
    _add_error(harness, mux.error, unwanted, number)
    harness.cover(
        "the last beat of two bursts", mine & ready & payload.last & (port.outstanding == 2)
    )


def _build_write(harness, module, *, config, requesters, outstanding, id_width):
    mux = harness.add(
        module.WriteMux(config, requesters, outstanding=outstanding, id_width=id_width)
    )
    channels = [mux.requesters[index] for index in range(requesters)]
    axi = mux.axi
    offered = Cat(channel.response.valid for channel in channels)
    port = _Port(
        harness,
        outstanding,
        begun=[c.data.valid & c.data.ready & c.data.payload.last for c in channels],
        ended=[c.response.valid & c.response.ready for c in channels],
    )
    mine = port.of(list(offered))
    ready = port.of([channel.response.ready for channel in channels])

    beats = Cat(channel.data.valid & channel.data.ready for channel in channels)
    harness.claim("at most one beat is accepted in a cycle", _one_at_most(beats))
    harness.claim("a response is offered to one requester", _one_at_most(offered))
    harness.claim(
        "a requester is offered a response of its own, if it has sent a burst without one",
        mine == (axi.bvalid & (axi.bid == port.number) & (port.outstanding != 0)),
    )
    harness.claim(
        "it is offered that response",
        ~mine | (port.of([c.response.payload for c in channels]) == axi.bresp),
    )
    harness.claim("the response waits for it", ~mine | (axi.bready == ready))
    unwanted = axi.bvalid & ~port.known(axi.bid)
    harness.claim("a response that nobody waits for is taken at once", ~unwanted | axi.bready)
    _add_error(harness, mux.error, unwanted, axi.bid)

    # Beats follow in the order of the requests: whose turn it is says the queue, which has a proof
    # of its own.
    turn = harness.inner("dut.order.r_data", axi_id_width(requesters))
    due = harness.inner("dut.order.r_rdy")
    accepted = Cat(c.request.valid & c.request.ready for c in channels)
    entered = harness.inner("dut.order.w_data", axi_id_width(requesters))
    enters, room = harness.inner("dut.order.w_en"), harness.inner("dut.order.w_rdy")
    leaves = harness.inner("dut.order.r_en")
    harness.claim("every request has its place in the order", enters == accepted.any())
    harness.claim("it is its requester's", ~port.of(list(accepted)) | (entered == port.number))
    harness.claim("there is room for it", ~enters | room)
    harness.claim(
        "a beat is accepted from whose turn it is",
        ~port.of(list(beats)) | due & (turn == port.number),
    )
    last = Cat(c.data.payload.last for c in channels)
    harness.claim("the turn ends with its last beat", leaves == (beats & last).any())
    valid, ready = axi.wvalid, axi.wready
    output = Cat(axi.wdata, axi.wstrb, axi.wlast)
    add_hold_claims(harness, offered=valid, taken=valid & ready, output=output, name=" (beat)")
    valid, ready = axi.awvalid, axi.awready
    output = Cat(axi.awaddr, axi.awlen, axi.awid)
    add_hold_claims(harness, offered=valid, taken=valid & ready, output=output, name=" (request)")
    harness.cover("a response with two bursts outstanding", mine & (port.outstanding == 2))


def _read_configuration(preset):
    config = make_config(variant="max", preset=preset)
    most = max(AHEAD, config.axi_outstanding_reads)
    return {"config": config, "requesters": 1 + len(config.cores), "outstanding": most}


def _write_configuration(preset):
    config = make_config(variant="max", preset=preset)
    count = len(config.cores)
    return {
        "config": config,
        "requesters": count,
        "outstanding": OUTSTANDING_WRITES,
        "id_width": axi_id_width(1 + count),
    }


READ_MUX = Proof(
    name="read-mux",
    what="read requests go out once; a beat reaches who has asked for it, or is an error",
    module="hw.bus.axi_mux",
    build=_build_read,
    configurations={preset: _read_configuration(preset) for preset in ("tiny", "paper")},
    mutants=(
        Mutant(
            name="a beat goes to who has asked for nothing",
            old="channel.data.valid.eq(beats.o.valid & owed[index])",
            new="channel.data.valid.eq(beats.o.valid)",
            cycles=2,
        ),
        Mutant(
            name="an unknown beat blocks the others",
            old="beats.o.ready.eq(channel.data.ready | ~owed[index])",
            new="beats.o.ready.eq(channel.data.ready)",
            cycles=2,
        ),
        Mutant(
            name="one beat is the whole burst",
            old="ended=channel.data.valid & channel.data.ready & beat.last",
            new="ended=channel.data.valid & channel.data.ready",
            cycles=4,
        ),
        Mutant(
            name="the last burst but one is the last",
            old="with m.Elif(ended & (count == 1)):",
            new="with m.Elif(ended & (count == 2)):",
            cycles=4,
        ),
    ),
)

WRITE_MUX = Proof(
    name="write-mux",
    what="beats in the order of requests; a response reaches who waits for it, or is an error",
    module="hw.bus.axi_mux",
    build=_build_write,
    configurations={preset: _write_configuration(preset) for preset in ("tiny", "paper")},
    mutants=(
        Mutant(
            name="a response goes to who waits for none",
            old="channel.response.valid.eq(self.axi.bvalid & owed[index])",
            new="channel.response.valid.eq(self.axi.bvalid)",
            cycles=2,
        ),
        Mutant(
            name="a request does not wait for its place in the order",
            old="granted.ready.eq(address.i.ready & order.w_rdy)",
            new="granted.ready.eq(address.i.ready)",
        ),
        Mutant(
            name="the turn ends with any beat",
            old="order.r_en.eq(beats.i.valid & beats.i.ready & beats.i.payload.last)",
            new="order.r_en.eq(beats.i.valid & beats.i.ready)",
            cycles=2,
        ),
    ),
)
