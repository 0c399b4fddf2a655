"""Order of the additions when the vector engine sums up: eight partial sums, then a tree."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.primitives.pipeline import delay

from .lane import VectorLane

__all__ = ["PARTIAL_SUMS", "VectorReduction"]

#: Partial sums of a channel; element i goes to number i mod 8.
PARTIAL_SUMS = 8


class VectorReduction(wiring.Component):
    """Addresses the partial sums of the lanes and, after the last element, adds them in a tree.

    An element has ``groups`` groups of lanes, which arrive in order. Of the partial sums of a
    channel the even ones lie in one half of a lane's memory, the odd ones in the other; so a level
    of the tree, ``p[2k] + p[2k + 1]``, reads both, and its result k goes to half k mod 2 again.

    From the last element to the last sum handed out: ``WAIT + 2 * STORED + 7 * groups`` cycles, a
    constant few, and those without ``room``. Idle after reset; then, and when it has ``finished``,
    all partial sums count as +0.

    Parameters
    ----------
    groups : int

    Members
    -------
    step : In(1) -- a group reaches ``VectorLane.PARTIAL``
    close : In(1) -- the last group of the last element was issued to the lanes in the cycle
        before; no more until ``finished``
    room : In(1) -- a result may be issued
    half, address, even_fresh, odd_fresh, tree, write, write_address : Out, to the lanes
    group : Out -- whose partial sums the tree adds
    result : Out(1) -- with ``tree``: the sum is a result
    finished : Out(1) -- the last result is issued
    """

    #: Cycles from ``close`` until all sums are stored.
    WAIT = VectorLane.PARTIAL + VectorLane.STORED - 3

    def __init__(self, groups):
        self._groups = groups
        address = range(max(2, groups * PARTIAL_SUMS // 2))
        super().__init__(
            {
                "step": In(1),
                "close": In(1),
                "room": In(1),
                "half": Out(1),
                "address": Out(address),
                "even_fresh": Out(1),
                "odd_fresh": Out(1),
                "tree": Out(1),
                "write": Out(2),
                "write_address": Out(address),
                "group": Out(range(max(2, groups))),
                "result": Out(1),
                "finished": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        groups = self._groups
        pairs = PARTIAL_SUMS // 2

        # Elements: number modulo 8, whether there were 8, group.
        number = Signal(range(PARTIAL_SUMS))
        wrapped = Signal()
        group = Signal(range(max(2, groups)))
        pair = Signal(range(pairs))
        row = Signal(range(pairs))
        turn = self.step | self.tree
        with m.If(turn):
            m.d.sync += group.eq(group + 1)
            with m.If(group == groups - 1):
                m.d.sync += group.eq(0)
        with m.If(self.step & (group == groups - 1)):
            m.d.sync += number.eq(number + 1)
            m.d.sync += wrapped.eq(wrapped | (number == PARTIAL_SUMS - 1))

        # The tree: level 0 has 4 additions per group, level 1 has 2, level 2 one.
        level = Signal(2)
        last = Signal()
        wait = Signal(range(max(self.WAIT, VectorLane.STORED) + 1))
        m.d.comb += last.eq((pair == ((pairs >> level) - 1)) & (group == groups - 1))
        with m.FSM():
            with m.State("ELEMENTS"):
                with m.If(self.close):
                    m.d.sync += [wait.eq(self.WAIT), level.eq(0), pair.eq(0)]
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += wait.eq(wait - 1)
                with m.If(wait == 0):
                    m.next = "LEVEL"
            with m.State("LEVEL"):
                m.d.comb += [
                    self.result.eq(level == 2),
                    self.tree.eq((level != 2) | self.room),
                ]
                with m.If(self.tree & (group == groups - 1)):
                    m.d.sync += pair.eq(pair + 1)
                with m.If(self.tree & last):
                    m.d.sync += [pair.eq(0), level.eq(level + 1), wait.eq(VectorLane.STORED - 2)]
                    m.next = "WAIT"
                    with m.If(level == 2):
                        m.d.comb += self.finished.eq(1)
                        m.d.sync += [number.eq(0), wrapped.eq(0)]
                        m.next = "ELEMENTS"

        # Where it is read and where the sum goes.
        m.d.comb += row.eq(number >> 1)
        m.d.comb += self.half.eq(number[0])
        fresh = ~wrapped
        m.d.comb += [self.even_fresh.eq(fresh), self.odd_fresh.eq(fresh)]
        write_half, write_row = Signal(), Signal(range(pairs))
        m.d.comb += [write_half.eq(number[0]), write_row.eq(row)]
        with m.If(self.tree):
            m.d.comb += [
                row.eq(pair),
                self.even_fresh.eq(fresh & (level == 0) & (number <= Cat(Const(0, 1), pair))),
                self.odd_fresh.eq(fresh & (level == 0) & (number <= Cat(Const(1, 1), pair))),
                write_half.eq(pair[0]),
                write_row.eq(pair >> 1),
            ]
        m.d.comb += [
            self.address.eq(Cat(row, group)),
            self.group.eq(group),
        ]
        cycles = VectorLane.STORED - 1
        write = Cat(turn & ~self.result & ~write_half, turn & ~self.result & write_half)
        m.d.comb += [
            self.write.eq(delay(m, write, cycles, name="write", reset=True)),
            self.write_address.eq(
                delay(m, Cat(write_row, group)[: len(self.address)], cycles, name="row", reset=True)
            ),
        ]
        return m
