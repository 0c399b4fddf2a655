"""Between two batches: what is counted, and where the program goes on."""

from amaranth.hdl import Array, Cat, Mux, Signal
from amaranth.lib import data

from hw.isa.batch import EPOCH_BATCH_WIDTH, EPOCH_WIDTH, PhaseCode
from hw.isa.encoding import COMMAND_BYTES, HEADER_LAYOUT, Opcode, command_layout
from hw.isa.packing import LEADING, LINE_BYTES, WORD_BYTES
from verif.prove.proof import Mutant, Proof

__all__ = ["BATCH_CONTROL"]

_IDLE, _CHECK, _BAD_FIRST, _BAD, _DRAIN, _WAIT, _COUNTED, _JUMP = range(8)
_TARGETS = LEADING[Opcode.BATCH]


def _build(harness, module):
    m = harness.m
    # A run begins at any position: its reset leaves the registers alone.
    epoch = Signal(EPOCH_WIDTH, reset_less=True)
    epoch_batch = Signal(EPOCH_BATCH_WIDTH, reset_less=True)
    done = Signal(32, reset_less=True)
    command = Signal(8 * COMMAND_BYTES)
    layout = command_layout(Opcode.BATCH)
    body = harness.free("fields", layout.size)
    m.d.comb += command[HEADER_LAYOUT.size :][: layout.size].eq(body)
    fields = data.View(layout, body)
    control = harness.add(
        module.BatchControl(),
        drive={
            "command": command,
            "epoch_batches": harness.constant("epoch_batches", EPOCH_BATCH_WIDTH),
            "epoch": epoch,
            "epoch_batch": epoch_batch,
            "batches_done": done,
        },
    )
    for name in (*_TARGETS, "first"):
        harness.watch(f"field_{name}", fields[name])
    harness.watch("epoch", epoch)
    harness.watch("epoch_batch", epoch_batch)
    harness.watch("batches_done", done)

    # The registers that it changes.
    for register, update in (
        (epoch, control.epoch_update),
        (epoch_batch, control.epoch_batch_update),
        (done, control.batches_done_update),
    ):
        with m.If(update.valid):
            m.d.sync += register.eq(update.value)

    # The sequencer: one begin behind a reset; a BATCH stays until it is over or the run is.
    begun, ended = Signal(), Signal()
    harness.watch("run_begun", begun)
    harness.watch("run_ended", ended)
    offered_before = harness.delayed("offered_before", control.offered)
    jumped = harness.delayed("jumped", control.jump)
    body_before = harness.delayed("fields_before", body)
    m.d.sync += [
        begun.eq(begun | control.begin),
        ended.eq(ended | (offered_before & ~control.offered & ~jumped)),
    ]
    harness.assume("a run begins once behind a reset", ~(begun & control.begin))
    harness.assume(
        "a BATCH is offered during a run",
        ~control.offered | begun & ~ended & ~(offered_before & jumped),
    )
    harness.assume(
        "what is offered does not change",
        ~(offered_before & control.offered) | (body == body_before),
    )
    address, size = control.program_address, control.program_size
    harness.assume(
        "the program is the same during a run",
        (address == harness.delayed("program_address_before", address))
        & (size == harness.delayed("program_size_before", size))
        | ~begun,
    )
    harness.assume("it ends in 32 bits", address + size <= 1 << 32)
    harness.assume("it is aligned", address % LINE_BYTES == 0)

    def inner(name, bits=1):
        return harness.inner(f"dut.{name}", bits)

    state, check, inside = inner("fsm_state", 3), inner("check", 3), inner("inside")
    target = control.target

    # What is counted, and when.
    batch, jump = control.batch, control.jump
    harness.claim(
        "a batch counts when all is drained, no error comes and it is not the first command",
        ~batch | control.offered & control.drained & ~control.fails & ~fields.first,
    )
    counted = Signal()  # this command has counted its batch
    harness.watch("check_counted", counted)
    with m.If(batch):
        m.d.sync += counted.eq(1)
    with m.Elif(jump):
        m.d.sync += counted.eq(0)
    harness.claim("a command counts one batch at most", ~batch | ~counted)
    harness.claim(
        "no command is over without its batch", ~(jump | control.complete) | fields.first | counted
    )
    harness.claim(
        "BATCHES_DONE counts them",
        control.batches_done_update.valid == (batch | control.begin),
    )
    harness.claim(
        "it counts up by one, from 0 at the begin",
        ~control.batches_done_update.valid
        | (control.batches_done_update.value == Mux(control.begin, 0, (done + 1)[:32])),
    )
    harness.claim(
        "the position moves with it",
        (control.epoch_update.valid == batch) & (control.epoch_batch_update.valid == batch),
    )
    more = epoch_batch + 1 < control.epoch_batches
    harness.claim(
        "to the next batch of the epoch, or the first of the next",
        ~batch | (control.epoch_batch_update.value == Mux(more, epoch_batch + 1, 0)),
    )
    harness.claim(
        "the epoch goes on behind its last batch",
        ~batch | (control.epoch_update.value == Mux(more | epoch.all(), epoch, epoch + 1)),
    )

    # Where it goes on.
    over_before = harness.delayed("over_before", done >= control.batches)
    supplied_before = harness.delayed("supplied_before", control.batches_ready > done)
    may_go_on = harness.delayed("may_go_on", supplied_before & ~over_before)
    harness.claim("the run is complete when its batches are done", ~control.complete | over_before)
    harness.claim("it goes on when there are more, with their inputs", ~jump | may_go_on)
    targets = Array([fields[name] for name in _TARGETS])
    phase = control.phase_update.value
    chosen = targets[Cat(done[0], phase == PhaseCode.GP)]
    chosen_before = harness.delayed("chosen_before", chosen)
    harness.claim("the phase is stored with the jump", control.phase_update.valid == jump)
    harness.claim(
        "the fetch starts at the target of phase and parity",
        ~control.begin_jump | (target == chosen_before),
    )

    def good(value):
        line = value & -LINE_BYTES
        inside_lines = (value >= address) & (line + LINE_BYTES <= address + size)
        return (value % WORD_BYTES == 0) & inside_lines

    harness.claim(
        "the fetch starts inside the whole lines of the program, at a word",
        ~control.begin_jump | good(target),
    )

    all_good = Cat(good(fields[name]) for name in _TARGETS).all()
    harness.claim("a command with a bad target is refused", ~(batch | jump) | all_good)
    harness.claim(
        "a command with good targets is not", ~(control.bad_target & control.offered) | ~all_good
    )
    second = Signal()
    harness.watch("check_second", second)
    with m.If(jump):
        m.d.sync += second.eq(1)
    harness.claim("only the first command of a run may say so", ~jump | ~(fields.first & second))
    harness.claim("and it may", ~(control.bad_first & control.offered) | fields.first & second)

    # What the states mean, of the command as it was offered in the cycle before.
    held = data.View(layout, body_before)
    goods = [good(held[name]) for name in _TARGETS]
    live = ~ended

    def invariant(name, where, condition):
        harness.invariant(name, ~(live & where) | condition)

    checked = Cat(state == number for number in (_DRAIN, _WAIT, _COUNTED, _JUMP)).any()
    waits = (state == _WAIT) | (state == _JUMP)
    invariant("a state belongs to a command", state != _IDLE, offered_before & begun & ~jumped)
    invariant("behind a jump it is idle", jumped, state == _IDLE)
    harness.invariant("before the run it is idle", begun | (state == _IDLE))
    invariant("targets are looked at in turn", state == _CHECK, check <= 5)
    for number in range(len(_TARGETS)):
        wanted = target == held[_TARGETS[number]]
        invariant(
            f"target {number} is looked at", (state == _CHECK) & (check == number + 1), wanted
        )
        looked = (state == _CHECK) & (check == number + 2)
        invariant(f"target {number} is judged", looked, inside == goods[number])
        invariant(
            f"target {number} is good behind that",
            (state == _CHECK) & (check > number + 2),
            goods[number],
        )
    invariant("what is checked is good", checked, Cat(goods).all())
    invariant("what is refused is not", state == _BAD, ~Cat(goods).all())
    invariant(
        "what goes on may be first",
        checked | (state == _CHECK) & (check != 0),
        ~(held.first & second),
    )
    invariant("what is refused as first is not", state == _BAD_FIRST, held.first & second)
    invariant("that there was a command is known", 1, inner("begun") == second)
    invariant("nothing is counted early", ~waits & (state != _COUNTED), ~counted)
    invariant("what waits is counted", waits, counted == ~held.first)
    invariant("what is counted is", state == _COUNTED, counted & ~held.first)
    harness.invariant(
        "the comparisons are those of the cycle before",
        ((inner("over") == over_before) & (inner("supplied") == supplied_before)),
    )
    invariant("who jumps has waited", state == _JUMP, may_go_on)
    harness.invariant("the fetch begins behind a jump", control.begin_jump == jumped)
    harness.invariant(
        "the target is there then", ~jumped | (target == chosen_before) & good(chosen_before)
    )
    batch_before = harness.delayed("batch_before", batch)
    harness.invariant("behind a batch the position settles", ~batch_before | (state == _COUNTED))
    moved = harness.after_reset() & ~batch_before
    harness.invariant(
        "the end of an epoch is known",
        ~moved | (harness.inner("dut.schedule.last") == (epoch_batch + 1 >= control.epoch_batches)),
    )
    harness.invariant("it does not count at once", harness.after_reset() | (state == _IDLE))
    harness.cover("a jump behind a batch", jump & ~fields.first, within=13)
    harness.cover("a run that is complete", control.complete, within=10)


