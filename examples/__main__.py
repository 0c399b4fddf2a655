"""Command line of the examples: ``python -m examples``."""

from cli.interrupt import end_on_signals

if __name__ == "__main__":
    end_on_signals("examples")  # before imports that take a second

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.atomic_files import replacing
from compiler import CompileError
from hw.config import PRESETS, VARIANTS, AdaGPConfig, ConfigError
from hw.config.selection import add_settings, select_config
from rtl_gen import output
from rtl_gen.generate import generate

__all__ = ["main", "write_example"]

_DEFAULT_DIRECTORY = Path("build/example")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples",
        description="Write what the examples need: an accelerator (Verilog and C header, in the "
        "folder rtl), a program for it, and the memory before and after.",
        epilog="Example: python -m examples --set rows=8; then see examples/README.md. "
        "Exit status: 0 done, 2 wrong input, 130 interrupted.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--variant", default="baseline", help=f"{', '.join(VARIANTS)} (default: %(default)s)")
    add("--preset", default="tiny", help=f"sizes: {', '.join(PRESETS)} (default: %(default)s)")
    add_settings(parser)
    add(
        "--output-dir",
        metavar="DIR",
        type=Path,
        default=_DEFAULT_DIRECTORY,
        help="where to write (default: %(default)s)",
    )
    return parser


def write_example(config: AdaGPConfig, directory: Path) -> list[Path]:
    """Write the accelerator into ``directory``/rtl and the example beside it; return the files.

    Raises
    ------
    CompileError
        The configuration is too small for the example.
    OutputError, OSError
        The directory cannot be written.
    """
    from .prepare import example_files, make_example  # takes seconds to import

    output.check_replaceable(directory / "rtl")
    run = make_example(config)
    files, rtl = example_files(run), generate(config, run)
    output.write(directory / "rtl", rtl)
    for name, data in files.items():
        with replacing(directory / name) as file:
            file.write(data)
    return [*(directory / "rtl" / name for name in rtl), *(directory / name for name in files)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    args = _parser().parse_args(arguments)
    try:
        config = select_config(
            variant=args.variant, preset=args.preset, settings=args.settings, file=None
        )
        for path in write_example(config, args.output_dir):
            print(f"wrote {path}")
    except ConfigError as error:
        problems = error.problems
    except (CompileError, output.OutputError) as error:
        problems = [str(error)]
    except OSError as error:
        problems = [f"{error.filename}: {error.strerror}"]
    else:
        return 0
    for problem in problems:
        print(f"examples: {problem}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
