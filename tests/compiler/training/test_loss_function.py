"""Losses by name and as modules of torch, and what the host writes for them."""

import numpy as np
import pytest
import torch
from torch import nn

from compiler.errors import CompileError
from compiler.training.batch_input import LossFunction
from compiler.training.compile import compile_training
from compiler.training.loss_function import loss_function
from compiler.training.program import TrainingProgram
from hw.config import make_config


def small_program(loss):
    config = make_config(variant="baseline", preset="tiny")
    return compile_training(nn.Sequential(nn.Linear(3, 5)), config, (3,), images=4, loss=loss)


def test_names_and_modules():
    assert loss_function("mean_squared_error") == LossFunction(kind="mean_squared_error")
    assert loss_function(nn.MSELoss()) == LossFunction(kind="mean_squared_error")
    binary = LossFunction(kind="binary_cross_entropy")
    assert loss_function(nn.BCEWithLogitsLoss()) == loss_function(binary.kind) == binary
    given = nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=255)
    assert loss_function(given) == LossFunction(kind="cross_entropy", smoothing=0.1, ignore=255)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("hinge", "loss must be one of cross_entropy, .* not 'hinge'"),
        (nn.L1Loss(), r"loss must be .* not L1Loss\(\)"),
        (nn.BCEWithLogitsLoss(pos_weight=torch.ones(5)), "pos_weight must be None"),
        (nn.MSELoss(reduction="sum"), "loss MSELoss: reduction must be 'mean', not 'sum'"),
        (nn.CrossEntropyLoss(torch.ones(5)), "classes cannot have weights"),
    ],
)
def test_messages(loss, message):
    with pytest.raises(CompileError, match=message):
        loss_function(loss)


def test_what_the_host_writes(tmp_path):
    """Labels, factors and shifts of a batch in which one label does not count; a saved program
    knows them as well."""
    program = small_program(nn.CrossEntropyLoss(label_smoothing=0.5, ignore_index=-1))
    program.save(tmp_path / "program.bin")
    program = TrainingProgram.load(tmp_path / "program.bin")
    memory = bytearray(program.memory_size)
    for offset, data in program.batch(np.zeros((4, 3)), np.array([2, -1, 0, 4])):
        memory[offset : offset + len(data)] = data

    def stored(name):
        return program.tensors[name].unpack(memory)[:, 0, 0]

    assert stored("targets")[:, 0].tolist() == [2, 0, 0, 4]
    factors = np.full((4, 5), np.float32(1 / 3))
    factors[1] = [0, -np.inf, -np.inf, -np.inf, -np.inf]
    np.testing.assert_array_equal(stored("targets.factors").view(np.float32), factors)
    shift = np.full((4, 5), np.float32(-0.5 / 15))
    shift[1] = 0
    for row, label in ((0, 2), (2, 0), (3, 4)):
        shift[row, label] = np.float32(0.4 / 3)
    np.testing.assert_array_equal(stored("targets.shift").view(np.float32), shift)
    summary = program.tensors["targets.summary"].unpack(memory).view(np.float32)
    np.testing.assert_array_equal(summary[0, 0], np.float32([[1 / 3, 1], [0, -1]]))


def test_labels_are_checked():
    program = small_program(nn.CrossEntropyLoss(ignore_index=7))
    images = np.zeros((4, 3))
    with pytest.raises(ValueError, match=r"labels\[1\] is 5; it must be from 0 to 4, or 7"):
        program.batch(images, np.array([7, 5, 0, 0]))
    with pytest.raises(ValueError, match="all labels are 7; at least one must count"):
        program.batch(images, np.full(4, 7))


def test_targets_of_binary_cross_entropy_are_checked():
    program = small_program("binary_cross_entropy")
    targets = np.full((4, 5), 0.5)
    targets[2, 3] = 1.5
    with pytest.raises(ValueError, match=r"targets\[2, 3\] is 1.5; it must be from 0 to 1"):
        program.batch(np.zeros((4, 3)), targets)
