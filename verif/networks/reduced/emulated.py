"""A network trains on the emulator's device, through the calls with which hardware is operated."""

import time

from emulator.device import EmulatorDevice
from hw.registers import host
from hw.registers.map import register_map
from verif.networks.training_result import TrainingResult
from verif.networks.training_run import TrainingRun
from verif.system.record import BASE

__all__ = ["emulate"]

#: Between two lines of a report.
_REPORT_SECONDS = 60.0


def emulate(run: TrainingRun, report=None) -> TrainingResult:
    """All batches of ``run`` on an :class:`~emulator.device.EmulatorDevice`, compared with golden.

    The commands of a program are executed in their order, as fast as NumPy allows;
    :meth:`~verif.networks.training_run.TrainingRun.interpret` looks for races in random orders.
    The memory window does not begin at address 0. ``report`` is called with a line of text every
    minute, between batches. Raises FunctionalError, naming the command, of a program that does what
    it must not.
    """
    image = run.memory()
    device = EmulatorDevice(run.config, BASE + len(image))
    registers = register_map(run.config)
    device.put(BASE, image)
    dumps, rejected, begin = [], [], time.perf_counter()
    said = begin
    for number, batch in enumerate(run.batches):
        program = run.program_of(batch)
        for offset, data in run.changes(batch):
            device.put(BASE + offset, data)
        values = run.registers(batch, number) | host.start_values(
            registers, base=BASE, size=len(image), program=program.program,
            program_size=len(program.commands),
        )  # fmt: skip
        for name, value in values.items():
            device.write(name, value)
        found = device.wait()
        dumps.append(device.get(BASE, len(image)))
        rejected.append(sum(found[f"CORE{c.index}_VECTOR_REJECTED"] for c in run.config.cores))
        now = time.perf_counter()
        if report and now - said >= _REPORT_SECONDS:
            said = now
            report(f"emulator: {number + 1} of {len(run.batches)} batches, {now - begin:.0f} s")
    return run.result(dumps, rejected, seconds=time.perf_counter() - begin)
