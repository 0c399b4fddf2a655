"""The burst planner stays inside the memory window, the address space and 4 KiB."""

from amaranth.hdl import Cat, Const, Mux, Signal

from hw.config import make_config
from verif.prove.proof import Mutant, Proof

__all__ = ["PLANNER"]


def _build(harness, module, *, config):
    width = config.axi_address_width
    low = config.granule_bytes.bit_length() - 1
    beat_low = config.beat_bytes.bit_length() - 1 - low
    wide = width + 2 - low  # bits of a granule's number
    planner = harness.add(module.BurstPlanner(config))
    base, size = planner.memory_base, planner.memory_size
    offered = planner.o.valid

    def inner(name, bits=1):
        return harness.inner(f"dut.{name}", bits)

    active, valid, cut_valid = inner("active"), inner("valid"), inner("cut_valid")
    first, begin, last = inner("first", wide + low), inner("begin", wide), inner("last", wide)
    stride = inner("stride", 32 - low)
    limit, outside, bad = inner("limit", wide), inner("outside"), inner("bad")
    refused = inner("unaligned")
    cut_from, cut_last = inner("cut_from", wide), inner("cut_last", wide)
    cut_first = inner("cut_first")

    harness.assume(
        "the window is stable while the planner is busy",
        ~planner.busy
        | (
            (base == harness.delayed("base_before", base))
            & (size == harness.delayed("size_before", size))
        ),
    )

    # What is asked of a burst: its data, from granule to granule behind the last one, ...
    burst = planner.o.payload
    start = burst.address + (burst.offset << low)
    end = burst.address + ((burst.length << beat_low) + burst.end + 1 << low)
    window_end = base + size
    harness.claim("data begin inside the window", ~offered | (start >= base))
    harness.claim("data end inside the window", ~offered | (end <= window_end))
    harness.claim("data are one granule at least", ~offered | (start < end))
    # ... and the whole of it, from beat to beat.
    beats_end = burst.address + (burst.length + 1 << low + beat_low)
    harness.claim("the burst ends inside the address space", ~offered | (beats_end <= 1 << width))
    harness.claim(
        "the burst stays within 4 KiB",
        ~offered | ((burst.address % 4096) + (burst.length + 1 << low + beat_low) <= 4096),
    )
    harness.claim(
        "the burst is no longer than allowed", ~offered | (burst.length < config.axi_burst_beats)
    )
    harness.claim(
        "the burst is aligned to a beat",
        ~offered | ~burst.address[: low + beat_low].any(),
    )
    # A burst that is offered stays.
    held = harness.delayed("held", offered & ~planner.o.ready)
    before = harness.delayed("burst_before", burst)
    harness.claim("a burst stays until it is taken", ~held | offered)
    harness.claim("its payload does not change", ~held | (burst.as_value() == before))
    # Bursts of a run follow each other without a gap: where the next one has to begin.
    open_run, open_end = Signal(), Signal(width + 1)
    with harness.m.If(offered & planner.o.ready):
        harness.m.d.sync += [open_run.eq(~burst.last), open_end.eq(end)]
    harness.claim(
        "behind a burst that is not the last of its run the next one goes on",
        ~(offered & open_run) | (~burst.first & (start == open_end)),
    )
    harness.claim(
        "behind the last burst of a run another run begins", ~offered | open_run | burst.first
    )

    base_granule = base[low:]
    unaligned = base[:low].any() if low else Const(0)
    good = cut_valid & ~outside
    stuck = cut_valid & outside
    harness.invariant(
        "the window is aligned",
        ~(valid | cut_valid | offered | (active & ~refused)) | ~unaligned,
    )
    harness.invariant(
        "the limit is the window's end",
        ~planner.busy | (limit == (base + size)[low:]),
    )
    top = 1 << (width - low)
    reach = 1 << (32 - low)
    harness.invariant(
        "a run that is cut lies inside the window",
        ~good | ((cut_from >= base_granule) & (cut_from <= cut_last) & (cut_last < limit)),
    )
    harness.invariant("a run that is cut lies inside the address space", ~good | (cut_last < top))
    harness.invariant(
        "a run that waits begins where it may",
        ~valid | stuck | ((begin >= base_granule) & (begin < top + reach)),
    )
    harness.invariant(
        "a run that waits does not end before it begins",
        ~valid | stuck | (begin <= last),
    )
    # The first of a command, or a stride behind one that is not checked yet.
    harness.invariant(
        "the next run begins where it may",
        ~active
        | bad
        | stuck
        | (first[low:] >= base_granule)
        & ((first[low:] < top + reach) | (valid & (first[low:] == begin + stride))),
    )
    if low:
        harness.invariant("starts are aligned", ~active | refused | ~first[:low].any())
    goes_on = Mux(offered, ~burst.last, open_run)
    harness.invariant(
        "a run goes on where its burst has ended",
        ~goes_on
        | (good & ~cut_first & (Cat(Const(0, low), cut_from) == Mux(offered, end, open_end))),
    )
    harness.invariant("a new run begins with its first burst", goes_on | ~good | cut_first)
    harness.cover("a burst that is not the first of its run", offered & ~burst.first)
    harness.cover("a burst at the end of the address space", offered & (beats_end == 1 << width))
    harness.cover("a run outside the window", stuck)


PLANNER = Proof(
    name="planner",
    what="bursts of LOAD and STORE: window, address space, 4 KiB, no gap",
    module="hw.dma.burst",
    build=_build,
    configurations={
        "paper": {"config": make_config()},
        "tiny": {"config": make_config(preset="tiny")},
        "64 address bits": {"config": make_config(axi_address_width=64)},
        "512-bit bus, bursts of 64": {
            "config": make_config(axi_data_width=512, axi_burst_beats=64)
        },
        "32-bit bus, bursts of 1": {"config": make_config(axi_data_width=32, axi_burst_beats=1)},
        "32-bit bus, bursts of 200": {
            "config": make_config(preset="tiny", axi_data_width=32, axi_burst_beats=200)
        },
    },
    mutants=(
        Mutant(
            name="no check against the end of the address space",
            old="outside.eq((last >= limit) | last[address_width - low :].any())",
            new="outside.eq(last >= limit)",
            cycles=5,
        ),
        Mutant(
            name="the window is a granule too large",
            old="(last >= limit)",
            new="(last > limit)",
            cycles=5,
        ),
        Mutant(
            name="sums of addresses are a bit too narrow",
            old="m.d.sync += first.eq(next_first)",
            new="m.d.sync += first.eq(next_first[:address_width])",
            cycles=5,
        ),
        Mutant(
            name="blocks are twice as long",
            old="block_low = beat_low + burst_bits\n        wide",
            new="block_low = beat_low + burst_bits + 1\n        wide",
            cycles=5,
        ),
        Mutant(
            name="a halt lets go of the burst on offer",
            old="with m.Elif(self.o.ready):",
            new="with m.Elif(self.o.ready | self.halt):",
            cycles=6,
        ),
        Mutant(
            name="the window is not checked for alignment",
            old="            | self.memory_base\n",
            new="",
            cycles=5,
        ),
    ),
)
