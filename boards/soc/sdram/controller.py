"""SDRAM controller with an AXI4 port."""

from itertools import pairwise

from amaranth.hdl import Cat, EnableInserter, Module, Mux, Signal
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.bus.signatures import AXI4Signature

from .phy import PinsSignature, SdramPhy
from .scheduler import Scheduler, request_layout
from .timing import WORD_BYTES, SdramCycles

__all__ = ["SdramController"]

#: Requests, and words of either direction, that wait.
_REQUESTS, _WORDS = 4, 32


class SdramController(wiring.Component):
    """An SDR SDRAM of 16 bits behind an AXI4 port.

    Bursts must be INCR and of full width; the address of the first beat is taken as aligned, bits
    above the size of the chip are ignored. All answers are OKAY, in the order of the requests of
    each direction. A read that is requested after the answer to a write returns what was written.
    A write begins when all of its data is there, so that a slow writer stops nobody.

    Clock domains are ``sync`` (the port) and ``sdram``, see :class:`.phy.SdramPhy`.

    Parameters
    ----------
    cycles : the chip's times; its clock is ``sdram``
    ratio : cycles of ``sdram`` in one of ``sync``, 1 or 2
    data_width : of the port, 32, 64 or 128 bits
    id_width, address_width : of the port

    Members
    -------
    axi : AXI4 slave
    pins : the chip, see :class:`.phy.PinsSignature`
    ready : the chip is initialised; earlier requests wait

    After reset the chip is initialised.

    Raises
    ------
    ValueError
        for any other ratio or width
    """

    def __init__(self, cycles: SdramCycles, *, ratio=2, data_width=32, id_width=4,
                 address_width=32):  # fmt: skip
        if ratio not in (1, 2):
            raise ValueError(f"ratio must be 1 or 2, not {ratio!r}")
        if data_width not in (32, 64, 128):
            raise ValueError(f"data_width must be 32, 64 or 128, not {data_width!r}")
        self.cycles, self._ratio = cycles, ratio
        self._words = data_width // (8 * WORD_BYTES)
        self._id_width, self._data_width = id_width, data_width
        signature = AXI4Signature(
            address_width=address_width, data_width=data_width, id_width=id_width
        )
        super().__init__({"axi": In(signature), "pins": Out(PinsSignature()), "ready": Out(1)})

    def elaborate(self, platform):
        m = Module()
        words = (self.cycles.chip.size_bytes // WORD_BYTES).bit_length() - 1
        scheduler = Scheduler(self.cycles, address_width=words, id_width=self._id_width)
        m.submodules.phy = phy = SdramPhy(self.cycles.cas)
        connect(m, phy.pins, flipped(self.pins))
        enable = Signal()
        if self._ratio == 2:
            m.submodules.scheduler = scheduler
            m.d.comb += enable.eq(1)
        else:
            m.submodules.scheduler = EnableInserter(enable)(scheduler)
            m.d.sync += enable.eq(~enable)
        m.d.comb += [
            phy.enable.eq(enable),
            phy.row.eq(scheduler.row),
            phy.column.eq(scheduler.column),
            phy.write.eq(scheduler.write),
            phy.data.eq(scheduler.data),
            phy.mask.eq(scheduler.mask),
            self.ready.eq(scheduler.done),
        ]
        write_ready = self._writes(m, scheduler, enable)
        self._reads(m, scheduler, phy, enable)
        self._requests(m, scheduler, enable, write_ready, words)
        return m

    def _requests(self, m, scheduler, enable, write_ready, words):
        """Both address channels in turn, as far as each has something to do."""
        axi = self.axi
        layout = request_layout(words, self._id_width)
        heads = {}
        for name in ("ar", "aw"):
            m.submodules[name] = queue = fifo.SyncFIFO(width=layout.size, depth=_REQUESTS)
            request = data.View(layout, queue.w_data)
            beats = getattr(axi, f"{name}len") + 1
            m.d.comb += [
                request.write.eq(name == "aw"),
                request.id.eq(getattr(axi, f"{name}id")),
                request.address.eq(
                    getattr(axi, f"{name}addr")[2 : 2 + words] & -self._words
                ),
                request.length.eq(beats * self._words - 1),
                queue.w_en.eq(getattr(axi, f"{name}valid")),
                getattr(axi, f"{name}ready").eq(queue.w_rdy),
            ]  # fmt: skip
            heads[name] = queue
        read, write = heads["ar"], heads["aw"]
        write_now, wrote = Signal(), Signal()
        may_write = write.r_rdy & write_ready
        m.d.comb += [
            write_now.eq(may_write & (~read.r_rdy | ~wrote)),
            scheduler.i.valid.eq(may_write | read.r_rdy),
            scheduler.i.payload.eq(Mux(write_now, write.r_data, read.r_data)),
        ]
        accepted = scheduler.i.ready & enable
        m.d.comb += [write.r_en.eq(write_now & accepted), read.r_en.eq(~write_now & accepted)]
        with m.If(accepted & scheduler.i.valid):
            m.d.sync += wrote.eq(write_now)

    def _writes(self, m, scheduler, enable):
        """Data and answers of writes; whether the next write may begin."""
        axi = self.axi
        word = data.StructLayout({"data": 8 * WORD_BYTES, "mask": WORD_BYTES})
        m.submodules.write_data = queue = fifo.SyncFIFO(width=word.size, depth=_WORDS)
        number = Signal(range(self._words)) if self._words > 1 else None
        last = axi.wlast
        entry = data.View(word, queue.w_data)
        if number is None:
            m.d.comb += [
                entry.data.eq(axi.wdata), entry.mask.eq(~axi.wstrb), axi.wready.eq(queue.w_rdy)
            ]  # fmt: skip
        else:
            ends = number == self._words - 1
            last = last & ends
            m.d.comb += [
                entry.data.eq(axi.wdata.word_select(number, 8 * WORD_BYTES)),
                entry.mask.eq(~axi.wstrb.word_select(number, WORD_BYTES)),
                axi.wready.eq(queue.w_rdy & ends),
            ]
            with m.If(axi.wvalid & queue.w_rdy):
                m.d.sync += number.eq(number + 1)
        m.d.comb += [
            queue.w_en.eq(axi.wvalid),
            scheduler.i_data.valid.eq(queue.r_rdy),
            scheduler.i_data.payload.eq(queue.r_data),
            queue.r_en.eq(scheduler.i_data.ready & enable),
        ]
        # Bursts that are here as a whole, less those that have begun; a long one begins early.
        whole = Signal(range(-4, _WORDS + 1))
        begins = scheduler.i.valid & scheduler.i.ready & enable & scheduler.i.payload.write
        arrives = axi.wvalid & queue.w_rdy & last
        m.d.sync += whole.eq(whole + arrives - begins)

        m.submodules.answers = answers = fifo.SyncFIFO(width=self._id_width, depth=_REQUESTS)
        m.d.comb += [
            scheduler.write_room.eq(answers.w_rdy),
            answers.w_data.eq(scheduler.id),
            answers.w_en.eq(scheduler.write & scheduler.last & enable),
            axi.bvalid.eq(answers.r_rdy),
            axi.bid.eq(answers.r_data),
            answers.r_en.eq(axi.bready),
        ]
        return (whole > 0) | ~queue.w_rdy

    def _reads(self, m, scheduler, phy, enable):
        """Words of reads, which have a place reserved when they are asked for."""
        axi = self.axi
        word = data.StructLayout({"data": 8 * WORD_BYTES, "id": self._id_width, "last": 1})
        m.submodules.read_data = queue = fifo.SyncFIFO(width=word.size, depth=_WORDS)
        taken = queue.r_en & queue.r_rdy
        asked = scheduler.read & enable
        places = Signal(range(_WORDS + 1), init=_WORDS)
        m.d.sync += places.eq(places - asked + taken)
        m.d.comb += scheduler.read_room.eq(places != 0)

        tag = data.StructLayout({"valid": 1, "id": self._id_width, "last": 1})
        tags = [Signal(tag, name=f"tag{age}") for age in range(phy.LATENCY)]
        with m.If(enable):
            m.d.sync += Cat(tags[0].valid, tags[0].id, tags[0].last).eq(
                Cat(scheduler.read, scheduler.id, scheduler.last)
            )
            m.d.sync += [new.eq(old) for old, new in pairwise(tags)]
        m.d.comb += [
            queue.w_en.eq(tags[-1].valid & enable),
            queue.w_data.eq(Cat(phy.q, tags[-1].id, tags[-1].last)),
        ]
        entry = data.View(word, queue.r_data)
        if self._words == 1:
            m.d.comb += [
                axi.rvalid.eq(queue.r_rdy), axi.rdata.eq(entry.data), queue.r_en.eq(axi.rready)
            ]  # fmt: skip
        else:
            number = Signal(range(self._words))
            lower = Signal(self._data_width - 8 * WORD_BYTES, reset_less=True)
            ends = number == self._words - 1
            m.d.comb += [
                axi.rvalid.eq(queue.r_rdy & ends),
                axi.rdata.eq(Cat(lower, entry.data)),
                queue.r_en.eq(axi.rready | ~ends),
            ]
            with m.If(taken):
                m.d.sync += number.eq(number + 1)
                m.d.sync += lower.eq(Cat(lower, entry.data)[8 * WORD_BYTES :])
        m.d.comb += [axi.rid.eq(entry.id), axi.rlast.eq(entry.last)]
