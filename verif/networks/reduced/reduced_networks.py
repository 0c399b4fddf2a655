"""The networks of the paper with few channels, trained for a few batches beside golden."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle, islice

import numpy as np
import torch

from algorithms.networks.paper_networks import NETWORKS
from algorithms.networks.transformer import transformer
from algorithms.networks.yolo_v3 import YoloV3
from cli.source_state import source_state
from compiler.errors import CompileError
from emulator.memory import FunctionalError
from golden.prediction.schedule import Phase
from verif.networks.adagp_blocks import experienced
from verif.networks.adagp_run import AdaGPRun
from verif.networks.train_blocks import OPTIMIZER, random_batches, random_model
from verif.networks.training_result import Batch, in_phases
from verif.networks.training_run import TrainingRun
from verif.sim.results import SimulationFailed

from .emulated import emulate
from .network_step import NetworkStep

__all__ = [
    "DEVICES",
    "METHODS",
    "REDUCED",
    "SOURCES",
    "ReducedNetwork",
    "network_run",
    "run_network",
]

#: Name on the command line -> what the batches do, a letter each, as
#: :class:`golden.prediction.schedule.Phase`, and again if there are more. "bp" is a program of
#: backpropagation alone.
METHODS = {"bp": "BB", "adagp": "BGGB"}
#: What a network can run on: the Verilog in Verilator; the emulator, which executes commands in
#: their order; the interpreter, which does in random orders that queues and semaphores allow.
DEVICES = ("rtl", "emulator", "interpreter")
#: Images in a batch, classes (of a language: different tokens), and the learning rate.
IMAGES, CLASSES, RATE = 2, 10, 0.05
#: What a result depends on, for the commit that it names.
SOURCES = ("algorithms", "cli", "compiler", "emulator", "golden", "hw", "verif")
#: Least memory of a simulation, so that the networks of a configuration share one build.
MEMORY_BYTES = 1 << 26
#: After so many cycles, and so many per command, a simulation counts as hung.
_PATIENCE = 50_000_000, 20_000


@dataclass(frozen=True, kw_only=True)
class ReducedNetwork:
    """How a network is made small: the same graph with other numbers.

    Members
    -------
    make : a model, of a shape, a number of classes and ``width``
    shape : (C, H, W) of an image, or a list of those of several inputs, (T,) of T tokens
    width : what its numbers of channels are multiplied with, see
        :mod:`algorithms.networks.paper_networks`
    loss : of every output; the targets of "mean_squared_error" are random maps
    """

    make: Callable
    shape: tuple | list = (3, 8, 8)
    width: float = 1 / 16
    loss: str = "cross_entropy"

    @property
    def reads_tokens(self) -> bool:
        """Whether its inputs are sentences."""
        return isinstance(self.shape, list)

    @property
    def size(self) -> str:
        """Shape and width as text."""
        shapes = self.shape if self.reads_tokens else [self.shape]
        return f"{', '.join('x'.join(map(str, s)) for s in shapes)}, width {self.width:g}"

    def widened(self, width: float) -> "ReducedNetwork":
        """With another width, and images of 32 × 32 pixels; sentences stay as long as they are."""
        shape = self.shape if self.reads_tokens else (3, 32, 32)
        return replace(self, width=width, shape=shape)


#: By name. The graphs are those of 32 x 32 pixels, in which VGG halves its maps five times.
REDUCED = {
    name: ReducedNetwork(make=make, shape=(3, 32, 32) if name.startswith("vgg") else (3, 8, 8))
    for name, make in NETWORKS.items()
} | {
    "yolo-v3": ReducedNetwork(make=YoloV3, shape=(3, 32, 32), loss="mean_squared_error"),
    "transformer": ReducedNetwork(make=transformer, shape=[(7,), (5,)]),
}  # fmt: skip


def network_run(
    name: str,
    method: str,
    config,
    seed: int,
    reduced: ReducedNetwork | None = None,
    batches: int | None = None,
    beside: bool | None = None,
) -> TrainingRun:
    """A network in training, with golden's results. ``reduced`` is another size than the one in
    :data:`REDUCED`, ``batches`` another number of them than :data:`METHODS` has; ``beside`` as of
    :func:`compiler.training.compile.compile_training`.

    By backpropagation every stored map and gradient has a place of its own and is compared. By
    ADA-GP tensors share memory, as they do in the programs that users get; the predictor has
    experience, so that no gate is closed.
    """
    reduced, phases = reduced or REDUCED[name], _phases(method, batches)
    rng = np.random.default_rng([seed, list(REDUCED).index(name)])
    model = random_model(lambda: reduced.make(reduced.shape, CLASSES, width=reduced.width), rng)
    if reduced.reads_tokens:
        stream = [_sentences(rng, reduced.shape) for _ in phases]
    else:
        stream = random_batches(
            rng, [RATE] * len(phases), images=IMAGES, shape=reduced.shape, classes=CLASSES,
            targets=_target_maps(model, reduced, rng),
        )  # fmt: skip
    if method == "bp":
        return TrainingRun(
            model, config, reduced.shape, stream, loss=reduced.loss, reuse=False, beside=beside
        )
    return AdaGPRun(
        model, config, reduced.shape, in_phases(stream, map(Phase, phases)), loss=reduced.loss,
        prepare=experienced(rng), beside=beside,
    )  # fmt: skip


def _phases(method, batches):
    """A letter for each batch."""
    if batches is not None and batches < 1:
        raise ValueError(f"batches must be at least 1, not {batches}")
    pattern = METHODS[method]
    return "".join(islice(cycle(pattern), len(pattern) if batches is None else batches))


def _sentences(rng, shapes):
    """Random tokens, and the next one for each position of the last sentence."""
    return Batch(
        images=[rng.integers(0, CLASSES, (IMAGES, *shape)) for shape in shapes],
        targets=rng.integers(0, CLASSES, (IMAGES, *shapes[-1])),
        optimizer=replace(OPTIMIZER, learning_rate=RATE),
    )


def _target_maps(model, reduced, rng):
    """Random targets of all outputs, None for labels."""
    if reduced.loss == "cross_entropy":
        return None
    with torch.no_grad():
        outputs = copy.deepcopy(model).eval()(torch.zeros(IMAGES, *reduced.shape))
    shapes = [tuple(output.shape) for output in outputs]
    return [rng.standard_normal((n, h, w, c)).astype(np.float32) for n, c, h, w in shapes]


def run_network(
    name,
    method,
    config,
    *,
    preset,
    width=None,
    batches=None,
    seed=1,
    device="rtl",
    beside=None,
    report=None,
    **options,
) -> NetworkStep:
    """Train on a device of :data:`DEVICES`; ``options`` go to
    :meth:`~verif.networks.training_run.TrainingRun.simulate`. With ``width`` the numbers of
    channels are multiplied by it, and images have 32 × 32 pixels; ``batches`` and
    ``beside`` as for :func:`network_run`.

    A network that the compiler refuses, or whose program breaks off, is a step with an error."""
    begin = time.perf_counter()
    reduced = REDUCED[name] if width is None else REDUCED[name].widened(width)
    step = NetworkStep(
        network=name, method=method, shape=reduced.shape, width=reduced.width,
        variant=config.variant, preset=preset, device=device, images=IMAGES,
        configuration=config.hash, beside=beside,
        **{key: options[key] for key in ("latency", "stall_share") if key in options},
        phases=_phases(method, batches), state=source_state(*SOURCES),
    )  # fmt: skip
    try:
        run = network_run(name, method, config, seed, reduced, batches, beside)
    except CompileError as error:
        return replace(step, error=f"refused: {error}", golden_seconds=time.perf_counter() - begin)
    step = replace(
        step,
        commands=[len(run.program_of(batch).command_list) for batch in run.batches],
        memory_bytes=run.program.memory_size,
        golden_seconds=time.perf_counter() - begin,
    )
    if report:
        counts = " and ".join(f"{count:,}" for count in dict.fromkeys(step.commands))
        report(
            f"{name} {method}: {reduced.size}; {counts} commands, "
            f"{step.memory_bytes / 2**20:.1f} MiB, golden and compiler {step.golden_seconds:.0f} s"
        )
    begin = time.perf_counter()
    try:
        result = _trained(run, device, max(step.commands), seed, report, options)
    except (FunctionalError, SimulationFailed, RuntimeError) as error:
        return replace(step, error=str(error), seconds=time.perf_counter() - begin)
    return replace(step, result=result, seconds=time.perf_counter() - begin)


def _trained(run, device, commands, seed, report, options):
    """What came of it on a device."""
    if device == "emulator":
        return emulate(run, report)
    if device == "interpreter":
        return run.interpret(seed)
    return run.simulate(
        seed=seed, memory_bytes=MEMORY_BYTES, report=report,
        timeout_cycles=min(_PATIENCE[0] + _PATIENCE[1] * commands, 1 << 31), **options,
    )  # fmt: skip
