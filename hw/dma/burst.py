"""From a transfer command to AXI bursts: run addresses, window check, burst splitter."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import ErrorSignature
from hw.isa.encoding import MEMORY_SIZE_WIDTH, Opcode, engine_layout
from hw.isa.error_codes import ErrorCode

__all__ = ["BurstPlanner", "planned_burst_layout"]


def _log2(value):
    return value.bit_length() - 1


def planned_burst_layout(config):
    """One burst of a command and its place in the run.

    Members
    -------
    address : byte address, aligned to a beat
    length : beats minus one
    offset : granule of the first beat where the data begin (0 unless ``first``)
    end : last valid granule of the last beat (the top one unless ``last``)
    first, last : whether it is the run's first or last burst
    final : whether it is the last burst of the command
    """
    beat_granules = config.beat_bytes // config.granule_bytes
    return data.StructLayout(
        {
            "address": config.axi_address_width,
            "length": 8,
            "offset": range(beat_granules),
            "end": range(beat_granules),
            "first": 1,
            "last": 1,
            "final": 1,
        }
    )


class BurstPlanner(wiring.Component):
    """Cut the runs of a LOAD or STORE command into INCR bursts.

    A burst ends at a multiple of M beats, M being the largest power of two up to
    ``axi_burst_beats``, so that it never crosses 4 KiB. One burst per cycle, also across runs;
    the first one comes 4 cycles after the command was accepted. The next command is accepted when
    the last run of the current one has entered the pipeline.

    Before the first burst of a command its fields are checked, and before the first burst of a run
    its place: it must lie between ``memory_base`` and ``memory_base + memory_size`` and inside the
    address space. A check that fails raises ``error.valid`` with code and address and keeps it up;
    no burst follows until reset.

    Members
    -------
    i : a command; ``buffer_address`` is ignored
    o : bursts
    halt : start no further burst (one that ``o`` offers stays)
    busy : bursts are left to make
    memory_base, memory_size : the memory window in bytes; stable while a command is executed
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "i": In(stream.Signature(engine_layout(Opcode.LOAD))),
                "o": Out(stream.Signature(planned_burst_layout(config))),
                "memory_base": In(config.axi_address_width),
                "memory_size": In(MEMORY_SIZE_WIDTH),
                "halt": In(1),
                "busy": Out(1),
                "error": Out(ErrorSignature()),
            }
        )

    def elaborate(self, platform):
        # What says where the planner is:
        #
        # state      meaning                              set by                     cleared by
        # ---------  -----------------------------------  -------------------------  -----------
        # active     runs of a command are left to enter  the command is accepted    the last one
        # unaligned, a field of it is refused             the command is accepted    the next one
        #   illegal
        # first      where the next run starts            enter; before a command what it would be
        # valid      begin and last are a run's           enter                      advance
        # cut_valid  cut_from and cut_last are a run's    advance                    its last burst
        # cut_first  none of it has been emitted          advance                    emit
        # outside    it leaves the memory window          advance                    the next run
        # enter, advance, emit: a run goes into the second stage, into the third; a burst leaves
        # block_done, run_done: it is the run's last; and leaves
        m = Module()
        address_width = self.config.axi_address_width
        low = _log2(self.config.granule_bytes)
        beat_low = _log2(self.config.beat_bytes) - low  # granule address -> beat address
        burst_bits = _log2(self.config.axi_burst_beats)
        block_low = beat_low + burst_bits
        wide = address_width + 2  # holds the end of any run behind a good one

        active, runs, refused, place = self._start_runs(m, wide)
        bad, unaligned = refused
        first, next_first, extent = place

        # Second stage: first and last granule of a run.
        limit = Signal(wide - low)
        m.d.sync += limit.eq((self.memory_base + self.memory_size)[low:])
        begin = Signal(wide - low)
        last = Signal(wide - low)
        final = Signal()
        valid = Signal()

        # Third stage: the run, checked, and how far it has been cut.
        cut_from = Signal(wide - low)
        cut_last = Signal(wide - low)
        cut_first = Signal()
        cut_final = Signal()
        cut_valid = Signal()
        outside = Signal()
        run_done = Signal()

        enter = Signal()
        advance = Signal()
        m.d.comb += [
            advance.eq(valid & (~cut_valid | run_done)),
            enter.eq(active & ~bad & (~valid | advance)),
        ]
        with m.If(enter | ~active):
            m.d.sync += first.eq(next_first)
        with m.If(enter):
            m.d.sync += [
                begin.eq(first[low:]),
                last.eq(first[low:] + extent),
                final.eq(runs == 0),
                valid.eq(1),
                runs.eq(runs - 1),
            ]
            with m.If(runs == 0):
                m.d.sync += active.eq(0)
        with m.Elif(advance):
            m.d.sync += valid.eq(0)

        block_done = Signal()  # this burst is the run's last
        emit = Signal()
        m.d.comb += [
            block_done.eq(cut_from[block_low:] == cut_last[block_low:]),
            emit.eq(cut_valid & ~outside & ~self.halt & (~self.o.valid | self.o.ready)),
            run_done.eq(emit & block_done),
        ]
        with m.If(advance):
            m.d.sync += [
                cut_from.eq(begin),
                cut_last.eq(last),
                cut_first.eq(1),
                cut_final.eq(final),
                cut_valid.eq(1),
                outside.eq((last >= limit) | last[address_width - low :].any()),
            ]
        with m.Elif(run_done):
            m.d.sync += cut_valid.eq(0)
        with m.Elif(emit):
            m.d.sync += [
                cut_from.eq(Cat(Const(0, block_low), cut_from[block_low:] + 1)),
                cut_first.eq(0),
            ]

        self._emit(m, emit, block_done, (cut_from, cut_last), (cut_first, cut_final))

        self._report(m, (active, valid, cut_valid), (bad, unaligned, first), (outside, cut_from))
        return m

    def _start_runs(self, m, wide):
        """First stage: the start of the next run, in bytes.

        Returns whether there is one, and how many are left; whether the command is refused, and
        whether because of its alignment; the start, that of the run after it, and the extent.
        """
        low = _log2(self.config.granule_bytes)
        command = self.i.payload
        active = Signal()
        unaligned = Signal()
        illegal = Signal()
        first = Signal(wide)
        extent = Signal(32 - low)  # granules of a run minus one
        stride = Signal(32 - low)
        runs = Signal(16)  # left, minus one
        low_bits = (
            command.dram_address
            | command.run_bytes
            | command.run_stride
            | command.row_bytes
            | self.memory_base
        )[:low]
        m.d.comb += self.i.ready.eq(~active & ~self.halt)
        with m.If(self.i.ready & self.i.valid):
            m.d.sync += [
                active.eq(1),
                unaligned.eq(low_bits.any()),
                illegal.eq(
                    (command.run_bytes == 0) | (command.run_count == 0) | (command.row_bytes == 0)
                ),
                extent.eq(command.run_bytes[low:] - 1),
                stride.eq(command.run_stride[low:]),
                runs.eq(command.run_count - 1),
            ]
        # The one adder serves both the first run and the step to the next.
        next_first = Mux(active, first, self.memory_base) + Mux(
            active, Cat(Const(0, low), stride), command.dram_address
        )
        bad = Signal()
        m.d.comb += bad.eq(active & (unaligned | illegal))
        return active, runs, (bad, unaligned), (first, next_first, extent)

    def _emit(self, m, emit, block_done, cut, flags):
        """The burst that leaves: up to the end of its block, or of the run."""
        low = _log2(self.config.granule_bytes)
        beat_low = _log2(self.config.beat_bytes) - low
        burst_bits = _log2(self.config.axi_burst_beats)
        block_low = beat_low + burst_bits
        cut_from, cut_last = cut
        cut_first, cut_final = flags
        burst = self.o.payload
        top_beat = Mux(block_done, cut_last[beat_low:block_low], (1 << burst_bits) - 1)
        top_granule = Mux(block_done, cut_last[:beat_low], (1 << beat_low) - 1)
        length = (top_beat - cut_from[beat_low:block_low])[:burst_bits]
        with m.If(emit):
            m.d.sync += [
                self.o.valid.eq(1),
                burst.address.eq(Cat(Const(0, low + beat_low), cut_from[beat_low:])),
                burst.length.eq(length),
                burst.offset.eq(cut_from[:beat_low]),
                burst.end.eq(top_granule),
                burst.first.eq(cut_first),
                burst.last.eq(block_done),
                burst.final.eq(block_done & cut_final),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)

    def _report(self, m, stages, command, run):
        """Fields that are refused, and a run outside the memory window."""
        address_width, low = self.config.axi_address_width, _log2(self.config.granule_bytes)
        active, valid, cut_valid = stages
        bad, unaligned, first = command
        outside, cut_from = run
        past = Signal()
        m.d.comb += [
            past.eq(cut_valid & outside),
            self.busy.eq(active | valid | cut_valid | self.o.valid),
            self.error.valid.eq(bad | past),
            self.error.code.eq(
                Mux(
                    past,
                    ErrorCode.MEMORY_WINDOW,
                    Mux(unaligned, ErrorCode.UNALIGNED_ADDRESS, ErrorCode.ILLEGAL_FIELD),
                )
            ),
            self.error.address.eq(Mux(past, Cat(Const(0, low), cut_from), first)[:address_width]),
        ]
