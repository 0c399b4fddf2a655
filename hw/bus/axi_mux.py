"""Several requesters on one AXI4 master, reads and writes apart."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import Flow, In, Out

from hw.isa.error_codes import ErrorCode
from hw.primitives.stream_register import HalfRateRegister, SkidBuffer

from .signatures import (
    AXI4Signature,
    ErrorSignature,
    ReadChannelSignature,
    WriteChannelSignature,
    burst_layout,
)

__all__ = ["ReadMux", "WriteMux", "axi_id_width", "connect_axi_half"]

#: Write bursts whose beats may be due at the same time.
WRITE_ORDER_DEPTH = 16

_BURST_INCR = 0b01
_CACHE_MODIFIABLE_BUFFERABLE = 0b0011


def axi_id_width(requesters):
    """Bits of an AXI ID that numbers ``requesters``; at least one."""
    return max(1, (requesters - 1).bit_length())


def _half(config, id_width, channels):
    """The members of ``AXI4Signature`` of some channels, e.g. ``("ar", "r")``."""
    full = AXI4Signature(
        address_width=config.axi_address_width,
        data_width=config.axi_data_width,
        id_width=id_width,
    )
    names = ("aw", "ar", "w", "b", "r")
    members = {}
    for name, member in full.members.items():
        channel = next(prefix for prefix in names if name.startswith(prefix))
        if channel in channels:
            members[name] = member
    return wiring.Signature(members)


def connect_axi_half(m, half, axi):
    """Drive the channels of the master port ``axi`` (an ``AXI4Signature``) from a mux's half."""
    for name, member in half.signature.members.items():
        inner, outer = getattr(half, name), getattr(axi, name)
        m.d.comb += outer.eq(inner) if member.flow is Flow.Out else inner.eq(outer)


def _arbitrate(m, config, requests, accept):
    """Grant the requests in turn and connect the granted one to the stream ``accept``.

    Returns the index that is granted and whether ``accept`` takes it in this cycle.
    """
    grant = Signal(range(max(2, len(requests))))
    latest = Signal.like(grant)
    taken = Signal()
    m.d.comb += grant.eq(latest)
    with m.Switch(latest):
        for index in range(len(requests)):
            with m.Case(index):
                # The later in this list, the higher the priority: ``index`` itself comes last.
                for step in reversed(range(1, len(requests) + 1)):
                    candidate = (index + step) % len(requests)
                    with m.If(requests[candidate].valid):
                        m.d.comb += grant.eq(candidate)
    with m.Switch(grant):
        for index, request in enumerate(requests):
            with m.Case(index):
                m.d.comb += [
                    accept.payload.burst.eq(request.payload),
                    accept.valid.eq(request.valid),
                    request.ready.eq(accept.ready),
                ]
    m.d.comb += [accept.payload.id.eq(grant), taken.eq(accept.valid & accept.ready)]
    with m.If(taken):
        m.d.sync += latest.eq(grant)
    return grant, taken


def _add_owed(m, *, most, begun, ended, name):
    """A register that says whether a burst is outstanding, one that has begun and not ended; at
    most ``most`` are."""
    count = Signal(range(most + 1), name=f"{name}_bursts")
    owed = Signal(name=name)
    m.d.sync += count.eq(count + begun - ended)
    with m.If(begun):
        m.d.sync += owed.eq(1)
    with m.Elif(ended & (count == 1)):
        m.d.sync += owed.eq(0)
    return owed


def _report(m, error, unexpected, number):
    m.d.comb += error.code.eq(ErrorCode.UNEXPECTED_RESPONSE)
    m.d.sync += [error.valid.eq(unexpected), error.address.eq(number)]


def _address_layout(config, id_width):
    return data.StructLayout({"burst": burst_layout(config), "id": id_width})


