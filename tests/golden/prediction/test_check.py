"""The check of predictions notices what is wrong."""

import numpy as np
import pytest

from golden.arithmetic.dot_product import decode
from golden.arithmetic.formats import BF16, FLOAT32
from golden.prediction.check import PredictionCheck
from golden.prediction.schedule import Phase
from tests.golden.conftest import make_predicted

pytestmark = pytest.mark.usefixtures("one_thread")

CHANGES = {
    "a[": lambda part: part.cells,
    "A[": lambda part: part.standardized,
    "Hw[": lambda part: part.predictor.hidden_sums,
    "H[": lambda part: part.predictor.hidden,
    "out[": lambda part: part.predictor.output,
    "g[": lambda part: part.gradient,
    "E[": lambda part: part.error,
    "dV[": lambda part: part.learned.weights,
    "dHw[": lambda part: part.learned.hidden_sums,
    "dH[": lambda part: part.learned.hidden,
    "dT[": lambda part: part.learned.toeplitz,
    "dtaps[": lambda part: part.learned.taps,
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_check_notices_a_change(what, seed):
    """The largest number of a tensor moved by 2 ** -6 of itself (float32), or by two operands."""
    training, batches, _ = make_predicted("residual", seed)
    training.step(*next(batches), Phase.BP)
    before = training.state()
    result = training.step(*next(batches), Phase.BP)
    values = CHANGES[what](result.layers["down"])
    wide = values.dtype == np.uint32
    place = np.unravel_index(
        np.abs(decode(FLOAT32 if wide else BF16, values)).argmax(), values.shape
    )
    values[place] += 1 << 17 if wide else 2
    found = PredictionCheck(training, before, result).complaints
    assert any(text.startswith(f"down: {what}") for text in found), found


@pytest.mark.parametrize("name", ["taps", "weights", "velocity", "toeplitz", "operands"])
def test_the_check_notices_a_change_of_the_predictor(name, seed):
    training, batches, _ = make_predicted("depthwise", seed)
    before = training.state()
    result = training.step(*next(batches), Phase.BP)
    getattr(training.predictor, name)[3, 1] ^= 1
    assert PredictionCheck(training, before, result).complaints
