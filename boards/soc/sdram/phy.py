"""From the two commands of a tick to the pins, and from the pins to words: at the SDRAM's clock."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .scheduler import CommandLayout
from .timing import WORD_BYTES

__all__ = ["PinsSignature", "SdramPhy"]


class PinsSignature(wiring.Signature):
    """What goes to the input and output flip-flops of the pins: all levels as on the pins, but
    ``dq_t``, low to drive them. Chip select is always low, clock enable always high."""

    def __init__(self):
        super().__init__(
            {
                "ras_n": Out(1, init=1),
                "cas_n": Out(1, init=1),
                "we_n": Out(1, init=1),
                "ba": Out(2),
                "a": Out(13),
                "dqm": Out(2),
                "dq_o": Out(16),
                "dq_t": Out(1, init=1),
                "dq_i": In(16),
            }
        )


class SdramPhy(wiring.Component):
    """Gives the chip two commands in a tick, and collects two transfers of a read.

    Two clock domains: a tick is a cycle of ``sync`` in which ``enable`` is high. The clock of
    ``sdram`` has two cycles in a tick and its rising edges at those of ``sync``: either the clock
    is twice as fast and ``enable`` always high, or it is the same and ``enable`` is high in every
    other cycle.

    The pins have a flip-flop each, outwards and inwards, outside of this. The chip takes commands
    with the falling edge of ``sdram``, half a cycle after they leave, so that neither its set-up
    time nor its hold time is at risk. What it sends arrives ``cas + 1`` cycles after the command
    has left: half a cycle more than the latency, for the way there and back.

    Parameters
    ----------
    cas : CAS latency, 2 or 3

    Members
    -------
    row, column, write, data, mask : of this tick, see :class:`.scheduler.Scheduler`
    enable : this cycle of ``sync`` ends a tick
    q : word of a read, :data:`LATENCY` ticks after its command
    pins : to the flip-flops of the pins
    """

    #: Ticks from a READ at ``column`` to its word at ``q``.
    LATENCY = 5

    def __init__(self, cas: int):
        if cas not in (2, 3):
            raise ValueError(f"cas must be 2 or 3, not {cas!r}")
        self._cas = cas
        super().__init__(
            {
                "row": In(CommandLayout()),
                "column": In(CommandLayout()),
                "write": In(1),
                "data": In(8 * WORD_BYTES),
                "mask": In(WORD_BYTES),
                "enable": In(1),
                "q": Out(8 * WORD_BYTES),
                "pins": Out(PinsSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # In a register of its own each, so that crossing to the other clock has a whole cycle.
        first, second = Signal(CommandLayout()), Signal(CommandLayout())
        written = Signal(8 * WORD_BYTES, reset_less=True)
        mask, drive = Signal(WORD_BYTES), Signal()
        turn, turned = Signal(), Signal()
        with m.If(self.enable):
            m.d.sync += [
                first.eq(self.column),
                second.eq(self.row),
                written.eq(self.data),
                mask.eq(Mux(self.write, self.mask, 0)),
                drive.eq(self.write),
                turn.eq(~turn),
            ]
        # In the first cycle of a tick the registers have changed, and this one has not.
        m.d.sdram += turned.eq(turn)
        is_first = turn ^ turned

        pins = self.pins
        command = Signal(CommandLayout())
        m.d.comb += command.eq(Mux(is_first, first, second))
        m.d.sdram += [
            Cat(pins.ras_n, pins.cas_n, pins.we_n).eq(~command.command),
            pins.ba.eq(command.bank),
            pins.a.eq(command.address),
            pins.dq_o.eq(Mux(is_first, written[:16], written[16:])),
            pins.dqm.eq(Mux(is_first, mask[:2], mask[2:])),
            pins.dq_t.eq(~drive),
        ]

        # The first transfer is in the pins' flip-flops 3 + cas cycles after the registers above
        # have the command, and four ticks after them both must stand side by side.
        history = [pins.dq_i]
        for age in range(1, 5 - self._cas):
            older = Signal(16, name=f"dq_i_{age}", reset_less=True)
            m.d.sdram += older.eq(history[-1])
            history.append(older)
        with m.If(self.enable):
            m.d.sync += self.q.eq(Cat(history[-1], history[-2]))
        return m
