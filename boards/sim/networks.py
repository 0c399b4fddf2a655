"""Networks on a board, through its serial line, and beside the golden models."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from algorithms.networks import digits_cnn
from compiler.networks.array_use import PRODUCTS
from compiler.networks.summary import layer_of, summarize
from emulator.batch_loop import BatchLoop
from hw.config import AdaGPConfig
from hw.registers import host
from hw.registers.map import register_map
from verif.networks.adagp_run import AdaGPRun
from verif.networks.digits import digits_workload
from verif.networks.train_adagp import EPOCHS, SCHEDULE
from verif.networks.train_digits import digit_batches
from verif.networks.training_result import in_phases
from verif.networks.training_run import TrainingRun
from verif.system.record import BASE

__all__ = [
    "RUNS",
    "Network",
    "NetworkResult",
    "adagp_run",
    "has_ended",
    "kept_parts",
    "parameters",
    "prepare_network",
    "start_loop",
]

#: Name -> what is run, in a few words.
RUNS = {
    "digits": "a trained CNN reads handwritten digits",
    "train-digits": "a CNN with batch normalisation learns to read them",
    "train-adagp": "the same with predicted gradients, one run of many batches",
}


@dataclass(frozen=True, kw_only=True)
class NetworkResult:
    """What came of it on one device.

    Members
    -------
    compared, wrong : bytes or numbers that were compared with golden, and that differ
    differences : lines about the first of these
    cycles : of every batch, or of the run, without those of waiting for the host
    moved : bytes that the accelerator has read and written, altogether
    seconds : wall time
    """

    compared: int
    wrong: int
    differences: list[str]
    cycles: list[int]
    seconds: float
    moved: int = 0
    losses: list[float | None] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network with everything that golden says of it; :meth:`run` may be called for any number of
    devices.

    Members
    -------
    window_bytes : memory that it needs, from address 0 on
    macs : multiplications of a batch of ``train-digits``: forward and both gradients
    """

    window_bytes: int
    run: Callable[..., NetworkResult]
    macs: int = 0


def prepare_network(
    name: str, config: AdaGPConfig, *, images: int = 16, batches: int = 2, seed: int = 1,
    report: Callable[[str], None] = lambda text: None,
) -> Network:  # fmt: skip
    """Compile a network of :data:`RUNS` and compute what it must store.

    ``images``: of digits, or in a batch; ``batches``: of a training. Raises ValueError for numbers
    that a run cannot have.
    """
    if name == "digits":
        return _digits(config, images, seed, report)
    if name == "train-digits":
        run = TrainingRun(
            _model(seed), config, digits_cnn.INPUT_SHAPE,
            digit_batches(seed, batches=batches, images=images), report=report,
        )  # fmt: skip
        image = bytes(run.memory())
        return Network(
            window_bytes=BASE + len(image),
            run=lambda device, progress=lambda text: None: _train(device, run, image, progress),
            macs=_macs(run.program),
        )
    return _adagp(config, images, batches, seed, report)


def _macs(program):
    layers = {layer.name: layer for layer in summarize(program)[0]}
    products = {(layer_of(step, layers), step.direction) for step in program.steps
                if step.vectors and step.direction in PRODUCTS}  # fmt: skip
    return sum(layers[name].macs for name, _ in products)


