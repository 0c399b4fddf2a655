"""Commands of an SDRAM, two in a tick of two SDRAM cycles: the heart of the controller.

The first cycle of a tick has a READ or WRITE of two transfers, the second ACTIVATE, PRECHARGE or
REFRESH. So a stream of columns leaves room for opening the next row.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .timing import INITIAL_REFRESHES, WORD_BYTES, SdramCycles

__all__ = ["CommandLayout", "Scheduler", "TickTimes", "request_layout"]

_BANKS = 4
#: Levels of ras, cas, we, active high.
_NOP, _ACTIVATE, _READ, _WRITE = 0b000, 0b001, 0b010, 0b110
_PRECHARGE, _REFRESH, _MODE = 0b101, 0b011, 0b111
_ALL_BANKS = 1 << 10
#: Mode register: bursts of two, sequential.
_BURST_OF_TWO = 0b001


def request_layout(address_width: int, id_width: int) -> data.StructLayout:
    """A burst: first word (of four bytes), number of words minus one, and whose it is."""
    return data.StructLayout({"write": 1, "id": id_width, "address": address_width, "length": 10})


class CommandLayout(data.StructLayout):
    """A command as the pins have it, active high; ``command`` is ras, cas, we from bit 0 on."""

    def __init__(self):
        super().__init__({"command": 3, "bank": 2, "address": 13})


class TickTimes:
    """Times in ticks: from one command to the first tick in which another may follow.

    A column command is in cycle 2t, a row command in 2t + 1.
    """

    def __init__(self, cycles: SdramCycles):
        def row_to_row(n):
            return max(1, -(-n // 2))

        self.activate_to_column = max(1, -(-(cycles.rcd + 1) // 2))
        self.activate_to_precharge = row_to_row(cycles.ras)
        self.activate_to_activate = row_to_row(cycles.rc)
        self.other_activate = row_to_row(cycles.rrd)
        self.precharge_to_activate = row_to_row(cycles.rp)
        self.write_to_precharge = row_to_row(cycles.wr)
        self.read_to_write = -(-(cycles.cas + 3) // 2)
        self.refresh_to_any = row_to_row(cycles.rfc)
        self.mode_to_any = row_to_row(cycles.mrd)
        self.init = -(-cycles.init // 2)
        self.refresh = cycles.refresh // 2


class _Countdown:
    """Ticks until something is allowed; :attr:`done` when it is."""

    def __init__(self, m, most: int, name: str):
        self._m = m
        self.left = Signal(range(max(2, most)), name=name)
        self.done = Signal(name=f"{name}_done")
        m.d.comb += self.done.eq(self.left == 0)
        with m.If(~self.done):
            m.d.sync += self.left.eq(self.left - 1)

    def start(self, ticks: int, *, keep: bool = False):
        """Allowed ``ticks`` ticks after this one; with ``keep`` not before what runs is over."""
        if not keep:
            self._m.d.sync += self.left.eq(ticks - 1)
            return
        with self._m.If(self.left < ticks):
            self._m.d.sync += self.left.eq(ticks - 1)


class Scheduler(wiring.Component):
    """Initialises and refreshes the chip, opens rows, and issues columns.

    Bursts are executed in the order in which they come, a word in a tick while their row is open.
    While one is executed, the row of the next is opened if it is in another bank. Rows stay open
    until another of the bank or a refresh is needed. Banks are interleaved: neighbouring rows of
    the address space are in different banks.

    Parameters
    ----------
    cycles : what the chip needs
    address_width : of words
    id_width : bits

    Members
    -------
    i : bursts; accepted when ``ready`` is high, which it is not before the initialisation is over
    i_data : a word for each of a write, with a mask of the bytes that are not written
    row, column : the commands of this tick
    read, write : the column command is one; ``data`` and ``mask`` belong to a write
    id, last : of the burst that the column command is part of
    read_room : a word that is read now has a place to go to
    write_room : the answer to a write has one
    done : the initialisation is over

    After reset the initialisation begins.
    """

    def __init__(self, cycles: SdramCycles, *, address_width: int, id_width: int):
        self.cycles = cycles
        self._times = TickTimes(cycles)
        self._layout = request_layout(address_width, id_width)
        word = data.StructLayout({"data": 8 * WORD_BYTES, "mask": WORD_BYTES})
        super().__init__(
            {
                "i": In(stream.Signature(self._layout)),
                "i_data": In(stream.Signature(word)),
                "column": Out(CommandLayout()),
                "row": Out(CommandLayout()),
                "read": Out(1),
                "write": Out(1),
                "data": Out(8 * WORD_BYTES),
                "mask": Out(WORD_BYTES),
                "id": Out(id_width),
                "last": Out(1),
                "read_room": In(1),
                "write_room": In(1),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        chip, times = self.cycles.chip, self._times
        # A word is two columns.
        column_bits = chip.column_width - 1

        # What the banks are doing ------------------------------------------------------------
        opened = Signal(_BANKS)
        rows = Array(Signal(chip.row_width, name=f"row{b}") for b in range(_BANKS))
        column_ok, precharge_ok, activate_ok = (
            [_Countdown(m, most, f"{name}{b}") for b in range(_BANKS)]
            for name, most in (
                ("to_column", times.activate_to_column),
                ("to_precharge", max(times.activate_to_precharge, times.write_to_precharge)),
                ("to_activate", max(times.activate_to_activate, times.precharge_to_activate)),
            )
        )
        any_activate = _Countdown(m, times.other_activate, "to_any_activate")
        to_write = _Countdown(m, times.read_to_write, "to_write")

        # Front: a burst; its next part within a row goes on ------------------------------------
        front, front_valid = Signal(self._layout), Signal()
        in_row = front.address[:column_bits]
        left_in_row = (1 << column_bits) - 1 - in_row
        crosses = Signal()
        m.d.comb += crosses.eq(front.length > left_in_row)

        part = data.StructLayout(
            {"write": 1, "id": len(self.id), "bank": 2, "row": chip.row_width,
             "column": column_bits, "left": 10, "final": 1}
        )  # fmt: skip
        ahead, ahead_valid, ahead_taken = Signal(part), Signal(), Signal()
        current, current_valid = Signal(part), Signal()
        issue, ending = Signal(), Signal()
        refresh_due, quiet = Signal(), Signal()

        ahead_free = ~ahead_valid | ahead_taken
        m.d.comb += self.i.ready.eq(self.done & (~front_valid | (ahead_free & ~crosses)))
        with m.If(ahead_taken):
            m.d.sync += ahead_valid.eq(0)
        with m.If(front_valid & ahead_free):
            m.d.sync += [
                ahead_valid.eq(1),
                ahead.write.eq(front.write),
                ahead.id.eq(front.id),
                Cat(ahead.column, ahead.bank, ahead.row).eq(front.address),
                ahead.left.eq(Mux(crosses, left_in_row, front.length)),
                ahead.final.eq(~crosses),
                front.address.eq((front.address[column_bits:] + 1) << column_bits),
                front.length.eq(front.length - left_in_row - 1),
                front_valid.eq(crosses),
            ]  # fmt: skip
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [front.eq(self.i.payload), front_valid.eq(1)]

        # Ahead: a row command, if its row is not open ------------------------------------------
        ahead_open, hit, in_use = Signal(), Signal(), Signal()
        m.d.comb += [
            ahead_open.eq(opened.bit_select(ahead.bank, 1)),
            hit.eq(ahead_open & (rows[ahead.bank] == ahead.row)),
            in_use.eq(current_valid & (current.bank == ahead.bank)),
            ahead_taken.eq(ahead_valid & hit & ~refresh_due & (~current_valid | ending)),
        ]
        may_precharge, may_activate = Signal(), Signal()
        m.d.comb += [
            may_precharge.eq(Array(c.done for c in precharge_ok)[ahead.bank]),
            may_activate.eq(Array(c.done for c in activate_ok)[ahead.bank] & any_activate.done),
        ]
        activate, precharge, precharge_all = Signal(), Signal(), Signal()
        wanted = ahead_valid & self.done & ~refresh_due
        m.d.comb += [
            precharge.eq(wanted & ahead_open & ~hit & may_precharge & ~in_use),
            activate.eq(wanted & ~ahead_open & may_activate),
        ]

        # Current: columns ---------------------------------------------------------------------
        may_column = Array(c.done for c in column_ok)[current.bank]
        final = current.final & (current.left == 0)
        m.d.comb += [
            issue.eq(
                current_valid
                & may_column
                & Mux(
                    current.write,
                    self.i_data.valid & to_write.done & (self.write_room | ~final),
                    self.read_room,
                )
            ),
            ending.eq(issue & (current.left == 0)),
            self.i_data.ready.eq(issue & current.write),
            self.read.eq(issue & ~current.write),
            self.write.eq(issue & current.write),
            self.data.eq(self.i_data.payload.data),
            self.mask.eq(self.i_data.payload.mask),
            self.id.eq(current.id),
            self.last.eq(final),
            self.column.bank.eq(current.bank),
            self.column.address.eq(current.column << 1),
        ]
        with m.If(issue):
            m.d.comb += self.column.command.eq(Mux(current.write, _WRITE, _READ))
            m.d.sync += [current.left.eq(current.left - 1), current.column.eq(current.column + 1)]
        with m.If(self.read):
            to_write.start(times.read_to_write)
        with m.If(ahead_taken):
            m.d.sync += [current.eq(ahead), current_valid.eq(1)]
        with m.Elif(ending):
            m.d.sync += current_valid.eq(0)

        # Effects on the banks -----------------------------------------------------------------
        for b in range(_BANKS):
            with m.If(issue & (current.bank == b)):
                with m.If(current.write):
                    precharge_ok[b].start(times.write_to_precharge, keep=True)
            with m.If(activate & (ahead.bank == b)):
                m.d.sync += [opened[b].eq(1), rows[b].eq(ahead.row)]
                column_ok[b].start(times.activate_to_column)
                precharge_ok[b].start(times.activate_to_precharge)
                activate_ok[b].start(times.activate_to_activate)
            with m.If((precharge & (ahead.bank == b)) | precharge_all):
                m.d.sync += opened[b].eq(0)
                activate_ok[b].start(times.precharge_to_activate, keep=True)
        with m.If(activate):
            any_activate.start(times.other_activate)

        m.d.comb += quiet.eq(~current_valid & Cat(c.done for c in precharge_ok).all())
        self._rows(m, ahead, activate, precharge, precharge_all, refresh_due, quiet, opened)
        return m

    def _rows(self, m, ahead, activate, precharge, precharge_all, refresh_due, quiet, opened):
        """Row commands: those for ``ahead``, refreshes and the initialisation."""
        times = self._times
        mode = _BURST_OF_TWO | self.cycles.cas << 4
        with m.If(activate):
            m.d.comb += [
                self.row.command.eq(_ACTIVATE),
                self.row.bank.eq(ahead.bank),
                self.row.address.eq(ahead.row),
            ]
        with m.Elif(precharge):
            m.d.comb += [self.row.command.eq(_PRECHARGE), self.row.bank.eq(ahead.bank)]

        since = Signal(range(times.refresh))
        with m.If(since == 0):
            m.d.sync += since.eq(times.refresh - 1)
        with m.Else():
            m.d.sync += since.eq(since - 1)
        with m.If(self.done & (since == 0)):
            m.d.sync += refresh_due.eq(1)

        most = max(times.init, times.refresh_to_any, times.precharge_to_activate, 2)
        pause = Signal(range(most + 1), init=times.init)
        waited = Signal()
        m.d.comb += waited.eq(pause == 0)
        with m.If(~waited):
            m.d.sync += pause.eq(pause - 1)
        refreshes = Signal(range(INITIAL_REFRESHES + 1))

        with m.FSM():
            with m.State("power"):
                with m.If(waited):
                    m.next = "close"
            with m.State("run"):
                m.d.comb += self.done.eq(1)
                with m.If(refresh_due & quiet):
                    m.next = "close"
            with m.State("close"):
                # All banks, open or not: the initialisation wants it, and it does no harm.
                m.d.comb += [
                    precharge_all.eq(1),
                    self.row.command.eq(_PRECHARGE),
                    self.row.address.eq(_ALL_BANKS),
                ]
                m.d.sync += pause.eq(times.precharge_to_activate - 1)
                m.next = "refresh"
            with m.State("refresh"):
                with m.If(waited):
                    m.d.comb += self.row.command.eq(_REFRESH)
                    m.d.sync += pause.eq(times.refresh_to_any - 1)
                    m.next = "refreshed"
            with m.State("refreshed"):
                with m.If(waited):
                    m.d.sync += refreshes.eq(Mux(refreshes == INITIAL_REFRESHES, refreshes,
                                                 refreshes + 1))  # fmt: skip
                    with m.If(refreshes == INITIAL_REFRESHES):
                        m.d.sync += refresh_due.eq(0)
                        m.next = "run"
                    with m.Elif(refreshes == INITIAL_REFRESHES - 1):
                        m.d.comb += [self.row.command.eq(_MODE), self.row.address.eq(mode)]
                        m.d.sync += pause.eq(times.mode_to_any - 1)
                        m.next = "mode"
                    with m.Else():
                        m.next = "refresh"
            with m.State("mode"):
                with m.If(waited):
                    m.next = "run"
