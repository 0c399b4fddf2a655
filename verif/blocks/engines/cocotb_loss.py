"""Random batches through ``LossEngine``, compared write by write with golden.commands.loss."""

import os
import random

import cocotb

from hw.isa.error_codes import ErrorCode
from hw.isa.loss import Loss
from verif.stimulus.loss import WORDS, random_batch

from .engine_bench import configuration
from .loss_bench import check, start


async def run(bench, config, core, batch):
    """Execute a batch and check everything it leaves."""
    batch.put(bench)
    for command, wanted in zip(batch.commands, batch.writes, strict=True):
        count = len(bench.done)
        await bench.issue(command)
        await bench.finish()
        await bench.step()
        assert len(bench.done) == count + 1, "more than one done"
        check(core, config.format, command, bench.writes, wanted)
        bench.writes = []
        assert not bench.errors, f"error {bench.errors}"
    flags = bench.take()[1]
    assert flags == batch.flags, (
        f"flags {flags:#06b}, expected {batch.flags:#06b}; {batch.commands}"
    )


def expected_duration(core, command, last_row):
    """Cycles of a command with numbers that do not cross words, whose last row is the batch's
    ``last_row``-th, from 0 on."""
    rows, length, chunks = command["row_count"], command["row_length"], core.chunks_per_wide

    def written(slot, phase, lanes):
        """Slot in which a row is written whose last lane is made in this one."""
        return slot + (phase + 4 + -lanes % core.rows) // 8

    if command["loss"] == Loss.CROSS_ENTROPY:
        period = max(length, 10)
        program = (rows + 1) * period + 38 + (last_row % 4 == 3)
        slots = max(program, written((rows + 3) * period + 13, 3, length)) + 2
    else:
        slots = max(rows * length + 3, written(rows * length + 2, 3, length)) + 2
    if command["last"]:
        slots = written(slots + 10, 2 + chunks, 2 * chunks) + 2
    return 8 * slots + 3


@cocotb.test()
async def random_batches(_):
    """Both losses, all layouts, special values, batches in pieces, stalls of several densities."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(core, rng)
    for number in range(int(os.environ.get("LOSS_BATCHES", "40"))):
        bench.busy_read, bench.busy_write = rng.choice(
            ((0, 0), (0.5, 0), (0, 0.5), (0.3, 0.3), (0.9, 0.9))
        )
        await run(bench, config, core, random_batch(rng, config, core, special=number % 2))


@cocotb.test()
async def sizes(_):
    """One class, one image, more classes than lanes by one, many images: 8 partial sums wrap."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(core, rng)
    for loss in Loss:
        for rows, length in ((1, 1), (1, core.rows), (1, core.rows + 1), (19, 2), (2, 70)):
            batch = random_batch(rng, config, core, loss=loss, rows=rows, length=length)
            await run(bench, config, core, batch)


@cocotb.test()
async def tiny_differences(_):
    """The maximum is larger than another logit by less than the least float32."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(core, rng)
    fixed = {"loss": Loss.CROSS_ENTROPY, "x_wide": 1, "rows": 16, "length": 3}
    await run(bench, config, core, random_batch(rng, config, core, special="tiny", **fixed))


@cocotb.test()
async def back_to_back(_):
    """The next command waits at the port."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(core, rng, busy_write=0.3)
    writes, commands = [], 0
    for _ in range(6):
        batch = random_batch(rng, config, core, numbers=20)
        while bench.dut.busy.value:  # the batches share the memory
            await bench.step()
        batch.put(bench)
        for command in batch.commands:
            await bench.issue(command)
        writes += [write for part in batch.writes for write in part]
        commands += len(batch.commands)
    for _ in range(20_000):
        await bench.step()
    assert len(bench.done) == commands, f"{len(bench.done)} of {commands} commands done"
    check(core, config.format, "all", bench.take()[0], writes)


