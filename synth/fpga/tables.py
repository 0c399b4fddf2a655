"""The FPGA report as tables on a terminal."""

import statistics

from rich.table import Table

__all__ = ["fmax_summary", "print_devices", "print_report"]


def print_devices(devices, console) -> None:
    table = Table(title="Devices (--device)")
    for heading in ("device", "family", "resources", "place and route"):
        table.add_column(heading)
    for device in devices:
        resources = ", ".join(f"{count} {name}" for name, count in device.available.items())
        tool = device.details.package if device.options else None
        how = f"{tool}, {device.note}" if tool else f"no: {device.details.reason}"
        table.add_row(device.name, device.family, resources or device.note, how)
    console.print(table)


def print_report(result: dict, console) -> None:
    """Print what :func:`synth.fpga.report.measure` returned."""
    config = result["config"]
    what = config["variant"] if result["part"] == "accelerator" else "PE array"
    title = f"{what}, {result['pes']} PEs of {config['operand_format']}"
    table = Table(title=f"{title} on {result['device']}", caption=_caption(result))
    for heading in ("resource", "used", "available", "%"):
        table.add_column(heading, justify="left" if heading == "resource" else "right")
    for name, entry in result["resources"].items():
        limit, percent = entry["available"], entry["percent"]
        shown = ("" if limit is None else str(limit), "" if percent is None else f"{percent:.1f}")
        table.add_row(name, str(entry["used"]), *shown)
    console.print(table)

    names = list(result["resources"])
    table = Table(title="by block")
    for heading in ("block", *names):
        table.add_column(heading, justify="left" if heading == "block" else "right")
    for block, used in sorted(result["blocks"].items(), key=lambda item: -max(item[1].values())):
        table.add_row(block, *(str(used[name]) if used[name] else "" for name in names))
    console.print(table)
    if result["lut4eq_per_mac"] is not None:
        arrays = sum(
            used["LUT4EQ"] for name, used in result["blocks"].items() if name.endswith("array")
        )
        parts = f"{result['lut4eq_per_mac']:.1f} in all"
        if arrays:
            parts += f", {arrays / result['pes']:.1f} in the array" + (
                "s" if sum(name.endswith("array") for name in result["blocks"]) > 1 else ""
            )
        console.print(f"LUT4 equivalents (LUT4 + 2 CCU2C) per multiply-accumulate: {parts}")
    _print_routes(result, console)
    console.print(f"again: {result['command']}", soft_wrap=True, markup=False, highlight=False)


def _caption(result):
    how = "at once" if result["flat"] else "module by module"
    return f"Mapped by yosys {how} in {result['seconds']:.0f} s; before placement."


def _print_routes(result, console):
    if result["not_routed"]:
        console.print(f"place and route: not available, {result['not_routed']}")
        return
    table = Table(title=f"place and route, {result['device_note']}")
    for heading in ("seed", "Fmax MHz", "logic ns", "routing ns", "critical path", "block"):
        table.add_column(heading, justify="right" if heading.endswith(("MHz", "ns")) else "left")
    for seed, route in result["routes"].items():
        if "error" in route:
            table.add_row(seed, "-", "", "", route["error"], "")
            continue
        path = route["critical_path"]
        if path is None:
            table.add_row(seed, f"{route['fmax_mhz']:.1f}", "", "", "none", "")
            continue
        table.add_row(
            seed,
            f"{route['fmax_mhz']:.1f}",
            f"{path['logic_ns']:.1f}",
            f"{path['routing_ns']:.1f}",
            f"{path['from']} → {path['to']}",
            path["block"],
        )
    console.print(table)
    first = next((route for route in result["routes"].values() if "error" not in route), None)
    if first:
        sites = ", ".join(
            f"{kind} {entry['used']}/{entry['available']}"
            for kind, entry in first["utilisation"].items()
        )
        console.print(f"placed: {sites}")
    if fmax := fmax_summary(result):
        low, middle, high = fmax["min"], fmax["median"], fmax["max"]
        console.print(f"Fmax: min {low:.1f}, median {middle:.1f}, max {high:.1f} MHz")


def fmax_summary(measured: dict) -> dict | None:
    """Least, middle and largest Fmax over the seeds, in MHz."""
    values = list((measured.get("fmax_mhz") or {}).values())
    if not values:
        return None
    return {
        "seeds": len(values),
        "min": min(values),
        "median": statistics.median(values),
        "max": max(values),
    }
