"""What follows from the measurements: overheads, equal-area and equal-power baselines, budgets.

Everything here is arithmetic on dictionaries of measured figures; nothing is measured here. A
figure that cannot be derived because something was not measured is None.

The dictionaries: ``designs`` maps a name to ``{"pes", "arrays", "xc7", "ecp5", "asic", "sram"}``,
the last four as the ``measure`` functions of :mod:`synth.fpga.report`, :mod:`synth.asic.report` and
:mod:`synth.sram.report` return them. Besides the four variants there are two *probes*, which only
serve to find what one more column costs: ``probe_main`` (``baseline`` with more columns) and
``probe_predictor`` (``max`` with fewer columns in the predictor array).
"""

from synth.asic.area import block_of

__all__ = [
    "METRICS",
    "area_by_block",
    "batch_control",
    "block_growth",
    "equal_baseline",
    "luts_per_mac",
    "marginal_per_pe",
    "measurement_dates",
    "metric",
    "overhead_percent",
    "predictor_budget",
]

#: Name -> (unit, what it is).
METRICS = {
    "asic_logic": ("um2", "standard-cell area of the logic"),
    "asic_memory": ("um2", "SRAM area"),
    "asic_total": ("um2", "logic and SRAM area"),
    "asic_power": ("mW", "power of the logic"),
    "asic_power_total": ("mW", "power of logic and SRAM"),
    "xc7_lut": ("LUT", "Xilinx 7-series look-up tables"),
    "xc7_ff": ("FF", "Xilinx 7-series flip-flops"),
    "xc7_ram": ("RAMB36", "Xilinx 7-series block RAM, two RAMB18 counted as one RAMB36"),
    "ecp5_lut4eq": ("LUT4", "ECP5 look-up tables, carry cells counted as two"),
}


def metric(design: dict, name: str) -> float | None:
    """One figure of a design, None where it was not measured.

    ``name`` is one of :data:`METRICS`.
    """
    if name == "asic_logic":
        return _get(design, "asic", "area_um2", "total")
    if name == "asic_memory":
        return _get(design, "sram", "area_um2")
    if name == "asic_total":
        parts = (metric(design, "asic_logic"), metric(design, "asic_memory"))
        return None if None in parts else sum(parts)
    if name == "asic_power":
        return _get(design, "asic", "power_mw", "total")
    if name == "asic_power_total":
        memory = _get(design, "asic", "memory_power_mw") or {}
        parts = (metric(design, "asic_power"), memory.get("dynamic"), memory.get("leakage"))
        return None if None in parts else sum(parts)
    if name == "xc7_ram":
        whole, halves = (
            _get(design, "xc7", "resources", kind, "used") for kind in ("RAMB36", "RAMB18")
        )
        return None if whole is None else whole + (halves or 0) / 2
    device, resource = {
        "xc7_lut": ("xc7", "LUT"),
        "xc7_ff": ("xc7", "FF"),
        "ecp5_lut4eq": ("ecp5", "LUT4EQ"),
    }[name]
    return _get(design, device, "resources", resource, "used")


def _get(value, *path):
    for step in path:
        if not isinstance(value, dict) or value.get(step) is None:
            return None
        value = value[step]
    return value


def overhead_percent(designs: dict, name: str) -> dict[str, float | None]:
    """Variant -> how much more of a metric it takes than ``baseline``, in per cent."""
    base = metric(designs["baseline"], name)
    result = {}
    for variant in ("low", "efficient", "max"):
        value = metric(designs.get(variant, {}), name)
        usable = value is not None and base
        result[variant] = 100 * (value - base) / base if usable else None
    return result


def marginal_per_pe(designs: dict, name: str) -> float | None:
    """What one more PE of the main array costs: the slope from ``baseline`` to ``probe_main``."""
    base, wider = designs["baseline"], designs.get("probe_main", {})
    low, high = metric(base, name), metric(wider, name)
    if low is None or high is None or wider["pes"] == base["pes"]:
        return None
    return (high - low) / (wider["pes"] - base["pes"])