BATCH_CONTROL = Proof(
    name="batch-control",
    what="what BATCH counts, when a run is complete, where the program goes on",
    module="hw.control.batch_control",
    build=_build,
    mutants=(
        Mutant(
            name="a batch counts although an error comes",
            old="self.offered & self.drained & ~self.fails & schedule.ready",
            new="self.offered & self.drained & schedule.ready",
            cycles=9,
        ),
        Mutant(
            name="the last target is not checked",
            old="with m.Elif(check == 5):",
            new="with m.Elif(check == 4):",
            cycles=8,
        ),
        Mutant(
            name="a target behind the program passes",
            old="place[_LINE_BITS:] < self.program_size[_LINE_BITS:]",
            new="place[_LINE_BITS:] <= self.program_size[_LINE_BITS:]",
            cycles=9,
        ),
        Mutant(
            name="so does one in the last line that is not whole",
            old="place[_LINE_BITS:] < self.program_size[_LINE_BITS:]",
            new="place[_WORD_BITS:] < self.program_size[_WORD_BITS:]",
            cycles=9,
        ),
        Mutant(
            name="so does one inside a word",
            old="~self.target[:_WORD_BITS].any()",
            new="~self.target[1:_WORD_BITS].any()",
            cycles=9,
        ),
        Mutant(
            name="any command may say that it is the first",
            old="with m.If(fields.first & begun):",
            new="with m.If(fields.first & begun & self.drained):",
        ),
        Mutant(
            name="it does not wait for inputs",
            old="supplied.eq(self.batches_ready > self.batches_done)",
            new="supplied.eq(self.batches_ready >= self.batches_done)",
            cycles=12,
        ),
        Mutant(
            name="odd and even are exchanged",
            old="wanted = Cat(self.batches_done[0],",
            new="wanted = Cat(~self.batches_done[0],",
            cycles=13,
        ),
        Mutant(
            name="the run waits for its count no cycle",
            old='                        m.next = "COUNTED"',
            new='                        m.next = "WAIT"',
        ),
    ),
)
