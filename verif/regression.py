"""The cases of the regression, by name."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import nn

from hw.config import VARIANTS, AdaGPConfig, make_config
from verif.networks.adagp_blocks import CASES as PREDICTED_CASES
from verif.networks.digits import run_digits
from verif.networks.execute import Execution, execute
from verif.networks.methods.train_braking import train_braking
from verif.networks.methods.train_echo import train_echo
from verif.networks.methods.train_vcas import train_vcas
from verif.networks.random_networks import (
    describe,
    random_network,
    special_images,
    with_specials,
)
from verif.networks.reduced.network_step import NetworkStep
from verif.networks.reduced.reduced_networks import METHODS, REDUCED, run_network
from verif.networks.train_adagp import EPOCHS, AdaGPTraining, train_adagp
from verif.networks.train_blocks import BLOCKS, block_run
from verif.networks.train_digits import DigitsTraining, train_digits
from verif.networks.training_result import TrainingResult
from verif.networks.workload import Workload, golden_network, prepare

__all__ = ["CASES", "Case", "NetworkStep", "Options", "Step", "TrainingStep"]

#: Sizes at which nothing divides anything, with memories that the networks do not fit into.
RAGGED = {
    "rows": 6,
    "columns": 5,
    "predictor_rows": 3,
    "predictor_columns": 7,
    "accumulator_depth": 40,
    "predictor_accumulator_depth": 33,
    "buffer_banks": 3,
    "buffer_bank_depth": 128,
    "predictor_memory_banks": 5,
    "predictor_memory_bank_depth": 64,
}


#: Networks of --quick.
QUICK = ("vgg11", "mobilenet-v2", "inception-v3")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asks for; ``settings`` are fields of the configuration. Of the case
    networks: ``networks``, ``methods`` by name; ``width``, ``beside``, ``device`` as in
    ``run_network``."""

    variants: tuple = tuple(VARIANTS)
    preset: str = "tiny"
    operand_format: str | None = None
    settings: dict = field(default_factory=dict)
    seed: int = 1
    images: int = 200
    batches: int | None = None
    batch_size: int = 16
    networks: tuple = tuple(REDUCED)
    methods: tuple = tuple(METHODS)
    width: float | None = None
    beside: bool | None = None
    device: str = "rtl"
    quick: bool = False
    stalls: bool = False
    waves: bool = False
    report: Callable | None = None

    def config(self, variant: str, **fields) -> AdaGPConfig:
        """The configuration of a case; the command line's settings win."""
        if self.operand_format is not None:
            fields["operand_format"] = self.operand_format
        return make_config(**{"variant": variant, "preset": self.preset, **fields, **self.settings})

    @property
    def execution(self) -> dict:
        """Options for :func:`verif.networks.execute.execute`."""
        return {"with_waves": self.waves, "seed": self.seed, **self.memory}

    @property
    def memory(self):
        """How the memory behaves: with ``stalls`` it pauses and answers late."""
        return {"stall_share": 0.35, "latency": 25} if self.stalls else {}


@dataclass(frozen=True, kw_only=True)
class Step:
    """One simulation of a case; ``notes`` go into its line of the table."""

    name: str
    execution: Execution
    notes: str = ""

    @property
    def passed(self):
        return self.execution.passed


@dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """One simulation in which a network learns; ``notes`` go into its line."""

    name: str
    result: TrainingResult
    training: DigitsTraining | None = None
    notes: str = ""

    @property
    def passed(self):
        return self.result.passed


