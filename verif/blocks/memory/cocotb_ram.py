"""Both forms of block RAMs, Verilog and Amaranth, under the same traffic, against a dictionary."""

import json
import os

import cocotb

from .. import support

SIZES_VARIABLE = "ADAGP_RAM_SIZES"
FORMS = ("verilog", "amaranth")


@cocotb.test()
async def random_traffic(dut):
    """All RAMs at the same time; reads and writes meet at the same word in many cycles."""
    sizes = json.loads(os.environ[SIZES_VARIABLE])
    rng = support.generator("ram")
    memories = [{} for _ in sizes]
    expected = [None] * len(sizes)
    await support.start(dut)
    deepest = max(depth for _, _, depth, _ in sizes)
    met = kept = 0
    for cycle in range(deepest + 1500):
        for place, (index, width, depth, granularity) in enumerate(sizes):
            memory = memories[place]
            enables = width // granularity
            if cycle < depth:  # contents are undefined before
                write, enable = cycle, (1 << enables) - 1
            else:
                write = rng.choice([0, 1, depth - 1, rng.randrange(depth)])
                enable = rng.choice([0, rng.getrandbits(enables), (1 << enables) - 1])
            value = rng.getrandbits(width)
            read = rng.choice([write, rng.randrange(depth)])
            enabled = rng.random() < 0.7
            for name, item in (
                ("read_en", enabled),
                ("read_address", read),
                ("write_en", enable),
                ("write_address", write),
                ("write_data", value),
            ):
                getattr(dut, f"ram{index}_{name}").value = int(item)

            # A read that meets a write gives nonsense, in both forms the same, so that it shows.
            # Without a read the output keeps its value.
            if enabled:
                expected[place] = memory.get(read)
                if read == write and enable and expected[place] is not None:
                    expected[place] ^= (1 << width) - 1
                    met += 1
            else:
                kept += 1
            word = memory.get(write, 0)
            for lane in range(enables):
                if enable >> lane & 1:
                    mask = ((1 << granularity) - 1) << (lane * granularity)
                    word = (word & ~mask) | (value & mask)
            memory[write] = word
        await support.next_cycle(dut)
        for place, (index, width, depth, granularity) in enumerate(sizes):
            if expected[place] is None:
                continue
            for form in FORMS:
                actual = int(getattr(dut, f"ram{index}_{form}").value)
                assert actual == expected[place], (
                    f"cycle {cycle}, {form} RAM of {depth} words, {width} bits in {granularity}: "
                    f"{actual:#x}, expected {expected[place]:#x}"
                )
    assert met > 100 and kept > 100
