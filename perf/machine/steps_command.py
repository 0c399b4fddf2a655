"""``python -m perf steps``: what batches take, for comparisons of methods."""

import argparse
import json
from pathlib import Path
from typing import Any

from algorithms.networks.registry import MODELS, SMALL
from cli.atomic_files import write_whole
from compiler.adagp.compile import compile_adagp
from compiler.networks.registry import InputShape, read_shape
from compiler.training.compile import compile_training
from hw.config import PRESETS, VARIANTS, AdaGPConfig
from hw.config.selection import add_settings

from .command import LATENCY_CYCLES, machine_of
from .layers import batches_of, time_batch

__all__ = ["add_steps", "step_cycles"]

#: Programs of a batch by name, but for "echoK": arguments of the compiler.
_PROGRAMS: dict[str, dict[str, Any]] = {
    "bp": {}, "braked": {"optimizer": "braked"}, "adam": {"optimizer": "adam"}, "adagp": {},
}  # fmt: skip


def add_steps(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "steps",
        help="cycles of batches by method, for algorithms compare --cycles",
        description="Compile batches of networks and run them on the model of the machine. "
        "What the file has of the same machine already is kept.",
        epilog="example: python -m perf steps --model vgg --input 1x8x8 --batch 64 32 --program bp "
        "echo4 -o cycles.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(action=_steps)
    add = command.add_argument
    add("--model", nargs="+", choices=tuple(MODELS), default=tuple(SMALL), metavar="NAME",
        help=f"of {', '.join(MODELS)} (default: {' '.join(SMALL)})")  # fmt: skip
    add("--input", metavar="CxHxW", default="1x8x8", help="images (default: 1x8x8)")
    add("--classes", type=int, default=10, help="default: 10")
    add("--batch", type=int, nargs="+", default=[64], metavar="IMAGES", help="default: 64")
    add(
        "--program",
        nargs="+",
        default=["bp"],
        metavar="NAME",
        help=f"{', '.join(_PROGRAMS)}, or echoK: bp with K steps of the head (default: bp)",
    )
    add("--variant", choices=tuple(VARIANTS), default="max", help="default: max")
    add("--preset", choices=tuple(PRESETS), help="default: paper")
    add("--latency", type=int, default=LATENCY_CYCLES, metavar="CYCLES",
        help="that memory adds to every burst (default: %(default)s)")  # fmt: skip
    add("-o", "--output", metavar="FILE.json", required=True, help="written, or added to")
    add_settings(command)


def _steps(options) -> int:
    config = machine_of(options)
    preset = options.preset or "paper"
    machine = f"{config.variant} at {preset}, {config.hash}, memory latency {options.latency}"
    shape = read_shape(options.input)
    path, known = Path(options.output), {}
    if path.is_file():
        document = json.loads(path.read_text())
        if document.get("machine") != machine:
            raise ValueError(f"{path} is of {document.get('machine')}, not of {machine}")
        known = {_key(each): each for each in document["steps"]}
    for model in options.model:
        for images in options.batch:
            for program in options.program:
                cycles = step_cycles(
                    config, model, shape, images, program, classes=options.classes,
                    latency=options.latency,
                )  # fmt: skip
                each = {"model": model, "shape": list(shape), "images": images,
                        "program": program, "cycles": cycles}  # fmt: skip
                known[_key(each)] = each
                shown = ", ".join(f"{kind} {count:,}" for kind, count in cycles.items())
                print(f"{model} {options.input}, {images} images, {program}: {shown}", flush=True)
                steps = [known[key] for key in sorted(known)]
                write_whole(path, json.dumps({"machine": machine, "steps": steps}, indent=1) + "\n")
    return 0


def _key(each):
    return each["model"], tuple(each["shape"]), each["images"], each["program"]


def step_cycles(
    config: AdaGPConfig, model: str, shape: InputShape, images: int, program: str, *,
    classes: int, latency: int,
) -> dict[str, int]:  # fmt: skip
    """Cycles of a batch by its kind, "bp" and of ADA-GP "gp".

    Raises
    ------
    ValueError
        if there is no such program, or as the compiler.
    """
    number = program.removeprefix("echo")
    echo = program.startswith("echo") and number.isdecimal() and int(number) > 0
    if program not in _PROGRAMS and not echo:
        raise ValueError(f"program must be {', '.join(_PROGRAMS)} or echoK, not {program!r}")
    options = {"echo": int(number)} if echo else _PROGRAMS[program]
    network = MODELS[model](shape, classes)
    compiled = (compile_adagp if program == "adagp" else compile_training)(
        network, config, shape, images=images, **options
    )
    return {
        kind: time_batch(batch, latency=latency, exact=False).result.cycles
        for kind, batch in batches_of(compiled).items()
    }
