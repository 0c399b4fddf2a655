"""Folds beside SCALE-Sim: cycles that scalesim==3.0.0 itself found for matrix products."""

import pytest

from perf.analytic.flows import Array, cycles
from perf.analytic.shapes import Product

#: Rows and columns of the array, (M, K, N), cycles weight- and input-stationary: the rows of
#: ``get_demand_matrices()`` of ``systolic_compute_ws`` and ``systolic_compute_is``.
SCALE_SIM = [
    ((12, 15), (100, 27, 64), 2055, 2121),
    ((12, 15), (64, 576, 64), 24240, 24240),
    ((12, 15), (37, 50, 31), 1110, 1020),
    ((8, 10), (100, 27, 64), 3472, 3520),
    ((8, 10), (64, 576, 64), 44352, 44352),
    ((8, 10), (37, 50, 31), 1708, 1540),
]


@pytest.mark.parametrize(("array", "shape", "weights", "inputs"), SCALE_SIM)
def test_beside_scale_sim(array, shape, weights, inputs):
    rows, depth, columns = shape
    product = Product(
        rows=rows, depth=depth, columns=columns, times=1,
        pairs=1, filter_rows=1, output_rows=1, row_cycles=1,
    )  # fmt: skip
    assert cycles("weight-stationary", product, Array(*array)) == weights
    assert cycles("input-stationary", product, Array(*array)) == inputs
