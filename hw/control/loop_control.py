"""Loops of commands: what REPEAT does, and what it does to the addresses of LOAD and STORE. And
ROWS, which sets their counters, where it exists."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.isa.encoding import (
    COMMAND_BYTES,
    HEADER_LAYOUT,
    Opcode,
    command_layout,
    engine_layout,
)
from hw.isa.loops import LOOP_LEVELS, stride_name
from hw.isa.packing import LINE_BYTES, WORD_BYTES
from hw.isa.rows import RowAction

from .command_queue import CHUNK_WIDTH
from .row_list import ROW_RESULT, RowList

__all__ = ["MOVED", "LoopControl", "connect_loops", "moved_chunk"]

#: Opcodes whose address follows the counters.
MOVED = (Opcode.LOAD, Opcode.STORE)
#: Bits of a place in a word of the program, in a line of it.
_WORD_BITS = (WORD_BYTES - 1).bit_length()
_LINE_BITS = (LINE_BYTES - 1).bit_length()


class LoopControl(wiring.Component):
    """Executes REPEAT, and adds what the counters say to ``dram_address``.

    A REPEAT that is ``offered`` is over in the third cycle (``done``): with ``jump``, the stream
    goes on at the command that it names. ``bad_target`` says in that cycle and as long as it stays
    that this is no command of the program.

    A ROWS is ``offered`` in the same way (hw/isa/rows.py); those that wait for the queues do so
    first (``waits``). A BRANCH by a list that had more rows than it can have has a bad target, too.

    The address of a LOAD or STORE is added up if one of its strides is not 0 and neither is the
    counter. Then ``wait`` is high from the cycle on behind ``arrives``, for a cycle and as many
    more as all such counters have bits up to their highest one. Behind that ``address`` is the sum,
    and ``add`` high until the next command arrives.

    After reset, which is also between two runs, all counters are 0.

    Parameters
    ----------
    row_list_depth : rows that the list for ROWS may have; 0: there is no ROWS

    Members
    -------
    command : In(512), at the head of the stream, as it was fetched while ``arrives`` or ``offered``
        or ``wait`` are high
    arrives : In(1), pulse: it is a new one
    offered : In(1), it is a REPEAT or ROWS, has been checked, and is behind its cycle of
        ``arrives``
    program_address, program_size : In, bytes, stable while running
    done, jump : Out(1), pulse; ``target``: Out(32), where a REPEAT goes
    bad_target : Out(1), level
    open : Out(1), a counter is not 0
    wait : Out(1), level; ``add``: Out(1), level; ``address``: Out(32)
    drained : In(1), all queues are empty; ``waits``: Out(1), a ROWS waits for that
    result : ``In(ROW_RESULT)`` of the main core; these three where there is a list
    """

    def __init__(self, row_list_depth=0):
        self.lists = row_list_depth
        rows = {"drained": In(1), "waits": Out(1), "result": In(ROW_RESULT)}
        super().__init__(
            {
                "command": In(8 * COMMAND_BYTES),
                "arrives": In(1),
                "offered": In(1),
                "program_address": In(32),
                "program_size": In(32),
                "done": Out(1),
                "jump": Out(1),
                "target": Out(32),
                "bad_target": Out(1),
                "open": Out(1),
                "wait": Out(1),
                "add": Out(1),
                "address": Out(32),
                **(rows if row_list_depth else {}),
            }
        )

        #: Counters; where ``inside`` says so they are not 0.
        self.counters = Memory(shape=32, depth=LOOP_LEVELS, init=[])

    def elaborate(self, platform):
        # What says where the loops are:
        #
        # state      meaning                                   set by              cleared by
        # ---------  ----------------------------------------  ------------------  ---------------
        # counters   of the levels that are inside             done
        # inside     levels whose counter is not 0             done                done
        # step       how long a REPEAT has been offered        offered             not offered
        # moving     levels that add something to the address
        # levels     those of them still to be multiplied      arrives             picked
        # adding     the address is being added up             arrives             nothing is left
        # factor     rest of the counter that is multiplied    picked              shifted
        # term       its stride, times a power of two          picked              shifted
        m = Module()
        m.submodules.counters = counters = self.counters
        inside = Signal(LOOP_LEVELS)
        level = Signal(range(LOOP_LEVELS))
        count = Signal(32)
        read, write = counters.read_port(domain="comb"), counters.write_port()
        m.d.comb += [
            read.addr.eq(level),
            count.eq(Mux(inside.bit_select(level, 1), read.data, 0)),
            self.open.eq(inside.any()),
        ]
        self._repeat(m, write, (inside, level, count))
        self._add_up(m, (inside, level, count))
        return m

    def _fields(self, opcode):
        layout = command_layout(opcode)
        return data.View(layout, self.command[HEADER_LAYOUT.size :][: layout.size])

    def _repeat(self, m, write, counter):
        """REPEAT: step by step, as its fields lie still."""
        inside, level, count = counter
        fields = self._fields(Opcode.REPEAT)
        step = Signal(2)
        place, following = Signal(32), Signal(33)
        within, again = Signal(), Signal()
        target, ready, good, jumps = fields.first, self.offered, within, again
        stays, value = again, following
        if self.lists:
            rows = self._rows(m)
            target = fields.first + rows.distance
            ready = ready & ~self.waits
            good = Mux(rows.own, rows.here | (within & ~rows.full), within)
            jumps, stays = Mux(rows.own, ~rows.here, again), Mux(rows.own, rows.moves, again)
            value = Mux(rows.own, rows.row, following)
        # In front of the program it is large: a program that the fetch has begun ends in 32 bits.
        # Commands are as far from the program's begin as they are long, wherever the window begins.
        m.d.comb += self.target.eq(target)
        m.d.sync += [
            place.eq(target - self.program_address),
            following.eq(count + 1),
            within.eq(
                ~place[:_WORD_BITS].any() & (place[_LINE_BITS:] < self.program_size[_LINE_BITS:])
            ),
            again.eq(following < fields.count),
            step.eq(0),
        ]
        over = Signal()
        m.d.comb += [
            over.eq(self.offered & (step == 2)),
            self.bad_target.eq(over & ~good),
            self.done.eq(over & good),
            self.jump.eq(self.done & jumps),
            write.addr.eq(fields.level),
            write.data.eq(value),
            write.en.eq(self.done & stays if self.lists else self.jump),
        ]
        with m.If(ready & ~self.done):
            m.d.sync += step.eq(Mux(over, step, step + 1))
        with m.If(self.done):
            m.d.sync += inside.bit_select(fields.level, 1).eq(stays)
        with m.If(self.offered):
            m.d.comb += level.eq(fields.level)

    def _rows(self, m):
        """ROWS: what it makes of the next step of a REPEAT, whose fields lie where its own do."""
        opcode = data.View(HEADER_LAYOUT, self.command[: HEADER_LAYOUT.size]).opcode
        fields, repeat = self._fields(Opcode.ROWS), command_layout(Opcode.REPEAT)
        for name in ("level", "first"):
            assert command_layout(Opcode.ROWS)[name] == repeat[name], f"{name} lies elsewhere"
        m.submodules.rows = rows = RowList(self.lists)
        own, picks, waits = Signal(), Signal(), Signal()
        branches = fields.action == RowAction.BRANCH
        m.d.comb += [
            own.eq(opcode == Opcode.ROWS),
            picks.eq(fields.action == RowAction.PICK),
            waits.eq(own & ~picks),
            self.waits.eq(waits & ~self.drained),
            rows.result.eq(self.result),
            rows.position.eq(fields.position),
            rows.begin.eq(self.done & own & (fields.action == RowAction.BEGIN)),
        ]
        return SimpleNamespace(
            own=own, moves=picks & rows.row.any(), row=rows.row, full=rows.full & branches,
            here=picks | (fields.action == RowAction.BEGIN),
            distance=Mux(own & branches, rows.length, 0) * COMMAND_BYTES,
        )  # fmt: skip

    def _add_up(self, m, counter):
        """LOAD and STORE: one addition for each bit of a counter."""
        inside, level, count = counter
        opcode = data.View(HEADER_LAYOUT, self.command[: HEADER_LAYOUT.size]).opcode
        fields = self._fields(Opcode.LOAD)
        levels, moving = Signal(LOOP_LEVELS), Signal(LOOP_LEVELS)
        adding = Signal()
        factor, term = Signal(32), Signal(32)
        picked = levels & -levels
        stride = 0
        for number in range(LOOP_LEVELS):
            own = fields[stride_name(number)].as_unsigned()
            stride |= own & picked[number].replicate(32)
            m.d.comb += moving[number].eq(inside[number] & own.any())
            with m.If(picked[number] & ~self.offered):
                m.d.comb += level.eq(number)
        m.d.comb += self.wait.eq(adding)
        with m.If(self.arrives):
            m.d.sync += [
                levels.eq(moving),
                adding.eq(moving.any() & Cat(opcode == moved for moved in MOVED).any()),
                self.add.eq(0),
                self.address.eq(fields.dram_address),
                factor.eq(0),
            ]
        with m.Elif(adding):
            m.d.sync += [factor.eq(factor[1:]), term.eq(Cat(0, term[:-1]))]
            with m.If(factor[0]):
                m.d.sync += self.address.eq(self.address + term)
            with m.If(~factor[1:].any()):
                m.d.sync += [
                    factor.eq(count),
                    term.eq(stride),
                    levels.eq(levels & ~picked),
                ]
                with m.If(~levels.any()):
                    m.d.sync += [adding.eq(0), self.add.eq(1)]


def moved_chunk(plain, number, address):
    """Chunk ``number`` of a command of MOVED that is ``plain``, with another ``dram_address``."""
    place = HEADER_LAYOUT.size + engine_layout(Opcode.LOAD)["dram_address"].offset
    chunk, low = divmod(place, CHUNK_WIDTH)
    assert low + 32 <= CHUNK_WIDTH, "one chunk has the whole address"
    return Mux(number == chunk, Cat(plain[:low], address, plain[low + 32 :]), plain)


def connect_loops(m, loops, *, sequencer, fetch):
    """Put a :class:`LoopControl` between a sequencer and a fetch that are connected already."""
    m.d.comb += [
        loops.command.eq(sequencer.command.payload),
        loops.arrives.eq(sequencer.arrives),
        loops.offered.eq(sequencer.repeat),
        loops.program_address.eq(fetch.program_address),
        loops.program_size.eq(fetch.program_size),
        sequencer.repeated.eq(loops.done),
        sequencer.bad_loop.eq(loops.bad_target),
        sequencer.in_loop.eq(loops.open),
        sequencer.hold.eq(loops.wait),
        sequencer.moved.eq(loops.add),
        sequencer.moved_address.eq(loops.address),
        fetch.jump.eq(loops.jump),
        fetch.jump_target.eq(loops.target),
    ]
    if loops.lists:
        m.d.comb += [
            loops.drained.eq(sequencer.drained),
            sequencer.row_waits.eq(sequencer.repeat & loops.waits),
        ]
