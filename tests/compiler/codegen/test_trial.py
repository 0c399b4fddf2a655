"""The estimate that plans are chosen by, beside that of the linked program."""

import pytest
import torch
from torch import nn

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.cost import estimate
from compiler.codegen.dependencies import Recorder
from compiler.codegen.trial import Trial
from compiler.inference import autotune, schedule
from compiler.inference.compile import compile_network
from hw.config import make_config


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Conv2d(7, 9, 3, padding=1), (3, 7, 8, 8)),
        (lambda: nn.Linear(200, 30), (4, 200)),
    ],
)
def test_the_estimate_is_that_of_the_program(layer, shape, monkeypatch):
    """Of every plan that is tried; a little less, as a semaphore holds few tokens only."""
    config = make_config(variant="baseline", preset="tiny")
    torch.manual_seed(1)
    shares = []
    original = autotune._Planner._cost

    def both(planner, scheduler):
        trial, recorder = Trial(config), Recorder(config, early=True)
        for target in (trial, recorder):
            program = CoreProgram(config, config.cores[0], target)
            schedule.RunScheduler(config, planner.run, scheduler.plan, planner.geometry).write(
                program
            )
        shares.append(trial.timeline.end / estimate(recorder.link(), config))
        return original(planner, scheduler)

    monkeypatch.setattr(autotune._Planner, "_cost", both)
    monkeypatch.setattr(autotune, "_BUDGET", 300)
    monkeypatch.setattr(autotune, "_LEAST_BUDGET", 300)
    compile_network(nn.Sequential(layer()), config, shape)
    assert len(shares) > 5
    assert min(shares) > 0.98 and max(shares) < 1.02, (min(shares), max(shares))
