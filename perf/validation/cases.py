"""Programs on which model and RTL are compared: all that verif measures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from hw.config import AdaGPConfig, make_config
from verif.networks.digits import run_digits
from verif.networks.reduced.reduced_networks import METHODS, REDUCED, run_network
from verif.networks.train_adagp import EPOCHS, train_adagp
from verif.networks.train_digits import train_digits
from verif.performance import bench, cycles
from verif.performance.layer_bench import measure_layers
from verif.programs.engine_programs import (
    busy_program,
    loss_program,
    product_program,
    vector_program,
)
from verif.programs.repeat_programs import repeat_program
from verif.system import accelerator
from verif.system.record import BASE

__all__ = ["CASES", "Case", "Point", "points"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A few programs.

    Members
    -------
    work : runs them on the RTL of a configuration
    tiny, paper : variants of the accelerator at these presets. The main core of ``max`` is that of
        the others, so one simulator is enough at ``paper``
    quick : how --quick does it, at ``tiny`` with the first variant; None for not at all
    """

    work: Callable[[AdaGPConfig], object]
    tiny: tuple[str, ...] = ("baseline",)
    paper: tuple[str, ...] = ("max",)
    quick: Callable[[AdaGPConfig], object] | None = None


@dataclass(frozen=True, kw_only=True)
class Point:
    """A case on one accelerator, with one memory."""

    case: str
    variant: str
    preset: str
    latency: int
    work: Callable[[AdaGPConfig], object]

    @property
    def config(self) -> AdaGPConfig:
        return make_config(variant=self.variant, preset=self.preset)


def _run_all(config: AdaGPConfig, programs: list) -> None:
    """Programs of verif/programs one after the other."""
    runs = [
        accelerator.Run(
            image=program.image, program_size=len(program.program),
            registers=getattr(program, "registers", {}),
        )
        for program in programs
    ]  # fmt: skip
    simulator = accelerator.build(config, memory_bytes=BASE + max(len(p.image) for p in programs))
    accelerator.run(simulator, runs, timeout_cycles=1_000_000)


def _engines(config: AdaGPConfig, *, seeds: int) -> None:
    """Random VECTOR and LOSS commands, products, and everything at once."""
    programs = []
    for seed in range(1, seeds + 1):
        programs.append(loss_program(config, seed))
        for core in config.cores:
            programs += [
                product_program(config, core.index, seed),
                vector_program(config, core.index, seed, guard=False),
                busy_program(config, core.index, seed),
            ]
    _run_all(config, programs)


def _loops(config: AdaGPConfig, *, seeds: int) -> None:
    """Random loops of commands."""
    _run_all(
        config,
        [
            repeat_program(config, core.index, seed)
            for seed in range(1, seeds + 1)
            for core in config.cores
        ],
    )


def _network(config: AdaGPConfig, *, name: str, method: str, width: float | None = None) -> None:
    """A batch of each phase; a second one would run the same commands."""
    batches = len(set(METHODS[method]))
    step = run_network(name, method, config, preset="", width=width, batches=batches)
    if step.error:
        raise RuntimeError(f"{name} {method}: {step.error}")


def _bench(config: AdaGPConfig, *, name: str) -> None:
    bench.measure(name, config)


def _cycles(config: AdaGPConfig, *, images: int) -> None:
    """`verif cycles`: its network, a batch of each phase."""
    sizes = config.as_dict()
    variant = sizes.pop("variant")
    cycles.measure(variant, "tiny", images=images, settings=sizes)


_BOTH = ("baseline", "max")
#: Networks that are compared at preset ``paper``, too: one of each kind.
_AT_PAPER = (
    "vgg13", "resnet50", "mobilenet-v2", "densenet121", "inception-v3", "transformer", "yolo-v3",
)  # fmt: skip
#: By name.
CASES: dict[str, Case] = {
    "engines": Case(
        work=partial(_engines, seeds=4), quick=partial(_engines, seeds=1), tiny=_BOTH, paper=()
    ),
    "loops": Case(work=partial(_loops, seeds=4), quick=partial(_loops, seeds=1), tiny=_BOTH),
    "conv": Case(work=partial(_bench, name="conv")),
    "matmul": Case(work=partial(_bench, name="matmul"), tiny=()),
    "layers": Case(work=partial(measure_layers, images=8), quick=partial(measure_layers, images=2)),
    "digits": Case(work=partial(run_digits, images=16), tiny=_BOTH),
    "cycles": Case(work=partial(_cycles, images=8), tiny=_BOTH),
    "train-digits": Case(work=partial(train_digits, batches=2, images=16)),
    "train-adagp": Case(
        work=partial(train_adagp, batches=2 * EPOCHS, images=16), tiny=("max",), paper=()
    ),
    **{
        f"{name}-{method}": Case(
            work=partial(_network, name=name, method=method), tiny=("max",),
            paper=("max",) if name in _AT_PAPER else (),
        )
        for name in REDUCED
        for method in ("bp", "adagp")
    },
    # At its own size, two images of 32 x 32: ten minutes for each latency, or half an hour.
    **{
        f"vgg13-whole-{method}": Case(
            work=partial(_network, name="vgg13", method=method, width=1.0),
            tiny=(), paper=(variant,),
        )
        for method, variant in (("bp", "baseline"), ("adagp", "low"))
    },
}  # fmt: skip


def points(names: list[str], presets: tuple[str, ...], latencies: list[int], *, quick: bool):
    """What is compared, one after the other.

    Raises
    ------
    ValueError
        for a case that there is not.
    """
    if unknown := [name for name in names if name not in CASES]:
        raise ValueError(f"case must be one of {', '.join(CASES)}, not {unknown[0]!r}")
    return list(_points(names or list(CASES), presets, latencies, quick))


def _points(names, presets, latencies, quick) -> Iterator[Point]:
    for name in names:
        case = CASES[name]
        work = case.quick if quick else case.work
        if work is None:
            continue
        for preset, variants in (("tiny", case.tiny), ("paper", case.paper)):
            if preset not in presets or (quick and preset == "paper"):
                continue
            for variant in variants[:1] if quick else variants:
                yield from (
                    Point(case=name, variant=variant, preset=preset, latency=latency, work=work)
                    for latency in latencies
                )
