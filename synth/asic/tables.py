"""The standard-cell report as tables on a terminal."""

from rich import box
from rich.console import Console
from rich.table import Table

__all__ = ["print_report"]


def print_report(result: dict, console: Console) -> None:
    """Print what :func:`synth.asic.report.measure` returned."""
    config, total = result["config"], result["area_um2"]["total"]
    node = f"{result['node_nm']} nm, " if result["node_nm"] else ""
    table = Table(
        box=box.SIMPLE,
        title=f"{config['variant']} in {result['library']} ({node}{result['corner']}, "
        f"{result['supply_v']:g} V, {result['temperature_c']:g} °C)",
        caption="Logic without memories. " + result["basis"][0].upper() + result["basis"][1:] + ".",
    )
    table.add_column("block")
    for heading in ("area / µm²", "share"):
        table.add_column(heading, justify="right")
    for block, area in result["blocks"].items():
        table.add_row(block, f"{area:,.0f}", f"{100 * area / total:.1f} %")
    table.add_section()
    for name in ("combinational", "buffers_inverters", "sequential", "total"):
        label = {"buffers_inverters": "  of it buffers and inverters"}.get(name, name)
        area = result["area_um2"][name]
        table.add_row(label, f"{area:,.0f}", f"{100 * area / total:.1f} %")
    console.print(table)
    for name, reason in result["not_available"].items():
        console.print(f"{name}: not available ({reason})")
    timing = result["timing"]
    if timing["fmax_mhz"] is None:
        return
    console.print(
        f"\nFmax {timing['fmax_mhz']:.0f} MHz ({timing['period_ns']:.3f} ns); between registers "
        f"alone {timing['register_to_register_ns'] or 0:.3f} ns"
    )
    table = Table(box=box.SIMPLE, title="Worst paths, one for each pair of blocks")
    for heading in ("ns", "gates", "from", "to"):
        table.add_column(heading, justify="right" if heading in ("ns", "gates") else "left")
    for path in timing["paths"]:
        row = f"{path['ns']:.3f}", str(path["gates"]), path["from"], path["to"]
        table.add_row(*row)
    console.print(table)
    if "power_mw" in result:
        _print_power(result, console)


def _print_power(result, console):
    power, memory = result["power_mw"], result["memory_power_mw"]
    table = Table(
        box=box.SIMPLE,
        title=f"Power at {power['clock_mhz']:g} MHz",
        caption=f"{power['activity']}. {power['basis'][0].upper()}{power['basis'][1:]}.",
    )
    table.add_column("logic")
    table.add_column("mW", justify="right")
    for name in ("internal", "switching", "leakage", "total"):
        table.add_row(name, f"{power[name]:.2f}")
    table.add_row("  of it clock", f"{power['clock']:.2f}")
    table.add_section()
    for name, value in result["power_by_block_mw"].items():
        table.add_row(name, f"{value:.2f}")
    table.add_section()
    table.add_row("memories, accesses", f"{memory['dynamic']:.2f}")
    table.add_row("memories, leakage", f"{memory['leakage']:.2f}")
    console.print(table)
