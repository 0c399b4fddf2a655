"""Losses by name and as modules of torch."""

import pytest
import torch
from torch import nn

from golden.training.loss_function import LossFunction


def test_names_and_modules():
    assert LossFunction.of("cross_entropy") == LossFunction(kind="cross_entropy")
    module = nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=255)
    found = LossFunction(kind="cross_entropy", smoothing=0.1, ignore=255)
    assert LossFunction.of(module) == found
    binary = LossFunction(kind="binary_cross_entropy")
    assert LossFunction.of(nn.BCEWithLogitsLoss()) == binary
    assert LossFunction.of(nn.MSELoss()) == LossFunction(kind="mean_squared_error")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("hinge", "loss must be one of cross_entropy, .* not 'hinge'"),
        (nn.L1Loss(), "not L1Loss()"),
        (nn.BCEWithLogitsLoss(pos_weight=torch.ones(2)), "must have no pos_weight"),
        (nn.MSELoss(reduction="sum"), "MSELoss must have reduction='mean' and no weight"),
    ],
)
def test_messages(loss, message):
    with pytest.raises(ValueError, match=message):
        LossFunction.of(loss)
