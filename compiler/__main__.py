"""``python -m compiler --show FILE``: print the commands of a program."""

import argparse
import os
import sys
from pathlib import Path

from hw.commands import COMMAND_BYTES

from .disassemble import disassemble
from .program import CompiledProgram, ProgramError, is_container


def main(arguments=None):
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m compiler",
        description="Look into compiled programs (to compile, call compiler.compile).",
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--show",
        metavar="FILE",
        help="disassemble a saved program or a raw command stream, one command per line",
    )
    action.add_argument(
        "--plan", metavar="FILE", help="print memory map, stages and tiles of a saved program"
    )
    options = parser.parse_args(arguments)
    try:
        if options.show is not None:
            _show(options.show)
        else:
            _plan(options.plan)
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


def _show(path):
    data = Path(path).read_bytes()
    if is_container(data):
        program = CompiledProgram.load(path)
        lines = disassemble(
            program.commands,
            per_core=program.config.semaphores,
            tensors=program.tensors.values(),
        )
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


def _plan(path):
    program = CompiledProgram.load(path)
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
