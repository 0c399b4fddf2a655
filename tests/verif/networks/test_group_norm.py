"""Normalisation over groups where maps do not fit, against golden bit for bit.

Covers: compiler/kernels/normalization/group_norm.py,
compiler/kernels/normalization/channel_sums.py, compiler/training/group_steps.py.
"""

import pytest
from torch import nn

from hw.config import make_config
from verif.networks.train_blocks import block_run


@pytest.mark.parametrize(
    ("channels", "groups", "shape", "depth"),
    [
        (26, 13, (3, 2, 2), 32),  # vectors in parts
        pytest.param(8, 2, (3, 9, 11), 16, marks=pytest.mark.long),  # images in bands
    ],
)
def test_in_a_small_buffer(channels, groups, shape, depth, rng, seed):
    def network():
        return nn.Sequential(
            nn.Conv2d(3, channels, 1), nn.GroupNorm(groups, channels), nn.ReLU(),
            nn.Conv2d(channels, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip

    config = make_config(variant="baseline", preset="tiny", buffer_bank_depth=depth)
    run = block_run(network, config, rng, shape=shape, classes=2, batches=1, images=2, reuse=False)
    result = run.interpret(seed)
    assert result.passed, "\n".join(map(str, result.differences[:5]))


def test_without_weight_and_bias(rng, seed):
    def network():
        return nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.GroupNorm(3, 6, affine=False), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 2),
        )  # fmt: skip

    config = make_config(variant="baseline", preset="tiny")
    run = block_run(
        network, config, rng, shape=(3, 6, 5), classes=2, batches=2, images=3, reuse=False
    )
    result = run.interpret(seed)
    assert result.passed, "\n".join(map(str, result.differences[:5]))
    assert not any(name.startswith("1.") for name in run.model.state_dict())


@pytest.mark.long
def test_on_the_accelerator(rng, seed):
    config = make_config(variant="baseline", preset="tiny")
    result = block_run("groups", config, rng, batches=2, images=3, reuse=False).simulate(seed=seed)
    assert result.passed, "\n".join(map(str, result.differences[:5]))
