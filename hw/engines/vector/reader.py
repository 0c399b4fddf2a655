"""One operand stream of the vector engine: from buffer words to float32 lanes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import BUFFER_READ_LATENCY
from hw.config import BUFFER_ADDRESS_WIDTH
from hw.formats import FLOAT32
from hw.isa.vector import Source
from hw.primitives.pipeline import delay

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
    held : In(1) -- constant while in use: all steps have the words of the first one until
        ``release``
    start : In(1) -- a command begins
    i : ``In(stream of word addresses)`` -- one per step, or with ``held`` one per ``release``
    request : ``Out(stream of word addresses)``, data : In -- read port of the buffer; the data
        arrive :data:`~hw.bus.signatures.BUFFER_READ_LATENCY` cycles after a request is accepted
    ready : Out(1) -- ``o`` is the group after the ones taken
    take : In(1) -- only with ``ready``
    release : In(1) -- the cycle after the last group of a step was taken: the next step has other
        words; with ``held``, ``ready`` does not count in that cycle
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
                "start": In(1),
                "take": In(1),
                "release": In(1),
                "o": Out(32 * core.post_lanes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        core = self._core
        groups, chunks, lanes = core.groups_per_word, core.chunks_per_wide, core.post_lanes
        wide = self.source == Source.WIDE
        scalar = self.source[1]

        # Words: places from ``base`` on are in use, to ``asked``, filled to ``filled``; ``place``
        # is being given out.
        pointer = range(2 * self.DEPTH)
        base, place, filled, asked = (
            Signal(pointer, name=name) for name in ("base", "place", "filled", "asked")
        )
        m.submodules.words = words = Memory(shape=core.word_width, depth=self.DEPTH, init=[])
        head, write = words.read_port(domain="comb"), words.write_port()
        accepted = self._request(m, wide, (asked - base)[: len(base)] != self.DEPTH)
        arrived = delay(m, accepted, BUFFER_READ_LATENCY, name="arrived", reset=True)
        filled_next = Signal(pointer)
        m.d.comb += filled_next.eq(filled + arrived)
        m.d.sync += [asked.eq(asked + accepted), filled.eq(filled_next)]
        m.d.comb += [
            head.addr.eq(place),
            write.addr.eq(filled),
            write.data.eq(self.data),
            write.en.eq(arrived),
        ]
        present = Signal()

        # Groups, up to one ahead. ``advance`` uses a word up, the last one of its step with
        # ``step_end``; words that are held are begun again until they are released.
        full = Signal()
        advance, step_end, other = Signal(), Signal(), Signal()
        m.d.comb += other.eq(self.held & ~scalar & self.release)
        further, following = Signal(pointer), Signal(pointer)
        m.d.comb += [further.eq(place + 1), following.eq(base + Mux(wide, chunks, 1))]
        m.d.sync += present.eq(place != filled_next)
        with m.If(advance):
            with m.If(step_end & self.held):
                m.d.sync += [place.eq(base), present.eq(1)]
            with m.Else():
                m.d.sync += [place.eq(further), present.eq(further != filled_next)]
            with m.If(~self.held):
                m.d.sync += base.eq(further)
        with m.If(other):
            m.d.sync += [base.eq(following), place.eq(following)]
            m.d.sync += present.eq(following != filled_next)
        width = core.group_width
        pieces = [head.data[width * index : width * (index + 1)] for index in range(groups)]
        group = Signal(range(max(2, groups)))
        narrow = _select(m, pieces, group, "narrow")
        load, word_end = Signal(), Signal()
        m.d.comb += [
            load.eq((present | scalar) & (~full | self.take)),
            word_end.eq(group == groups - 1),
            step_end.eq(group == groups - 1),
            advance.eq(load & ~scalar & word_end),
        ]
        with m.If(self.take):
            m.d.sync += full.eq(0)
        with m.If(load):
            m.d.sync += full.eq(1)
            with m.If(~scalar):
                m.d.sync += group.eq(Mux(step_end, 0, group + 1))
        if groups % chunks == 0:
            # The groups of a word, and which of them ``group`` is.
            number = groups // chunks
            inside = Signal(range(max(2, number)))
            with m.Switch(group):
                for index in range(groups):
                    with m.Case(index):
                        m.d.comb += inside.eq(index % number)
            pairs = [Cat(pieces[chunks * i : chunks * (i + 1)]) for i in range(number)]
            wide_bits = _select(m, pairs, inside, "wide")
            with m.If(wide):
                m.d.comb += word_end.eq(inside == number - 1)
        else:
            wide_bits = Signal(32 * lanes, reset_less=True)
            with m.If(wide):
                self._gather(m, present, pieces, wide_bits, full, load, advance, step_end, other)
        with m.If(self.start | other):
            m.d.sync += [full.eq(0), group.eq(0)]

        for lane in range(lanes):
            part = slice(32 * lane, 32 * (lane + 1))
            code = narrow[core.operand_width * lane : core.operand_width * (lane + 1)]
            bits = self._widen(code)
            if groups % chunks == 0:
                bits = Mux(wide, wide_bits[part], bits)
            output = Signal(32, name=f"output{lane}", reset_less=True)
            with m.If(~full | self.take):
                m.d.sync += output.eq(canonical(Mux(scalar, self.scalar, bits)))
            if groups % chunks:
                output = Mux(wide, canonical(wide_bits[part]), output)
            m.d.comb += self.o[part].eq(output)
        m.d.comb += self.ready.eq(full)
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

    def _gather(self, m, present, pieces, bits, full, load, advance, step_end, other):
        """Wide groups that cross words: piece by piece into a register, in place of ``load``."""
        groups, chunks = self._core.groups_per_word, self._core.chunks_per_wide
        slot, word = Signal(range(max(2, groups))), Signal(range(chunks))
        chunk, fetch = Signal(range(chunks)), Signal()
        # A step of a single group that is held just stays where it is.
        stays = self.held & (groups == 1)
        m.d.comb += [
            load.eq(0),
            step_end.eq(word == chunks - 1),
            fetch.eq(present & (~full | (self.take & ~stays))),
            advance.eq(fetch & (slot == groups - 1)),
        ]
        with m.If(self.take & stays):
            m.d.sync += full.eq(1)
        piece = _select(m, pieces, slot, "piece")
        with m.If(fetch):
            for index in range(chunks):
                with m.If(chunk == index):
                    m.d.sync += bits.word_select(index, self._core.group_width).eq(piece)
            m.d.sync += [chunk.eq(chunk + 1), slot.eq(slot + 1)]
            with m.If(slot == groups - 1):
                m.d.sync += [slot.eq(0), word.eq(Mux(step_end, 0, word + 1))]
            with m.If(chunk == chunks - 1):
                m.d.sync += [chunk.eq(0), full.eq(1)]
        with m.If(other):
            m.d.sync += [slot.eq(0), word.eq(0), chunk.eq(0)]

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


assert [bool(source & 2) for source in Source] == [False, False, True, True]
