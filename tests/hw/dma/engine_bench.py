"""What the benches of LoadEngine and StoreEngine have in common."""

import random

from amaranth.hdl import ResetInserter, Signal
from amaranth.sim import Simulator

from tests.hw.dma.test_burst import CONFIGS


class EngineBench:
    """An engine of :data:`~tests.hw.dma.test_burst.CONFIGS` or ``config``, in Amaranth's simulator.

    A subclass has ``begin``, a reset, and ``step``, a cycle; ``chances`` per cycle are its own.
    """

    def __init__(self, engine, shape, seed, chances, config=None):
        self.config = config or CONFIGS[shape]
        self.core = self.config.cores[0]
        self.dut, self.clear = engine(self.config, self.core), Signal()
        self.rng = random.Random(f"{seed} {shape}")
        self.chances = chances
        self.width, self.word = self.config.beat_bytes, self.core.word_bytes

    def simulate(self, process):
        async def testbench(ctx):
            self.ctx = ctx
            await self.begin()
            await process(self)

        simulator = Simulator(ResetInserter(self.clear)(self.dut))
        simulator.add_clock(1e-6)
        simulator.add_testbench(testbench)
        simulator.run()

    def chance(self, name):
        return self.rng.random() < self.chances[name]