@cocotb.test()
async def duration(_):
    """Without stalls a command takes what docs/loss.md says, whatever the values."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(core, rng)
    for loss in Loss:
        for rows, length in ((1, 10), (5, 10), (5, 37), (11, 1)):
            batch = random_batch(
                rng, config, core, loss=loss, rows=rows, length=length, x_wide=1, target_wide=1
            )
            batch.put(bench)
            last_row = -1
            for command in batch.commands:
                last_row += command["row_count"]
                accepted = await bench.issue(command)
                taken = await bench.finish() - accepted
                cocotb.log.info(f"{loss.name} {command['row_count']} x {length}: {taken} cycles")
                filled = length + -length % core.rows + 4
                if core.rows % core.chunks_per_wide or filled > 8 * max(length, 10 * (not loss)):
                    continue  # numbers cross words, or rows take longer to write than to compute
                wanted = expected_duration(core, command, last_row)
                # With few lanes the words of the value row wait for each other.
                extra = 0 if core.rows >= 2 * core.chunks_per_wide else 8
                assert wanted <= taken <= wanted + extra, f"{taken} cycles, not {wanted}"
            bench.take()
    assert bench.stalls == 0, "stall event without a stall"


@cocotb.test(skip=not os.environ.get("LOSS_THROUGHPUT"))
async def throughput(_):
    """At most 12 cycles per logit in batches of 16 and more, of one command each."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(core, rng)
    for length in (10, 64, 100, 1000):
        for rows in (1, 16, 128):
            options = {"loss": Loss.CROSS_ENTROPY, "rows": rows, "length": length, "x_wide": 1}
            batch = random_batch(rng, config, core, whole=True, **options)
            batch.put(bench)
            accepted = await bench.issue(batch.commands[0])
            cycles = await bench.finish(limit=1 << 21) - accepted
            check(core, config.format, batch.commands[0], bench.take()[0], batch.writes[0])
            per_logit = cycles / (rows * length)
            cocotb.log.info(f"{rows} x {length}: {cycles} cycles, {per_logit:.2f} per logit")
            assert rows < 16 or per_logit <= 12


@cocotb.test()
async def stall_event(_):
    """A port that does not accept shows on ``stall``, cycle by cycle."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(core, rng)
    bench.busy_read = 1
    await bench.issue(random_batch(rng, config, core).commands[0])
    await bench.watch_stalls(100, least=50)


@cocotb.test()
async def stop(_):
    """Stopped at any moment, the engine is idle at once, does nothing, and works again."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(core, rng)
    # During the first operations, then anywhere in three images.
    for moment in (*range(0, 40, 2), *(rng.randrange(40, 900) for _ in range(20))):
        bench.busy_read = bench.busy_write = rng.choice((0, 0.5))
        loss = rng.choice(list(Loss))
        batch = random_batch(rng, config, core, loss=loss, rows=3, length=40, special=True)
        batch.put(bench)
        await bench.issue(batch.commands[0] | {"row_count": 3, "last": 1})
        await bench.stop(moment, cycles=90, quiet=["read__valid", "write__valid", "error__valid"])
        bench.take()
        bench.errors.clear()
        await run(bench, config, core, random_batch(rng, config, core, numbers=8))


@cocotb.test()
async def errors(_):
    """Zero counts and labels that are no class are reported once, without done; the next works."""
    config, core = configuration()
    rng = random.Random(cocotb.RANDOM_SEED)
    bench = await start(core, rng)
    for name in ("row_count", "row_length"):
        await bench.issue(random_batch(rng, config, core).commands[0] | {name: 0})
        for _ in range(100):
            assert not bench.dut.read__valid.value
            await bench.step()
        assert bench.errors == [(ErrorCode.ILLEGAL_FIELD, 0)], f"{name}: {bench.errors}"
        bench.errors.clear()
        assert not bench.done and bench.take() == ([], 0), f"{name} = 0 was executed"
    label_words = -(-32 // core.word_width)
    for wrong in 2 * (10, 11, 0xFFFF, 0x10000, 0xFFFFFFFF, 0x80000003):
        bench.busy_read = bench.busy_write = rng.choice((0, 0.5))
        batch = random_batch(rng, config, core, loss=Loss.CROSS_ENTROPY, rows=4, length=10)
        batch.put(bench)
        row = rng.randrange(4)
        address = batch.commands[0]["target_address"] + row * label_words
        for index in range(label_words):
            word = wrong >> index * core.word_width & ((1 << core.word_width) - 1)
            bench.memory[(address + index) % WORDS] = word
        await bench.issue(batch.commands[0] | {"row_count": 4, "last": 1})
        while bench.dut.busy.value:
            await bench.step()
        for _ in range(30):
            await bench.step()
        assert bench.errors == [(ErrorCode.ILLEGAL_LABEL, address)], f"{wrong:#x}: {bench.errors}"
        bench.errors.clear()
        assert not bench.done, f"done in spite of the label {wrong:#x}"
        written = bench.take()[0]
        wanted = [write for part in batch.writes for write in part]
        rows = row * -(-10 // core.rows)
        check(core, config.format, batch.commands[0], written, wanted[:rows])
        await run(bench, config, core, random_batch(rng, config, core, numbers=8))
        bench.done.clear()
