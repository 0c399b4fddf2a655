"""Loops of a VECTOR command: which words every step reads and writes."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from hw.config import BUFFER_ADDRESS_WIDTH
from hw.isa.encoding import Opcode, command_layout
from hw.isa.vector import VECTOR_LOOPS, VECTOR_STREAMS, Source
from hw.primitives.loop_nest import Affine, LoopNest
from hw.primitives.stream_register import SkidBuffer

__all__ = ["VectorWalker", "step_layout"]

_OPERANDS = VECTOR_STREAMS[:-1]
_INNER = VECTOR_LOOPS[:-1]


def step_layout(core):
    """What the engine has to know of a step: valid lanes of its word; whether it is the last one
    of the loops inside ``cb``."""
    return data.StructLayout({"lanes": range(core.rows + 1), "last": 1})


class VectorWalker(wiring.Component):
    """Walks the loops of a command once and hands every step's addresses to those who use them.

    One step per cycle as long as all who get something have room. Idle after reset, with nothing
    in its queues.

    Parameters
    ----------
    core : CoreConfig

    Members
    -------
    command : In(fields of VECTOR) -- constant from the cycle before ``start`` to the end
    start : In(1)
    x, y, z : ``Out(stream of word addresses)``; a stream that is held gets the first step of each
        ``cb`` only, one that does not come from the buffer nothing, but Z of a command that samples
        the numbers of the pixels
    x_held, y_held, z_held : Out(1) -- the stream reads the same words in all steps of a ``cb``,
        and there are several
    o : ``Out(stream)`` of the address of a step and whether it is the last of all; for a reduction
        the last step of each ``cb`` only
    steps : ``Out(stream of step_layout(core))``
    """

    #: Steps between the walk and the operands' arrival.
    DEPTH = 8

    def __init__(self, core):
        self._core = core
        super().__init__(
            {
                "command": In(command_layout(Opcode.VECTOR)),
                "start": In(1),
                **{name: Out(stream.Signature(BUFFER_ADDRESS_WIDTH)) for name in _OPERANDS},
                **{f"{name}_held": Out(1) for name in _OPERANDS},
                "o": Out(stream.Signature(BUFFER_ADDRESS_WIDTH + 1)),
                "steps": Out(stream.Signature(step_layout(core))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        core, command = self._core, self.command
        chunks = core.chunks_per_wide
        # Channels from the word on: enough bits for 2 ** 16 words.
        remaining = signed(17 + core.rows.bit_length())
        strides = dict.fromkeys(_INNER, signed(16)) | {"cb": range(chunks + 1)}
        m.submodules.nest = nest = LoopNest(
            dict.fromkeys(VECTOR_LOOPS, 16),
            {
                **{name: Affine(BUFFER_ADDRESS_WIDTH, strides) for name in VECTOR_STREAMS},
                "remaining": Affine(remaining, {"cb": remaining}),
            },
        )
        m.d.comb += [
            nest.start.eq(self.start),
            nest.origin.remaining.eq(command.channels),
            nest.stride["remaining"]["cb"].eq(-core.rows),
            *(nest.count[loop].eq(command[f"{loop}_count"]) for loop in VECTOR_LOOPS),
        ]
        for name in VECTOR_STREAMS:
            wide = command.wide if name == "o" else command[f"{name}_source"] == Source.WIDE
            words = Mux(wide, chunks, 1)
            if name == "z":
                words = Mux(command.sample, 0, words)
            m.d.comb += [
                nest.origin[name].eq(command[f"{name}_address"]),
                nest.stride[name]["cb"].eq(words),
                *(nest.stride[name][loop].eq(command[f"{name}_{loop}_stride"]) for loop in _INNER),
            ]

        first = nest.first.i0 & nest.first.i1 & nest.first.i2
        last = nest.last.i0 & nest.last.i1 & nest.last.i2
        m.submodules.queue = queue = SyncFIFOBuffered(
            width=step_layout(core).size, depth=self.DEPTH
        )
        room = Signal()
        m.d.comb += nest.next.eq(nest.valid & room)
        ready = queue.w_rdy & self.o.ready
        repeats = Cat(command[f"{loop}_count"] != 1 for loop in _INNER).any()
        for name in _OPERANDS:
            m.submodules[f"{name}_addresses"] = addresses = SkidBuffer(BUFFER_ADDRESS_WIDTH)
            source = command[f"{name}_source"]
            stream_used = (source == Source.NARROW) | (source == Source.WIDE)
            addresses_used = stream_used | command.sample if name == "z" else stream_used
            # Constant during a command.
            used, kept = Signal(name=f"{name}_used"), getattr(self, f"{name}_held")
            moves = Cat(command[f"{name}_{loop}_stride"] for loop in _INNER).any()
            m.d.sync += [used.eq(addresses_used), kept.eq(stream_used & repeats & ~moves)]
            m.d.comb += [
                addresses.i.valid.eq(nest.next & used & (~kept | first)),
                addresses.i.payload.eq(nest.value[name]),
            ]
            ready &= addresses.i.ready
            wiring.connect(m, addresses.o, wiring.flipped(getattr(self, name)))
        left = nest.value.remaining
        step = data.View(step_layout(core), queue.w_data)
        m.d.comb += [
            room.eq(ready),
            self.o.valid.eq(nest.next & (~command.reduce | last)),
            self.o.payload.eq(Cat(nest.value.o, nest.final)),
            queue.w_en.eq(nest.next),
            step.lanes.eq(Mux(left < 0, 0, Mux(left > core.rows, core.rows, left))),
            step.last.eq(last),
            self.steps.valid.eq(queue.r_rdy),
            self.steps.payload.eq(queue.r_data),
            queue.r_en.eq(self.steps.ready & queue.r_rdy),
        ]
        return m
