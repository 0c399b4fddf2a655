"""``python -m synth fpga``: a whole accelerator on an FPGA: area, fit, place and route."""

import argparse
import contextlib
import json
import re
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from hw.array.pe_array import PEArray
from hw.config.selection import DEFAULT_PRESET, add_settings
from hw.primitives.shared_module import emit_verilog
from rtl_gen.generate import top_name
from synth.common.cache import cached_and_dated, text_hash, tool_versions
from synth.common.command_line import (
    check_json,
    make_kept,
    seed_list,
    selected_config,
    work_directory,
    write_json,
)
from synth.common.emitted_verilog import emitted_verilog
from synth.common.errors import ToolError
from synth.common.hierarchy import block_counts, resources_of, total
from synth.common.reproduce import options_of

from .devices import DEVICES, Device, device_by_name
from .floorplan import METHOD as FLOORPLAN
from .floorplan import prepare
from .nextpnr import MOST_PASSES, PlacementError, place_and_route, program_version
from .synthesis import METHOD, link, synthesize
from .tables import print_devices, print_report

__all__ = ["PARTS", "TARGET_MHZ", "add_arguments", "measure", "misfit", "run"]

#: What the tools aim at unless told otherwise.
TARGET_MHZ = 60.0

#: Where a preset is named after a board: (preset, device) -> the board's package.
_BOARD_PRESET = "ulx3s"
_BOARDS = {(_BOARD_PRESET, "LFE5U-85F"): "CABGA381"}

#: What can be measured.
PARTS = ("accelerator", "array")


def measure(
    config,
    *,
    device,
    seeds=(1, 2, 3),
    target_mhz: float = TARGET_MHZ,
    part: str = "accelerator",
    flat: bool = False,
    refresh: bool = False,
    directory: Path | None = None,
    nextpnr: str | None = None,
    passes: int = MOST_PASSES,
    progress=lambda text: None,
) -> dict:
    """Map a configuration to a device, place and route it once per seed; through the cache.

    Parameters
    ----------
    device : a :class:`~synth.fpga.devices.Device` or the name of one
    seeds : of place and route; none: area alone
    part : of :data:`PARTS`; "array" is the main PE array without anything around it
    flat : map everything at once instead of module by module
    directory : keep netlists and logs there; then the cache is not read
    nextpnr : program that places and routes instead of the one of the pip package
    passes : of router2 after which a seed is given up
    progress : called with one line per step

    Returns
    -------
    dict
        ``resources`` (name -> ``used``, ``available``, ``percent``; the last two may be None),
        ``cells``, ``blocks`` (block -> resource -> used), ``lut4eq_per_mac``, ``fits``,
        ``over`` (resource -> how many too many), ``fmax_mhz`` (seed -> MHz), ``critical_path`` (of
        the slowest seed), ``routes`` (seed -> all about it, or ``error``), ``not_routed`` (why
        there is no place and route, or None), ``device``, ``family``, ``device_note``,
        ``target_mhz``, ``config``, ``pes``, ``command``, ``tools``, ``seconds``, ``date`` (on
        which the last part was measured)

    A design that does not fit is no error: ``fits`` says so, see :func:`misfit`. Raises
    :class:`ToolError` for an unknown device and for trouble with a tool.
    """
    device = device if isinstance(device, Device) else device_by_name(device)
    family = device.details
    verilog, top, pes = _design(config, family.technology, part)
    work = _Work(
        verilog=verilog,
        top=top,
        device=device,
        flat=flat,
        refresh=refresh or directory is not None,
        directory=directory,
        nextpnr=nextpnr,
        passes=passes,
        progress=progress,
    )
    with work:
        mapped = work.synthesis()
        blocks = mapped["blocks"]
        cells = dict(total(blocks))
        used = resources_of(cells, family)
        resources = {}
        for name, number in used.items():
            limit = device.available.get(name)
            share = round(100 * number / limit, 1) if limit else None
            resources[name] = {"used": number, "available": limit, "percent": share}
        over = _over(used, device)
        routes, reason = {}, None
        if over:
            reason = "the design does not fit"
        elif not seeds:
            reason = "no seeds asked for"
        elif family.package is None or not device.options:
            reason = family.reason or "no place and route for this device"
        else:
            for number, seed in enumerate(seeds, 1):
                progress(f"place and route, seed {seed} ({number} of {len(seeds)})")
                routes[str(seed)] = work.route(seed, target_mhz)
    good = {seed: route for seed, route in routes.items() if "error" not in route}
    slowest = min(good.values(), key=lambda route: route["fmax_mhz"], default=None)
    per_mac = used[family.equivalent] / pes if family.equivalent else None
    return {
        "config": config.as_dict(),
        "configuration_hash": config.hash,
        "part": part,
        "pes": pes,
        "device": device.name,
        "family": device.family,
        "device_note": device.note,
        "flat": flat,
        "resources": resources,
        "cells": cells,
        "blocks": {name: resources_of(counts, family) for name, counts in blocks.items()},
        "lut4eq_per_mac": None if per_mac is None else round(per_mac, 2),
        "fits": not over and (bool(good) or not routes),
        "over": over,
        "target_mhz": target_mhz if routes else None,
        "fmax_mhz": {seed: route["fmax_mhz"] for seed, route in good.items()},
        "critical_path": slowest["critical_path"] if slowest else None,
        "routes": routes,
        "not_routed": reason,
        "seconds": mapped["seconds"],
        "date": max([mapped["date"], *(route["date"] for route in routes.values())]),
        "tools": tool_versions() | work.program,
        "command": f"python -m synth fpga {options_of(config)} {_device_options(device, config)}"
        + (f" --seeds {','.join(map(str, seeds))}" if seeds else " --no-route")
        + (f" --freq {target_mhz:g}" if seeds and target_mhz != TARGET_MHZ else "")
        + (" --part array" if part == "array" else "")
        + (" --flat" if flat else "")
        + (f" --nextpnr {nextpnr}" if nextpnr and seeds else "")
        + (f" --passes {passes}" if seeds and passes != MOST_PASSES else ""),
    }


