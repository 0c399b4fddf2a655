"""Performance counters: many 64-bit counters for the price of a memory and one adder."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["CounterBank", "EventSignature"]

#: Cycles to move one counter's recent events into the memory.
VISIT_CYCLES = 4


class EventSignature(wiring.Signature):
    """Events that increment the counters, by name: from 1 to 2**width - 1 events per cycle.

    Parameters
    ----------
    events : mapping of event name to bits
    """

    def __init__(self, events):
        super().__init__({name: Out(width) for name, width in events.items()})


class CounterBank(wiring.Component):
    """Counters of 64 bits that count exactly, with a small adder each and a large one for all.

    Each counter collects its events in a few bits; a visitor goes round and adds them to the
    counter's word in a memory, ``VISIT_CYCLES`` cycles per counter. The collecting bits hold what
    can come between two visits, so nothing is ever lost. After reset or ``clear``, a flag per
    counter stands for "the word in the memory is zero".

    A read makes the visitor come at once and returns the updated word: the exact number of events
    until some cycle of the read. Worst-case latency of a read: ``3 * VISIT_CYCLES`` cycles.

    Parameters
    ----------
    counters : sequence of :class:`~hw.registers.model.Counter`

    Members
    -------
    events : event inputs; counters whose ``event`` is None count the cycles with ``enable``
    enable : events count only in cycles in which this is high
    clear : sets all counters to zero; events of this cycle count already
    read_valid, read_index : read this counter; hold until ``read_done``
    read_done, read_value : for one cycle, the counter's value
    """

    def __init__(self, counters):
        self.counters = tuple(counters)
        events = {c.event: c.width for c in self.counters if c.event is not None}
        super().__init__(
            {
                "events": In(EventSignature(events)),
                "enable": In(1),
                "clear": In(1),
                "read_valid": In(1),
                "read_index": In(range(max(2, len(self.counters)))),
                "read_done": Out(1),
                "read_value": Out(64),
            }
        )

    def elaborate(self, platform):
        m = Module()
        count = len(self.counters)
        # Reads may take every second visit, so a counter's turn comes after 2 * count visits.
        interval = (2 * count + 2) * VISIT_CYCLES

        seen = {}
        for name, width in {c.event: c.width for c in self.counters}.items():
            event = self.enable if name is None else getattr(self.events, name)
            seen[name] = Signal(width, name=f"seen_{name or 'cycle'}")
            with m.If(self.enable):
                m.d.sync += seen[name].eq(event)
            with m.Else():
                m.d.sync += seen[name].eq(0)

        recent = [
            Signal(range(((1 << c.width) - 1) * interval + 1), name=f"recent_{c.name.lower()}")
            for c in self.counters
        ]
        fresh = Signal(count, init=(1 << count) - 1)
        index = Signal(range(max(2, count)))
        turn = Signal.like(index)
        reading = Signal()
        addend = Signal(64)
        word = Signal(64)
        drop = Signal()

        m.submodules.words = words = memory.Memory(shape=64, depth=max(2, count), init=[])
        fetch = words.read_port()
        store = words.write_port()
        m.d.comb += [
            fetch.addr.eq(index),
            store.addr.eq(index),
            store.data.eq(self.read_value),
        ]

        take = Signal()
        choices = Array(bits << c.shift for c, bits in zip(self.counters, recent))
        for position, (counter, bits) in enumerate(zip(self.counters, recent)):
            event = seen[counter.event]
            with m.If(self.clear):
                m.d.sync += bits.eq(0)
            with m.Elif(take & (index == position)):
                m.d.sync += bits.eq(event)
            with m.Else():
                m.d.sync += bits.eq(bits + event)

        with m.FSM():
            with m.State("FETCH"):
                m.d.comb += [take.eq(1), fetch.en.eq(1)]
                m.d.sync += [
                    addend.eq(choices[index]),
                    drop.eq(fresh.bit_select(index, 1)),
                    fresh.bit_select(index, 1).eq(0),
                ]
                m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += word.eq(fetch.data)
                m.next = "ADD"
            with m.State("ADD"):
                with m.If(drop):
                    m.d.sync += self.read_value.eq(addend)
                with m.Else():
                    m.d.sync += self.read_value.eq(word + addend)
                m.next = "STORE"
            with m.State("STORE"):
                m.d.comb += [
                    store.en.eq(1),
                    self.read_done.eq(reading & ~self.clear),
                ]
                # Every second visit at most is a read's, so that the round always goes on.
                with m.If(self.read_valid & ~reading):
                    m.d.sync += [reading.eq(1), index.eq(self.read_index)]
                with m.Else():
                    m.d.sync += [
                        reading.eq(0),
                        index.eq(turn),
                        turn.eq(turn + 1),
                    ]
                    with m.If(turn == count - 1):
                        m.d.sync += turn.eq(0)
                m.next = "FETCH"
        with m.If(self.clear):
            m.d.sync += fresh.eq((1 << count) - 1)
        return m
