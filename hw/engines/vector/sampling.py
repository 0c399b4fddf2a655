"""Which elements of a VECTOR command its random numbers keep."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.arithmetic.random_numbers import SAMPLE_BITS, RandomNumbers, sample_key

__all__ = ["VectorSampling"]


class VectorSampling(wiring.Component):
    """Compares the random number of every element of a group with a threshold.

    With ``sample`` a group takes 8 cycles: one to begin, the numbers' latency, and one in which it
    is taken. Without, everything is kept and nothing waits. Idle after reset.

    Parameters
    ----------
    core : CoreConfig

    Members
    -------
    begin : In(1) -- a command begins: channels count from 0
    sample, threshold, key : In -- fields and registers, constant during a command
    pixels : ``In(stream of numbers)`` -- one per step
    take : In(1) -- the group is taken; only with ``ready``
    last : In(1), closes : In(1) -- with ``take``: it is the last one of its step; and the step the
        last one with these channels
    ready : Out(1), keep : Out(lanes)
    """

    def __init__(self, core):
        self._core = core
        super().__init__(
            {
                "begin": In(1),
                "sample": In(1),
                "threshold": In(SAMPLE_BITS),
                "key": In(sample_key()),
                "pixels": In(stream.Signature(SAMPLE_BITS)),
                "take": In(1),
                "last": In(1),
                "closes": In(1),
                "ready": Out(1),
                "keep": Out(core.post_lanes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self._core.post_lanes
        m.submodules.numbers = numbers = RandomNumbers(lanes)
        asked = Signal()
        m.d.comb += [
            numbers.start.eq(self.sample & self.pixels.valid & ~asked),
            numbers.pixel.eq(self.pixels.payload),
            numbers.key.eq(self.key),
            self.ready.eq(~self.sample | (asked & numbers.valid)),
            self.keep.eq(
                Cat(~self.sample | (numbers.number[lane] < self.threshold) for lane in range(lanes))
            ),
            self.pixels.ready.eq(self.sample & self.take & self.last),
        ]
        with m.If(numbers.start):
            m.d.sync += asked.eq(1)
        with m.If(self.take | self.begin):
            m.d.sync += asked.eq(0)

        # The first channel of the group, and that of the step.
        channel, block = Signal(16), Signal(16)
        m.d.comb += numbers.channel.eq(channel)
        following = (channel + lanes)[:16]
        with m.If(self.take):
            m.d.sync += channel.eq(following)
            with m.If(self.closes):
                m.d.sync += block.eq(following)
            with m.Elif(self.last):
                m.d.sync += channel.eq(block)
        with m.If(self.begin):
            m.d.sync += [channel.eq(0), block.eq(0)]
        return m