def _device_options(device, config):
    """The options that name a device, whatever its package would be without them."""
    options = f"--device {device.name}"
    usual = device_by_name(device.name)
    if not device.packages:
        return options
    chosen, plain = (dict(zip(d.options[1::2], d.options[2::2])) for d in (device, usual))
    named_after_board = f"--preset {_BOARD_PRESET} " in f"{options_of(config)} "
    if chosen["--package"] != plain["--package"] or named_after_board:
        options += f" --package {chosen['--package']}"
    if chosen["--speed"] != plain["--speed"]:
        options += f" --speed {chosen['--speed']}"
    return options


def _design(config, technology, part):
    """Verilog, top module and number of PEs."""
    if part == "accelerator":
        return emitted_verilog(config, technology), top_name(config), config.pes
    core = config.cores[0]
    array = PEArray(config.format, core.rows, core.columns, lut_rows=core.lut_multiplier_rows)
    return emit_verilog(array, name="adagp_array", technology=technology), "adagp_array", core.pes


def misfit(result: dict) -> str:
    """One line that says by how much the design of a result is too large, "" if it fits."""
    if result["fits"]:
        return ""
    what = f"the design does not fit {result['device']}"
    if result["over"]:
        parts = []
        for name, excess in result["over"].items():
            entry = result["resources"][name]
            parts.append(f"{excess} {name} too many ({entry['used']} of {entry['available']})")
        return f"{what}: {', '.join(parts)}"
    errors = [route["error"] for route in result["routes"].values()]
    full = ", ".join(
        f"{name} {entry['percent']} %"
        for name, entry in result["resources"].items()
        if entry["percent"] is not None
    )
    return (
        f"{what}: its cells are few enough ({full}), but it is not placed and routed: {errors[0]}"
    )


