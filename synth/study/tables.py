"""Markdown tables of the synthesis report, and how figures are written in them."""

__all__ = ["MISSING", "count", "delta", "figure", "percent", "square_mm", "table"]

MISSING = "–"


def table(headings: list[str], rows: list[list[str]], *, left: int = 1) -> list[str]:
    """Lines of a Markdown table; the first ``left`` columns are text, the others figures."""
    marks = ["---" if index < left else "---:" for index in range(len(headings))]
    for row in rows:
        if len(row) != len(headings):
            raise ValueError(f"Row has {len(row)} cells, the table {len(headings)}: {row!r}")
    lines = [headings, marks, *rows]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines] + [""]


def count(value) -> str:
    """A number of things, in groups of three digits."""
    return MISSING if value is None else f"{round(value):,}".replace(",", " ")


def figure(value, digits: int = 2) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def percent(value, digits: int = 1) -> str:
    """A difference in per cent, with its sign."""
    if value is None:
        return MISSING
    text = f"{value:+.{digits}f}"
    return ("±" + text[1:] if not text.strip("+-0.") else text) + " %"


def delta(value, base, digits: int = 1) -> str:
    """How much ``value`` is beyond ``base``, in per cent."""
    if value is None or base is None:
        return MISSING
    if value == base:
        return "="
    if base == 0:
        return "new"
    return percent(100 * (value - base) / base, digits)


def square_mm(square_micrometres) -> str:
    return MISSING if square_micrometres is None else f"{square_micrometres / 1e6:.3f}"
