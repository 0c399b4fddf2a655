"""The list of rows that a sampled backward pass goes by (hw/isa/rows.py)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["ROW_RESULT", "RowList"]

#: What the main core tells of VECTOR: a result has been written; it is kept; the command is over.
ROW_RESULT = data.StructLayout({"valid": 1, "kept": 1, "over": 1})


class RowList(wiring.Component):
    """Collects the numbers of the rows that are kept.

    From ``begin`` to the end of the next VECTOR every result is a row, numbered from 0. The list
    is there two cycles after that end. Empty after reset, which is also between two runs.

    Parameters
    ----------
    depth : rows that it may have

    Members
    -------
    begin : In(1), pulse, while no VECTOR is executed
    result : ``In(ROW_RESULT)``
    position : In(32); ``row``: Out(32), in the cycle after it: the row there, or behind the list's
        end the last one that is not kept
    length : Out; ``full``: Out(1), there were more rows than ``depth``, and the list is useless
    """

    def __init__(self, depth):
        super().__init__(
            {
                "begin": In(1),
                "result": In(ROW_RESULT),
                "position": In(32),
                "row": Out(32),
                "length": Out(range(depth + 1)),
                "full": Out(1),
            }
        )
        self.rows = Memory(shape=range(depth), depth=depth, init=[])
        self._depth = depth

    def elaborate(self, platform):
        # state      meaning                                set by           cleared by
        # ---------  -------------------------------------  ---------------  -----------------------
        # listening  results of VECTOR are rows             begin            the command is over
        # count      number of the next row                 a result: up     begin
        # full       there were more rows than numbers      a result         begin
        # length     rows that are kept                     a kept row: up   begin
        # dropped    the last row that is not kept          such a row       begin
        # behind     position is behind the list's end      any cycle
        m = Module()
        m.submodules.rows = rows = self.rows
        read, write = rows.read_port(), rows.write_port()
        listening, behind, taken = Signal(), Signal(), Signal()
        count, dropped = Signal(range(self._depth + 1)), Signal(range(self._depth))
        m.d.comb += [
            taken.eq(listening & self.result.valid),
            write.addr.eq(self.length),
            write.data.eq(count),
            write.en.eq(taken & self.result.kept),
            read.addr.eq(self.position),
            self.row.eq(Mux(behind, dropped, read.data)),
        ]
        m.d.sync += behind.eq(self.position >= self.length)
        with m.If(taken):
            with m.If(count == self._depth):
                m.d.sync += self.full.eq(1)
            with m.Elif(self.result.kept):
                m.d.sync += [count.eq(count + 1), self.length.eq(self.length + 1)]
            with m.Else():
                m.d.sync += [count.eq(count + 1), dropped.eq(count)]
        with m.If(self.result.over):
            m.d.sync += listening.eq(0)
        with m.If(self.begin):
            m.d.sync += [
                listening.eq(1),
                *(signal.eq(0) for signal in (count, dropped, self.length, self.full)),
            ]
        return m
