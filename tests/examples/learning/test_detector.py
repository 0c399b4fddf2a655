"""A detector learns to find digits: its first batch on the RTL, and to the end."""

import pytest

from examples.learning import detector
from hw.config import make_config


@pytest.mark.long
def test_it_learns_to_find_digits():
    config = make_config(variant="baseline", preset="tiny")
    learned = detector.run(config, 400, device="rtl", on_device=1)
    assert learned.result.passed
    assert len(detector.judge(learned)) == 3
    for own in detector.scores(learned):
        # A tenth of the digits would be found by chance.
        assert own.found > 0.4 and own.false < 0.1 and own.pixels < 2
