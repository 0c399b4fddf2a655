"""Command line of the generator: ``python -m rtl_gen``."""

from cli.interrupt import end_on_signals

if __name__ == "__main__":
    end_on_signals("rtl_gen")  # before imports that take a second

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from hw.config import PRESETS, VARIANTS, AdaGPConfig, ConfigError
from hw.config.selection import DEFAULT_PRESET, add_settings, select_config

from .generate import generate, top_name
from .output import OutputError, check_replaceable, compare, write

__all__ = ["main"]

_VARIANT_NOTES = {
    "baseline": "one core; plain backpropagation",
    "low": "one core; the predictor's weights come from DRAM for every layer",
    "efficient": "one core and a predictor memory",
    "max": "two cores and a predictor memory",
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rtl_gen",
        description="Generate an accelerator: Verilog with a testbench, manifest, C header, "
        "register documentation and FuseSoC core file.",
        epilog="Exit status: 0 done, 1 --check found a difference, 2 wrong input, 130 interrupted.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--variant", help=f"which cores and memories: {', '.join(VARIANTS)} (default: max)")
    add("--preset", help=f"named sizes: {', '.join(PRESETS)} (default: {DEFAULT_PRESET})")
    add_settings(parser)
    add("--config", metavar="FILE", help="fields from a JSON or TOML file, or from a manifest.json")
    add(
        "--output-dir",
        metavar="DIR",
        type=Path,
        help="where to write (default: build/<variant>-<hash>); replaced if it was generated",
    )
    add("--list", action="store_true", help="list variants, presets and fields")
    add("--dry-run", action="store_true", help="check the input and say what would be written")
    add(
        "--check",
        action="store_true",
        help="generate again and compare with the output directory; writes nothing",
    )
    return parser


def _list() -> None:
    print("Variants (--variant)")
    for name in VARIANTS:
        print(f"  {name:<12} {_VARIANT_NOTES[name]}")
    print("\nPresets (--preset)")
    for name, (note, _) in PRESETS.items():
        print(f"  {name:<12} {note}")
    print("\nFields (--set key=value)")
    for field in dataclasses.fields(AdaGPConfig):
        meta = field.metadata
        if meta["choices"] is not None:
            allowed = ", ".join(map(str, meta["choices"]))
        else:
            allowed = f"{meta['minimum']} to {meta['maximum']}"
        print(f"  {field.name} = {field.default}\n      {meta['doc']} [{allowed}]")


def _summary(config: AdaGPConfig) -> list[str]:
    """Lines about the size of the design."""
    arrays = " + ".join(f"{core.rows} x {core.columns}" for core in config.cores)
    memories = " + ".join(
        f"{words * config.memory_core[memory].word_bytes / 1024:g} KiB"
        for memory, words in config.memory_depth.items()
    )
    return [
        f"variant {config.variant}, configuration {config.hash}, {config.operand_format}",
        f"{config.pes} PEs ({arrays}), on-chip memory {memories}, "
        f"DRAM granule {config.granule_bytes} bytes",
    ]


def _shown(path: Path) -> str:
    """A path as short as it can be written."""
    return min((str(path), os.path.relpath(path)), key=len)


def _run(args: argparse.Namespace) -> int:
    if args.list:
        _list()
        return 0
    problems = []
    config = None
    try:
        config = select_config(
            variant=args.variant, preset=args.preset, settings=args.settings, file=args.config
        )
    except ConfigError as error:
        problems += error.problems
    directory = args.output_dir
    if directory is None and config is not None:
        directory = Path("build", f"{config.variant}-{config.hash}")
    if directory is not None and not args.check:
        try:
            check_replaceable(directory)
        except OutputError as error:
            problems.append(str(error))
    if config is None or problems:
        raise ConfigError(problems)

    for line in _summary(config):
        print(line)
    if args.dry_run:
        print(f"would write {top_name(config)}.v and what belongs to it to {_shown(directory)}")
        return 0

    start = time.perf_counter()
    files = generate(config)
    if args.check:
        differences = compare(directory, files)
        for line in differences:
            print(f"{_shown(directory)}/{line}", file=sys.stderr)
        if not differences:
            print(f"{_shown(directory)} is up to date ({len(files)} files)")
        return 1 if differences else 0
    write(directory, files)
    seconds = time.perf_counter() - start
    print(f"wrote {_shown(directory)} in {seconds:.1f} s:")
    for name, text in files.items():
        print(f"  {name:<20} {len(text.encode()):>9,} bytes")
    print(
        f"next: read registers.md there; `python -m rtl_gen --check --config "
        f"{_shown(directory)}/manifest.json --output-dir {_shown(directory)}` compares it later; "
        "`python -m verif --help` simulates it"
    )
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    args = _parser().parse_args(arguments)
    try:
        return _run(args)
    except ConfigError as error:
        problems = error.problems
    except OutputError as error:
        problems = [str(error)]
    count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
    print(f"rtl_gen: {count}, nothing was written", file=sys.stderr)
    for problem in problems:
        print(f"  {problem}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