def _drive_address(m, config, axi, channel, register):
    values = {
        "id": register.o.payload.id,
        "addr": register.o.payload.burst.address,
        "len": register.o.payload.burst.length,
        "size": config.beat_bytes.bit_length() - 1,
        "burst": _BURST_INCR,
        "lock": 0,
        "cache": _CACHE_MODIFIABLE_BUFFERABLE,
        "prot": config.axi_prot,
        "qos": 0,
        "valid": register.o.valid,
    }
    m.d.comb += [getattr(axi, channel + name).eq(value) for name, value in values.items()]
    m.d.comb += register.o.ready.eq(getattr(axi, channel + "ready"))


class ReadMux(wiring.Component):
    """Read bursts of ``requesters`` channels on one AXI4 read port.

    The AXI ID is the requester's index; requesters take turns, and the slave may interleave the
    beats of different IDs. A requester that does not take its beat holds up the others. All AXI
    outputs come from registers. Latency 1 cycle each way, one burst every two cycles, one
    beat per cycle.

    A beat of an ID that has no burst outstanding, or that no requester has, reaches nobody: it is
    taken and dropped, and ``error`` says so. After a reset nothing is outstanding.

    Parameters
    ----------
    config : AdaGPConfig
    requesters : how many there are
    outstanding : most bursts that a requester has without their last beat
    id_width : bits of an AXI ID; 0: what the requesters need

    Members
    -------
    requesters : array of ``In(ReadChannelSignature(config))``
    axi : the AR and R channels of ``AXI4Signature``
    error : ``Out(ErrorSignature())``: ``UNEXPECTED_RESPONSE`` with the ID as address, the cycle
        after a beat was dropped
    """

    def __init__(self, config, requesters, *, outstanding, id_width=0):
        self.config = config
        self.count = requesters
        self.outstanding = outstanding
        self.id_width = id_width or axi_id_width(requesters)
        super().__init__(
            {
                "requesters": In(ReadChannelSignature(config)).array(requesters),
                "axi": Out(_half(config, self.id_width, ("ar", "r"))),
                "error": Out(ErrorSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        requesters = [self.requesters[index] for index in range(self.count)]
        m.submodules.address = address = HalfRateRegister(
            _address_layout(self.config, self.id_width)
        )
        _arbitrate(m, self.config, [channel.request for channel in requesters], address.i)
        _drive_address(m, self.config, self.axi, "ar", address)

        m.submodules.data = beats = SkidBuffer(
            data.StructLayout(
                {"data": self.config.axi_data_width, "resp": 2, "last": 1, "id": self.id_width}
            )
        )
        m.d.comb += [
            beats.i.payload.data.eq(self.axi.rdata),
            beats.i.payload.resp.eq(self.axi.rresp),
            beats.i.payload.last.eq(self.axi.rlast),
            beats.i.payload.id.eq(self.axi.rid),
            beats.i.valid.eq(self.axi.rvalid),
            self.axi.rready.eq(beats.i.ready),
        ]
        beat = beats.o.payload
        for channel in requesters:
            m.d.comb += [
                channel.data.payload.data.eq(beat.data),
                channel.data.payload.resp.eq(beat.resp),
                channel.data.payload.last.eq(beat.last),
            ]
        # An answer cannot come before its address was accepted.
        accepted = self.axi.arvalid & self.axi.arready
        owed = [
            _add_owed(
                m,
                most=self.outstanding,
                begun=accepted & (self.axi.arid == index),
                ended=channel.data.valid & channel.data.ready & beat.last,
                name=f"owed{index}",
            )
            for index, channel in enumerate(requesters)
        ]
        known = Signal()
        with m.Switch(beat.id):
            for index, channel in enumerate(requesters):
                with m.Case(index):
                    m.d.comb += [
                        known.eq(owed[index]),
                        channel.data.valid.eq(beats.o.valid & owed[index]),
                        beats.o.ready.eq(channel.data.ready | ~owed[index]),
                    ]
            with m.Default():
                m.d.comb += beats.o.ready.eq(1)
        _report(m, self.error, beats.o.valid & ~known, beat.id)
        return m


class WriteMux(wiring.Component):
    """Write bursts of ``requesters`` channels on one AXI4 write port.

    The AXI ID is the requester's index; requesters take turns. Beats follow in the order of the
    requests: a requester that has requested a burst must deliver its beats, or it holds up the
    others. All AXI outputs but ``bready`` come from registers. Latency 1 cycle (responses 0), one
    burst every two cycles, one beat per cycle.

    A response to an ID that has sent no last beat without one, or that no requester has, reaches
    nobody: it is taken and dropped, and ``error`` says so. After a reset nothing is outstanding.

    Parameters
    ----------
    config : AdaGPConfig
    requesters : how many there are
    outstanding : most bursts that a requester has without their response
    id_width : bits of an AXI ID; 0: what the requesters need

    Members
    -------
    requesters : array of ``In(WriteChannelSignature(config))``
    axi : the AW, W and B channels of ``AXI4Signature``
    error : ``Out(ErrorSignature())``: ``UNEXPECTED_RESPONSE`` with the ID as address, the cycle
        after a response was dropped
    """

    def __init__(self, config, requesters, *, outstanding, id_width=0):
        self.config = config
        self.count = requesters
        self.outstanding = outstanding
        self.id_width = id_width or axi_id_width(requesters)
        super().__init__(
            {
                "requesters": In(WriteChannelSignature(config)).array(requesters),
                "axi": Out(_half(config, self.id_width, ("aw", "w", "b"))),
                "error": Out(ErrorSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        requesters = [self.requesters[index] for index in range(self.count)]
        layout = _address_layout(self.config, self.id_width)
        m.submodules.address = address = HalfRateRegister(layout)
        m.submodules.order = order = SyncFIFO(
            width=axi_id_width(self.count), depth=WRITE_ORDER_DEPTH
        )
        granted = stream.Signature(layout).create(path=("granted",))
        grant, taken = _arbitrate(
            m, self.config, [channel.request for channel in requesters], granted
        )
        m.d.comb += [
            address.i.payload.eq(granted.payload),
            address.i.valid.eq(granted.valid & order.w_rdy),
            granted.ready.eq(address.i.ready & order.w_rdy),
            order.w_data.eq(grant),
            order.w_en.eq(taken),
        ]
        _drive_address(m, self.config, self.axi, "aw", address)

        m.submodules.data = beats = SkidBuffer(requesters[0].data.payload.shape())
        m.d.comb += order.r_en.eq(beats.i.valid & beats.i.ready & beats.i.payload.last)
        with m.Switch(order.r_data):
            for index, channel in enumerate(requesters):
                with m.Case(index):
                    m.d.comb += [
                        beats.i.payload.eq(channel.data.payload),
                        beats.i.valid.eq(channel.data.valid & order.r_rdy),
                        channel.data.ready.eq(beats.i.ready & order.r_rdy),
                    ]
        m.d.comb += [
            self.axi.wdata.eq(beats.o.payload.data),
            self.axi.wstrb.eq(beats.o.payload.strb),
            self.axi.wlast.eq(beats.o.payload.last),
            self.axi.wvalid.eq(beats.o.valid),
            beats.o.ready.eq(self.axi.wready),
        ]

        # A response cannot come before the last beat was accepted.
        owed = [
            _add_owed(
                m,
                most=self.outstanding,
                begun=order.r_en & (order.r_data == index),
                ended=channel.response.valid & channel.response.ready,
                name=f"owed{index}",
            )
            for index, channel in enumerate(requesters)
        ]
        known = Signal()
        with m.Switch(self.axi.bid):
            for index, channel in enumerate(requesters):
                with m.Case(index):
                    m.d.comb += [
                        known.eq(owed[index]),
                        channel.response.payload.eq(self.axi.bresp),
                        channel.response.valid.eq(self.axi.bvalid & owed[index]),
                        self.axi.bready.eq(channel.response.ready | ~owed[index]),
                    ]
            with m.Default():
                m.d.comb += self.axi.bready.eq(1)
        _report(m, self.error, self.axi.bvalid & ~known, self.axi.bid)
        return m
