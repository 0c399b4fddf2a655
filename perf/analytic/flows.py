"""Cycles of a product on an array of PEs, by data flow.

Weight- and input-stationary: the fold equation of SCALE-Sim (Samajdar et al., arXiv:1811.02883). A
fold takes 2 R + C + T − 2 cycles: R to load it, R + C − 2 until the array is full and empty again,
and T vectors. Row-stationary: rows of filters are placed on PEs as in Eyeriss (Chen et al., JSSC
2017), and filling the array costs nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from .shapes import Product

__all__ = ["FLOWS", "Array", "cycles"]


@dataclass(frozen=True)
class Array:
    """R rows and C columns of PEs."""

    rows: int
    columns: int

    @property
    def pes(self) -> int:
        """How many there are."""
        return self.rows * self.columns


def _folds(array, held_rows, held_columns, streamed):
    folds = -(-held_rows // array.rows) * -(-held_columns // array.columns)
    return folds * (2 * array.rows + array.columns + streamed - 2)


def _weight_stationary(product: Product, array: Array) -> int:
    """The array holds K × N and M vectors stream through it."""
    return product.times * _folds(array, product.depth, product.columns, product.rows)


def _input_stationary(product: Product, array: Array) -> int:
    """The array holds K × M and N vectors stream through it."""
    return product.times * _folds(array, product.depth, product.rows, product.columns)


def _row_stationary(product: Product, array: Array) -> int:
    """A PE convolves a row of a filter with a row of a map. The filter's rows are below each other,
    output rows beside each other; what is larger than the array is folded, and what is smaller is
    placed several times."""
    down, across = product.filter_rows, product.output_rows
    copies = max(1, array.rows // down) * max(1, array.columns // across)
    folds = -(-down // array.rows) * -(-across // array.columns)
    return -(-product.pairs // copies) * folds * product.row_cycles


#: By name: cycles of (product, array).
FLOWS: dict[str, Callable[[Product, Array], int]] = {
    "weight-stationary": _weight_stationary,
    "row-stationary": _row_stationary,
    "input-stationary": _input_stationary,
}


def cycles(flow: str, product: Product, array: Array) -> int:
    """Of a product; raises ValueError for a flow that is not one of FLOWS."""
    if flow not in FLOWS:
        raise ValueError(f"flow must be one of {', '.join(FLOWS)}, not {flow!r}")
    return FLOWS[flow](product, array)
