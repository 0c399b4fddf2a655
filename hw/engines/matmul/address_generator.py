"""What a MATMUL does step by step: addresses, coordinates, vectors and their accumulators."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import BUFFER_ADDRESS_WIDTH
from hw.isa.encoding import MATMUL_LOOPS, Init, Opcode, command_layout
from hw.primitives.loop_nest import Affine, LoopNest

__all__ = ["MatmulSteps", "step_layout"]

_COORDINATE = signed(18)


def step_layout(core):
    """One step: a word to read and a vector for the array, or one of them.

    Members
    -------
    address, h, w, h_limit, w_limit : where the word is; it is zero where h or w is outside
    enters : there is a word; otherwise it is zero
    about : what the array and the accumulators need to know

        - vector : a vector enters the array; the rest says which
        - shift : the transposer makes a step: the word enters it, and the vector is what leaves;
          otherwise the vector is the word
        - ones : the vector is ones
        - entry, bank : accumulators
        - channels : valid columns
        - init_zero, init_bias : what replaces the sums
        - reads_sums : nothing does
        - other_sums : they are not those of the command before
        - tile_start, tile_end : the vector is the first, last of its K tile
        - final : it is the last one of its command
    """
    about = {
        "vector": 1,
        "shift": 1,
        "ones": 1,
        "entry": 16,
        "bank": 1,
        "channels": range(core.columns + 1),
        "init_zero": 1,
        "init_bias": 1,
        "reads_sums": 1,
        "other_sums": 1,
        "tile_start": 1,
        "tile_end": 1,
        "final": 1,
    }
    return data.StructLayout(
        {
            "address": BUFFER_ADDRESS_WIDTH,
            "h": _COORDINATE,
            "w": _COORDINATE,
            "h_limit": 16,
            "w_limit": 16,
            "enters": 1,
            "about": data.StructLayout(about),
        }
    )


class MatmulSteps(wiring.Component):
    """Cuts MATMUL commands into steps, one per cycle; between two commands 2 cycles pass.

    Without ``transpose`` a step is a word that is a vector, ``wo, ho, n`` inside ``kw, kh, cb``.

    With it, ``rows`` steps are a *chunk*: the words of ``rows`` pixels of one repetition ``kw, kh,
    cb`` enter the transposer, while the vectors across the chunk before leave. The pixels start
    again with every repetition, and go on behind the last one. Behind the last pixel words are
    zeros; a last chunk without words brings the last vectors out. ``ones`` adds a step after the
    last vector of a K tile.

    Members
    -------
    command : ``In(stream of MATMUL)``, accepted when the last step of the one before leaves
    o : ``Out(stream of step_layout(core))``, from registers
    """

    def __init__(self, core):
        self.core = core
        super().__init__(
            {
                "command": In(stream.Signature(command_layout(Opcode.MATMUL))),
                "o": Out(stream.Signature(step_layout(core))),
            }
        )

    def elaborate(self, platform):
        # What says where the generator is:
        #
        # state      meaning                             set by                      cleared by
        # ---------  ----------------------------------  --------------------------  -------------
        # active     a command has steps left            accept                      go & end
        # starting   the walks begin                     accept                      the next cycle
        # continues  it adds to the sums of the command  accept                      accept
        #            before
        # go, end    a step is made; it is the last one of its command
        # following  entry of the next vector            every vector
        # With transpose:
        # line       step in the chunk, counts up        every step                  the last one
        # outside    the last pixel has entered, or all  the last pixel              accept, a
        #            chunks have                                                     chunk's end
        # flushing   all chunks have entered             the last chunk's end        accept
        # initial    the chunk that enters belongs to    accept                      the first
        #            the first K tile                                                tile's end
        # held.any   a chunk leaves                      a chunk's end               the next one's,
        #                                                                            accept
        # ended.any  a K tile waits for its ones         its last chunk's end        the ones,
        #                                                                            accept
        m = Module()
        core = self.core
        command = Signal(command_layout(Opcode.MATMUL))
        active, accept, starting, continues = Signal(), Signal(), Signal(), Signal()
        go, end = Signal(), Signal()  # a step is made; it is the last one of its command
        m.d.comb += [
            self.command.ready.eq(~active | (go & end)),
            accept.eq(self.command.valid & self.command.ready),
        ]
        m.d.sync += starting.eq(accept)
        with m.If(go & end):
            m.d.sync += active.eq(0)
        with m.If(accept):
            m.d.sync += [
                command.eq(self.command.payload),
                active.eq(1),
                # Adding to the very sums of the command before is like a further K tile of it.
                continues.eq(
                    (self.command.payload.accumulator_address == command.accumulator_address)
                    & (self.command.payload.accumulator_bank == command.accumulator_bank)
                ),
            ]
        pixels, taps = self._add_nests(m, command, starting)

        room = ~self.o.valid | self.o.ready
        m.d.comb += go.eq(active & ~starting & pixels.valid & taps.valid & room)
        with m.If(room):
            m.d.sync += self.o.valid.eq(go)

        # Straight ----------------
        first_tap = taps.first.as_value().all()
        step = Signal(self.o.payload["about"].shape())
        first_tile = Signal()
        m.d.comb += [
            step.vector.eq(1),
            step.tile_start.eq(pixels.first.as_value().all()),
            step.tile_end.eq(pixels.final),
            first_tile.eq(first_tap),
            end.eq(pixels.final & taps.final),
        ]
        with m.If(go & ~command.transpose):
            m.d.comb += [pixels.next.eq(1), taps.next.eq(pixels.final)]

        held, outside = self._transposed(
            m, command, (pixels, taps), (accept, go, end), step, (first_tap, first_tile)
        )

        # A step with all it needs ----------------
        following = Signal(16)
        m.d.comb += [
            step.entry.eq(Mux(step.tile_start, command.accumulator_address, following)),
            step.bank.eq(command.accumulator_bank),
            step.channels.eq(Mux(command.channels > core.columns, core.columns, command.channels)),
            step.init_zero.eq(first_tile & (command.init == Init.ZERO)),
            step.init_bias.eq(first_tile & (command.init == Init.BIAS)),
            step.reads_sums.eq(~first_tile | (command.init == Init.ACCUMULATOR)),
            step.other_sums.eq(first_tile & ~continues),
            step.final.eq(Mux(command.transpose & ~step.ones, held.final & step.tile_end, end)),
        ]
        with m.If(go):
            m.d.sync += [
                self.o.payload.address.eq(pixels.value.address + taps.value.address),
                self.o.payload.h.eq(pixels.value.h + taps.value.h),
                self.o.payload.w.eq(pixels.value.w + taps.value.w),
                self.o.payload.h_limit.eq(command.h_limit),
                self.o.payload.w_limit.eq(command.w_limit),
                self.o.payload.enters.eq(~outside & ~step.ones),
                self.o.payload.about.eq(step),
            ]
            with m.If(step.vector):
                m.d.sync += following.eq(step.entry + 1)
        return m

    def _transposed(self, m, command, walks, strobes, step, firsts):
        """Steps of a command with ``transpose``. Returns what is known about the chunk that leaves,
        and whether no pixel is left to enter."""
        core = self.core
        pixels, taps = walks
        accept, go, end = strobes
        first_tap, first_tile = firsts
        line = Signal(range(max(core.rows, 2)))
        line_end = line == core.rows - 1
        outside = Signal()  # the last pixel has entered, or all chunks have
        flushing = Signal()  # all chunks have
        initial = Signal()  # the chunk that enters belongs to the first K tile
        # About the chunk that leaves: whether there is one, and which.
        chunk = data.StructLayout({"any": 1, "first": 1, "last": 1, "initial": 1, "final": 1})
        held, ended = Signal(chunk), Signal(chunk)
        with m.If(command.transpose):
            exhausted = outside | pixels.final
            m.d.comb += [
                step.vector.eq(held.any),
                step.shift.eq(1),
                step.tile_start.eq(held.any & held.first & (line == 0)),
                step.tile_end.eq(held.any & held.last & line_end & ~command.ones),
                first_tile.eq(held.initial),
                end.eq(flushing & line_end & ~command.ones),
            ]
            with m.If(ended.any):
                m.d.comb += [
                    step.vector.eq(1),
                    step.shift.eq(0),
                    step.ones.eq(1),
                    step.tile_start.eq(0),
                    step.tile_end.eq(1),
                    first_tile.eq(ended.initial),
                    end.eq(ended.final),
                ]
                with m.If(go):
                    m.d.sync += ended.any.eq(0)
            with m.Elif(go):
                m.d.sync += line.eq(Mux(line_end, 0, line + 1))
                m.d.comb += [
                    pixels.next.eq(~outside),
                    pixels.save.eq((line == 0) & first_tap),
                ]
                with m.If(pixels.final):
                    m.d.sync += outside.eq(1)
                with m.If(line_end):
                    m.d.comb += taps.next.eq(~flushing)
                    m.d.sync += [
                        held.any.eq(~flushing),
                        held.first.eq(first_tap),
                        held.last.eq(taps.final),
                        held.initial.eq(initial),
                        held.final.eq(taps.final & exhausted),
                        ended.eq(held),
                        ended.any.eq(held.any & held.last & command.ones),
                    ]
                    with m.If(~taps.final):
                        m.d.comb += pixels.restore.eq(1)
                        m.d.sync += outside.eq(0)
                    with m.Else():
                        m.d.sync += [initial.eq(0), flushing.eq(exhausted)]
        with m.If(accept):
            m.d.sync += [
                outside.eq(0),
                flushing.eq(0),
                initial.eq(1),
                held.any.eq(0),
                ended.any.eq(0),
            ]
        return held, outside

    def _add_nests(self, m, command, start):
        """The walk over pixels, and that over repetitions; both begin anew at their ends."""

        def nest(loops, h, w, **options):
            return LoopNest(
                dict.fromkeys(loops, 16),
                {
                    "address": Affine(
                        BUFFER_ADDRESS_WIDTH, dict.fromkeys(loops, signed(BUFFER_ADDRESS_WIDTH))
                    ),
                    "h": Affine(_COORDINATE, {h: 8}),
                    "w": Affine(_COORDINATE, {w: 8}),
                },
                endless=True,
                **options,
            )

        m.submodules.pixels = pixels = nest(MATMUL_LOOPS[:3], "ho", "wo", checkpoint=True)
        m.submodules.taps = taps = nest(MATMUL_LOOPS[3:], "kh", "kw")
        for walk, loops, h, w in (
            (pixels, MATMUL_LOOPS[:3], "ho", "wo"),
            (taps, MATMUL_LOOPS[3:], "kh", "kw"),
        ):
            m.d.comb += [
                walk.start.eq(start),
                *(walk.count[loop].eq(command[f"{loop}_count"]) for loop in loops),
                *(walk.stride["address"][loop].eq(command[f"{loop}_stride"]) for loop in loops),
                walk.stride["h"][h].eq(command[f"{h}_step"]),
                walk.stride["w"][w].eq(command[f"{w}_step"]),
            ]
        m.d.comb += [
            pixels.origin.address.eq(command.x_address),
            pixels.origin.h.eq(command.h_origin),
            pixels.origin.w.eq(command.w_origin),
        ]
        return pixels, taps
