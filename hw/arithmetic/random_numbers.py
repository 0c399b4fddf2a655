"""Random numbers that are a function of their place: add, rotate, xor."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RandomNumbers", "SAMPLE_BITS", "sample_key"]

#: Bits of a number, and of each half of the state.
SAMPLE_BITS = 24
_ROUNDS_PER_CYCLE = 2


def sample_key():
    """What numbers depend on besides their place: a seed, and a stream of numbers."""
    return data.StructLayout({"seed": 32, "stream": 16})


class RandomNumbers(wiring.Component):
    """Numbers of 24 bits for ``lanes`` channels of a pixel, as docs/numerics.md defines them.

    The state, two words of 24 bits, begins with pixel and channel. A round is
    ``x = (x >>> 8) + y ^ key ^ round``, ``y = (y <<< 3) ^ x``; the key is the low bits of the seed
    in even rounds, its high bits and the stream in odd ones. The number is x after 12 rounds. Every
    round can be undone, so no two places have the same state.

    A new ``start`` may come in any cycle, and drops what is under way. Not ``valid`` after reset.

    Parameters
    ----------
    lanes : int

    Attributes
    ----------
    LATENCY : int
        6 cycles from ``start`` until ``valid``, two rounds in each.

    Members
    -------
    start : In(1) -- with ``pixel`` and ``channel``, which is that of the first lane
    pixel : In(24), channel : In(16)
    key : In(sample_key()) -- stands from ``start`` until ``valid``
    valid : Out(1) -- the numbers stand, until the next ``start``
    number : Out(24).array(lanes)
    """

    ROUNDS = 12
    LATENCY = ROUNDS // _ROUNDS_PER_CYCLE

    def __init__(self, lanes):
        self._lanes = lanes
        super().__init__(
            {
                "start": In(1),
                "pixel": In(SAMPLE_BITS),
                "channel": In(16),
                "key": In(sample_key()),
                "valid": Out(1),
                "number": Out(SAMPLE_BITS).array(lanes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        step = Signal(range(self.LATENCY))
        running = Signal()
        with m.If(running):
            m.d.sync += step.eq(step + 1)
            with m.If(step == self.LATENCY - 1):
                m.d.sync += [running.eq(0), self.valid.eq(1)]
        with m.If(self.start):
            m.d.sync += [running.eq(1), step.eq(0), self.valid.eq(0)]

        keys = self.key.seed[:SAMPLE_BITS], Cat(self.key.seed[SAMPLE_BITS:], self.key.stream)
        for lane in range(self._lanes):
            x = Signal(SAMPLE_BITS, name=f"x{lane}", reset_less=True)
            y = Signal(SAMPLE_BITS, name=f"y{lane}", reset_less=True)
            next_x, next_y = x, y
            for odd in range(_ROUNDS_PER_CYCLE):
                total = Signal(SAMPLE_BITS, name=f"total{lane}_{odd}")
                m.d.comb += total.eq(next_x.rotate_right(8) + next_y)
                next_x = (total ^ keys[odd] ^ Cat(odd, step))[:SAMPLE_BITS]
                next_y = next_y.rotate_left(3) ^ next_x
            with m.If(self.start):
                m.d.sync += [x.eq(self.pixel), y.eq((self.channel + lane)[:16])]
            with m.Elif(running):
                m.d.sync += [x.eq(next_x), y.eq(next_y)]
            m.d.comb += self.number[lane].eq(x)
        return m
