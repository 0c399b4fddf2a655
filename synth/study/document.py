"""The synthesis report as one Markdown document."""

from synth.fpga.tables import fmax_summary

from . import paper_figures
from .analysis import (
    METRICS,
    batch_control,
    block_growth,
    equal_baseline,
    luts_per_mac,
    marginal_per_pe,
    measurement_dates,
    overhead_percent,
    predictor_budget,
)
from .conclusions import at_a_glance, equal_baselines, overheads, per_mac, predictor_array
from .plots import VARIANTS_SHOWN
from .sections import blocks, ecp5, memories, standard_cells, xilinx

__all__ = ["analyse", "document", "variants_of"]

#: What the variants differ in: overheads read without this would flatter the hardware.
SCOPE = (
    "Gradient prediction adds no circuit to the accelerators measured here: reorganised maps, the "
    "predictor's layers, its updates and the confidence gate are commands for the engines that "
    "backpropagation has anyway, and all variants have the loop that goes through batches by "
    "phase, which serves plain training as well. So `low` is `baseline` with another number in an "
    "identification register, `efficient` adds a memory with its ports and `max` a memory and a "
    "second core. An overhead close to zero says that, not that prediction costs no time: it takes "
    "cycles of these engines, which the paper's designs spend circuits on."
)

_EQUAL = ("asic_logic", "asic_total", "xc7_lut", "asic_power", "asic_power_total")
_BUDGET = ("asic_logic", "xc7_lut")


def variants_of(designs: dict) -> dict:
    """The designs that are shown: the variants, without the probes."""
    return {variant: designs[variant] for variant in VARIANTS_SHOWN if variant in designs}


def analyse(designs: dict) -> dict:
    """All derived figures, as plain JSON."""
    share = paper_figures.AREA_OVERHEAD_PERCENT["max"]
    shown = variants_of(designs)
    return {
        "overhead_percent": {name: overhead_percent(designs, name) for name in METRICS},
        "marginal_per_pe": {name: marginal_per_pe(designs, name) for name in METRICS},
        "equal_baseline": {name: equal_baseline(designs, name) for name in _EQUAL},
        "predictor_budget": {name: predictor_budget(designs, name, share) for name in _BUDGET},
        "batch_control_percent": batch_control(designs),
        "block_growth": {
            variant: {flow: block_growth(designs, variant, flow) for flow in ("asic", "xc7")}
            for variant in shown
            if variant != "baseline"
        },
        "measured": measurement_dates(designs),
        "luts_per_mac": {variant: luts_per_mac(design) for variant, design in shown.items()},
        "fmax_mhz": {
            variant: fmax_summary(design.get("ecp5", {})) for variant, design in shown.items()
        },
        "probes": {
            name: designs[name]["arrays"][-1]
            for name in ("probe_main", "probe_predictor")
            if name in designs
        },
    }


def document(report: dict, plots: list[tuple[str, str]]) -> str:
    """The report as text.

    ``report`` holds ``preset``, ``command``, ``tools``, ``seconds``, ``designs`` and ``analysis``.
    The same report gives the same text on every day: the dates are those of the measurements.
    """
    designs, analysis = variants_of(report["designs"]), report["analysis"]
    lines = [
        "# Synthesis report",
        "",
        f"Measured{_days(analysis)} by `{report['command']}`; preset `{report['preset']}`"
        + (" (**not the paper's size**)" if report["preset"] != "paper" else "")
        + ".",
        "",
        "Every figure here was measured by the tools named below, or follows from such figures by "
        "the arithmetic stated beside it. What the tools cannot give is called not available. "
        f"Figures of the paper ({paper_figures.SOURCE}) are marked as such; each section says what "
        "of them is compared and what is not.",
        "",
        f"**Scope.** {SCOPE}",
        "",
        *at_a_glance(designs, analysis),
        *overheads(analysis),
        *_plot(plots, "overhead.png"),
        *xilinx(designs),
        *_plot(plots, "area_xc7.png"),
        *ecp5(designs),
        *_plot(plots, "fmax.png"),
        *per_mac(designs, analysis),
        *standard_cells(designs),
        *_plot(plots, "power.png"),
        *memories(designs),
        *blocks(designs),
        *_plot(plots, "area_asic.png"),
        *equal_baselines(analysis),
        *predictor_array(analysis),
        *_origin(report),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _days(analysis):
    """When the figures were measured, for a sentence; empty where no figure says it."""
    dates = [date for both in analysis["measured"].values() for date in both]
    if not dates:
        return ""
    first, last = min(dates), max(dates)
    return f" on {first}" if first == last else f" from {first} to {last}"


def _plot(plots, name):
    return [
        line for file, caption in plots if file == name for line in (f"![{caption}]({file})", "")
    ]


def _commands(measured):
    return measured.get("commands", [measured["command"]] if "command" in measured else [])


def _origin(report):
    """Configurations, tools and commands."""
    commands = list(
        dict.fromkeys(
            command
            for design in report["designs"].values()
            for flow in ("xc7", "ecp5", "asic", "sram")
            for command in _commands(design.get(flow, {}))
        )
    )
    lines = ["## Where the figures come from", "", "Configurations:", ""]
    for name, design in report["designs"].items():
        lines.append(f"- `{name}`: `{design['options']}` ({design['configuration_hash']})")
    versions = ", ".join(f"{name} {version}" for name, version in report["tools"].items())
    lines += ["", f"Tools: {versions}.", ""]
    days = {
        flow: first if first == last else f"{first} to {last}"
        for flow, (first, last) in report["analysis"]["measured"].items()
    }
    if days:
        each = ", ".join(f"`{flow}` {when}" for flow, when in days.items())
        lines += [f"Days of the measurements, which the cache keeps: {each}.", ""]
    if commands:
        lines += ["Single measurements again:", "", "```console", *commands, "```", ""]
    seconds = report.get("seconds")
    if seconds is not None:
        lines += [
            f"The run that collected them took {seconds:.0f} s; what was in the cache was not "
            "measured again.",
            "",
        ]
    return lines
