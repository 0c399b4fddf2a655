"""``python -m compiler``: look into programs, and into the training step of a network."""

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
from compiler.codegen import program_file
from compiler.codegen.disassemble import disassemble
from compiler.tensors.tensor import Tensor
from compiler.training.operators import operator_table
from hw.config import PRESETS, VARIANTS, make_config
from hw.isa.encoding import COMMAND_BYTES

#: What reads a saved program of each kind.
_CLASSES: dict[str, type[CompiledProgram] | type[TrainingProgram] | type[AdaGPProgram]] = {
    "inference": CompiledProgram,
    "training": TrainingProgram,
    "adagp": AdaGPProgram,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m compiler",
        description="Look into compiled programs (to compile, call compiler.compile or "
        "compiler.training.compile_training), or compile a training step and look into that.",
        allow_abbrev=False,
    )
    action = parser.add_mutually_exclusive_group(required=True)
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
    training = parser.add_argument_group("training step (--plan without FILE)")
    training.add_argument(
        "--model", metavar="MODULE:NAME", default="compiler.frontend.example:ResidualCNN",
        help="class or function that makes a torch.nn.Module (default: %(default)s)",
    )  # fmt: skip
    training.add_argument(
        "--input", metavar="C,H,W", help="shape of an image (default: the model's INPUT_SHAPE)"
    )
    training.add_argument("--images", type=int, default=16, help="in a batch (%(default)s)")
    training.add_argument("--loss", default="cross_entropy", help="or mean_squared_error")
    training.add_argument("--variant", choices=tuple(VARIANTS), default="baseline")
    training.add_argument("--preset", choices=tuple(PRESETS), default="tiny")
    training.add_argument("--plot", metavar="FILE.png", help="draw the memory plan, too")
    options = parser.parse_args(arguments)
    try:
        if options.show is not None:
            _show(options.show)
        elif options.operators:
            print(operator_table(), end="")
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
            raise ValueError(f"{options.model} has no INPUT_SHAPE: give --input C,H,W")
    else:
        try:
            shape = tuple(int(size) for size in shape.split(","))
        except ValueError:
            raise ValueError(f"--input must be C,H,W, not {shape!r}") from None
    config = make_config(variant=options.variant, preset=options.preset)
    program = compile_training(model, config, shape, images=options.images, loss=options.loss)
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
        f"{len(program.commands) // COMMAND_BYTES} commands, {program.memory_size} bytes of DRAM, "
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