def equal_baseline(designs: dict, name: str) -> dict[str, dict | None]:
    """Variant -> the baseline that takes as much of a metric: more PEs, whole columns.

    ``extra_pes`` is a real number, ``columns`` the columns that fit entirely.
    """
    base = designs["baseline"]
    slope, start = marginal_per_pe(designs, name), metric(base, name)
    rows, columns = base["arrays"][0]
    result = {}
    for variant in ("low", "efficient", "max"):
        value = metric(designs.get(variant, {}), name)
        if value is None or not slope or slope < 0:
            result[variant] = None
            continue
        extra = (value - start) / slope
        result[variant] = {
            "extra_pes": extra,
            "columns": columns + int(extra // rows) if extra >= 0 else columns,
            "rows": rows,
            "pes_percent": 100 * extra / base["pes"],
        }
    return result


def area_by_block(design: dict, flow: str) -> dict[str, float] | None:
    """Block -> area: square micrometres (``asic``) or look-up tables (``xc7``, ``ecp5``).

    Blocks have the names of :func:`synth.asic.area.block_of` in all of them.
    """
    blocks = _get(design, flow, "blocks")
    if blocks is None:
        return None
    if flow == "asic":
        return dict(blocks)
    key = "LUT" if flow == "xc7" else "LUT4EQ"
    found: dict[str, float] = {}
    for path, resources in blocks.items():
        block = block_of(path)
        found[block] = found.get(block, 0) + resources.get(key, 0)
    return found


def batch_control(designs: dict) -> dict[str, float]:
    """Flow -> per cent of the baseline's logic in the loop over batches and phases, which every
    variant has."""
    found = {}
    for flow in ("asic", "xc7"):
        blocks = area_by_block(designs["baseline"], flow) or {}
        own = blocks.get("batch control")
        if own is not None:
            found[flow] = 100 * own / sum(blocks.values())
    return found


def block_growth(designs: dict, variant: str, flow: str) -> dict[str, float] | None:
    """Block -> area that ``variant`` has beyond ``baseline``, in per cent of all of baseline."""
    old, new = area_by_block(designs["baseline"], flow), area_by_block(designs[variant], flow)
    if old is None or new is None or not sum(old.values()):
        return None
    whole = sum(old.values())
    growth = {
        block: 100 * (new.get(block, 0) - old.get(block, 0)) / whole
        for block in dict.fromkeys([*old, *new])
    }
    return {block: value for block, value in growth.items() if value}


def predictor_budget(designs: dict, name: str, percent: float) -> dict | None:
    """The predictor array that ``percent`` of the baseline's area buys.

    The area of ``max`` beyond ``baseline`` is split by the slope from ``probe_predictor`` to
    ``max``: what grows with the columns of the predictor array, and the rest, which is there with
    any array.

    Returns
    -------
    dict
        ``budget``, ``beyond_baseline``, ``per_column`` and ``fixed`` in the metric's unit;
        ``array_alone_pes``: PEs for the whole budget if nothing but columns were needed;
        ``columns``: columns (of the predictor's rows) for what the budget leaves beyond
        ``fixed``, 0 where that alone exceeds it
    """
    base, full = designs["baseline"], designs.get("max", {})
    narrower = designs.get("probe_predictor", {})
    values = [metric(design, name) for design in (base, full, narrower)]
    if None in values or len(full["arrays"]) < 2:
        return None
    rows, columns = full["arrays"][1]
    fewer = narrower["arrays"][1][1]
    if fewer == columns:
        return None
    per_column = (values[1] - values[2]) / (columns - fewer)
    beyond = values[1] - values[0]
    fixed = beyond - per_column * columns
    budget = values[0] * percent / 100
    if per_column <= 0:
        return None
    return {
        "percent": percent,
        "budget": budget,
        "beyond_baseline": beyond,
        "per_column": per_column,
        "fixed": fixed,
        "fixed_percent": 100 * fixed / values[0],
        "array_percent": 100 * per_column * columns / values[0],
        "rows": rows,
        "array_alone_pes": budget / per_column * rows,
        "columns": max(0, int((budget - fixed) // per_column)),
    }


def measurement_dates(designs: dict) -> dict[str, list[str]]:
    """Flow -> the first and the last day on which what it says was measured."""
    found = {}
    for flow in ("sram", "asic", "xc7", "ecp5"):
        dates = [_get(design, flow, "date") for design in designs.values()]
        known = sorted(date for date in dates if date)
        if known:
            found[flow] = [known[0], known[-1]]
    return found


def luts_per_mac(design: dict) -> dict | None:
    """ECP5 look-up tables (LUT4 + 2 CCU2C) for each multiply-accumulate unit.

    ``array``: of the PE arrays alone; ``accelerator``: of everything.
    """
    blocks, whole = area_by_block(design, "ecp5"), metric(design, "ecp5_lut4eq")
    if blocks is None or whole is None:
        return None
    arrays = sum(value for block, value in blocks.items() if block.endswith("array"))
    return {
        "array": arrays / design["pes"],
        "accelerator": whole / design["pes"],
        "array_luts": arrays,
        "accelerator_luts": whole,
        "multipliers": _get(design, "ecp5", "resources", "MULT18X18D", "used"),
    }
