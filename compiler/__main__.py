"""``python -m compiler``: compile networks, and look into programs."""

from cli.interrupt import end_on_signals

if __name__ == "__main__":
    end_on_signals("compiler")  # before imports that take a second

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler import AdaGPProgram, CompiledProgram, ProgramError, TrainingProgram
from compiler.codegen.binary import program_file
from compiler.codegen.disassemble import disassemble
from compiler.kernels.updates.rules import OPTIMIZERS
from compiler.networks.registry import read_shape
from compiler.tensors.tensor import Tensor
from compiler.training.batch_input import LOSSES
from compiler.training.operators import operator_table
from hw.config import PRESETS, VARIANTS
from hw.config.selection import add_settings, select_config
from hw.isa.encoding import COMMAND_BYTES

#: What reads a saved program of each kind.
_CLASSES: dict[str, type[CompiledProgram] | type[TrainingProgram] | type[AdaGPProgram]] = {
    "inference": CompiledProgram,
    "training": TrainingProgram,
    "adagp": AdaGPProgram,
}

#: Of options whose default is another one with --table.
_DEFAULTS = {"batch": 16, "variant": "baseline", "method": "bp"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m compiler",
        description="Compile a network of the paper and sum up what became of it, or look into "
        "programs that were compiled before. Other networks are compiled by compiler.compile, "
        "compiler.training.compile_training and compiler.adagp.compile_adagp.",
        epilog="example: python -m compiler --network vgg13 --input 3x32x32 --batch 128 "
        "--variant max --method adagp",
        allow_abbrev=False,
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--network",
        metavar="NAME",
        help="compile this network; print its layers, commands, bytes and estimated cycles",
    )
    action.add_argument(
        "--table",
        metavar="FILE",
        help="compile all networks of the paper, each in a process of its own, and keep what "
        "became of them in FILE, a line each; what is there already is not compiled again",
    )
    action.add_argument(
        "--show",
        metavar="FILE",
        help="disassemble a saved program or a raw command stream, one command per line",
    )
    action.add_argument(
        "--plan",
        metavar="FILE",
        nargs="?",
        const="",
        help="print memory map and stages, or steps, of a saved program; without FILE compile a "
        "training step of --model and print its steps and memory plan",
    )
    action.add_argument(
        "--operators",
        action="store_true",
        help="print what a network that is trained may consist of, as in docs/operators.md",
    )
    _add_compilation(parser)
    _add_network(parser)
    plan = parser.add_argument_group("training step (--plan without FILE)")
    plan.add_argument(
        "--model", metavar="MODULE:NAME", default="compiler.frontend.example:ResidualCNN",
        help="class or function that makes a torch.nn.Module (default: %(default)s)",
    )  # fmt: skip
    plan.add_argument("--plot", metavar="FILE.png", help="draw the memory plan, too")
    options = parser.parse_args(arguments)
    if options.table is None:
        for name, value in _DEFAULTS.items():
            if getattr(options, name) is None:
                setattr(options, name, value)
    try:
        if options.show is not None:
            _show(options.show)
        elif options.operators:
            print(operator_table(), end="")
        elif options.network is not None:
            from compiler.networks.command import compile_network

            compile_network(options)
        elif options.table is not None:
            from compiler.networks.results_table import fill_table

            fill_table(options)
        elif options.plan:
            _plan(options.plan)
        else:
            _training(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough; keep the interpreter from complaining at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _add_compilation(parser: argparse.ArgumentParser) -> None:
    """Options of all that compiles."""
    group = parser.add_argument_group("what is compiled (--network, --table, --plan without FILE)")
    group.add_argument(
        "--input",
        metavar="CxHxW",
        help="shape of an image, or lengths of sentences as in 32+32 (default: 3x32x32, or what "
        "the network has; with --table that of the publication, too; with --plan the model's "
        "INPUT_SHAPE)",
    )
    group.add_argument(
        "--batch", "--images", type=int, metavar="IMAGES",
        help="images in a batch (default: 16; with --table 128 of 3x32x32, 16 of "
        "others, fewer where a memory window has no room for them)",
    )  # fmt: skip
    group.add_argument(
        "--loss",
        help=f"{', '.join(LOSSES)} (default: the network's; with --plan cross_entropy)",
    )
    group.add_argument(
        "--optimizer", metavar="NAME", default="sgd", help=f"{', '.join(OPTIMIZERS)} (default: sgd)"
    )
    group.add_argument(
        "--variant", choices=tuple(VARIANTS), help="default: baseline; with --table all"
    )
    group.add_argument("--preset", choices=tuple(PRESETS), help="default: paper; with --plan tiny")
    add_settings(group)


def _add_network(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("networks (--network)")
    group.add_argument(
        "--method", choices=("bp", "adagp"),
        help="backpropagation, or training with predicted gradients as well (default: bp; with "
        "--table bp for baseline, adagp for the others)",
    )  # fmt: skip
    group.add_argument(
        "--classes",
        type=int,
        help="default: 10, from 96x96 pixels on 1000; 20 of a detector, 10000 tokens of a language",
    )
    group.add_argument(
        "--width", type=float, default=1.0, metavar="FACTOR",
        help="what numbers of channels are multiplied by (default: 1)",
    )  # fmt: skip
    group.add_argument("-o", "--output", metavar="FILE", help="save the program")
    group.add_argument("--json", metavar="FILE", help="write what is printed, and more, as JSON")
    group.add_argument(
        "--beside", action=argparse.BooleanOptionalAction,
        help="write work of the vector engine beside products: a batch takes less time, its "
             "program and compiling it take more (default: in long batches)",
    )  # fmt: skip
    group.add_argument(
        "--profile", action="store_true",
        help="say where the time went, and what the commands are for",
    )  # fmt: skip
    table = parser.add_argument_group("all networks (--table)")
    table.add_argument("--only", metavar="NAME,...", help="these networks alone")
    table.add_argument("--again", action="store_true", help="try again what was not compiled")
    table.add_argument(
        "--outdated", action="store_true",
        help="compile again what another state of compiler, hardware or networks has compiled",
    )  # fmt: skip
    table.add_argument(
        "--limit", type=float, default=3600.0, metavar="SECONDS",
        help="that a network may take (default: %(default)g)",
    )  # fmt: skip
    table.add_argument("--document", metavar="FILE.md", help="write all that is there as a page")


def _load(path: str) -> CompiledProgram | TrainingProgram | AdaGPProgram:
    """A saved program of any kind."""
    return _CLASSES[program_file.read(path).kind].load(path)


def _show(path: str) -> None:
    data = Path(path).read_bytes()
    if program_file.is_container(data):
        program = _load(path)
        if isinstance(program, AdaGPProgram):
            lines = _adagp_lines(program)
        else:
            lines = _lines(program)
    elif not data or len(data) % COMMAND_BYTES:
        raise ProgramError(
            f"{path} holds no program: neither a saved one nor a command stream, which has a "
            f"multiple of {COMMAND_BYTES} bytes, not {len(data)}"
        )
    else:
        lines = disassemble(data)
    try:
        for line in lines:
            print(line)
    except BrokenPipeError:
        raise
    except ValueError as error:
        raise ProgramError(f"{path}: {error}") from error


def _lines(
    program: CompiledProgram | TrainingProgram, tensors: Iterable[Tensor] = ()
) -> Iterator[str]:
    """A line per command; ``tensors`` are such as :attr:`tensors` of the program lacks."""
    return disassemble(
        program.commands,
        semaphores=program.semaphores,
        tensors=[*program.tensors.values(), *tensors],
        offset=0 if isinstance(program, CompiledProgram) else program.program,
    )


def _adagp_lines(program: AdaGPProgram) -> Iterator[str]:
    """The commands of all programs in one, each behind a line that names it."""
    for name, part in program.parts.items():
        yield f"# {name}: one batch, at {part.program:#x}"
        yield from _lines(part)
    yield f"# loop: a run of many batches, at {program.loop.program:#x}"
    odd = [replace(tensor, name=f"{name} (odd)") for name, tensor in program.odd.items()]
    yield from _lines(program.loop, odd)


def _training(options: argparse.Namespace) -> None:
    from compiler.tensors.dram_plan_report import draw_plan, print_plan, print_steps
    from compiler.training.compile import compile_training

    model = _model(options.model)
    shape = options.input
    if shape is None:
        shape = getattr(model, "INPUT_SHAPE", None)
        if shape is None:
            raise ValueError(f"{options.model} has no INPUT_SHAPE: give --input CxHxW")
    else:
        shape = read_shape(shape)
    config = select_config(
        variant=options.variant, preset=options.preset or "tiny", settings=options.settings
    )
    program = compile_training(
        model,
        config,
        shape,
        images=options.batch,
        loss=options.loss or "cross_entropy",
        optimizer=options.optimizer,
    )
    print_steps(program)
    print_plan(program.plan)
    if options.plot:
        draw_plan(program.plan, options.plot)


def _model(name: str) -> Any:
    """What the factory called MODULE:NAME makes; raises ValueError."""
    module, colon, factory = name.partition(":")
    if not colon:
        raise ValueError(f"--model must be MODULE:NAME, not {name!r}")
    try:
        return getattr(importlib.import_module(module), factory)()
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"--model {name}: {error}") from error


def _plan(path: str) -> None:
    program = _load(path)
    if isinstance(program, CompiledProgram):
        _inference_plan(program)
        return
    from compiler.tensors.dram_plan_report import print_plan, print_steps

    if isinstance(program, AdaGPProgram):
        for name, part in program.parts.items():
            print(f"{name}:")
            print_steps(part)
    else:
        print_steps(program)
    print_plan(program.plan)


def _inference_plan(program: CompiledProgram) -> None:
    config = program.config
    print(f"variant {config.variant}, {config.operand_format}, configuration {config.hash}")
    print(
        f"{len(program.command_list)} commands, {program.memory_size} bytes of DRAM, "
        f"estimated {program.estimated_cycles} cycles"
    )
    print(f"\n{'offset':>10} {'bytes':>10}  tensor")
    for tensor in program.tensors.values():
        shape = "x".join(str(size) for size in tensor.shape)
        print(f"{tensor.offset:#10x} {tensor.size:10}  {tensor.name} {shape} {tensor.kind}")
    for stage in program.stages:
        print(
            f"\n{stage.name}: {' + '.join(stage.layers)}: {stage.macs} MACs in "
            f"{stage.vector_cycles} vector cycles, tiling efficiency {stage.efficiency:.4f}"
        )
        for run in stage.runs:
            print("  " + ", ".join(f"{name} {value}" for name, value in run.items()))


if __name__ == "__main__":
    sys.exit(main())
