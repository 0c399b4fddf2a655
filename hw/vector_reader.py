"""One operand stream of the vector engine: from buffer words to float32 lanes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .bus import BUFFER_READ_LATENCY
from .config import BUFFER_ADDRESS_WIDTH
from .formats import FLOAT32
from .pipeline import delay
from .vector_command import Source

__all__ = ["VectorReader", "canonical"]


class VectorReader(wiring.Component):
    """Fetches the words of one step after the other and gives them out group by group.

    A step has ``groups_per_word`` groups of ``post_lanes`` numbers: one word of operands or
    ``chunks_per_wide`` consecutive words of float32. Up to :attr:`DEPTH` words are fetched ahead.
    Numbers leave without subnormals and with the canonical NaN only.

    One group per cycle, except that wide ones take ``chunks_per_wide`` cycles where that does
    not divide ``groups_per_word``. No request to the buffer and a number without meaning after
    reset.

    Parameters
    ----------
    config : AdaGPConfig
    core : CoreConfig

    Members
    -------
    source : In(2), scalar : In(32) -- constant while in use; without a stream every group consists
        of the scalar
    held : In(1) -- constant while in use: the words of a step are kept for the next one until
        ``release``
    i : ``In(stream of word addresses)`` -- one per step, or with ``held`` one per ``release``
    request : ``Out(stream of word addresses)``, data : In -- read port of the buffer; the data
        arrive :data:`~hw.bus.BUFFER_READ_LATENCY` cycles after a request is accepted
    ready : Out(1) -- ``o`` is the group after the ones taken
    group : In -- its number in its step
    take : In(1) -- together with ``ready``
    last : In(1) -- it is the last one of its step
    release : In(1) -- with ``last``: the next step has other words
    o : Out(32 * post_lanes)
    """

    DEPTH = 4

    def __init__(self, config, core):
        self._format = config.format
        self._core = core
        super().__init__(
            {
                "source": In(2),
                "scalar": In(32),
                "held": In(1),
                "i": In(stream.Signature(BUFFER_ADDRESS_WIDTH)),
                "request": Out(stream.Signature(BUFFER_ADDRESS_WIDTH)),
                "data": In(core.word_width),
                "ready": Out(1),
                "group": In(range(max(2, core.groups_per_word))),
                "take": In(1),
                "last": In(1),
                "release": In(1),
                "o": Out(32 * core.post_lanes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        core = self._core
        groups, chunks, lanes = core.groups_per_word, core.chunks_per_wide, core.post_lanes
        wide = self.source == Source.WIDE
        scalar = (self.source == Source.IMMEDIATE) | (self.source == Source.COEFFICIENT)

        # Words: places from ``base`` on are in use, to ``asked``, filled to ``filled``; ``place``
        # is being given out.
        pointer = range(2 * self.DEPTH)
        base, place, filled, asked = (
            Signal(pointer, name=name) for name in ("base", "place", "filled", "asked")
        )
        m.submodules.words = words = Memory(shape=core.word_width, depth=self.DEPTH, init=[])
        head, write = words.read_port(domain="comb"), words.write_port()
        accepted = self._request(m, wide, (asked - base)[: len(base)] != self.DEPTH)
        arrived = delay(m, accepted, BUFFER_READ_LATENCY, name="arrived")
        m.d.sync += [asked.eq(asked + accepted), filled.eq(filled + arrived)]
        m.d.comb += [
            head.addr.eq(place),
            write.addr.eq(filled),
            write.data.eq(self.data),
            write.en.eq(arrived),
        ]
        present = place != filled

        # Groups. ``advance`` uses a word up, ``rewind`` begins its step again, ``free_next`` and
        # ``free`` give up the words up to this one, or before it.
        advance, rewind, free_next, free = (
            Signal(name=name) for name in ("advance", "rewind", "free_next", "free")
        )
        with m.If(rewind):
            m.d.sync += place.eq(base)
        with m.Elif(advance):
            m.d.sync += place.eq(place + 1)
        with m.If(free_next):
            m.d.sync += base.eq(place + 1)
        with m.Elif(free):
            m.d.sync += base.eq(place)

        taken = self.take & ~scalar
        width = core.group_width
        pieces = [head.data[width * index : width * (index + 1)] for index in range(groups)]
        narrow = _select(m, pieces, self.group, "narrow")
        word_end = Signal()
        m.d.comb += [
            self.ready.eq(present | scalar),
            word_end.eq(taken & self.last),
            advance.eq(word_end),
            rewind.eq(word_end & self.held & self.last & ~self.release),
            free_next.eq(word_end & (~self.held | (self.last & self.release))),
        ]
        if groups % chunks == 0:
            # The groups of a word, and which of them ``group`` is.
            number = groups // chunks
            inside = Signal(range(max(2, number)))
            with m.Switch(self.group):
                for index in range(groups):
                    with m.Case(index):
                        m.d.comb += inside.eq(index % number)
            pairs = [Cat(pieces[chunks * i : chunks * (i + 1)]) for i in range(number)]
            wide_bits = _select(m, pairs, inside, "wide")
            with m.If(wide):
                m.d.comb += word_end.eq(taken & (inside == number - 1))
        else:
            wide_bits = Signal(32 * lanes, reset_less=True)
            with m.If(wide):
                fetch, full, closing, word_done = self._gather(
                    m, wide & present, taken, pieces, wide_bits
                )
                m.d.comb += [
                    self.ready.eq(full),
                    advance.eq(fetch & word_done),
                    free_next.eq(fetch & word_done & ~self.held),
                    free.eq(taken & closing & self.release),
                    rewind.eq(taken & closing & ~self.release & (groups != 1)),
                ]
        for lane in range(lanes):
            code = narrow[core.operand_width * lane : core.operand_width * (lane + 1)]
            bits = Mux(wide, wide_bits[32 * lane : 32 * (lane + 1)], self._widen(code))
            m.d.comb += self.o[32 * lane : 32 * (lane + 1)].eq(
                canonical(Mux(scalar, self.scalar, bits))
            )
        return m

    def _request(self, m, wide, room):
        """Asks for the words of a step; returns the strobe of an accepted request."""
        chunks = self._core.chunks_per_wide
        active = Signal()
        address = Signal(BUFFER_ADDRESS_WIDTH, reset_less=True)
        left = Signal(range(chunks), reset_less=True)
        accepted = Signal()
        m.d.comb += [
            self.request.valid.eq(active & room),
            self.request.payload.eq(address),
            accepted.eq(self.request.valid & self.request.ready),
            self.i.ready.eq(~active | (accepted & (left == 0))),
        ]
        with m.If(accepted):
            m.d.sync += [address.eq(address + 1), left.eq(left - 1), active.eq(left != 0)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                active.eq(1),
                address.eq(self.i.payload),
                left.eq(Mux(wide, chunks - 1, 0)),
            ]
        return accepted

    def _gather(self, m, present, taken, pieces, bits):
        """Wide groups that cross words: piece by piece into a register.

        With ``held``, nothing is fetched behind the last group of a step before it is taken: only
        then it is known which words come next. If the step is a single group, it just stays.

        Returns whether a piece is fetched, whether a group is whole, whether it is such a last
        one, and whether the piece is the last one of its word.
        """
        core = self._core
        groups, chunks = core.groups_per_word, core.chunks_per_wide
        slot, word = Signal(range(max(2, groups))), Signal(range(chunks))
        chunk = Signal(range(chunks))
        full, closing, fetch, word_done = Signal(), Signal(), Signal(), Signal()
        stays = closing & ~self.release & (groups == 1)
        m.d.comb += [
            fetch.eq(present & (~full | (taken & ~closing))),
            word_done.eq(slot == groups - 1),
        ]
        with m.If(taken & ~stays):
            m.d.sync += [full.eq(0), closing.eq(0)]
        piece = _select(m, pieces, slot, "piece")
        with m.If(fetch):
            for index in range(chunks):
                with m.If(chunk == index):
                    m.d.sync += bits.word_select(index, core.group_width).eq(piece)
            m.d.sync += [chunk.eq(chunk + 1), slot.eq(slot + 1)]
            with m.If(word_done):
                m.d.sync += [slot.eq(0), word.eq(word + 1)]
                with m.If(word == chunks - 1):
                    m.d.sync += word.eq(0)
            with m.If(chunk == chunks - 1):
                m.d.sync += [chunk.eq(0), full.eq(1)]
                m.d.sync += closing.eq(self.held & word_done & (word == chunks - 1))
        return fetch, full, closing, word_done

    def _widen(self, code):
        """The float32 number of an operand, still with subnormals."""
        fmt = self._format
        fraction, exponent = code[: fmt.mantissa_bits], code[fmt.mantissa_bits : fmt.width - 1]
        if fmt.exponent_bits < FLOAT32.exponent_bits:
            offset = FLOAT32.bias - fmt.bias
            exponent = Mux(
                exponent.all(),
                FLOAT32.exponent_max,
                Mux(exponent.any(), (exponent + offset)[: FLOAT32.exponent_bits], 0),
            )
        padding = FLOAT32.mantissa_bits - fmt.mantissa_bits
        return Cat(Const(0, padding), fraction, exponent[: FLOAT32.exponent_bits], code[-1])


def canonical(bits):
    """Float32 ``bits`` as every operation reads them: subnormals are zeros with their sign, there
    is one NaN."""
    fraction, exponent, sign = bits[:23], bits[23:31], bits[31]
    nan = exponent.all() & fraction.any()
    kept = fraction & (exponent.any() & ~nan).replicate(23)
    return Cat(kept | Mux(nan, 1 << 22, 0), exponent, sign & ~nan)


def _select(m, choices, index, name):
    """``choices[index]``; the last one for any index beyond."""
    result = Signal(len(choices[0]), name=name)
    with m.Switch(index):
        for number, choice in enumerate(choices[:-1]):
            with m.Case(number):
                m.d.comb += result.eq(choice)
        with m.Default():
            m.d.comb += result.eq(choices[-1])
    return result