def _over(used, device):
    """Resource -> how many more than the device has."""
    over = {}
    for name, limit in device.available.items():
        number = used.get(name, 0)
        if name == "RAMB36":  # two of the halves share one
            number += -(-used.get("RAMB18", 0) // 2)
        if number > limit:
            over[name] = number - limit
    return over


class _Work:
    """One design on its way through the tools; as a context manager it owns the files."""

    def __init__(self, *, verilog, top, device, flat, refresh, directory, nextpnr, passes,
                 progress):  # fmt: skip
        self.verilog, self.top, self.device = verilog, top, device
        self.flat, self.refresh, self.progress = flat, refresh, progress
        self.directory, self.nextpnr, self.passes = directory, nextpnr, passes
        self.program = {"nextpnr": program_version(nextpnr)} if nextpnr else {}
        family = device.details
        self.key = {
            "verilog": text_hash(verilog),
            "family": json.loads(json.dumps(asdict(family) | {"reason": "", "routing": ()})),
            "flat": flat,
            "method": METHOD,
            "tools": tool_versions(("pyosys",)),
        }
        self.modules = {}
        self.linked = False
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        place = work_directory(self.directory, prefix="synth-fpga-")
        self.directory = self.stack.enter_context(place)
        return self

    def __exit__(self, *error):
        self.stack.close()

    def synthesis(self):
        """``blocks`` (block -> cell type -> count), ``seconds`` that all mapping took, once, and
        the ``date`` of the last of it."""
        self.modules = synthesize(
            self.verilog,
            top=self.top,
            family=self.device.details,
            directory=self.directory,
            flat=self.flat,
            refresh=self.refresh,
            progress=self.progress,
        )
        return {
            "blocks": block_counts(self.modules, self.top),
            "seconds": round(sum(entry["seconds"] for entry in self.modules.values()), 1),
            "date": max(entry["date"] for entry in self.modules.values()),
        }

    def route(self, seed, target_mhz):
        device = self.device
        key = {
            **self.key,
            "device": [device.name, *device.options, device.pins],
            "routing": [*device.details.routing, *device.details.settings.items()],
            "seed": seed,
            "target_mhz": target_mhz,
            "passes": self.passes,
            "floorplan": FLOORPLAN if device.multipliers else 0,
            "tools": tool_versions(("pyosys", device.details.package)) | self.program,
        }
        return cached_and_dated(
            "fpga-route", key, lambda: self._route(seed, target_mhz), refresh=self.refresh
        )

    def _route(self, seed, target_mhz):
        if not self.linked:
            self.progress("linking the netlist")
            device, directory = self.device, self.directory
            link(self.modules, top=self.top, family=device.details, directory=directory)
            if device.multipliers or device.details.settings:
                prepare(directory / "harness.json", device)
            self.linked = True
        try:
            return place_and_route(
                "harness",
                device=self.device,
                seed=seed,
                target_mhz=target_mhz,
                directory=self.directory,
                program=self.nextpnr,
                passes=self.passes,
                progress=self.progress,
            )
        except PlacementError as error:
            return {"error": str(error)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--variant", help="which cores and memories (default: max)")
    add("--preset", help=f"named sizes (default: {DEFAULT_PRESET})")
    add_settings(parser)
    add("--config", metavar="FILE", help="fields from a JSON or TOML file, or a manifest.json")
    add("--device", default="LFE5U-85F", help="see --list (LFE5U-85F)")
    add("--package", help="of an ECP5 (the largest; preset ulx3s on LFE5U-85F: the board's)")
    add("--speed", help="speed grade of an ECP5: 6 (the slowest, default), 7 or 8")
    add("--list", action="store_true", help="list the devices")
    add("--seeds", type=seed_list, default=(1, 2, 3), help="of place and route (1,2,3)")
    add("--freq", type=_megahertz, default=TARGET_MHZ, help=f"MHz to aim at ({TARGET_MHZ:g})")
    add("--no-route", action="store_true", help="area alone")
    add("--nextpnr", metavar="PROGRAM", help="place and route with this one, not the pip package's")
    add("--passes", type=_passes, default=MOST_PASSES, metavar="N",
        help=f"of nextpnr's router2 until a seed is given up ({MOST_PASSES})")  # fmt: skip
    add("--part", choices=PARTS, default=PARTS[0], help="what to measure (accelerator)")
    add("--flat", action="store_true", help="map everything at once: smaller, slower")
    add("--refresh", action="store_true", help="measure again what the cache knows")
    add("--json", type=Path, metavar="FILE", help="write the figures there, too")
    add("--keep", type=Path, metavar="DIR", help="keep netlists and logs there; implies --refresh")


def _passes(text):
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise argparse.ArgumentTypeError(f"must be an integer from 1 to 999999, not {text!r}")
    return int(text)


def _megahertz(text):
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to 1000, not {text!r}")
    return value


def run(arguments: argparse.Namespace) -> None:
    console = Console()
    if arguments.list:
        print_devices(DEVICES.values(), console)
        return
    device = device_by_name(arguments.device)
    package = arguments.package or _BOARDS.get((arguments.preset, device.name))
    device = device.variant(package, arguments.speed)
    check_json(arguments.json)
    make_kept(arguments.keep)
    config = selected_config(arguments, file=arguments.config)
    with Console(stderr=True).status("starting") as status:
        result = measure(
            config,
            device=device,
            seeds=() if arguments.no_route else arguments.seeds,
            target_mhz=arguments.freq,
            part=arguments.part,
            flat=arguments.flat,
            refresh=arguments.refresh,
            directory=arguments.keep,
            nextpnr=arguments.nextpnr,
            passes=arguments.passes,
            progress=status.update,
        )
    write_json(arguments.json, result, indent=1)
    print_report(result, console)
    if not result["fits"]:
        raise ToolError(misfit(result))
