"""POST: reduces accumulators to results and writes them to the buffer."""

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.arithmetic.convert import Requantizer
from hw.bus.signatures import (
    ACCUMULATOR_READ_LATENCY,
    AccumulatorReadSignature,
    BufferWriteSignature,
    ErrorSignature,
)
from hw.isa.encoding import POST_LOOPS, POST_OUTPUT_LOOPS, Opcode, Pool, command_layout
from hw.isa.error_codes import ErrorCode
from hw.primitives.loop_nest import Affine, LoopNest
from hw.primitives.shared_module import add_shared
from hw.primitives.stream_register import SkidBuffer

from .lane import PostLane
from .writer import PostWriter

__all__ = ["PostEngine"]


class PostEngine(wiring.Component):
    """Executes POST commands: windows of accumulators through ReLU, pooling, scaling and
    conversion into the buffer.

    ``post_groups`` groups of an accumulator are read per cycle, for maxima and for windows of
    integers; a float sum takes one element every ``PostLane.SUM_INTERVAL`` cycles. Results follow
    each other without a gap: a command takes ceil(groups / post_groups) x window x outputs such
    steps, or, if that is more, the cycles of :class:`~hw.engines.post.writer.PostWriter`, plus a
    constant of up to 30 cycles. Both sides may stall at any time.

    Commands are executed one after the other; the next one is accepted when the last write of the
    one before has been. A command with a zero count, an ``out_group`` outside the word or (for
    scaled integers) a shift above ``Requantizer.MAX_SHIFT`` is reported and dropped without
    ``done``. ``channels`` above the columns of the array means all of them.

    Parameters
    ----------
    config : AdaGPConfig
    core : CoreConfig

    Members
    -------
    command : ``In(stream of POST)``
    done : Out(1) -- a command is complete, its last write accepted
    busy : Out(1) -- a command is being executed
    stop : In(1) -- drop what is being executed; idle from the next cycle on
    error : ``Out(ErrorSignature())`` -- ``ILLEGAL_FIELD``, address 0
    accumulator : ``Out(AccumulatorReadSignature(core))``
    write : ``Out(BufferWriteSignature(core))``
    flags : Out(4) -- float flags raised in this cycle (as a rule some cycles before their write)
    stall : Out(1) -- event: a read or a write was not accepted in the cycle before
    """

    def __init__(self, config, core):
        self._format = config.format
        self._core = core
        super().__init__(
            {
                "command": In(stream.Signature(command_layout(Opcode.POST))),
                "done": Out(1),
                "busy": Out(1),
                "stop": In(1),
                "error": Out(ErrorSignature()),
                "accumulator": Out(AccumulatorReadSignature(core)),
                "write": Out(BufferWriteSignature(core)),
                "flags": Out(4),
                "stall": Out(1),
            }
        )

    def elaborate(self, platform):
        # What says where the engine is:
        #
        # state       meaning                               set by                  cleared by
        # ----------  ------------------------------------  ----------------------  --------------
        # begin       a command begins (one cycle)          BEGIN, no field is bad  the next cycle
        # accepted    an entry is read in this cycle        steps, room, pace, port
        # valid_n     data of a read comes n cycles later   accepted                stop
        # wait        cycles until the adder is free        an entry of a sum read  counts down
        # paced       wait is 0
        m = Module()
        core = self._core
        # Of a step: that many groups, all channels of which have a lane.
        width = core.post_groups
        lanes = width * core.post_lanes
        # Lanes that carry channels, from the step on: enough bits for 2 ** 16 groups.
        remaining = signed(17 + lanes.bit_length())
        selector = range(-(-core.groups_per_vector // width))
        strides = {loop: signed(16) for loop in POST_LOOPS if loop != "group"}
        m.submodules.nest = nest = LoopNest(
            dict.fromkeys(POST_LOOPS, 16),
            {
                "entry": Affine(16, strides),
                "remaining": Affine(remaining, {"group": remaining}),
                "group": Affine(selector, {"group": 1}),
            },
        )
        m.submodules.writer = writer = PostWriter(core)
        wiring.connect(m, writer.write, wiring.flipped(self.write))

        command = Signal(command_layout(Opcode.POST), reset_less=True)
        begin = self._control(m, command, nest, writer)
        # Steps of an output, and the groups of the last one.
        steps_count, last_groups = Signal(16), Signal(range(width + 1))
        m.d.sync += [
            steps_count.eq((command.group_count + (width - 1)) // width),
            last_groups.eq((command.group_count - 1) % width + 1),
        ]

        # Steps ----------------
        m.d.comb += [
            nest.stop.eq(self.stop),
            nest.origin.entry.eq(command.accumulator_address),
            nest.origin.remaining.eq(
                Mux(command.channels > core.columns, core.columns, command.channels)
            ),
            nest.origin.group.eq(0),
            nest.stride["remaining"]["group"].eq(-lanes),
            nest.stride["group"]["group"].eq(1),
            *(
                nest.count[loop].eq(steps_count if loop == "group" else command[f"{loop}_count"])
                for loop in POST_LOOPS
            ),
            *(nest.stride["entry"][loop].eq(command[f"{loop}_stride"]) for loop in strides),
            nest.start.eq(begin),
            writer.start.eq(begin),
        ]
        steps = self._add_steps(m, nest, last_groups, selector)
        step = steps.o.payload
        paced, accepted = Signal(), Signal()
        read = self.accumulator
        m.d.comb += [
            read.valid.eq(steps.o.valid & writer.room & paced),
            read.bank.eq(command.accumulator_bank),
            read.address.eq(step.entry),
            accepted.eq(read.valid & read.ready),
            steps.o.ready.eq(accepted),
            writer.reserve.eq(accepted & step.window_last),
            writer.reserve_groups.eq(step.groups),
            writer.reserve_last.eq(step.output_last),
            writer.reserve_wo_last.eq(step.wo_last),
            writer.reserve_ho_last.eq(step.ho_last),
            writer.reserve_final.eq(step.final),
        ]
        m.d.sync += self.stall.eq(
            (read.valid & ~read.ready) | (self.write.valid & ~self.write.ready)
        )

        # What belongs to a read waits for its data.
        valid, about = accepted, step
        for stage in range(ACCUMULATOR_READ_LATENCY):
            valid_next = Signal(name=f"valid_{stage + 1}")
            about_next = Signal(step.shape(), name=f"about_{stage + 1}", reset_less=True)
            m.d.sync += [valid_next.eq(valid & ~self.stop), about_next.eq(about)]
            valid, about = valid_next, about_next

        interval = self._add_lanes(m, platform, command, valid, about)

        # A sum waits for the adder.
        wait = Signal(range(interval))
        m.d.comb += paced.eq(wait == 0)
        with m.If(accepted & (command.pool == Pool.SUM)):
            m.d.sync += wait.eq(interval - 1)
        with m.Elif(wait != 0):
            m.d.sync += wait.eq(wait - 1)
        return m

    def _add_steps(self, m, nest, last_groups, selector):
        """The steps, each with all that belongs to it. The port's ready does not reach the nest:
        two steps wait in between."""
        core = self._core
        width = core.post_groups
        lanes = width * core.post_lanes
        step_layout = data.StructLayout(
            {
                "entry": 16,
                "group": selector,
                "groups": range(width + 1),
                "active": lanes,
                "window_first": 1,
                "window_last": 1,
                "output_last": 1,
                "wo_last": 1,
                "ho_last": 1,
                "final": 1,
            }
        )
        groups = Signal(range(width + 1))
        m.submodules.steps = steps = ResetInserter(self.stop)(SkidBuffer(step_layout))
        m.d.comb += [
            nest.next.eq(steps.i.ready),
            steps.i.valid.eq(nest.valid),
            steps.i.payload.entry.eq(nest.value.entry),
            steps.i.payload.group.eq(nest.value.group),
            groups.eq(Mux(nest.last.group, last_groups, width)),
            steps.i.payload.groups.eq(groups),
            steps.i.payload.active.eq(
                Cat(
                    (nest.value.remaining > lane) & (groups > lane // core.post_lanes)
                    for lane in range(lanes)
                )
            ),
            steps.i.payload.window_first.eq(nest.first.pw & nest.first.ph),
            steps.i.payload.window_last.eq(nest.last.pw & nest.last.ph),
            steps.i.payload.output_last.eq(nest.last.group),
            steps.i.payload.wo_last.eq(nest.last.wo),
            steps.i.payload.ho_last.eq(nest.last.ho),
            steps.i.payload.final.eq(nest.final),
        ]
        return steps

    def _add_lanes(self, m, platform, command, valid, about):
        """The lanes, and their results to the writer. Returns the cycles between two entries of a
        sum."""
        core, writer, read = self._core, m.submodules.writer, self.accumulator
        lanes = core.post_groups * core.post_lanes
        flags, results = Const(0, 4), []
        for index in range(lanes):
            lane = add_shared(
                m,
                platform,
                PostLane(self._format),
                name=f"lane{index}",
                module_name=f"adagp_post_lane_{self._format.name}",
            )
            columns = [
                read.data.word_select(column, 32) for column in range(index, core.columns, lanes)
            ]
            with m.Switch(about.group):
                for number, column in enumerate(columns):
                    with m.Case(number):
                        m.d.comb += lane.i.eq(column)
                with m.Default():
                    m.d.comb += lane.i.eq(columns[0])
            m.d.comb += [
                lane.valid.eq(valid),
                lane.first.eq(about.window_first),
                lane.last.eq(about.window_last),
                lane.active.eq(about.active[index]),
                lane.relu.eq(command.relu),
                lane.sum.eq(command.pool == Pool.SUM),
                lane.wide.eq(command.wide),
                lane.scale.eq(command.scale),
                lane.clear.eq(self.stop),
            ]
            flags = flags | lane.flags
            results.append(lane.o)
        m.d.sync += self.flags.eq(Mux(self.stop, 0, flags))
        m.d.comb += [writer.valid.eq(lane.o_valid), writer.data.eq(Cat(results))]
        return lane.SUM_INTERVAL

    def _control(self, m, command, nest, writer):
        """Accepts, checks and finishes commands; returns the strobe that begins execution."""
        begin = Signal()
        m.d.comb += [
            writer.clear.eq(self.stop),
            writer.out_address.eq(command.out_address),
            writer.out_group.eq(command.out_group),
            *(
                getattr(writer, f"out_{n}_stride").eq(command[f"out_{n}_stride"])
                for n in POST_OUTPUT_LOOPS
            ),
            writer.wide.eq(command.wide),
            self.error.code.eq(ErrorCode.ILLEGAL_FIELD),
        ]
        wrong = Cat(*(command[f"{loop}_count"] == 0 for loop in POST_LOOPS)).any()
        wrong |= command.out_group >= self._core.groups_per_word
        if not self._format.is_float:
            wrong |= ~command.wide & (command.scale[16:22] > Requantizer.MAX_SHIFT)
        bad = Signal()
        m.d.sync += [bad.eq(wrong), self.done.eq(0), self.error.valid.eq(0)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.command.ready.eq(~self.stop)
                with m.If(self.command.valid & ~self.stop):
                    m.d.sync += command.eq(self.command.payload)
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.comb += self.busy.eq(1)
                m.next = "BEGIN"
                with m.If(self.stop):
                    m.next = "IDLE"
            with m.State("BEGIN"):
                m.d.comb += [self.busy.eq(1), begin.eq(~bad & ~self.stop)]
                m.d.sync += self.error.valid.eq(bad & ~self.stop)
                m.next = "RUN"
                with m.If(bad | self.stop):
                    m.next = "IDLE"
            with m.State("RUN"):
                m.d.comb += self.busy.eq(1)
                with m.If(writer.done):
                    m.d.sync += self.done.eq(~self.stop)
                    m.next = "IDLE"
                with m.If(self.stop):
                    m.next = "IDLE"
        return begin
