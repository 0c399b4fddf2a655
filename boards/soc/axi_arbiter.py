"""Two AXI4 masters, one memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import AXI4Signature

__all__ = ["AxiArbiter"]

_REQUEST = ("addr", "len", "size", "burst", "lock", "cache", "prot", "qos")


class AxiArbiter(wiring.Component):
    """Gives the requests of two masters to one slave, in turn where both have some.

    The lowest bit of the slave's ID says whose a request is; all else of a request is passed on.
    There is no cycle of delay. A request that is shown to the slave stays until it is taken. The
    slave gets the data of writes in the order of their addresses, and may have so many of them
    unfinished: :data:`OUTSTANDING`.

    Parameters
    ----------
    address_width, data_width : of all three
    id_width : of the masters; that of the slave is one more

    Members
    -------
    masters : two AXI4 slaves for them to connect to
    slave : AXI4 master
    """

    OUTSTANDING = 4

    def __init__(self, *, address_width: int, data_width: int, id_width: int):
        widths = {"address_width": address_width, "data_width": data_width}
        super().__init__(
            {
                "masters": In(AXI4Signature(**widths, id_width=id_width)).array(2),
                "slave": Out(AXI4Signature(**widths, id_width=id_width + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        slave, (first, second) = self.slave, self.masters
        # Owners of the writes whose data is not complete: the oldest is the lowest bit.
        owners, count = Signal(self.OUTSTANDING), Signal(range(self.OUTSTANDING + 1))
        for channel in ("ar", "aw"):

            def port(side, name, channel=channel):
                return getattr(side, f"{channel}{name}")

            room = count != self.OUTSTANDING if channel == "aw" else 1
            last, held, chosen = (Signal(name=f"{channel}_{n}") for n in ("last", "held", "chosen"))
            wants = [port(master, "valid") for master in (first, second)]
            m.d.comb += chosen.eq(Mux(held, last, Mux(wants[0] & wants[1], ~last, wants[1])))
            moves = port(slave, "valid") & port(slave, "ready")
            with m.If(port(slave, "valid")):
                m.d.sync += [last.eq(chosen), held.eq(~moves)]
            m.d.comb += port(slave, "valid").eq((wants[0] | wants[1]) & room)
            for name in _REQUEST:
                m.d.comb += port(slave, name).eq(Mux(chosen, port(second, name), port(first, name)))
            m.d.comb += [
                port(slave, "id").eq(
                    Cat(chosen, Mux(chosen, port(second, "id"), port(first, "id")))
                ),
                port(first, "ready").eq(port(slave, "ready") & room & ~chosen),
                port(second, "ready").eq(port(slave, "ready") & room & chosen),
            ]
            if channel == "aw":
                accepted, owner = moves, chosen

        # Data of writes. What has just been accepted is known in the next cycle.
        known = count != 0
        writer = owners[0]
        for index, master in enumerate((first, second)):
            with m.If(known & (writer == index)):
                m.d.comb += [
                    slave.wvalid.eq(master.wvalid),
                    slave.wdata.eq(master.wdata),
                    slave.wstrb.eq(master.wstrb),
                    slave.wlast.eq(master.wlast),
                    master.wready.eq(slave.wready),
                ]
        done = slave.wvalid & slave.wready & slave.wlast
        place = Signal(range(self.OUTSTANDING + 1))
        m.d.comb += place.eq(count - done)
        shifted = Mux(done, owners[1:], owners)
        m.d.sync += count.eq(count - done + accepted)
        m.d.sync += owners.eq(Mux(accepted, shifted & ~(1 << place) | owner << place, shifted))

        # Answers go where their lowest bit says.
        for channel, names in (("r", ("data", "resp", "last")), ("b", ("resp",))):
            to_second = getattr(slave, f"{channel}id")[0]
            for index, master in enumerate((first, second)):
                mine = to_second == index
                m.d.comb += getattr(master, f"{channel}valid").eq(
                    getattr(slave, f"{channel}valid") & mine
                )
                m.d.comb += getattr(master, f"{channel}id").eq(getattr(slave, f"{channel}id")[1:])
                for name in names:
                    m.d.comb += getattr(master, f"{channel}{name}").eq(
                        getattr(slave, f"{channel}{name}")
                    )
            m.d.comb += getattr(slave, f"{channel}ready").eq(
                Mux(
                    to_second, getattr(second, f"{channel}ready"), getattr(first, f"{channel}ready")
                )
            )
        return m
