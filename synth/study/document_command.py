"""``python -m synth report``: one document about the area, timing and power of every variant."""

import argparse
import json
import time
from pathlib import Path

from cli.atomic_files import write_whole
from cli.workers import add_workers, workers_of
from hw.config import PRESETS, VARIANTS
from hw.config.selection import DEFAULT_PRESET
from synth.common.cache import tool_versions
from synth.common.command_line import seed_list
from synth.common.errors import ToolError
from synth.common.wheels import WHEELS

from .collect import FLOWS, collect, configurations
from .document import analyse, document, variants_of
from .plots import draw_plots
from .tables import percent

__all__ = ["add_arguments", "run", "write_report"]

#: What takes least. Probes are what baselines of equal cost and the predictor's split are made of.
_QUICK = {
    "preset": "tiny",
    "probes": False,
    "device": "LFE5U-45F",
    "placed": ("baseline",),
    "workload": "tiny",
}
_FULL = {
    "preset": DEFAULT_PRESET,
    "probes": True,
    "device": "LFE5U-85F",
    "placed": tuple(VARIANTS),
    "workload": "conv",
}


def write_report(report: dict, directory: Path, *, figures: bool = True) -> list[Path]:
    """Write ``report.md``, the plots and, with ``figures``, ``report.json``; returns their paths.

    ``report`` holds what :func:`~synth.study.document.document` asks for, without ``analysis``.
    Raises :class:`ToolError` when the directory cannot be written.
    """
    report = {**report, "analysis": analyse(report["designs"])}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        plots = draw_plots(variants_of(report["designs"]), report["analysis"], directory)
        files = {"report.md": document(report, plots)}
        if figures:
            files["report.json"] = json.dumps(report, indent=1) + "\n"
        for name, text in files.items():
            write_whole(directory / name, text)
    except OSError as error:
        raise ToolError(f"Report cannot be written to {directory}: {error}") from None
    return [directory / name for name in (*files, *(file for file, _caption in plots))]


def _flows(text: str) -> tuple[str, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in parts if part not in FLOWS]
    if unknown or not parts:
        raise argparse.ArgumentTypeError(f"must be of {', '.join(FLOWS)}, not {text!r}")
    return tuple(parts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--preset", choices=tuple(PRESETS), help=f"named sizes ({DEFAULT_PRESET}; quick: tiny)")
    add(
        "--quick",
        action="store_true",
        help="the smallest preset and a small workload, ECP5 for `baseline` alone; no probes, so "
        "no baselines of equal cost and no split of the predictor array",
    )
    # None by default: one design of the paper's size takes an hour to place and route, once.
    add("--seeds", type=seed_list, default=(), help="place and route with these, 1,2,3 say (none)")
    add("--device", help="ECP5 to map to (LFE5U-85F; quick: LFE5U-45F)")
    add("--flows", type=_flows, default=tuple(FLOWS), help=f"of {', '.join(FLOWS)} (all)")
    add_workers(parser, jobs=2, what="measurements")
    add("--refresh", action="store_true", help="measure again what is in the cache")
    add(
        "--output-dir", type=Path, default=Path("build", "synth-report"), metavar="DIR",
        help="where to write (build/synth-report)",
    )  # fmt: skip
    add(
        "--from", dest="source", type=Path, metavar="FILE",
        help="measure nothing: write document and plots of the figures in this report.json",
    )  # fmt: skip


def _load(path: Path) -> dict:
    try:
        report = json.loads(path.read_text())
        missing = {"preset", "command", "tools", "designs"} - set(report)
        if missing or "baseline" not in report["designs"]:
            raise ValueError(f"lacks {', '.join(sorted(missing)) or 'the design baseline'}")
    except (OSError, ValueError, TypeError) as error:
        raise ToolError(f"{path} is no report.json: {error}") from None
    return report


def _measure(arguments) -> dict:
    defaults = _QUICK if arguments.quick else _FULL
    preset = arguments.preset or defaults["preset"]
    started = time.monotonic()
    designs = collect(
        configurations(preset, probes=defaults["probes"]),
        flows=arguments.flows,
        device=arguments.device or defaults["device"],
        seeds=arguments.seeds,
        placed=defaults["placed"],
        workload=defaults["workload"],
        refresh=arguments.refresh,
        workers=workers_of(arguments),
    )
    command = "python -m synth report" + (" --quick" if arguments.quick else "")
    for option, value in (
        ("--preset", arguments.preset),
        ("--device", arguments.device),
        ("--seeds", ",".join(map(str, arguments.seeds))),
        ("--flows", arguments.flows != tuple(FLOWS) and ",".join(arguments.flows)),
    ):
        command += f" {option} {value}" if value else ""
    wheels = {wheel.name: wheel.version for wheel in WHEELS.values()}
    return {
        "command": command,
        "preset": preset,
        "tools": {**tool_versions(), **wheels},
        "seconds": round(time.monotonic() - started, 1),
        "designs": designs,
    }


def run(arguments: argparse.Namespace) -> None:
    report = _load(arguments.source) if arguments.source else _measure(arguments)
    files = write_report(report, arguments.output_dir, figures=arguments.source is None)
    analysis = analyse(report["designs"])
    for name, label in (("asic_logic", "standard cells"), ("xc7_lut", "7-series LUT")):
        values = analysis["overhead_percent"][name]
        shown = ", ".join(f"{variant} {percent(value)}" for variant, value in values.items())
        print(f"logic beyond baseline, {label}: {shown}")
    print("wrote " + ", ".join(str(file) for file in files))