@dataclass(frozen=True, kw_only=True)
class AdaGPStep:
    """One simulation in which a network learns by gradient prediction."""

    name: str
    training: AdaGPTraining

    @property
    def passed(self):
        return self.training.result.passed


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case of the regression: ``run`` yields its steps."""

    description: str
    run: Callable[[Options], Iterator[Step]]


def _digits(options, *, residual=False):
    images = min(options.images, 16) if options.quick else options.images
    for variant in options.variants:
        config = options.config(variant)
        result = run_digits(
            config, images=images, report=options.report, residual=residual, **options.execution
        )
        yield Step(
            name=f"{'digits-residual' if residual else 'digits'} {variant}",
            execution=result.execution,
            notes=f"{images} images, accuracy: RTL {result.rtl_accuracy:.2%}, "
            f"golden {result.golden_accuracy:.2%}, torch float32 {result.torch_accuracy:.2%} "
            "(trained here in float32: all three vary a little with the processor)",
        )


def _digits_residual(options):
    # All variants run it on the main core.
    variants = options.variants if options.variants != tuple(VARIANTS) else ("baseline",)
    images = min(options.images, 50)
    yield from _digits(replace(options, variants=variants, images=images), residual=True)


def _batches(options, default, *, quick):
    """How many are asked for; with --quick always ``quick``."""
    if options.quick:
        return quick
    return default if options.batches is None else options.batches


def _trained(options, train, variants, *, batches, quick):
    """(variant, what ``train`` returns) of the variants that are named, of ``variants`` for all."""
    everything = options.variants == tuple(VARIANTS)
    for variant in variants if everything else options.variants:
        yield (
            variant,
            train(
                options.config(variant),
                batches=_batches(options, batches, quick=quick),
                images=options.batch_size,
                seed=options.seed,
                report=options.report,
                **options.memory,
            ),
        )


def _train_digits(options):
    # All variants train on the main core; these two differ most.
    runs = _trained(options, train_digits, ("baseline", "max"), batches=60, quick=3)
    for variant, training in runs:
        yield TrainingStep(
            name=f"train-digits {variant}", result=training.result, training=training
        )


def _train_beside_plain(name, train):
    def run(options):
        for variant, beside in _trained(options, train, ("max",), batches=60, quick=3):
            training = beside.training
            yield TrainingStep(
                name=f"{name} {variant}", result=training.result, training=training,
                notes=beside.notes,
            )  # fmt: skip

    return run


def _train_adagp(options):
    # The baseline works like low.
    runs = _trained(options, train_adagp, ("low", "efficient", "max"), batches=40, quick=2 * EPOCHS)
    for variant, training in runs:
        yield AdaGPStep(name=f"train-adagp {variant}", training=training)


def _train_blocks(options):
    batches = 1 if options.quick else 3
    arrays = {} if options.quick else {"5 x 3": {"rows": 5, "columns": 3}}
    for array, sizes in {"4 x 4": {"rows": 4, "columns": 4}, **arrays}.items():
        config = options.config("baseline", **sizes)
        for name in BLOCKS:
            rng = np.random.default_rng([options.seed, 0xB10C])
            run = block_run(name, config, rng, batches=batches)
            result = run.simulate(seed=options.seed, **options.memory)
            yield TrainingStep(name=f"train-blocks {name} {array}", result=result)


def _adagp_blocks(options):
    phases = "GB" if options.quick else "GBGB"
    for name, case in PREDICTED_CASES.items():
        rng = np.random.default_rng([options.seed, 0xADA])
        run = case.run(options.config(**case.settings), rng, phases, reuse=False)
        result = run.simulate(seed=options.seed, **options.memory)
        gates = " ".join(f"{gate:.2f}" for gate in result.gates[-1].values())
        yield TrainingStep(
            name=f"adagp-blocks {name} ({case.network})",
            result=result,
            notes=f"tiles refused {', '.join(map(str, result.rejected))}; gates at the end {gates}",
        )


def _networks(options):
    everything = options.networks == tuple(REDUCED)
    names = QUICK if options.quick and everything else options.networks
    configs = [
        options.config(variant)
        for variant in (("max",) if options.variants == tuple(VARIANTS) else options.variants)
    ]
    if not configs[0].has_training_engines:
        raise ValueError(
            f"networks train, which needs training and a float format, not "
            f"training={configs[0].training} and {configs[0].operand_format}"
        )
    todo = [(config, name, method) for config in configs for name in names
            for method in options.methods]  # fmt: skip
    for number, (config, name, method) in enumerate(todo, 1):
        place = f"{number} of {len(todo)}: "
        report = options.report and (lambda line, place=place: options.report(place + line))
        yield run_network(
            name, method, config, preset=options.preset, seed=options.seed, width=options.width,
            batches=options.batches, device=options.device, beside=options.beside, report=report,
            **options.memory,
        )  # fmt: skip


def _images(shape, seed):
    n, c, h, w = shape
    return np.random.default_rng(seed).standard_normal((n, h, w, c)).astype(np.float32)


def _execute(options, workload: Workload, notes="", **more):
    execution = execute(workload, **{**options.execution, **more})
    return Step(name=workload.name, execution=execution, notes=notes)


def _ragged(options):
    for variant in ("max",) if options.quick else ("baseline", "efficient", "max"):
        config = options.config(variant, **RAGGED)
        for number in range(2 if options.quick else 12):
            seed = options.seed * 1000 + number
            model, shape = random_network(seed)
            workload = prepare(f"ragged {variant} {seed}", model, config, _images(shape, seed))
            yield _execute(options, workload, notes=describe(model, shape))


def _large(options):
    torch.manual_seed(options.seed)
    networks = {
        "5x5 conv": (nn.Conv2d(23, 19, 5, padding=2), (1, 23, 13, 11)),
        "3x3 stride 2": (nn.Conv2d(17, 26, 3, stride=2, padding=1), (2, 17, 15, 15)),
        "linear": (nn.Linear(311, 47), (1, 311)),
        "linear batch": (nn.Linear(97, 33), (70, 97)),
    }
    config = options.config("baseline", **RAGGED)
    for name, (layer, shape) in networks.items():
        images = (
            _images(shape, options.seed)
            if len(shape) == 4
            else np.random.default_rng(options.seed).standard_normal(shape)
        )
        workload = prepare(f"large {name}", nn.Sequential(layer), config, images)
        yield _execute(options, workload, notes=describe([layer], shape))


def _stalls(options):
    for variant in ("max",) if options.quick else ("baseline", "max"):
        config = options.config(variant, **RAGGED)
        for number in range(1 if options.quick else 4):
            seed = options.seed * 2000 + number
            model, shape = random_network(seed)
            share, latency = 0.2 + 0.2 * number, 30 * number
            workload = prepare(f"stalls {variant} {seed}", model, config, _images(shape, seed))
            notes = f"memory pauses {share:.0%} of the time, latency {latency}"
            yield _execute(options, workload, notes, stall_share=share, latency=latency)


def _formats(options):
    for name in ("int8",) if options.quick else ("int8", "fp16"):
        config = options.config("baseline", **{**RAGGED, "operand_format": name})
        for number in range(1 if options.quick else 4):
            seed = options.seed * 3000 + number
            model, shape = random_network(seed)
            workload = prepare(f"{name} {seed}", model, config, _images(shape, seed))
            yield _execute(options, workload, notes=describe(model, shape))


def _placements(options):
    config = options.config("max")
    model, shape = random_network(options.seed + 5)
    shape = (4, *shape[1:])
    for placement in ("main", "split", "pipeline"):
        workload = prepare(
            f"placement {placement}", model, config, _images(shape, 1), placement=placement
        )
        yield _execute(options, workload, notes=describe(model, shape))


def special_workload(config, seed: int) -> Workload:
    """A convolution on operands among which are NaN, infinities, subnormals and extremes."""
    torch.manual_seed(seed)
    shape = (2, 7, 6, 5)
    model = nn.Sequential(nn.Conv2d(7, 9, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(9, 6, 1))
    network = golden_network(model, config, shape[1:])
    fmt = network.format
    codes = special_images(fmt, (2, 6, 5, 7), 0.01, seed)
    first = next(iter(network.parameters.values()))
    bits = [(with_specials(fmt, first.weights_bits, 0.015, seed), first.bias_bits), None]
    return prepare("special values", model, config, _images(shape, 1), input_bits=codes, bits=bits)


def _special(options):
    for variant in ("max",) if options.quick else ("baseline", "max"):
        workload = special_workload(options.config(variant, **RAGGED), options.seed)
        yield _execute(options, workload, notes="NaN, infinities, subnormals, extremes")


CASES = {
    "digits": Case(description="a trained CNN reads handwritten digits", run=_digits),
    "digits-residual": Case(
        description="a residual network with batch normalisation and depthwise layers reads them",
        run=_digits_residual,
    ),
    "train-digits": Case(
        description="a CNN with batch normalisation learns to read digits", run=_train_digits
    ),
    "train-braking": Case(
        description="the same with braked gradients, beside plain ones",
        run=_train_beside_plain("train-braking", train_braking),
    ),
    "train-echo": Case(
        description="the same with four more steps of the head behind every batch, beside plain "
        "backpropagation",
        run=_train_beside_plain("train-echo", train_echo),
    ),
    "train-vcas": Case(
        description="the same from samples of the images, whose size a controller chooses",
        run=_train_beside_plain("train-vcas", train_vcas),
    ),
    "train-adagp": Case(
        description="the same by gradient prediction, in phases that the hardware chooses",
        run=_train_adagp,
    ),
    "train-blocks": Case(
        description=f"{len(BLOCKS)} small networks learn for 3 batches: {', '.join(BLOCKS)}",
        run=_train_blocks,
    ),
    "adagp-blocks": Case(
        description="networks of every layer, bad predictors: 4 batches, every tensor between",
        run=_adagp_blocks,
    ),
    "networks": Case(
        description="networks of the paper, narrow: two batches of backpropagation, four of ADA-GP",
        run=_networks,
    ),
    "ragged": Case(description="random networks on sizes that divide by nothing", run=_ragged),
    "large": Case(description="layers larger than every on-chip memory", run=_large),
    "stalls": Case(description="random networks on a memory that pauses and is late", run=_stalls),
    "formats": Case(description="int8 and fp16", run=_formats),
    "placements": Case(description="two cores: main only, split images, pipeline", run=_placements),
    "special": Case(description="NaN, infinities, subnormals and extremes", run=_special),
}
