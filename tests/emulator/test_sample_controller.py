"""What the host measures for VCAS, and what it makes of it."""

import numpy as np
import pytest

from algorithms.vcas.controller import VCASConfig
from emulator.sample_controller import Measured, SampleController

NORMS = {"low": np.ones(10, np.float32), "high": np.array([10] + [1] * 9, np.float32)}


def measured(number, added=0.0):
    """Of batch 0 all gradients are 1, of batch 1 they are -1; sampling adds ``added`` to each."""
    value = np.float32((1, -1)[number] + added)
    return Measured(gradients=dict.fromkeys(NORMS, np.full(3, value)), norms=NORMS)


def run(host, added):
    """Numbers of the batches and ratios of a measurement's runs."""
    measurement, found = host.measure(), []
    wanted = next(measurement)
    while wanted:
        number, ratios = wanted
        found.append((number, dict(ratios)))
        first = len(found) % 3 == 1
        try:
            wanted = measurement.send(measured(number, 0.0 if first else added))
        except StopIteration:
            wanted = None
    return found


def test_runs_of_a_measurement():
    """Of each batch a whole one, then samples; the ratios change behind them."""
    host = SampleController(["low", "high"], VCASConfig(ratio=0.5, smoothing=0.0, norm_step=0.5))
    before, whole = host.ratios, {"low": 1.0, "high": 1.0}
    runs = run(host, added=0.0)
    assert len(runs) == host.runs == 6
    assert runs == [(n, whole if k == 0 else before) for n in (0, 1) for k in range(3)]
    # s is 0.5: of low 5 of 10 images hold half of the norm, of high the first one does.
    assert host.ratios == {"low": 0.5, "high": 0.5}
    assert host.controller.norm == pytest.approx(0.5)


def test_too_much_variance_lets_them_grow():
    host = SampleController(["low", "high"], VCASConfig(ratio=0.5, smoothing=0.0, norm_step=0.2))
    run(host, added=0.0)
    assert host.ratios["low"] == pytest.approx(0.8)
    run(host, added=1.0)  # of a variance of 2
    assert host.ratios == {"low": 1.0, "high": 1.0}


def test_when_it_is_due():
    host = SampleController(["low"], VCASConfig(every=1, repetitions=3))
    assert [number for number in range(1, 6) if host.due(number)] == [3, 4, 5]
    host = SampleController(["low"], VCASConfig(every=4))
    assert [number for number in range(1, 10) if host.due(number)] == [4, 8]
