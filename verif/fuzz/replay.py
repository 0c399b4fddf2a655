"""The file of a finding: written by a campaign, run again by ``--replay``."""

import json
from pathlib import Path

from cli.atomic_files import write_whole
from compiler.codegen.disassemble import disassemble
from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES

from .case import case_from_json
from .good import good_programs
from .harness import Finding, Harness, build

__all__ = ["found", "listing", "read", "replay", "write"]


def listing(case) -> list[str]:
    """The commands as text, for whoever reads the file."""
    lines = []
    for number, command in enumerate(case.commands):
        data = command.to_bytes(COMMAND_BYTES, "little")
        try:
            line = next(iter(disassemble(data))).split(None, 1)[1]
        except ValueError as error:
            line = str(error).partition(": ")[2]
        lines.append(f"{number}: {line}")
    return lines


def write(path, config, good_seed, cases, finding) -> None:
    """Write a finding to ``path``."""
    content = {
        "finding": {"kind": finding.kind, "text": finding.text},
        "config": config.as_dict(),
        "good_seed": good_seed,
        "programs": [listing(case) for case in cases],
        "cases": [case.as_json() for case in cases],
    }
    write_whole(path, json.dumps(content, indent=1) + "\n")


def read(path) -> tuple:
    """(configuration, seed of the good programs, cases, kind) of a file.

    Raises
    ------
    ValueError
        naming the file, if it is not one of :func:`write`'s.
    """
    try:
        content = json.loads(Path(path).read_text())
        cases = [case_from_json(values) for values in content["cases"]]
        return (
            AdaGPConfig(**content["config"]), content["good_seed"], cases,
            content["finding"]["kind"],
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path} is not the file of a finding: {error}") from error


def replay(path, *, waves: Path | None = None) -> tuple[list, str]:
    """Results of a file's cases, and the kind of finding that it is about."""
    config, good_seed, cases, kind = read(path)
    program = build(config, good_programs(config, good_seed), waves=waves is not None)
    with Harness(program, waves=waves) as harness:
        results = harness.run(cases)
    return results, kind


def found(results) -> Finding | None:
    """The first finding among results."""
    return next((result for result in results if isinstance(result, Finding)), None)
