"""WEIGHTS: brings biases and weight tiles from the buffer into the PE array."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import BUFFER_READ_LATENCY, BufferReadSignature
from hw.config import BUFFER_ADDRESS_WIDTH
from hw.isa.encoding import WEIGHTS_LOOPS, Opcode, command_layout
from hw.primitives.loop_nest import Affine, LoopNest
from hw.primitives.pipeline import delay
from hw.primitives.transposer import BlockTransposer

__all__ = ["WeightLoader"]


@dataclass(frozen=True, kw_only=True)
class _Block:
    """State of the way into the array.

    ========== =================================== ========================= =======================
    signal     meaning                             set by                    cleared by
    ========== =================================== ========================= =======================
    held       the transposer has a block          the last row of a block   the last step of its
                                                   enters                    flush
    flushing   it leaves and nothing enters        nothing will push it out  its last step
    filling    columns that the blocks of a tile   a last block left before  the tile's last column
               did not reach leave, as zeros       the tile was complete
    past       a word is a column and goes past    (WORDS, a command with    the word is read
               the transposer                      transpose 0)
    line       step in the current block           every step                its end
    free       the array has room for a tile       ``tile_used``             a tile's first column
    bias_held  biases are here                     their last word is read   ``bias_used``
    possible   a column may leave now: it is not a tile's first one, or there is room
    ========== =================================== ========================= =======================
    """

    held: Signal
    flushing: Signal
    filling: Signal
    past: Signal
    line: Signal
    free: Signal
    bias_held: Signal
    possible: Signal


class WeightLoader(wiring.Component):
    """Executes WEIGHTS commands: biases, then tile after tile, one column per cycle.

    Words that hold rows go through a :class:`~hw.primitives.transposer.BlockTransposer`: while the
    ``rows`` words of one block enter, the columns of the block before leave. A tile takes ``rows``
    x ``block_count`` cycles, and one more for each column that its blocks do not reach; the last
    block of a command leaves while the next one's first enters, or by itself when there is none
    (``rows`` cycles). Words that hold columns go past it, one cycle each. Between two commands
    there is a gap of 5 cycles.

    Runs ahead of the vectors by one tile in the array (the weight registers are double-buffered),
    by one block in the transposer, and by one set of biases. ``done`` comes when the last word has
    been read. Idle after reset.

    Parameters
    ----------
    core : CoreConfig

    Members
    -------
    command : ``In(stream of WEIGHTS)``; ``done``: Out(1)
    read : ``Out(BufferReadSignature(core))``
    w_valid, w_bank, w_column, w_data : Out, the array's weight port; banks take turns
    tile_loaded : Out(1), pulse in the cycle in which the last column of a tile is on ``w_data``
    tile_used : In(1), pulse when the loaded tile becomes the active one; the first column of the
        next tile follows 3 cycles later at the earliest
    bias : Out(32 * columns), stable from the ``tile_loaded`` that follows it to ``bias_used``
    bias_used : In(1), pulse when the biases of a command that has some are no longer needed
    holds : Out(1), there is a tile, a part of one, or a set of biases that nobody has taken
    quiet : Out(1), nothing moves before ``tile_used``, ``bias_used`` or another command
    """

    def __init__(self, core):
        self.core = core
        super().__init__(
            {
                "command": In(stream.Signature(command_layout(Opcode.WEIGHTS))),
                "done": Out(1),
                "read": Out(BufferReadSignature(core)),
                "w_valid": Out(1),
                "w_bank": Out(1),
                "w_column": Out(range(max(core.columns, 2))),
                "w_data": Out(core.word_width),
                "tile_loaded": Out(1),
                "tile_used": In(1),
                "bias": Out(32 * core.columns),
                "bias_used": In(1),
                "holds": Out(1),
                "quiet": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        command = Signal(command_layout(Opcode.WEIGHTS))
        nest = self._add_nest(m, command)

        point, has_point, word = self._next_word(m, command, nest)

        # Every cycle at most one request; the tag meets its data ``BUFFER_READ_LATENCY`` cycles
        # later. All decisions are made here, nothing stops behind this point.
        tag = Signal(
            data.StructLayout(
                {
                    "bias": 1,  # a bias word arrives
                    "shift": 1,  # the transposer makes a step
                    "zero": 1,  # with zeros in place of the word read
                    "past": 1,  # the word goes past the transposer
                    "column": 1,  # a column goes to the array ...
                    "number": len(self.w_column),
                    "bank": 1,
                    "last": 1,  # ... the last one of its tile
                }
            )
        )
        block = self._columns(m, command, point, word, tag)
        self._commands(m, command, nest, (point, has_point, word), tag, block)
        self._receive(m, tag)
        return m

    def _next_word(self, m, command, nest):
        """The next word of the command, which waits here to be read: ``point``, whether there is
        one, and the strobe that takes it."""
        point = Signal(
            data.StructLayout(
                {
                    "address": BUFFER_ADDRESS_WIDTH,
                    "exists": 1,
                    "block_first": 1,
                    "block_last": 1,
                    "final": 1,
                }
            )
        )
        has_point, word = Signal(), Signal()
        m.d.comb += nest.next.eq(nest.valid & (~has_point | word))
        with m.If(nest.next):
            m.d.sync += [
                has_point.eq(1),
                point.address.eq(nest.value.address),
                point.exists.eq(nest.value.row < command.row_limit),
                point.block_first.eq(nest.first.block),
                point.block_last.eq(nest.last.block),
                point.final.eq(nest.final),
            ]
        with m.Elif(word):
            m.d.sync += has_point.eq(0)
        return point, has_point, word

    def _columns(self, m, command, point, word, tag):
        """Which column leaves, and what remains in the transposer; fills ``tag`` in, but for
        ``shift`` of an entering word and ``bias``. Returns :class:`_Block`."""
        core = self.core
        layout = command_layout(Opcode.WEIGHTS)
        held, held_last = Signal(), Signal()
        held_skip = Signal(layout["skip"].shape)
        line = Signal(range(max(core.rows, 2)))  # step in the current block
        block_end = line == core.rows - 1
        flushing = Signal()  # it leaves, nothing enters
        filling = Signal()  # columns that the blocks did not reach, as zeros
        past = Signal()  # a word that goes past the transposer is due

        # Column of its tile that leaves next: negative while columns are dropped, ``columns`` when
        # the tile is complete, 0 when nothing is held.
        extent = max(core.columns, 1 << layout["skip"].width)
        place = Signal(signed(extent.bit_length() + 1))
        following = Signal.like(place)
        complete = place == core.columns
        # Whether it is 0, in a register: whether a word may be read depends on it, and from there
        # it is a long way through the buffer's arbiter to the banks.
        first, first_follows = Signal(init=1), Signal()
        free, bank, bias_held = Signal(init=1), Signal(), Signal()
        leaves, possible = Signal(), Signal()
        m.d.comb += [
            following.eq(Mux(complete, place, place + 1)),
            first_follows.eq(place == -1),
            leaves.eq((place >= 0) & ~complete & (past | filling | held)),
            possible.eq(~(first & (past | filling | held)) | free),
            tag.column.eq(leaves & Mux(filling, possible, Mux(past, word, tag.shift))),
            tag.number.eq(place),
            tag.bank.eq(bank),
            tag.last.eq(tag.column & (place == core.columns - 1)),
            tag.past.eq(past | filling),
            tag.zero.eq(filling | ~point.exists),
        ]
        with m.If(tag.column & first):
            m.d.sync += free.eq(0)
        with m.Elif(self.tile_used):
            m.d.sync += free.eq(1)
        with m.If(tag.last):
            m.d.sync += bank.eq(~bank)

        with m.If(tag.shift):
            m.d.sync += line.eq(Mux(block_end, 0, line + 1))
            with m.If(held):
                m.d.sync += [place.eq(following), first.eq(first_follows)]
            with m.If(block_end):
                m.d.sync += [
                    held.eq(~flushing),
                    held_last.eq(point.block_last),
                    held_skip.eq(command.skip),
                    flushing.eq(0),
                ]
                with m.If(held & held_last & (following != core.columns)):
                    m.d.sync += filling.eq(1)
                with m.Elif(flushing):
                    m.d.sync += [place.eq(0), first.eq(1)]
                with m.Elif(point.block_first):
                    m.d.sync += [place.eq(-command.skip), first.eq(command.skip == 0)]
        with m.Elif(filling & possible):
            m.d.sync += [place.eq(following), first.eq(first_follows)]
            with m.If(following == core.columns):
                m.d.sync += [
                    filling.eq(0),
                    place.eq(Mux(held, -held_skip, 0)),
                    first.eq(~held | (held_skip == 0)),
                ]
        with m.Elif(past & word):
            m.d.sync += [
                place.eq(Mux(tag.last, 0, following)),
                first.eq(tag.last | first_follows),
            ]
        return _Block(
            held=held,
            flushing=flushing,
            filling=filling,
            past=past,
            line=line,
            free=free,
            bias_held=bias_held,
            possible=possible,
        )

    def _commands(self, m, command, nest, source, tag, block):
        """Accepts commands, reads their biases and then their words.

        IDLE waits for a command; BIAS reads the biases, if it brings some, as soon as those before
        are used; WORDS reads the rest.
        """
        core = self.core
        point, has_point, word = source
        held, flushing, filling, past = block.held, block.flushing, block.filling, block.past
        line, free, bias_held, possible = block.line, block.free, block.bias_held, block.possible
        alone = Signal()  # nothing will come to push the block out
        waiting = Signal()  # for ``bias_used``
        bias_word = Signal(range(max(core.bias_words, 2)))
        bias_address = Signal(BUFFER_ADDRESS_WIDTH)
        with m.If(alone & held & ~flushing & ~filling & (line == 0)):
            m.d.sync += flushing.eq(1)
        with m.If(flushing & possible):
            m.d.comb += tag.shift.eq(1)
        with m.If(self.bias_used):
            m.d.sync += bias_held.eq(0)
        accept = self.read.valid & self.read.ready
        m.d.comb += self.read.address.eq(point.address)
        m.d.sync += self.done.eq(0)
        with m.FSM() as states:
            with m.State("IDLE"):
                m.d.comb += [self.command.ready.eq(1), alone.eq(~self.command.valid)]
                with m.If(self.command.valid):
                    m.d.sync += [
                        command.eq(self.command.payload),
                        bias_address.eq(self.command.payload.bias_address),
                        nest.start.eq(1),
                    ]
                    m.next = "BIAS"
            with m.State("BIAS"):
                m.d.sync += nest.start.eq(0)
                m.d.comb += self.read.address.eq(bias_address)
                with m.If(~command.bias):
                    m.next = "WORDS"
                with m.Else():
                    m.d.comb += [
                        waiting.eq((bias_word == 0) & bias_held),
                        alone.eq(waiting),
                        self.read.valid.eq(~waiting),
                        tag.bias.eq(accept),
                    ]
                    with m.If(accept):
                        m.d.sync += [
                            bias_word.eq(bias_word + 1),
                            bias_address.eq(bias_address + 1),
                        ]
                    with m.If(accept & (bias_word == core.bias_words - 1)):
                        m.d.sync += [bias_word.eq(0), bias_held.eq(1)]
                        m.next = "WORDS"
            with m.State("WORDS"):
                enters = Signal()
                m.d.comb += [
                    alone.eq(~command.transpose),
                    past.eq(~command.transpose & has_point & ~held & ~filling),
                    enters.eq(command.transpose & has_point & ~flushing & ~filling),
                    self.read.valid.eq((past | enters) & possible & point.exists),
                    word.eq((past | enters) & possible & (~point.exists | self.read.ready)),
                ]
                with m.If(enters):
                    m.d.comb += tag.shift.eq(word)
                with m.If(word & point.final):
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"
        m.d.comb += [
            self.holds.eq(~free | held | filling | bias_held),
            self.quiet.eq(
                Mux(
                    filling | flushing | states.ongoing("WORDS"),
                    ~possible,
                    ~held & (states.ongoing("IDLE") | waiting),
                )
            ),
        ]

    def _add_nest(self, m, command):
        """The words of a command: rows (or columns) of a block, blocks, tiles."""
        core = self.core
        lines = range(max(core.rows, core.columns) + 1)
        coordinate = 16 + core.rows.bit_length()
        m.submodules.nest = nest = LoopNest(
            {"row": len(Signal(lines)), "block": 8, **dict.fromkeys(WEIGHTS_LOOPS, 16)},
            {
                "address": Affine(
                    BUFFER_ADDRESS_WIDTH,
                    {
                        "row": signed(BUFFER_ADDRESS_WIDTH),
                        "block": 1,
                        **dict.fromkeys(WEIGHTS_LOOPS, signed(BUFFER_ADDRESS_WIDTH)),
                    },
                ),
                "row": Affine(coordinate, {"row": 1, "cb": coordinate}),
            },
        )
        m.d.comb += [
            nest.count.row.eq(Mux(command.transpose, core.rows, core.columns)),
            nest.count.block.eq(Mux(command.transpose, command.block_count, 1)),
            nest.origin.address.eq(command.address),
            nest.origin.row.eq(0),
            nest.stride.address.row.eq(command.row_stride),
            nest.stride.address.block.eq(1),
            nest.stride.row.row.eq(1),
            nest.stride.row.cb.eq(Mux(command.transpose, core.rows, 0)),
            *(nest.count[loop].eq(command[f"{loop}_count"]) for loop in WEIGHTS_LOOPS),
            *(nest.stride.address[loop].eq(command[f"{loop}_stride"]) for loop in WEIGHTS_LOOPS),
        ]
        return nest

    def _receive(self, m, tag):
        """What happens to a word when it arrives."""
        core = self.core
        arrived = Signal(tag.shape())
        m.d.comb += arrived.eq(delay(m, tag, BUFFER_READ_LATENCY, name="tag", reset=True))
        m.submodules.transposer = transposer = BlockTransposer(core.rows, core.operand_width)
        word = Signal(core.word_width)
        m.d.comb += [
            word.eq(Mux(arrived.zero, 0, self.read.data)),
            transposer.step.eq(arrived.shift),
            transposer.i.as_value().eq(word),
            self.w_valid.eq(arrived.column),
            self.w_bank.eq(arrived.bank),
            self.w_column.eq(arrived.number),
            self.w_data.eq(Mux(arrived.past, word, transposer.o.as_value())),
            self.tile_loaded.eq(arrived.last),
        ]
        words = Signal(core.bias_words * core.word_width)
        with m.If(arrived.bias):
            m.d.sync += words.eq(Cat(words, self.read.data)[core.word_width :])
        m.d.comb += self.bias.eq(words)