def _model(seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return digits_cnn.NormalizedDigitsCNN()


def _start(device, registers, *, size, program, program_size, values=None):
    """Write registers and start a program in the window from BASE on."""
    start = host.start_values(
        registers, base=BASE, size=size, program=program, program_size=program_size
    )
    for name, value in {**(values or {}), **start}.items():
        device.write(name, value)


def has_ended(registers, values: dict[str, int]) -> bool:
    """Whether the registers say that the run is over; raises RuntimeError unless all is well."""
    status = host.field_values(registers, "STATUS", values["STATUS"])
    if status["ERROR"] or status["STOPPED"]:
        raise RuntimeError(host.ending(registers, values))
    return not status["BUSY"]


def _cycles(device, registers, values):
    """Since the start of the run, without those of waiting for the host; 0 where none are
    counted."""
    if not device.counts_cycles:
        return 0
    counters = host.counters(registers, values)
    if "BATCH_WAIT" in counters:
        counters = host.without_waiting(counters)
    return counters["CYCLES"]


def _moved(device, registers, values):
    """Bytes read and written since the start of the run; 0 where none are counted."""
    if not device.counts_cycles:
        return 0
    counters = host.counters(registers, values)
    return counters["READ_BYTES"] + counters["WRITE_BYTES"]


def _digits(config, images, seed, report):
    workload = digits_workload(config, images=images, seed=seed, report=report)
    after = bytearray(workload.image)
    for tensor, expected in zip(workload.program.outputs, workload.expected, strict=True):
        data = tensor.pack(expected)
        after[tensor.offset : tensor.offset + len(data)] = data
    registers, size = register_map(config), len(workload.image)

    def run(device, progress=lambda text: None):
        begin = time.monotonic()
        progress(f"writing {size:,} bytes")
        device.put(BASE, workload.image)
        progress("running")
        _start(device, registers, size=size, program=0,
               program_size=len(workload.program.commands))  # fmt: skip
        values = device.wait()
        has_ended(registers, values)
        progress(f"reading {size:,} bytes")
        found = np.frombuffer(device.get(BASE, size), np.uint8)
        wrong = np.nonzero(found != np.frombuffer(after, np.uint8))[0]
        lines = [f"byte {i} is {found[i]:#04x}, not {after[i]:#04x}" for i in wrong[:5]]
        cycles = _cycles(device, registers, values)
        return NetworkResult(
            compared=size, wrong=len(wrong), differences=lines, cycles=[cycles],
            moved=_moved(device, registers, values), seconds=time.monotonic() - begin,
        )  # fmt: skip

    return Network(window_bytes=BASE + size, run=run)


def kept_parts(tensors, *, gap=64):
    """(offset, size) of the memory that holds these tensors, together where at most ``gap`` bytes
    are between them."""
    merged: list[list[int]] = []
    for offset, end in sorted((t.offset, t.offset + t.size) for t in tensors):
        if merged and offset <= merged[-1][1] + gap:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([offset, end])
    return [(offset, end - offset) for offset, end in merged]


def _learned(program):
    """Tensors of what a batch leaves: weights, the optimizer's numbers, statistics, losses."""
    names = [name for output in program.outputs
             for name in (output.value, output.labels.get("products"))]  # fmt: skip
    return parameters(program) + [
        program.tensors[name] for name in names if name in program.tensors
    ]


def parameters(program):
    """Tensors of weights, the optimizer's numbers and statistics."""
    return [
        tensor
        for parameter in program.parameters.values()
        for role, tensor in parameter.tensors.items()
        if role not in ("gradient", "mask")
    ]


def _result(run, dumps, rejected, cycles, moved, begin):
    result = run.result(dumps, rejected)
    return NetworkResult(
        compared=result.compared,
        wrong=sum(difference.count for difference in result.differences),
        differences=[str(difference) for difference in result.differences[:5]],
        cycles=cycles,
        moved=moved,
        seconds=time.monotonic() - begin,
        losses=list(result.losses),
    )


def _read(device, window, parts):
    for offset, size in parts:
        window[offset : offset + size] = device.get(BASE + offset, size)
    return bytes(window)


def _train(device, run, image, progress):
    """Batch after batch, each a run of its own."""
    begin, registers = time.monotonic(), register_map(run.config)
    window, parts = bytearray(image), kept_parts(_learned(run.program))
    dumps, rejected, cycles, moved = [], [], [], 0
    progress(f"writing {len(image):,} bytes")
    device.put(BASE, image)
    for number, batch in enumerate(run.batches):
        program = run.program_of(batch)
        for offset, data in run.changes(batch):
            device.put(BASE + offset, data)
        progress(f"batch {number + 1} of {len(run.batches)}: running")
        _start(
            device, registers, size=len(image), program=program.program,
            program_size=len(program.commands), values=run.registers(batch, number),
        )  # fmt: skip
        values = device.wait()
        has_ended(registers, values)
        progress(f"batch {number + 1} of {len(run.batches)}: reading what it has learned")
        dumps.append(_read(device, window, parts))
        names = [f"CORE{core.index}_VECTOR_REJECTED" for core in run.config.cores]
        counts = {**values, **host.counters(registers, values)}
        rejected.append(sum(counts[name] for name in names))
        cycles.append(_cycles(device, registers, values))
        moved += _moved(device, registers, values)
    return _result(run, dumps, rejected, cycles, moved, begin)


def adagp_run(
    config: AdaGPConfig, *, images: int, batches: int, seed: int = 1,
    report: Callable[[str], None] = lambda text: None,
) -> tuple[AdaGPRun, BatchLoop]:  # fmt: skip
    """A training with predicted gradients in one run, and the order of its batches. Arguments and
    errors as for :func:`prepare_network`."""
    if batches < EPOCHS or batches % EPOCHS:
        raise ValueError(f"batches of train-adagp must be a multiple of {EPOCHS}, not {batches}")
    loop = BatchLoop(schedule=SCHEDULE, batches=batches, epoch_batches=batches // EPOCHS)
    plain = digit_batches(seed, batches=batches, images=images)
    # A run has one learning rate.
    plain = [replace(batch, optimizer=plain[0].optimizer) for batch in plain]
    run = AdaGPRun(_model(seed), config, digits_cnn.INPUT_SHAPE,
                   in_phases(plain, loop.phases()), report=report)  # fmt: skip
    return run, loop


def _adagp(config, images, batches, seed, report):
    run, loop = adagp_run(config, images=images, batches=batches, seed=seed, report=report)
    image = bytes(run.memory())
    return Network(
        window_bytes=BASE + len(image),
        run=lambda device, progress=lambda text: None: _loop(device, run, loop, image, progress),
    )


def start_loop(device, run: AdaGPRun, loop: BatchLoop, size: int) -> None:
    """Start the run, whose window of ``size`` bytes lies from BASE on."""
    program = run.program.loop
    _start(
        device, register_map(run.config), size=size, program=program.program,
        program_size=len(program.commands),
        values=run.registers(run.batches[0]) | loop.registers(),
    )  # fmt: skip


def _loop(device, run, loop, image, progress):
    """All batches in one run: the host writes inputs, and reads what was learned between them."""
    begin, registers = time.monotonic(), register_map(run.config)
    program, refills = run.program.loop, run.refills()
    kept = [program.tensors[name] for name in run.program.predictor.kept]
    window, parts = bytearray(image), kept_parts([*_learned(program), *kept])
    dumps, cycles, before = [], [], 0
    progress(f"writing {len(image):,} bytes")
    device.put(BASE, image)
    for offset, data in refills[0]:
        device.put(BASE + offset, data)
    device.write("BATCHES_READY", 1)
    start_loop(device, run, loop, len(image))
    ended = False
    while not ended:
        values = device.wait()
        ended = has_ended(registers, values)
        if values["BATCHES_DONE"] > len(dumps):
            progress(f"batch {len(dumps) + 1} of {loop.batches}: reading what it has learned")
            dumps.append(_read(device, window, parts))
            total = _cycles(device, registers, values)
            cycles.append(total - before)
            before = total
        done = len(dumps)
        if not ended and done < loop.batches:
            for offset, data in refills[done]:
                device.put(BASE + offset, data)
            device.write("BATCHES_READY", done + 1)
    moved = _moved(device, registers, values)
    return _result(run, dumps, [None] * len(dumps), cycles, moved, begin)
