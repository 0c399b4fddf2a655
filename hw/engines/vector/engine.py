"""VECTOR: float32 operations on buffer words, what lies between the products of a training step."""

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.arithmetic.float_special import SpecialOperation
from hw.bus.signatures import BufferReadSignature, BufferWriteSignature, ErrorSignature
from hw.isa.encoding import Opcode, command_layout
from hw.isa.error_codes import ErrorCode
from hw.isa.vector import COEFFICIENTS, VECTOR_LOOPS, Condition, Operation, Source, Watch
from hw.primitives.pipeline import delay
from hw.primitives.shared_module import add_shared

from .address_generator import VectorWalker
from .divide_sqrt import VectorSpecial
from .lane import VectorLane
from .reader import VectorReader, canonical
from .reduction import PARTIAL_SUMS, VectorReduction
from .sampling import VectorSampling
from .writer import VectorWriter

__all__ = ["VectorEngine"]

_OPERANDS = ("x", "y", "z")
_SPECIAL = {
    Operation.DIVIDE: SpecialOperation.DIVIDE,
    Operation.ROOT: SpecialOperation.SQUARE_ROOT,
    Operation.EXPONENTIAL: SpecialOperation.EXPONENTIAL,
}


class VectorEngine(wiring.Component):
    """Executes VECTOR commands: streams X, Y and Z from the buffer, one stream of results back.

    A step of the loops takes one word of operands of each stream, or as many words as its float32
    numbers need, in ``groups_per_word`` groups of ``post_lanes`` channels, one group per cycle as
    long as no port stalls. Float32 streams take ``chunks_per_wide`` cycles per group where that
    does not divide ``groups_per_word``. A stream whose three strides are 0 is read once per ``cb``.

    A chain adds 36 to 41 cycles to that, a reduction 41 and 7 per group of a word for every ``cb``.
    A division or root takes 30 cycles per channel, an exponential 67, and both one per group. A
    command that samples takes 8 cycles per group.

    Results leave behind the operands: a command must not read words that it writes, except for
    those of the same step. Commands are executed one after the other; the next one is accepted when
    the last write of the one before has been. A command with a zero count, an undefined code, a
    reduction of anything but a chain that ends with the product, a division, root or exponential
    that watches, or a command that samples and is no chain, sums up, or has streams Y or Z is
    reported and dropped without ``done``.

    Parameters
    ----------
    config : AdaGPConfig
        With a float format.
    core : CoreConfig

    Members
    -------
    command : ``In(stream of VECTOR)``
    coefficients : In(32 bits each) -- read when a command is accepted
    sample_seed : In(32) -- constant while a command is executed
    guard : In(1) -- guarded commands after infinities or NaN were noted do nothing
    done : Out(1) -- a command is complete, its last write accepted
    busy : Out(1) -- a command is being executed
    stop : In(1) -- drop what is being executed; idle from the next cycle on
    error : ``Out(ErrorSignature())`` -- ``ILLEGAL_FIELD``, address 0
    x_read, y_read, z_read : ``Out(BufferReadSignature(core))``
    write : ``Out(BufferWriteSignature(core))``, always whole words
    flags : Out(4) -- float flags raised in this cycle (as a rule some cycles before their write)
    rejected : Out(1) -- event: the first infinity or NaN was noted, and the guard is on
    stall : Out(1) -- event: a read or a write was not accepted in the cycle before
    """

    def __init__(self, config, core):
        if not config.format.is_float:
            raise ValueError(f"The vector engine needs a float format, not {config.format.name}")
        self._config = config
        self._core = core
        super().__init__(
            {
                "command": In(stream.Signature(command_layout(Opcode.VECTOR))),
                "coefficients": In(data.ArrayLayout(32, COEFFICIENTS)),
                "sample_seed": In(32),
                "guard": In(1),
                "done": Out(1),
                "busy": Out(1),
                "stop": In(1),
                "error": Out(ErrorSignature()),
                **{f"{name}_read": Out(BufferReadSignature(core)) for name in _OPERANDS},
                "write": Out(BufferWriteSignature(core)),
                "flags": Out(4),
                "rejected": Out(1),
                "stall": Out(1),
            }
        )

    def elaborate(self, platform):
        # What says where the engine is:
        #
        # state         meaning                           set by                  cleared by
        # ------------  --------------------------------  ----------------------  ---------------
        # begin         a command begins (one cycle)      BEGIN, nothing wrong    the next cycle
        # group         of the word, counts up            every take              the word's end
        # blocked       nothing is issued: held words     the last word of a      release, end of
        #               are released, a sum's tree, a     cb, a division's start  the tree or of
        #               division                                                  the division
        # release       held words are given up           the last word of a cb   the next cycle
        # closed_lanes  lanes of the word last taken      every take
        # noted         infinities or NaN were seen       found                   a FIRST's begin
        m = Module()
        core = self._core
        groups = core.groups_per_word
        command = Signal(command_layout(Opcode.VECTOR), reset_less=True)
        immediate, coefficient = Signal(32, reset_less=True), Signal(32, reset_less=True)
        m.submodules.walker = walker = VectorWalker(core)
        m.submodules.writer = writer = VectorWriter(core)
        m.submodules.reduction = reduction = VectorReduction(groups)
        m.submodules.special = special = VectorSpecial(core.post_lanes)
        m.submodules.sampling = VectorSampling(core)
        noted = Signal()
        begin = self._control(m, command, noted, writer.done)
        m.d.sync += [
            immediate.eq(canonical(command.immediate)),
            coefficient.eq(self.coefficients[command.coefficient]),  # canonical in the readers
        ]
        m.d.comb += [walker.command.eq(command), walker.start.eq(begin)]
        wiring.connect(m, walker.o, writer.steps)
        wiring.connect(m, writer.write, wiring.flipped(self.write))

        take, release, last, group, readers = self._operands(
            m, platform, command, begin, (immediate, coefficient)
        )
        step = walker.steps.payload
        issue, chain = self._issue(m, command, readers, (take, release, last, group))
        valid = issue & chain
        active = self._active(m, step.lanes, group, "issue")
        closed_lanes = Signal.like(step.lanes, reset_less=True)
        with m.If(take):
            m.d.sync += closed_lanes.eq(step.lanes)

        # Lanes ----------------
        at_partial = delay(m, valid, VectorLane.PARTIAL, name="at_partial", reset=True)
        result = Mux(command.reduce, reduction.tree & reduction.result, at_partial)
        after = VectorLane.WIDE - VectorLane.PARTIAL
        result = delay(m, result, after - 1, name="result", reset=True)
        wide_valid, narrow_valid = Signal(), Signal()
        m.d.sync += wide_valid.eq(result | special.done)
        m.d.comb += narrow_valid.eq(
            delay(
                m, wide_valid, VectorLane.NARROW - VectorLane.WIDE, name="narrow_valid", reset=True
            )
        )
        with m.Switch(command.operation):
            for code, operation in _SPECIAL.items():
                with m.Case(code):
                    m.d.comb += special.operation.eq(operation)
        m.d.comb += [
            reduction.step.eq(at_partial & command.reduce),
            special.start.eq(issue & ~chain),
            special.active.eq(active),
            special.x.eq(readers[0].o),
            special.y.eq(readers[1].o),
            writer.valid.eq(Mux(command.wide, wide_valid, narrow_valid)),
        ]
        tree_active = self._active(m, closed_lanes, reduction.group, "tree")
        nonfinite = self._lanes(
            m, platform, command, readers, immediate,
            valid=valid, active=active, tree_active=tree_active, chain=chain, stored=narrow_valid,
        )  # fmt: skip

        # Watch ----------------
        found = (command.watch != Watch.NONE) & Cat(nonfinite).any()
        m.d.sync += self.rejected.eq(found & ~noted & self.guard)
        with m.If(begin & (command.watch == Watch.FIRST)):
            m.d.sync += noted.eq(0)
        with m.Elif(found):
            m.d.sync += noted.eq(1)
        return ResetInserter(self.stop)(m)

    def _operands(self, m, platform, command, begin, scalars):
        """The readers of X, Y and Z, and what they are told: ``take`` the group they offer, which
        is number ``group``, the ``last`` of its word; ``release`` words that were held."""
        core, walker = self._core, m.submodules.walker
        groups = core.groups_per_word
        immediate, coefficient = scalars
        take, release, last = Signal(), Signal(), Signal()
        group = Signal(range(max(2, groups)))
        readers = []
        for name in _OPERANDS:
            reader = add_shared(
                m,
                platform,
                VectorReader(self._config, core),
                name=f"{name}_reader",
                module_name=f"adagp_vector_reader_{core.rows}x{core.post_lanes}_"
                f"{self._config.format.name}",
                clear=self.stop,
            )
            readers.append(reader)
            if name != "z":
                wiring.connect(m, getattr(walker, name), reader.i)
            port, source = getattr(self, f"{name}_read"), command[f"{name}_source"]
            m.d.comb += [
                port.valid.eq(reader.request.valid),
                port.address.eq(reader.request.payload),
                reader.request.ready.eq(port.ready),
                reader.data.eq(port.data),
                reader.source.eq(source),
                reader.scalar.eq(Mux(source == Source.COEFFICIENT, coefficient, immediate)),
                reader.held.eq(getattr(walker, f"{name}_held")),
                reader.start.eq(begin),
                reader.take.eq(take),
                reader.release.eq(release),
            ]
        # Of a command that samples Z are the pixels.
        sampling = m.submodules.sampling
        m.d.comb += [
            readers[2].i.valid.eq(walker.z.valid & ~command.sample),
            readers[2].i.payload.eq(walker.z.payload),
            sampling.pixels.valid.eq(walker.z.valid & command.sample),
            sampling.pixels.payload.eq(walker.z.payload),
            walker.z.ready.eq(Mux(command.sample, sampling.pixels.ready, readers[2].i.ready)),
            sampling.begin.eq(begin),
            sampling.sample.eq(command.sample),
            sampling.threshold.eq(command.y_address),
            sampling.key.seed.eq(self.sample_seed),
            sampling.key.stream.eq(command.y_i0_stride),
        ]
        m.d.sync += self.stall.eq(
            Cat(
                port.valid & ~port.ready
                for port in (self.x_read, self.y_read, self.z_read, self.write)
            ).any()
        )
        return take, release, last, group, readers

    def _issue(self, m, command, readers, strobes):
        """When a group goes into the lanes, or a word into the divider. Returns the strobe, and
        whether the operation is a chain."""
        walker, writer = m.submodules.walker, m.submodules.writer
        reduction, special = m.submodules.reduction, m.submodules.special
        sampling = m.submodules.sampling
        take, release, last, group = strobes
        step, groups = walker.steps.payload, self._core.groups_per_word
        # A chain takes its operands when it begins, a division when it is finished.
        issue, closes, blocked = Signal(), Signal(), Signal()
        chain, any_held = Signal(), Signal()
        m.d.sync += [
            chain.eq(command.operation == Operation.CHAIN),
            any_held.eq(Cat(reader.held for reader in readers).any()),
        ]
        m.d.comb += [
            last.eq(group == groups - 1),
            issue.eq(
                walker.steps.valid
                & Cat(reader.ready for reader in readers).all()
                & (command.reduce | writer.room)
                & sampling.ready
                & ~blocked
            ),
            take.eq((issue & chain) | special.done),
            walker.steps.ready.eq(take & last),
            closes.eq(take & last & step.last),
            sampling.take.eq(take),
            sampling.last.eq(last),
            sampling.closes.eq(closes),
            reduction.room.eq(writer.room),
            writer.wide.eq(command.wide),
            writer.reserve.eq((issue & ~command.reduce) | (reduction.tree & reduction.result)),
        ]
        m.d.sync += [release.eq(closes), reduction.close.eq(closes & command.reduce)]
        with m.If(take):
            m.d.sync += group.eq(Mux(last, 0, group + 1))
        # Nothing is issued while words that were held are released, during the tree of a sum, and
        # during a division.
        with m.If((closes & (command.reduce | any_held)) | special.start):
            m.d.sync += blocked.eq(1)
        with m.Elif(Mux(command.reduce, reduction.finished, special.done | ~special.busy)):
            m.d.sync += blocked.eq(0)
        return issue, chain

    def _lanes(
        self, m, platform, command, readers, immediate, *, valid, active, tree_active, chain, stored
    ):
        """The lanes, fed by the readers, the reduction and the divider. Returns which of them found
        infinities or NaN."""
        core = self._core
        groups = core.groups_per_word
        reduction, special = m.submodules.reduction, m.submodules.special
        writer = m.submodules.writer
        fields = (
            "term",
            "factor",
            "power",
            "carry",
            "condition",
            "negate_product",
            "negate_carry",
            "add",
            "relu",
        )
        flags, results, nonfinite = special.flags, [], []
        for index in range(core.post_lanes):
            lane = add_shared(
                m,
                platform,
                VectorLane(self._config.format, groups * PARTIAL_SUMS // 2),
                name=f"lane{index}",
                module_name=f"adagp_vector_lane_{groups}_{self._config.format.name}",
                clear=self.stop,
            )
            m.d.comb += [
                *(getattr(lane, name).eq(command[name]) for name in fields),
                *(
                    getattr(lane, name).eq(reader.o[32 * index : 32 * (index + 1)])
                    for name, reader in zip(_OPERANDS, readers, strict=True)
                ),
                *(
                    getattr(lane, name).eq(getattr(reduction, name))
                    for name in ("half", "address", "even_fresh", "odd_fresh", "tree", "write")
                ),
                lane.write_address.eq(reduction.write_address),
                lane.valid.eq(valid),
                lane.sampled.eq(m.submodules.sampling.keep[index]),
                lane.active.eq(active[index]),
                lane.tree_active.eq(tree_active[index]),
                lane.immediate.eq(immediate),
                lane.keep.eq(command.keep),
                lane.wide.eq(command.wide),
                lane.reduce.eq(command.reduce),
                lane.slow.eq(~chain),
                lane.direct_load.eq(special.load[index]),
                lane.direct.eq(special.o),
                lane.stored.eq(stored),
            ]
            flags = flags | lane.flags
            results.append(lane.o)
            nonfinite.append(lane.nonfinite)
        m.d.comb += writer.data.eq(Cat(results))
        m.d.sync += self.flags.eq(flags)
        return nonfinite

    def _active(self, m, lanes, group, name):
        """Which lanes of group number ``group`` are among the first ``lanes`` of the word."""
        count = self._core.post_lanes
        active = Signal(count, name=f"{name}_active")
        with m.Switch(group):
            for number in range(self._core.groups_per_word):
                with m.Case(number):
                    m.d.comb += active.eq(
                        Cat(lanes > number * count + lane for lane in range(count))
                    )
        return active

    def _control(self, m, command, noted, written):
        """Accepts, checks and finishes commands; returns the strobe that begins execution."""
        begin = Signal()
        behind = command.add | (command.condition != Condition.ALWAYS)
        slow = command.operation != Operation.CHAIN
        wrong = Cat(command[f"{loop}_count"] == 0 for loop in VECTOR_LOOPS).any()
        wrong |= command.watch > max(Watch)
        wrong |= command.reduce & (behind | slow)
        wrong |= slow & (command.watch != Watch.NONE)
        numbers = command.y_source[1] & command.z_source[1]
        wrong |= command.sample & (slow | command.reduce | ~numbers)
        bad, skip = Signal(), Signal()
        m.d.sync += [
            bad.eq(wrong),
            skip.eq(command.guarded & self.guard & noted),
            self.done.eq(0),
            self.error.valid.eq(0),
        ]
        m.d.comb += [self.error.code.eq(ErrorCode.ILLEGAL_FIELD), self.busy.eq(1)]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.busy.eq(0), self.command.ready.eq(~self.stop)]
                with m.If(self.command.valid):
                    m.d.sync += command.eq(self.command.payload)
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.comb += begin.eq(~bad & ~skip)
                m.d.sync += [self.error.valid.eq(bad), self.done.eq(~bad & skip)]
                m.next = "RUN"
                with m.If(bad | skip):
                    m.next = "IDLE"
            with m.State("RUN"):
                with m.If(written):
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"
        return begin
